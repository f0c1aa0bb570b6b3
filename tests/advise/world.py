"""A world to walk plans in, where the budget is what happens, within limits that nobody reports."""

from dataclasses import dataclass

from kvstudio.advise.plan import Plan, World
from kvstudio.advise.plan_values import Attempt, Trial
from kvstudio.budget.values import Budget, Buffer, BufferKind, FirstFailure
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB

ORDER = (BufferKind.MODEL, BufferKind.OUTPUT, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE)


def device(index: int, total_gib: float, free_gib: float | None = None, backend: str = "CUDA") -> Device:
    free = int((total_gib if free_gib is None else free_gib) * GIB)
    return Device(f"{backend}{index}", backend, total_bytes=int(total_gib * GIB), free_bytes=free)


def binary(path: str, build: int) -> Binary:
    return Binary(path, "llama-server", f"{build} (abc)", build, "abc", None, ("CUDA",), frozenset())


@dataclass
class Reality:
    """Decides trials by the budget of the true devices, which may have less or more memory than they report.

    `total_bytes`: a limit of the whole process. `cap_bytes`: the most a device takes in one allocation. `broken`:
    programs that refuse every KV cache.
    """

    truth: World
    launches: int = 0
    total_bytes: int | None = None
    cap_bytes: int | None = None
    broken: tuple[str, ...] = ()

    def run(self, config: LaunchConfig, freed: tuple[int, ...] = ()) -> tuple[bool, Diagnosis | None, dict[str, int]]:
        self.launches += 1
        budget = self.truth.without(freed).estimate(config)
        failure = self._failure(budget, config)
        if budget.config.errors and (failure is None or failure.kind is not BufferKind.MODEL):
            # As llama.cpp does: the weights are loaded before the settings of a context are looked at.
            return False, _refused(budget), {d.name: d.model_bytes for d in (*budget.devices, budget.host)}
        if failure is None:
            return True, None, {d.name: d.need_bytes for d in (*budget.devices, budget.host)}
        return False, _diagnosis(budget, failure), _printed(budget, failure)

    def _failure(self, budget: Budget, config: LaunchConfig) -> FirstFailure | None:
        left, short = self.total_bytes, budget.first_failure
        for buffer in _in_order(budget):
            name, size = buffer.device or "Host", buffer.bytes or 0
            if short is not None and (name, buffer.kind) == (short.device, short.kind):
                return short
            if config.program in self.broken and buffer.kind is BufferKind.KV and size:
                return FirstFailure(name, buffer.kind, size, 0, 0)
            if self.cap_bytes is not None and buffer.device and size > self.cap_bytes:
                return FirstFailure(name, buffer.kind, size, 0, 0, self.cap_bytes)
            if left is not None:
                if size > left:
                    return FirstFailure(name, buffer.kind, size, size - left, left)
                left -= size
        return short

    def walk(self, plan: Plan, most: int = 20) -> Plan:
        while plan.pending is not None:
            assert self.launches < most, "the plan does not end"
            plan = plan.ran(self.attempt(plan.pending))
        return plan

    def attempt(self, trial: Trial) -> Attempt:
        worked, diagnosis, printed = self.run(trial.config, trial.freed)
        return Attempt(trial, worked, "verified" if worked else "failed", diagnosis, printed, 1.0, self.launches)


def _in_order(budget: Budget) -> list[Buffer]:
    mapped = [buffer for buffer in budget.buffers if not buffer.name.endswith("_Mapped")]
    return [buffer for kind in ORDER for buffer in mapped if buffer.kind is kind]


def _refused(budget: Budget) -> Diagnosis:
    """Settings that are refused whatever the memory."""
    return Diagnosis(
        Outcome.FAILED, "not_memory", None, None, None, None, None, None, Cause.CONFIG, None, (),
        "The settings are the problem", " ".join(budget.config.errors),
    )  # fmt: skip


def _printed(budget: Budget, failure: FirstFailure) -> dict[str, int]:
    """What was there before the refusal."""
    held: dict[str, int] = {}
    for buffer in _in_order(budget):
        name = buffer.device or "Host"
        if (name, buffer.kind) == (failure.device, failure.kind):
            break
        held[name] = held.get(name, 0) + (buffer.bytes or 0)
    return held


def _diagnosis(budget: Budget, failure: FirstFailure) -> Diagnosis:
    """As a log would say it: without the free memory, which backends rarely print."""
    stages = {kind: kind.value for kind in ORDER} | {BufferKind.MODEL: "weights"}
    cause = Cause.BACKEND_LIMIT if failure.limit_bytes else Cause.CAPACITY
    stage = stages[failure.kind]
    return Diagnosis(
        Outcome.FAILED, "memory", stage, "CPU" if failure.device == "Host" else failure.device, None, failure.bytes,
        None, failure.limit_bytes, cause, None, (), f"{stage} refused on {failure.device}", "It was refused.",
    )  # fmt: skip
