"""Pages beside the walk itself: what it starts from, and why something is not proposed."""

from dataclasses import replace

from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import NotOffered
from kvstudio.devices.values import Device
from kvstudio.ui import text
from kvstudio.ui.command_words import homed
from kvstudio.ui.wizard.from_plan import wizard_view
from kvstudio.ui.wizard.values import Action, Fact, Page, WizardView
from kvstudio.ui.wizard.words import caption, competing_notice, failure_words
from kvstudio.units import format_gib, format_room


def away_words(away: tuple[str, ...]) -> str:
    """What a try is worth where the devices are not of this machine."""
    names = text.tr(" and ").join((", ".join(away[:-1]), away[-1]) if len(away) > 1 else away)
    return text.tr("{} not in this machine, so nothing can be tried here: the walk goes by what is predicted.").format(
        text.tr("{} are").format(names) if len(away) > 1 else text.tr("{} is").format(names)
    )


def elsewhere(view: WizardView, away: tuple[str, ...]) -> WizardView:
    """A page of a walk for another machine: predictions take the place of tries."""
    if Action.TRY not in view.actions:
        return view
    actions = tuple(Action.PREDICT if action is Action.TRY else action for action in view.actions)
    return replace(view, page=replace(view.page, notice=away_words(away)), actions=actions, primary=Action.PREDICT)


def baseline_view(
    plan: Plan, resumed: bool = False, log: str = "", away: tuple[str, ...] = (), foreign: str = ""
) -> WizardView:
    """The first page: what everything after it is compared with.

    `log`: the file whose diagnosis stands in for the first run. `away`: devices that this machine does not have.
    `foreign`: a device of the log that nothing is known of.
    """
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
    if log and plan.attempts:
        rows.insert(0, Fact(text.tr("Log"), failure_words(plan.attempts[0].diagnosis, ""), log))
    notice = away_words(away) if away else competing_notice(plan)
    if foreign:
        notice = text.tr(
            "The log is about {}, which is not in this machine, and does not tell its size. This walk is about this "
            "machine; for the log's, add a what-if device first."
        ).format(foreign)
    if resumed:
        notice = text.tr("A walk of this command was not finished; it goes on after its first run.")
        if len(plan.attempts) > 1:
            said = text.tr("A walk of this command was not finished; it goes on after its {} runs.")
            notice = said.format(len(plan.attempts))
    page = Page(
        section=text.tr("Baseline"),
        title=text.tr("What everything is compared with"),
        notice=notice,
        why=_recorded(log),
        rows=tuple(rows),
        command_label=text.tr("Command as given"),
        config=plan.wanted,
    )
    view = wizard_view(plan)
    actions = (Action.AGAIN, Action.NEXT) if resumed else (Action.NEXT,)
    return replace(view, page=page, actions=actions, primary=Action.NEXT)


def _recorded(log: str) -> str:
    if log:
        return text.tr("The log stands for the first run: nothing was launched here. From it, one variable at a time.")
    return text.tr("Recorded before anything is changed. From here, one variable at a time.")


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
