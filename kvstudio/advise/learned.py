"""What launches have shown of the world: how much a device really holds, and what one allocation may take."""

from kvstudio.advise.plan_values import Attempt
from kvstudio.advise.record import Record
from kvstudio.advise.situation import KIND_OF_STAGE, Cap, Situation, failing_of
from kvstudio.budget.values import Budget, BufferKind
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import MIB

#: A launch that was predicted to leave this much, and this share of its need, was not refused for a rounding error.
CLEAR_ROOM_BYTES = 256 * MIB
CLEAR_SHARE = 0.05


def refused(attempt: Attempt) -> tuple[str, int] | None:
    """Device and bytes of a refusal, from its diagnosis."""
    found = attempt.diagnosis
    if attempt.worked or found is None or found.memory_class != "memory" or not found.requested_bytes:
        return None
    return found.device if found.device and not is_host(found.device) else "Host", found.requested_bytes


def is_host(name: str) -> bool:
    return name.startswith("CPU") or name.endswith("_Host") or name == "Host"


def capacities(record: Record) -> dict[str, int]:
    """Per device the memory to plan with, where runs have contradicted what the device reports.

    A device holds at least what a run got from it, and less than what a refused run asked of it. Within these bounds
    the reported free memory counts; outside them it is known to be wrong, and their middle is the next guess.
    """
    low, high = _bounds(record)
    reported = _reported(record)
    return {
        name: guess
        for name in {*low, *high}
        if (guess := _guess(reported.get(name), low.get(name, 0), high.get(name))) is not None
    }


def _bounds(record: Record) -> tuple[dict[str, int], dict[str, int]]:
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for attempt in record.attempts:
        if attempt.trial.freed != record.freed:
            continue  # the devices had less then than they have now
        for name, held in attempt.printed_bytes.items():
            low[name] = max(low.get(name, 0), held)
        asked = _asked(attempt)
        if asked is not None:
            name, total = asked
            high[name] = min(high.get(name, total - 1), total - 1)
    return low, high


def _asked(attempt: Attempt) -> tuple[str, int] | None:
    """Device, and all that a refused run had and wanted of it; None where it is not known or a cap was the reason."""
    found = refused(attempt)
    if found is None or over_cap(attempt.diagnosis):
        return None
    name, asked = found
    first_asked = attempt.diagnosis is not None and attempt.diagnosis.stage == "weights"
    if name not in attempt.printed_bytes and not first_asked:
        return None
    return name, attempt.printed_bytes.get(name, 0) + asked


def total_capacity(record: Record) -> int | None:
    """Memory of all devices and the host together, where single devices explain nothing.

    A device that refuses less than it gave in another run is not what is full: a limit of the process, or memory the
    devices share, is. So it is where both the host and a device refuse what they report to have.
    """
    low, high = _bounds(record)
    if not any(low.get(name, 0) > bound for name, bound in high.items()) and not _all_refuse(record):
        return None
    least, most = 0, None
    for attempt in record.attempts:
        total = sum(attempt.printed_bytes.values())
        least = max(least, total)
        found = refused(attempt)
        if found is not None and not over_cap(attempt.diagnosis):
            bound = total + found[1] - 1
            most = bound if most is None else min(most, bound)
    if most is None or most <= least:
        return least or None
    return (least + most) // 2


def _all_refuse(record: Record) -> bool:
    """Whether the host and a device too have refused with clear room."""
    unexplained = [asked[0] for a in record.attempts if (asked := _asked(a)) and _room_at_refusal(record, a)]
    return "Host" in unexplained and len(set(unexplained)) > 1


def _reported(record: Record) -> dict[str, int | None]:
    """Free memory of each device and the host as they say themselves."""
    world = record.now
    host = world.host.free_bytes if world.host else None
    return {"Host": host} | {device.name: device.free_bytes for device in world.devices}


def contradicted(record: Record) -> bool:
    """Whether a run has shown that a device does not have what it reports."""
    reported = _reported(record)
    return any(guess != reported.get(name) for name, guess in capacities(record).items())


def _guess(reported: int | None, low: int, high: int | None) -> int | None:
    if high is None:
        return max(reported, low) if reported is not None else None
    if reported is not None and low <= reported < high:
        return reported
    return (low + max(high, low)) // 2


