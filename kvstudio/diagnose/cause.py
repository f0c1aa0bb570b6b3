"""Why a request was refused: one cause, only on what the log or the budget states."""

import re
from dataclasses import dataclass

from kvstudio.budget.values import Budget
from kvstudio.diagnose.facts import RunFacts
from kvstudio.diagnose.failure import Failure, Group
from kvstudio.diagnose.timeline import Timeline
from kvstudio.diagnose.values import Cause, Evidence
from kvstudio.diagnose.where import Where, taken_from
from kvstudio.units import GIB, MIB, format_bytes

#: No device takes more than this in one piece: a larger request is a wrong number.
UNDERFLOW_BYTES = 1 << 50
#: One buffer of a cache or a graph over this is asked for by settings, not by need.
ABSURD_STATE_BYTES = 32 * GIB
#: Larger than the memory of any single card there is: all of a model went to one device.
ABSURD_WEIGHTS_BYTES = 288 * GIB
#: A device that refuses less than this does not lack this much.
TINY_BYTES = 64 * MIB
_HOST_ENDINGS = ("_Host",)
_DEVICE_NUMBER = re.compile(r"\d+$")


@dataclass(frozen=True, slots=True)
class Ruling:
    cause: Cause
    because: str
    evidence: tuple[Evidence, ...] = ()


def of_memory(
    run: Timeline, found: Failure, where: Where, stage: str | None, facts: RunFacts, budget: Budget | None
) -> Ruling:
    """The cause of one refused request."""
    group = found.group
    names = {m.signature.name for m in group.marks}
    if where.requested_bytes is not None and where.requested_bytes >= UNDERFLOW_BYTES:
        return Ruling(Cause.BUG, "the number asked for is no real size: an underflow, not a need")
    if where.requested_bytes == 0:
        return Ruling(Cause.BUG, "nothing was asked for, so that no memory was missing")
    limited = next((m for m in group.marks if m.signature.cause == "backend_limit"), None)
    if limited is not None:
        return Ruling(Cause.BACKEND_LIMIT, "the backend takes no single allocation that large, however much is free")
    unfit = next((m for m in group.marks if m.signature.cause == "unsupported"), None)
    if unfit is not None:
        return Ruling(Cause.UNSUPPORTED, unfit.signature.says)
    other_reason = _other_reason(group)
    if other_reason is not None:
        return Ruling(Cause.UNSUPPORTED, f"the driver's reason is not a shortage: {other_reason}")
    # What a second try without pipeline copies got was not beyond reason.
    absurd = _absurd(where, stage, facts) if found.retried is None or not found.resolved else None
    if absurd is not None:
        return absurd
    if _is_host(where, names):
        return Ruling(Cause.HOST_MEMORY, "this is memory of the machine, not of a GPU")
    if budget is not None:
        ruling = _by_budget(where, budget)
        if ruling is not None:
            return ruling
    return _by_log(run, found, where, stage, facts, names)


def _other_reason(group: Group) -> str | None:
    for mark in group.marks:
        why = mark.groups.get("why", "").strip()
        if mark.signature.name in ("cuda_malloc", "cann_malloc") and why and "memory" not in why.lower():
            return why
    return None


def _is_host(where: Where, names: set[str]) -> bool:
    if where.name is not None and where.name.endswith(_HOST_ENDINGS):
        return True
    return where.backend == "CPU" or "rpc_input" in names


def _absurd(where: Where, stage: str | None, facts: RunFacts) -> Ruling | None:
    asked = where.requested_bytes
    if asked is None:
        return None
    if stage in ("kv", "compute", "rs") and asked > ABSURD_STATE_BYTES:
        line = facts.lines.get("n_ctx")
        seen = (Evidence(line, f"n_ctx is {facts.n_ctx}"),) if line is not None and facts.n_ctx else ()
        settings = f"the settings, among them n_ctx {facts.n_ctx}," if seen else "the settings"
        return Ruling(Cause.CONFIG, f"{settings} ask for that much", seen)
    if asked > ABSURD_WEIGHTS_BYTES or (where.total_bytes is not None and asked > where.total_bytes):
        return Ruling(Cause.CONFIG, f"{format_bytes(asked)} is more than the whole device")
    return None


def budget_limit(budget: Budget, where: Where) -> int | None:
    """The limit on one allocation that the budget predicted for the device; None where it did not."""
    first = budget.first_failure
    return first.limit_bytes if first is not None and first.device == where.name else None


