"""A case and what changes in it, to the next case with everything that depends on the change worked out again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvstudio.advise.values import Fix
from kvstudio.budget.values import Budget, Buffer, BufferKind, DeviceBudget, Provenance
from kvstudio.case.values import Case
from kvstudio.verify.values import Run, RunOutcome

#: Changes after which the budget is another one.
_BUDGET_INPUTS = frozenset({"config", "model", "machine", "what_if", "chosen", "binary", "runs"})
#: Changes after which other fixes would help.
_FIX_INPUTS = _BUDGET_INPUTS | {"diagnosis"}
_PRINTED_KINDS = ("model", "kv", "rs", "compute", "output")


def evolve(case: Case, **changes: Any) -> Case:
    """The next case: `changes` put in, budget and fixes recomputed where they depend on them."""
    new = evolve_budget(case, **changes)
    return new.replace(fixes=fixes_of(new)) if _FIX_INPUTS & changes.keys() else new


def evolve_budget(case: Case, **changes: Any) -> Case:
    """As `evolve`, but the fixes wait: they are dropped when it fits and kept as they were when it does not."""
    new = case.replace(**changes)
    if _BUDGET_INPUTS & changes.keys():
        new = new.replace(budget=budget_of(new))
    if new.budget is None or (new.budget.fits is not False and new.diagnosis is None):
        new = new.replace(fixes=())
    return new


def budget_of(case: Case) -> Budget | None:
    """The estimate for the case's model on its chosen devices; None without a model."""
    if case.model is None:
        return None
    from kvstudio.budget.estimate import estimate

    host = case.machine.host if case.machine is not None else None
    overhead = learned_overhead(case)
    budget = estimate(case.model, case.config, case.chosen_devices, host=host, build=build_of(case), overhead=overhead)
    run = _measuring_run(case)
    return budget if run is None else measured(budget, run)


def fixes_of(case: Case) -> tuple[Fix, ...]:
    """Single changes that would make it fit; none when it fits, or nothing is known to be wrong."""
    if case.model is None or case.budget is None:
        return ()
    failed = case.diagnosis is not None and case.diagnosis.outcome == "failed"
    if case.budget.fits is not False and not failed:
        return ()
    from kvstudio.advise.suggest import suggest

    host = case.machine.host if case.machine is not None else None
    return suggest(
        case.model, case.config, case.chosen_devices, host=host, budget=case.budget, diagnosis=case.diagnosis
    )


def build_of(case: Case) -> int | None:
    """The llama.cpp build whose rules apply: the settings' own, else the chosen binary's, else the newest known."""
    if case.config.build is not None:
        return case.config.build
    return case.binary.build if case.binary is not None else None


def learned_overhead(case: Case) -> Mapping[str, int] | None:
    """Bytes per device that no printed buffer explained in the case's latest runs; None when no run tells.

    Only runs that loaded count: the peak of one that failed half way says nothing.
    """
    learned: dict[str, int] = {}
    for run in case.runs:
        if run.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED):
            learned |= {name: size for name, size in run.overhead if size is not None}
    return learned or None


def measured(budget: Budget, run: Run) -> Budget:
    """The budget with the sizes a run printed in place of the estimated ones; kinds it did not print stay."""
    printed = {(b.device, b.kind) for b in run.buffers}
    kept = tuple(b for b in budget.buffers if (b.device, b.kind.value) not in printed)
    why = "printed by llama.cpp, line {}"
    seen = tuple(
        Buffer(b.name, b.device, BufferKind(b.kind), b.bytes, Provenance.MEASURED, why.format(b.line))
        for b in run.buffers
        if b.kind in _PRINTED_KINDS
    )
    buffers = kept + seen
    devices = tuple(_with_sums(d, buffers, d.name) for d in budget.devices)
    host = _with_sums(budget.host, buffers, None)
    return replace(budget, buffers=buffers, devices=devices, host=host, first_failure=None)


def _with_sums(device: DeviceBudget, buffers: tuple[Buffer, ...], owner: str | None) -> DeviceBudget:
    def total(kind: BufferKind) -> int:
        return sum(b.bytes or 0 for b in buffers if b.device == owner and b.kind is kind)

    return replace(
        device,
        model_bytes=total(BufferKind.MODEL),
        kv_bytes=total(BufferKind.KV),
        rs_bytes=total(BufferKind.RS),
        compute_bytes=total(BufferKind.COMPUTE),
        output_bytes=total(BufferKind.OUTPUT),
    )


def _measuring_run(case: Case) -> Run | None:
    """The latest run with exactly these settings that loaded to the end, so that every buffer was printed."""
    for run in reversed(case.runs):
        whole = run.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED) and run.buffers
        if whole and run.config == case.config and run.binary == case.binary:
            return run
    return None