def over_cap(found: Diagnosis | None) -> bool:
    """Whether one allocation was larger than the backend takes, however much is free."""
    return bool(found and found.limit_bytes and found.requested_bytes and found.requested_bytes > found.limit_bytes)


def caps(record: Record) -> tuple[Cap, ...]:
    """Caps on one allocation that runs have met.

    A device may keep one kind of memory in several buffers; the part that was refused stands for the largest.
    """
    found: dict[tuple[str, BufferKind], Cap] = {}
    for attempt in record.attempts:
        diagnosis, asked = attempt.diagnosis, refused(attempt)
        if diagnosis is None or asked is None or not over_cap(diagnosis) or diagnosis.stage not in KIND_OF_STAGE:
            continue
        kind, (device, n_bytes) = KIND_OF_STAGE[diagnosis.stage], asked
        whole = _of_kind(attempt.trial.predicted, device, kind)
        share = n_bytes / whole if whole and n_bytes < whole else 1.0
        found[device, kind] = Cap(device, kind, diagnosis.limit_bytes or 0, share)
    return tuple(found.values())


def _of_kind(budget: Budget | None, device: str, kind: BufferKind) -> int:
    places = (*budget.devices, budget.host) if budget else ()
    return next((place.of(kind) or 0 for place in places if place.name == device), 0)


def should_fit(record: Record, attempt: Attempt | None = None) -> bool:
    """Whether a launch (the first if none is named) was refused memory although the numbers leave clear room.

    The room counts at the end of the launch, or at the moment of the refusal, when less is held. A backend's limit on
    one allocation that was predicted is no shortage either.
    """
    first = attempt or record.first
    predicted, found = first.trial.predicted, first.diagnosis
    if (
        first.worked
        or predicted is None
        or not (predicted.fits is True or _only_limited(predicted))
        or found is None
        or found.memory_class != "memory"
    ):
        return False
    if over_cap(found):
        return True
    if found.requested_bytes and found.free_bytes is not None and found.requested_bytes > found.free_bytes:
        return False  # the device itself says that it is full
    asked = refused(first)
    name = asked[0] if asked else found.device
    places = [place for place in (*predicted.devices, predicted.host) if place.name == name] or predicted.devices
    rooms = [(place.room_bytes, place.need_bytes) for place in places if place.room_bytes is not None]
    at_last = bool(rooms) and all(_is_clear(room, need) for room, need in rooms)
    return at_last or _room_at_refusal(record, first)


def _is_clear(room_bytes: int, need_bytes: int) -> bool:
    return room_bytes >= max(CLEAR_ROOM_BYTES, CLEAR_SHARE * need_bytes)


def _room_at_refusal(record: Record, attempt: Attempt) -> bool:
    """Whether a device reported clear room for exactly what it refused, with all that it held by then."""
    asked, predicted = _asked(attempt), attempt.trial.predicted
    if asked is None or predicted is None or attempt.trial.freed != record.freed:
        return False
    name, total = asked
    free = _reported(record).get(name)
    overhead = _of_kind(predicted, name, BufferKind.OVERHEAD)
    return free is not None and _is_clear(free - overhead - total, total)


def _only_limited(predicted: Budget) -> bool:
    """Whether nothing but a backend's limit on one allocation is in the way."""
    failure = predicted.first_failure
    places = (*predicted.devices, predicted.host)
    return failure is not None and failure.limit_bytes is not None and all(d.fits is not False for d in places)


def situation(record: Record, base: LaunchConfig, diagnosis: Diagnosis | None) -> Situation:
    """The world of the next change, with what the launches so far have taught."""
    world = record.now
    budget = world.estimate(base)
    kind, culprit = failing_of(budget)
    if diagnosis is not None and diagnosis.stage in KIND_OF_STAGE:
        kind = KIND_OF_STAGE[diagnosis.stage]
        culprit = diagnosis.device if diagnosis.device and not is_host(diagnosis.device) else None
    total = total_capacity(record)
    return Situation(
        world.model, base, world.devices_for(base), world.host, budget, kind, culprit, world.build_for(base),
        world.overhead, capacities(record) if total is None else {}, caps=caps(record), total_bytes=total,
        estimator=world.estimate,
    )  # fmt: skip
