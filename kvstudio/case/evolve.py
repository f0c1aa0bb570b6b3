"""A case and what changes in it, to the next case with everything that depends on the change worked out again."""

from collections.abc import Mapping
from typing import Any

from kvstudio.advise.values import Fix
from kvstudio.budget.values import Budget
from kvstudio.case.values import Case

#: Changes after which the budget is another one.
_BUDGET_INPUTS = frozenset({"config", "model", "machine", "what_if", "chosen", "binary", "runs"})
#: Changes after which other fixes would help.
_FIX_INPUTS = _BUDGET_INPUTS | {"diagnosis"}


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
    return estimate(
        case.model, case.config, case.chosen_devices, host=host, build=build_of(case), overhead=learned_overhead(case)
    )


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
    """Bytes per device that runs of this case needed beyond every printed buffer; None when no run tells.

    Only runs that loaded count: the peak of one that failed half way says nothing.
    """
    known = {d.name: d for d in case.devices}
    learned: dict[str, int] = {}
    for run in case.runs:
        if run.outcome not in ("verified", "started"):
            continue
        before = dict(run.free_before)
        for name, used in run.peak:
            device = known.get(name)
            if device is None or device.total_bytes is None or name not in before:
                continue
            printed = sum(b.bytes for b in run.buffers if b.device == name)
            others = device.total_bytes - before[name]
            rest = used - others - printed
            if printed and rest > 0:
                learned[name] = rest
    return learned or None
