"""Walks a fix plan with real launches: trial to run, run to attempt, until the verdict."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from kvstudio.advise.not_offered import not_offered
from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import Attempt, HardLimit, Trial
from kvstudio.advise.record import Record
from kvstudio.budget.values import Budget
from kvstudio.case.codec import to_plain
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Diagnosis, Outcome
from kvstudio.launch.binary import Binary
from kvstudio.verify.values import Run, RunOutcome

#: Runs one trial for real.
Launch = Callable[[Trial], Run]
#: Told of each finished trial.
Watch = Callable[[Trial, Run], None]
#: Told of each plan after a run, to keep it.
Keep = Callable[[Plan], None]
NOT_TRIED = (RunOutcome.CANCELLED, RunOutcome.COULD_NOT_START)


def attempt_of(trial: Trial, run: Run) -> Attempt:
    """What a finished run teaches the plan; only a verified launch counts as working."""
    printed: dict[str, int] = defaultdict(int)
    for buffer in run.buffers:
        printed[buffer.device or "Host"] += buffer.bytes
    worked = run.outcome is RunOutcome.VERIFIED
    return Attempt(trial, worked, run.outcome.value, _diagnosis(run), dict(printed), run.seconds, run.number)


def _diagnosis(run: Run) -> Diagnosis | None:
    """What the log says of a run; where it is silent, how the process ended."""
    found = run.diagnosis
    if found is None or run.outcome is RunOutcome.VERIFIED or found.outcome is Outcome.FAILED:
        return found
    ended = run.says.removesuffix(found.summary).strip()
    return replace(found, title=ended.rstrip("."), summary=ended) if ended else found


def walk(
    plan: Plan,
    launch: Launch,
    watch: Watch | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    keep: Keep | None = None,
) -> Plan:
    """Run every pending trial until there is a verdict; stopping between launches keeps what was found."""
    while plan.pending is not None:
        if cancelled():
            return plan.stop()
        plan = step(plan, launch, watch)
        if keep is not None:
            keep(plan)
    return plan


def step(plan: Plan, launch: Launch, watch: Watch | None = None) -> Plan:
    """Run the pending trial; a launch that was cancelled, or could not be made, ends the walk.

    A build that cannot be started is only not the answer: the walk goes on without it.
    """
    trial = plan.pending
    assert trial is not None
    run = launch(trial)
    if watch is not None:
        watch(trial, run)
    attempt = attempt_of(trial, run)
    if run.outcome is RunOutcome.CANCELLED:
        return plan.broke_off(attempt).stop()
    if run.outcome is RunOutcome.COULD_NOT_START and trial.variable != "binary":
        return plan.stop()
    return plan.ran(attempt)


def need_bytes(budget: Budget | None) -> dict[str, int]:
    """Need per device (and `Host`) of a prediction."""
    if budget is None:
        return {}
    return {device.name: device.need_bytes for device in (*budget.devices, budget.host)}


def to_json(plan: Record, command: tuple[str, ...] | None) -> dict[str, Any]:
    """The result in the form scripts rely on (`kvstudio.fix/1`)."""
    verdict = plan.verdict
    cause = verdict.root_cause if verdict else None
    return {
        "schema": "kvstudio.fix/1",
        "outcome": verdict.outcome if verdict else "stopped",
        "says": verdict.says if verdict else "",
        "root_cause": {"variable": cause.variable, "says": cause.says} if cause else None,
        "not_separated": list(verdict.not_separated) if verdict else [],
        "predicted": bool(verdict and verdict.predicted),
        "command": list(command) if command else None,
        "launches": launches(plan),
        "runs": [_row(plan, attempt) for attempt in plan.launched],
        "hard_limit": _limit(verdict.hard_limit) if verdict else None,
        "not_offered": [{"variable": each.variable, "reason": each.reason} for each in not_offered(plan)],
        "baseline": _baseline(plan),
    }


def launches(plan: Record) -> int:
    """How many runs were real launches, the cancelled ones included."""
    return sum(attempt.run_number is not None for attempt in plan.launched)


def _limit(limit: HardLimit | None) -> dict[str, Any] | None:
    return None if limit is None else {**to_plain(limit), "short_bytes": limit.short_bytes}


def _baseline(plan: Record) -> dict[str, Any]:
    world = plan.world
    return {
        "binary": binary_json(world.binary),
        "build": f"b{world.build}" if world.build else None,
        "devices": [_device(device) for device in (*world.devices, *((world.host,) if world.host else ()))],
        "other_binaries": [binary_json(binary) for binary in world.binaries],
    }


def binary_json(binary: Binary | None) -> dict[str, Any] | None:
    """A binary as far as telling two apart needs."""
    if binary is None:
        return None
    build = f"b{binary.build}" if binary.build else None
    return {"path": binary.path, "version": binary.version, "build": build, "commit": binary.commit}


def _device(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        "processes": [{"pid": p.pid, "name": p.name, "bytes": p.bytes} for p in device.processes],
    }


def _row(plan: Record, attempt: Attempt) -> dict[str, Any]:
    trial = attempt.trial
    binary = plan.world.other_binary(trial.config) or plan.world.binary
    return {
        "kind": trial.kind.value,
        "change": {name: [to_plain(value) for value in values] for name, values in trial.change.items()},
        "outcome": attempt.outcome,
        "need_bytes": need_bytes(trial.predicted),
        "printed_bytes": dict(attempt.printed_bytes),
        "seconds": round(attempt.seconds, 1),
        "why": trial.why,
        "diagnosis": attempt.diagnosis.summary if attempt.diagnosis and not attempt.worked else None,
        "build": f"b{binary.build}" if binary and binary.build else None,
        "program": PurePath(trial.config.program).name,
        "run": attempt.run_number,
    }
