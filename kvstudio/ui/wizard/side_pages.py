"""Pages beside the walk itself: what it starts from, and why something is not proposed."""

from dataclasses import replace

from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import NotOffered
from kvstudio.devices.values import Device
from kvstudio.ui import text
from kvstudio.ui.command_words import homed
from kvstudio.ui.wizard.from_plan import caption, competing_notice, wizard_view
from kvstudio.ui.wizard.values import Action, Fact, Page, WizardView
from kvstudio.units import format_gib, format_room


def baseline_view(plan: Plan, resumed: bool = False) -> WizardView:
    """The first page: what everything after it is compared with."""
    world = plan.world
    build = f"b{world.build}" if world.build else text.tr("unknown build")
    name = world.binary.title if world.binary else build
    rows = [Fact(text.tr("Program"), name, homed(world.binary.path) if world.binary else "")]
    if world.binary is not None and world.binary.version:
        rows.append(Fact(text.tr("Version"), world.binary.version, ", ".join(world.binary.backends)))
    for device in (*world.devices, *((world.host,) if world.host else ())):
        rows.append(_device_row(device))
    for other in world.binaries:
        rows.append(Fact(text.tr("Other build"), other.title, homed(other.path)))
    notice = competing_notice(plan)
    if resumed:
        notice = text.tr("A walk of this command was not finished; it goes on after its {} runs.").format(
            len(plan.attempts)
        )
    page = Page(
        section=text.tr("Baseline"),
        title=text.tr("What everything is compared with"),
        notice=notice,
        why=text.tr("Recorded before anything is changed. From here, one variable at a time."),
        rows=tuple(rows),
        command_label=text.tr("Command as given"),
        config=plan.wanted,
    )
    view = wizard_view(plan)
    actions = (Action.AGAIN, Action.NEXT) if resumed else (Action.NEXT,)
    return replace(view, page=page, actions=actions, primary=Action.NEXT)


def _device_row(device: Device) -> Fact:
    if device.free_bytes is None or device.total_bytes is None:
        said = device.reason or text.tr("free memory unknown")
    else:
        said = text.tr("{} of {} GiB free").format(format_gib(device.free_bytes), format_gib(device.total_bytes))
    held = [f"{p.name} ({p.pid}) {format_room(p.bytes)}" for p in device.processes if p.bytes]
    return Fact(device.name, said, ", ".join((device.description, *held)).strip(", "))


def why_not_view(plan: Plan, reasons: tuple[NotOffered, ...]) -> WizardView:
    """Variables that are not proposed, each with its reason."""
    view = wizard_view(plan)
    page = Page(
        section=text.tr("Not offered"),
        title=text.tr("Why not something else?"),
        rows=tuple(Fact(caption(each.variable), each.reason) for each in reasons),
        why="" if reasons else text.tr("Nothing was left out."),
    )
    return replace(view, page=page, actions=(Action.BACK,), primary=Action.BACK)
