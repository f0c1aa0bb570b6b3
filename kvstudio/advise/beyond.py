"""Steps outside the settings: another process' memory, the same card by another backend, another build."""

from kvstudio.advise.learned import refused, should_fit, situation
from kvstudio.advise.plan_values import Competitor, Trial, TrialKind
from kvstudio.advise.record import Record
from kvstudio.advise.steps import SMALLEST_CTX
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Cause
from kvstudio.launch.binary import Binary
from kvstudio.units import format_room

#: Other builds that a walk tries; each costs a launch.
MAX_BINARIES = 2
_ALREADY = "By the numbers this launch should fit, so the settings stay as they are"


def free_memory(record: Record) -> Trial | None:
    """End the process that holds what is missing: no setting changes, so it goes before every one that does."""
    if not record.attended:
        return None
    rival = release(record)
    if rival is None or record.was_skipped(TrialKind.FREE, "other_process"):
        return None
    freed = (*record.freed, rival.pid)
    predicted = record.world.without(freed).estimate(record.wanted)
    held = format_room(rival.bytes)
    why = (
        f"{rival.name} (process {rival.pid}) holds {held} of {rival.device}, and without it this launch fits as it "
        "is. End it yourself, then try again."
    )
    return Trial(
        TrialKind.FREE, record.wanted, record.start_index, "other_process",
        f"{rival.name} ({rival.pid}): {rival.bytes}", None, f"End {rival.name}, which holds {held}", why,
        f"{rival.name} is ended", predicted, freed,
    )  # fmt: skip


def release(record: Record) -> Competitor | None:
    """The one process without which the command as given is predicted to fit, the smallest that holds enough."""
    if not record.attempts or record.first.worked:
        return None
    found = record.first.diagnosis
    if found is None or found.memory_class != "memory" or record.estimate(record.wanted).fits is True:
        return None
    enough = [
        rival
        for rival in record.now.competitors()
        if record.world.without((*record.freed, rival.pid)).estimate(record.wanted).fits is True
    ]
    return min(enough, key=lambda rival: rival.bytes, default=None)


def beyond_settings(record: Record) -> Trial | None:
    """The next step for a launch that should fit: another backend, one slot, another build; None when it should not."""
    if should_fit(record):
        return _other_backend(record) or _one_slot(record) or other_binary(record)
    # A command that is too large may be refused for another reason as well, which shows once it is smaller.
    later = range(record.start_index + 1, len(record.attempts))
    parent = next((i for i in later if should_fit(record, record.attempts[i])), None)
    return other_binary(record, parent) if parent is not None else None


def _other_backend(record: Record) -> Trial | None:
    """The same command on the same card through another backend."""
    if record.tries(TrialKind.BACKEND) or record.was_skipped(TrialKind.BACKEND, "device"):
        return None
    found = refused(record.first)
    name = found[0] if found else record.first.diagnosis.device if record.first.diagnosis else None
    world = record.now
    culprit = next((device for device in world.devices if device.name == name), None)
    if culprit is None:
        return None
    for other in (*world.devices, *world.other_devices):
        if not same_card(culprit, other):
            continue
        used = tuple(other.name if d is culprit else d.name for d in world.devices if d is not other)
        config = record.wanted.evolve(device=used)
        budget = record.estimate(config)
        if budget.fits is False or record.was_tried(config):
            continue
        why = f"{_ALREADY}; {other.name} is the same card through {other.backend} instead of {culprit.backend}."
        return Trial(
            TrialKind.BACKEND, config, record.start_index, "device", record.wanted.device, used,
            f"{other.backend} instead of {culprit.backend}", why, "speed may differ", budget, record.freed,
        )  # fmt: skip
    return None


def same_card(one: Device, other: Device) -> bool:
    """Whether two devices are one card seen by two backends."""
    if one.backend == other.backend:
        return False
    if one.pci_id and other.pci_id:
        return one.pci_id == other.pci_id
    return bool(one.description) and one.description == other.description


def _one_slot(record: Record) -> Trial | None:
    """One slot, where runs showed that the context is not what matters."""
    effective = record.estimate(record.wanted).config
    shorter = [
        a for a in record.attempts if a.trial.kind is TrialKind.SMALLEST and a.trial.config.n_ctx == SMALLEST_CTX
    ]
    if effective.n_parallel < 2 or not shorter or shorter[0].worked or not shorter[-1].worked:
        return None
    here = situation(record, record.wanted, record.first.diagnosis)
    config, budget = here.try_change(n_parallel=1)
    if record.was_tried(config) or record.was_skipped(TrialKind.CHANGE, "n_parallel"):
        return None
    if here.need_of_culprit(budget) > here.need_of_culprit(here.budget):
        return None  # fewer slots are longer ones where each has its own cache
    why = f"{_ALREADY} but for the slots: the smallest run works with one slot and fails with more."
    return Trial(
        TrialKind.CHANGE, config, record.start_index, "n_parallel", record.wanted.n_parallel, 1, "1 slot", why,
        "one request at a time", budget, record.freed,
    )  # fmt: skip


def other_binary(record: Record, parent: int | None = None) -> Trial | None:
    """The command as given, or the one of `parent`, with another build: the first one not tried yet."""
    base = record.start_index if parent is None else parent
    given = record.attempts[base].trial.config
    if record.tries(TrialKind.BINARY) >= MAX_BINARIES or record.was_skipped(TrialKind.BINARY, "binary"):
        return None
    for binary in record.world.binaries:
        config = given.evolve(program=binary.path)
        if binary.path == record.wanted.program or record.was_tried(config):
            continue
        why = f"The same command with {binary.title}: if that works, the difference is between the builds."
        return Trial(
            TrialKind.BINARY, config, base, "binary", record.wanted.program, binary.path,
            f"With {binary.title}", why, "another build of llama.cpp", record.estimate(config), record.freed,
        )  # fmt: skip
    return None


def may_be_the_build(record: Record) -> bool:
    """Whether another build may do what this one refuses: unknown to it, or a failure that nothing explains."""
    found = record.first.diagnosis
    if found is None:
        return True
    unknown = (Cause.UNSUPPORTED, Cause.REGRESSION, Cause.BUG, Cause.UNKNOWN)
    return found.cause in unknown or found.memory_class == "unknown"


def title_of(record: Record, path: str) -> str:
    """A binary as a person tells it from another: its build, and where it is."""
    known: tuple[Binary, ...] = record.world.binaries
    own = record.world.binary
    if own is not None and path == record.wanted.program:
        return f"{own.title} ({own.path})"
    return next((f"{binary.title} ({binary.path})" for binary in known if binary.path == path), path)


def builds_of(record: Record, path: str) -> int | None:
    """The build number of a trial's program."""
    other = next((binary for binary in record.world.binaries if binary.path == path), None)
    if other is not None:
        return other.build
    return record.world.binary.build if record.world.binary else record.world.build
