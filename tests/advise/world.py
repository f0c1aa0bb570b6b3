"""A world to walk plans in: the budget is what happens, and a refusal is what a log would say of it."""

from dataclasses import dataclass

from kvstudio.advise.plan import Plan, World
from kvstudio.advise.plan_values import Attempt
from kvstudio.budget.values import Budget, BufferKind
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB

STAGES = {
    BufferKind.MODEL: "weights",
    BufferKind.KV: "kv",
    BufferKind.RS: "rs",
    BufferKind.COMPUTE: "compute",
    BufferKind.OUTPUT: "output",
}


def device(index: int, total_gib: float, free_gib: float | None = None) -> Device:
    free = int((total_gib if free_gib is None else free_gib) * GIB)
    return Device(f"CUDA{index}", "CUDA", total_bytes=int(total_gib * GIB), free_bytes=free)


def refusal(budget: Budget) -> Diagnosis:
    """What a log would say of a budget that does not fit."""
    failure = budget.first_failure
    assert failure is not None
    return Diagnosis(
        outcome=Outcome.FAILED,
        memory_class="memory",
        stage=STAGES[failure.kind],
        device="CPU" if failure.device == "Host" else failure.device,
        backend=None,
        requested_bytes=failure.bytes,
        free_bytes=None,
        limit_bytes=None,
        cause=Cause.CAPACITY,
        key_line=None,
        evidence=(),
        title=f"{failure.kind.value} refused",
        summary="",
    )


@dataclass
class Reality:
    """Decides trials by the budget of the true devices, which may have less memory than they report."""

    truth: World
    launches: int = 0

    def run(self, config: LaunchConfig) -> tuple[bool, Diagnosis | None, dict[str, int]]:
        self.launches += 1
        budget = self.truth.estimate(config)
        if budget.fits is not False:
            return True, None, {d.name: d.need_bytes for d in budget.devices}
        return False, refusal(budget), {}

    def walk(self, plan: Plan, most: int = 20) -> Plan:
        while plan.pending is not None:
            assert self.launches < most, "the plan does not end"
            worked, diagnosis, printed = self.run(plan.pending.config)
            outcome = "verified" if worked else "failed"
            plan = plan.ran(Attempt(plan.pending, worked, outcome, diagnosis, printed, 1.0, self.launches))
        return plan