def _by_budget(where: Where, budget: Budget) -> Ruling | None:
    """What the budget says about the device: full, full of others' memory, room elsewhere, or enough room."""
    device = next((d for d in budget.devices if d.name == where.name), None)
    asked = where.requested_bytes
    limit = budget_limit(budget, where)
    if limit is not None and asked is not None and asked > limit:
        most = format_bytes(limit)
        return Ruling(Cause.BACKEND_LIMIT, f"the backend takes at most {most} in one allocation, however much is free")
    if device is None or device.free_bytes is None:
        return None
    if device.fits and (asked is None or asked <= device.free_bytes):
        return Ruling(
            Cause.UNKNOWN,
            f"by the budget it should have fit: {format_bytes(device.free_bytes)} were free and the whole launch needs "
            f"{format_bytes(device.need_bytes)} there; a backend limit, a regression or a bug is likelier than that",
        )
    if device.total_bytes is not None and device.other_bytes and device.need_bytes <= device.total_bytes:
        return Ruling(
            Cause.OTHER_PROCESS,
            f"other processes hold {format_bytes(device.other_bytes)} of it; without them it would fit",
        )
    roomy = [d for d in budget.devices if d is not device and asked is not None and (d.room_bytes or 0) >= asked]
    if roomy:
        best = max(roomy, key=lambda d: d.room_bytes or 0)
        return Ruling(Cause.PLACEMENT, f"{best.name} has {format_bytes(best.room_bytes or 0)} to spare")
    return Ruling(
        Cause.CAPACITY,
        f"the launch needs {format_bytes(device.need_bytes)} there and {format_bytes(device.free_bytes)} were free",
    )


def _by_log(run: Timeline, found: Failure, where: Where, stage: str | None, facts: RunFacts, names: set[str]) -> Ruling:
    asked = where.requested_bytes
    aborted = next(iter(run.named("user_set")), None)
    if aborted is not None and stage in ("weights", "kv", "rs", "compute", None):
        return Ruling(
            Cause.CONFIG, "a setting given by hand kept llama.cpp from fitting itself to the free memory",
            (Evidence(aborted.line, "fitting stopped because of a setting given by hand"),),
        )  # fmt: skip
    shared = next(iter(run.named("other_application")), None)
    if shared is not None:
        return Ruling(
            Cause.OTHER_PROCESS, "another application holds part of the device's memory",
            (Evidence(shared.line, "memory of the device is used by another application"),),
        )  # fmt: skip
    if stage == "rs" and (facts.n_seq_max or 0) > 1:
        line = facts.lines.get("n_seq_max") or facts.lines.get("n_parallel")
        seen = (Evidence(line, f"{facts.n_seq_max} slots, each with its own state"),) if line else ()
        return Ruling(Cause.CONFIG, f"the recurrent state is kept once per slot, and there are {facts.n_seq_max}", seen)
    others = _left_elsewhere(run, found.group, where, facts)
    left = where.free_bytes - where.taken_bytes if where.free_bytes is not None else None
    if asked is not None and left is not None and left < asked:
        if others and max(others.values()) >= asked:
            best = max(others, key=lambda n: others[n])
            return Ruling(Cause.PLACEMENT, f"{best} had {format_bytes(others[best])} left by the figures in the text")
        return Ruling(Cause.CAPACITY, "less than that was left there")
    if names & {"vulkan_device_lost"} and "driver_submission" not in names:
        return Ruling(Cause.UNKNOWN, "a lost device is a driver reset; memory is only one of its reasons")
    if names & _FULL:
        if asked is not None and asked < TINY_BYTES:
            return Ruling(
                Cause.CAPACITY, "so small a request means that the device was full already, or cannot be used"
            )
        if _one_of_several(run, found, where, facts) and not others:
            return Ruling(
                Cause.PLACEMENT,
                "this device is one of several and had no room left for its share; the split between them decides, and "
                "what the others had free is not in the text",
            )
        return Ruling(Cause.CAPACITY, "the device had no room left for it")
    return Ruling(Cause.UNKNOWN, "no line says why it was refused")


def _left_elsewhere(run: Timeline, group: Group, where: Where, facts: RunFacts) -> dict[str, int]:
    """Bytes the text leaves on the other devices: what was free less the buffers printed since."""
    return {
        name: max(0, free - taken_from(run, name, group.start))
        for name, (free, _) in facts.devices.items()
        if name != where.name and free is not None
    }


def _one_of_several(run: Timeline, found: Failure, where: Where, facts: RunFacts) -> bool:
    """Whether the text shows that work was divided among GPUs: by the number, by names, by pipeline copies."""
    if where.backend == "RPC":
        return False
    number = _DEVICE_NUMBER.search(where.name or "")
    if number is not None and int(number[0]) > 0:
        return True
    siblings = {n for n in facts.devices if _DEVICE_NUMBER.sub("", n) == _DEVICE_NUMBER.sub("", where.name or "")}
    return len(siblings) > 1 or found.retried is not None or bool(run.named("pipeline_copies"))


#: Phrases that say the device itself had nothing left.
_FULL = frozenset(
    {
        "cann_malloc", "cann_runtime", "cuda_malloc", "cuda_runtime", "driver_submission", "et_alloc", "hexagon_alloc",
        "kompute_alloc", "level_zero", "malloc_said", "metal_2023_failed", "metal_buffer", "metal_bytes",
        "metal_command_memory", "opencl_buffer", "opencl_create", "openvino_alloc", "openvino_buffer", "pool_call",
        "sized_buffer", "sycl_alloc", "sycl_attention", "sycl_memtrace", "sycl_pool", "vulkan_exception", "vulkan_size",
    }
)  # fmt: skip
