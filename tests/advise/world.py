"""A world to walk plans in, where the budget is what happens."""

from dataclasses import dataclass

from kvstudio.advise.plan import Plan, World
from kvstudio.advise.plan_values import Attempt
from kvstudio.advise.refusal import refusal
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB


def device(index: int, total_gib: float, free_gib: float | None = None) -> Device:
    free = int((total_gib if free_gib is None else free_gib) * GIB)
    return Device(f"CUDA{index}", "CUDA", total_bytes=int(total_gib * GIB), free_bytes=free)


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
        found = refusal(budget)
        assert found is not None
        return False, found, {}

    def walk(self, plan: Plan, most: int = 20) -> Plan:
        while plan.pending is not None:
            assert self.launches < most, "the plan does not end"
            worked, diagnosis, printed = self.run(plan.pending.config)
            outcome = "verified" if worked else "failed"
            plan = plan.ran(Attempt(plan.pending, worked, outcome, diagnosis, printed, 1.0, self.launches))
        return plan
