"""Walks a fix plan with real launches: trial to run, run to attempt, until the verdict."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import Attempt, Trial
from kvstudio.budget.values import Budget
from kvstudio.verify.values import Run, RunOutcome

#: Runs one trial for real.
Launch = Callable[[Trial], Run]
#: Told of each finished trial.
Watch = Callable[[Trial, Run], None]


def attempt_of(trial: Trial, run: Run) -> Attempt:
    """What a finished run teaches the plan; only a verified launch counts as working."""
    printed: dict[str, int] = defaultdict(int)
    for buffer in run.buffers:
        printed[buffer.device or "Host"] += buffer.bytes
    worked = run.outcome is RunOutcome.VERIFIED
    return Attempt(trial, worked, run.outcome.value, run.diagnosis, dict(printed), run.seconds, run.number)


def walk(plan: Plan, launch: Launch, watch: Watch | None = None, cancelled: Callable[[], bool] = lambda: False) -> Plan:
    """Run every pending trial until there is a verdict; stopping between launches keeps what was found."""
    while plan.pending is not None:
        if cancelled():
            return plan.stop()
        trial = plan.pending
        run = launch(trial)
        if watch is not None:
            watch(trial, run)
        if run.outcome in (RunOutcome.CANCELLED, RunOutcome.COULD_NOT_START):
            return plan.stop()
        plan = plan.ran(attempt_of(trial, run))
    return plan


def need_bytes(budget: Budget | None) -> dict[str, int]:
    """Need per device (and `Host`) of a prediction."""
    if budget is None:
        return {}
    return {device.name: device.need_bytes for device in (*budget.devices, budget.host)}


def to_json(plan: Plan, command: tuple[str, ...] | None) -> dict[str, Any]:
    """The result in the form scripts rely on (`kvstudio.fix/1`)."""
    verdict = plan.verdict
    cause = verdict.root_cause if verdict else None
    return {
        "schema": "kvstudio.fix/1",
        "outcome": verdict.outcome if verdict else "stopped",
        "says": verdict.says if verdict else "",
        "root_cause": {"variable": cause.variable, "says": cause.says} if cause else None,
        "not_separated": list(verdict.not_separated) if verdict else [],
        "command": list(command) if command else None,
        "launches": sum(attempt.run_number is not None for attempt in plan.attempts),
        "runs": [_row(attempt) for attempt in plan.attempts],
    }


def _row(attempt: Attempt) -> dict[str, Any]:
    trial = attempt.trial
    return {
        "kind": trial.kind.value,
        "change": {name: list(values) for name, values in trial.change.items()},
        "outcome": attempt.outcome,
        "need_bytes": need_bytes(trial.predicted),
        "printed_bytes": dict(attempt.printed_bytes),
        "seconds": round(attempt.seconds, 1),
        "why": trial.why,
    }
