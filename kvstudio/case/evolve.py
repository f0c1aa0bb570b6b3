"""A case and what changes in it, to the next case with everything that depends on the change worked out again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvstudio.advise.values import Fix
from kvstudio.budget.values import Budget, Buffer, BufferKind, DeviceBudget, Provenance
from kvstudio.case import overhead
from kvstudio.case.values import Case
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.oracle.values import OracleResult
from kvstudio.verify.values import Run, RunOutcome

if TYPE_CHECKING:
    from kvstudio.advise.by_context import ContextView
    from kvstudio.budget.extras import Extras
    from kvstudio.budget.fit_values import FitResult

#: Changes after which the budget is another one.
_BUDGET_INPUTS = frozenset(
    {"config", "model", "machine", "what_if", "chosen", "binary", "runs", "checked", "remembered", "extras"}
)
#: Changes after which other fixes would help.
_FIX_INPUTS = _BUDGET_INPUTS | {"diagnosis"}
_PRINTED_KINDS = ("model", "kv", "rs", "compute", "output")

#: Columns of llama.cpp's breakdown table.
_TABLE_KINDS = {
    "model": (BufferKind.MODEL,),
    "context": (BufferKind.KV, BufferKind.RS),
    "compute": (BufferKind.COMPUTE,),
}


def evolve(case: Case, **changes: Any) -> Case:
    """The next case: `changes` put in, budget, fixes and fit recomputed where they depend on them."""
    new = evolve_budget(case, **changes)
    return new.replace(fixes=fixes_of(new), fitted=fit_of(new)) if _FIX_INPUTS & changes.keys() else new


def evolve_budget(case: Case, **changes: Any) -> Case:
    """As `evolve`, but fixes and fit wait: fixes are dropped when it fits and kept as they were when it does not."""
    new = case.replace(**changes)
    return with_budget(new) if is_budget_input(changes) else settled(new)


def is_budget_input(changes: Mapping[str, Any]) -> bool:
    """Whether the budget is another one after these changes."""
    return bool(_BUDGET_INPUTS & changes.keys())


def with_budget(case: Case) -> Case:
    """The case with its budget worked out; what `-fit` makes of it is not known yet."""
    return settled(case.replace(budget=budget_of(case), fitted=None))


def settled(case: Case) -> Case:
    """The case without fixes where nothing is wrong."""
    if case.budget is None or (_would_start(case.budget) and case.diagnosis is None):
        return case.replace(fixes=()) if case.fixes else case
    return case


def budget_of(case: Case) -> Budget | None:
    """The estimate for the case's model on its chosen devices; None without a model."""
    if case.model is None:
        return None
    from kvstudio.budget.estimate import estimate

    host = case.machine.host if case.machine is not None else None
    learned = learned_overhead(case)
    extras = extras_of(case)
    budget = estimate(case.model, case.config, case.chosen_devices, host, build_of(case), learned, extras)
    run = _measuring_run(case)
    if run is not None:
        return measured(budget, run)
    checked = case.checked
    if checked is not None and checked.config == case.config and checked.devices == case.chosen:
        return with_dry_run(budget, checked.result)
    return budget


def fixes_of(case: Case) -> tuple[Fix, ...]:
    """Single changes that would make it fit; none when it fits, or nothing is known to be wrong."""
    if case.model is None or case.budget is None:
        return ()
    failed = case.diagnosis is not None and case.diagnosis.outcome == "failed"
    if _would_start(case.budget) and not failed:
        return ()
    from kvstudio.advise.suggest import suggest

    host = case.machine.host if case.machine is not None else None
    return suggest(
        case.model,
        case.config,
        case.chosen_devices,
        host=host,
        budget=case.budget,
        diagnosis=case.diagnosis,
        build=build_of(case),
        overhead=learned_overhead(case),
        extras=extras_of(case),
    )


def _would_start(budget: Budget) -> bool:
    return budget.fits is not False and not budget.config.errors


def fit_of(case: Case) -> "FitResult | None":
    """What llama.cpp's own `-fit` would change before it loads; None without a model."""
    if case.model is None or case.config.fit is False:
        return None
    from kvstudio.budget.fit import fit

    host = case.machine.host if case.machine is not None else None
    learned, extras = learned_overhead(case), extras_of(case)
    return fit(case.model, case.config, case.chosen_devices, host, build_of(case), learned, case.budget, extras)


def context_view(case: Case) -> "ContextView":
    """Memory against context for the view of that name; some hundred estimates, so it is called in a task."""
    from kvstudio.advise.by_context import by_context
    from kvstudio.advise.choices import choices
    from kvstudio.budget.estimate import estimate

    assert case.model is not None and case.budget is not None
    model = case.model
    host = case.machine.host if case.machine is not None else None
    build, learned, extras = build_of(case), learned_overhead(case), extras_of(case)

    def at(config: LaunchConfig) -> Budget:
        return estimate(model, config, case.chosen_devices, host, build, learned, extras)

    def largest(config: LaunchConfig, devices: tuple[Device, ...] | None) -> int | None:
        from kvstudio.budget.solve import Launch, largest_n_ctx

        used, known = (case.chosen_devices, learned) if devices is None else (devices, None)
        return largest_n_ctx(Launch(model, config, used, host, build, known, extras), beyond_trained=True)

    view = by_context(at, case.config, case.budget, model.n_ctx_train, largest)
    return replace(view, choices=choices(at, case.config, case.budget, model.n_ctx_train))


def extras_of(case: Case) -> "Extras":
    """The other files of the launch: as the case has them, else read now."""
    if case.extras is not None:
        read: Extras = case.extras
        return read
    from kvstudio.budget.extra_files import read_extras

    return read_extras(case.config)


def build_of(case: Case) -> int | None:
    """The llama.cpp build whose rules apply: the settings' own, else the chosen binary's, else the newest known."""
    if case.config.build is not None:
        return case.config.build
    return case.binary.build if case.binary is not None else None


def learned_overhead(case: Case) -> Mapping[str, int] | None:
    """Bytes per device that no printed buffer explained, in the case's own runs or earlier; None when none tells."""
    return overhead.joined(case.remembered, case.runs, case.devices, build_of(case)) or None


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


def with_dry_run(budget: Budget, result: OracleResult) -> Budget:
    """The budget with what llama.cpp's dry run measured on devices.

    Its figures are whole MiB, so sizes that agree stay as they are. A difference goes to the largest buffer of its
    kind on that device.
    """
    told = {(row.device, row.kind): row for row in result.rows if row.measured is not None}
    names = {d.name for d in budget.devices}
    buffers = list(budget.buffers)
    for (device, kind), row in told.items():
        kinds = _TABLE_KINDS.get(kind, ())
        places = [
            i
            for i, b in enumerate(buffers)
            if b.device == device and b.kind in kinds and b.context == "main" and device in names
        ]
        for i in places:
            buffers[i] = replace(buffers[i], provenance=Provenance.MEASURED)
        if places and row.difference:
            largest = max(places, key=lambda i: buffers[i].bytes or 0)
            corrected = max(0, (buffers[largest].bytes or 0) - row.difference)
            buffers[largest] = replace(buffers[largest], bytes=corrected, why="measured by llama.cpp's dry run")
    done = tuple(buffers)
    devices = tuple(_with_sums(d, done, d.name) for d in budget.devices)
    return replace(budget, buffers=done, devices=devices)


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
    """The latest run with exactly these settings that loaded to the end, so that every buffer was printed.

    None for devices that no run here can have used.
    """
    if case.not_here:
        return None
    for run in reversed(case.runs):
        whole = run.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED) and run.buffers
        if whole and run.config == case.config and run.binary == case.binary:
            return run
    return None
