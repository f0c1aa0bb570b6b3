"""The fix wizard as values: from what was wanted and what was tried to the next single change, or the verdict.

Every proposal is a pure function of the record, so that going back is the earlier value, a crash loses nothing and the
terminal walks the same way as the window.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from kvstudio.advise.fixes import FIXES, changed_fields, same_cache_types, useless, value_of, with_value
from kvstudio.advise.plan_values import Attempt, RootCause, Trial, TrialKind, Verdict
from kvstudio.advise.rank import order
from kvstudio.advise.situation import KIND_OF_STAGE, Situation, failing_of
from kvstudio.advise.values import Fix
from kvstudio.budget.estimate import estimate
from kvstudio.budget.values import Budget, BufferKind
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Cause, Diagnosis
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

SMALLEST_CTX = 4096
#: Launches the whole walk may take; the edge is searched only while some are left.
MAX_LAUNCHES = 8
EDGE_LAUNCHES = 2
#: An edge closer than this share of the value is close enough.
EDGE_CLOSE = 0.1
TRIES_PER_VARIABLE = 2


@dataclass(frozen=True, slots=True)
class World:
    """What stays the same during a walk."""

    model: ModelInfo
    devices: tuple[Device, ...]
    host: Device | None = None
    build: int | None = None
    overhead: Mapping[str, int] = field(default_factory=dict)

    def estimate(self, config: LaunchConfig) -> Budget:
        return estimate(
            self.model, config, self.devices, host=self.host, build=self.build, overhead=self.overhead or None
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A walk so far: `pending` is the run to make next, `verdict` the end of it; exactly one of them is set."""

    world: World
    wanted: LaunchConfig
    attempts: tuple[Attempt, ...] = ()
    skipped: tuple[str, ...] = ()
    pending: Trial | None = None
    verdict: Verdict | None = None
    max_launches: int = MAX_LAUNCHES

    def ran(self, attempt: Attempt) -> Self:
        """The plan after the pending trial was run."""
        return replace(self, attempts=(*self.attempts, attempt))._proposed()

    def skip(self) -> Self:
        """The plan without the pending variable; the first run cannot be skipped."""
        if self.pending is None or self.pending.variable is None:
            return self
        return replace(self, skipped=(*self.skipped, _skip_key(self.pending)))._proposed()

    def stop(self) -> Self:
        """The walk ended by the person; what was found so far is kept."""
        return replace(self, pending=None, verdict=_stopped(self))

    def _proposed(self) -> Self:
        step = propose(self)
        if isinstance(step, Verdict):
            return replace(self, pending=None, verdict=step)
        return replace(self, pending=step, verdict=None)


def start(world: World, wanted: LaunchConfig, given: Diagnosis | None = None, max_launches: int = MAX_LAUNCHES) -> Plan:
    """A plan whose first run is the command as given; a diagnosis of that very command stands in for the run."""
    plan = Plan(world, wanted, max_launches=max_launches)
    first = _as_given(plan)
    if given is None:
        return replace(plan, pending=first)
    return replace(plan, pending=first).ran(Attempt(first, False, "failed", given))


def propose(plan: Plan) -> Trial | Verdict:
    """The next run, or the end: the whole logic of the wizard."""
    if not plan.attempts:
        return _as_given(plan)
    first = plan.attempts[0]
    if first.worked:
        return Verdict("verified", "The command works as it was given; nothing was changed.", plan.wanted, None)
    stop = _cannot_be_helped(first.diagnosis)
    if stop is not None:
        return Verdict("no_fit", stop, None, None)
    left = plan.max_launches - len(plan.attempts)
    best = _best_working(plan)
    if best is not None:
        put_back = _put_back(plan, best) if left > 0 else None
        if put_back is not None:
            return put_back
        edge = _edge(plan, best) if left > 0 else None
        return edge or _result(plan, best)
    if left <= 0:
        return Verdict("stopped", f"{plan.max_launches} launches were made and none worked.", None, None)
    return _smallest(plan) or _change(plan) or _no_fit(plan)


def _as_given(plan: Plan) -> Trial:
    why = "The command as it was given, so that everything after it has something to differ from."
    predicted = plan.world.estimate(plan.wanted)
    return Trial(TrialKind.AS_GIVEN, plan.wanted, None, None, None, None, "As given", why, "", predicted)


def _cannot_be_helped(diagnosis: Diagnosis | None) -> str | None:
    """The reason when no setting can change the failure."""
    if diagnosis is None or diagnosis.cause not in (Cause.FILE, Cause.UNSUPPORTED) or diagnosis.next_steps:
        return None
    return f"No setting changes this: {diagnosis.summary}"


# --- what launches have shown ---------------------------------------------------------------------------------------


def capacities(plan: Plan) -> dict[str, int]:
    """Per device the memory to plan with, where runs have contradicted what the device reports.

    A device holds at least what a run got from it, and less than what a refused run asked of it. Within these bounds
    the reported free memory counts; outside them it is known to be wrong, and their middle is the next guess.
    """
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for attempt in plan.attempts:
        for name, held in attempt.printed_bytes.items():
            low[name] = max(low.get(name, 0), held)
        refused = _refused(attempt)
        if refused is None:
            continue
        name, asked = refused
        first_asked = attempt.diagnosis is not None and attempt.diagnosis.stage == "weights"
        if name in attempt.printed_bytes or first_asked:  # else what it held before is not known, so no bound is
            bound = attempt.printed_bytes.get(name, 0) + asked - 1
            high[name] = min(high.get(name, bound), bound)
    reported = _reported(plan)
    return {
        name: guess
        for name in {*low, *high}
        if (guess := _guess(reported.get(name), low.get(name, 0), high.get(name))) is not None
    }


def _reported(plan: Plan) -> dict[str, int | None]:
    """Free memory of each device and the host as they say themselves."""
    host = plan.world.host.free_bytes if plan.world.host else None
    return {"Host": host} | {device.name: device.free_bytes for device in plan.world.devices}


def _contradicted(plan: Plan) -> bool:
    """Whether a run has shown that a device does not have what it reports."""
    reported = _reported(plan)
    return any(guess != reported.get(name) for name, guess in capacities(plan).items())


def _guess(reported: int | None, low: int, high: int | None) -> int | None:
    if high is None:
        return max(reported, low) if reported is not None else None
    if reported is not None and low <= reported < high:
        return reported
    return (low + max(high, low)) // 2


def _refused(attempt: Attempt) -> tuple[str, int] | None:
    """Device and bytes of a refusal, from its diagnosis."""
    found = attempt.diagnosis
    if attempt.worked or found is None or found.memory_class != "memory" or not found.requested_bytes:
        return None
    return found.device if found.device and not _is_host(found.device) else "Host", found.requested_bytes


def _is_host(name: str) -> bool:
    return name.startswith("CPU") or name.endswith("_Host") or name == "Host"


def _situation(plan: Plan, base: LaunchConfig, diagnosis: Diagnosis | None) -> Situation:
    """The world of the next change, with what the launches so far have taught."""
    budget = plan.world.estimate(base)
    kind, culprit = failing_of(budget)
    if diagnosis is not None and diagnosis.stage in KIND_OF_STAGE:
        kind = KIND_OF_STAGE[diagnosis.stage]
        culprit = diagnosis.device if diagnosis.device and not _is_host(diagnosis.device) else None
    world = plan.world
    return Situation(
        world.model, base, world.devices, world.host, budget, kind, culprit, world.build, world.overhead,
        capacities(plan),
    )  # fmt: skip


# --- the steps ------------------------------------------------------------------------------------------------------


def _tried(plan: Plan, config: LaunchConfig) -> bool:
    return any(attempt.trial.config == config for attempt in plan.attempts)


def _skip_key(trial: Trial) -> str:
    return f"{trial.kind}:{trial.variable}"


def _trial_of(plan: Plan, kind: TrialKind, parent: int, fix: Fix) -> Trial:
    return Trial(
        kind, fix.config, parent, fix.variable, fix.before, fix.after, fix.title, fix.why, fix.cost, fix.budget
    )


def _smallest(plan: Plan) -> Trial | None:
    """The smallest run, reached one variable at a time: context 4096, then one slot; slots first for recurrent state.

    It tells a launch that is too large from one that cannot work at all. A refusal of the weights comes before context
    and slots matter, and a refused setting is not a matter of size: then there is no smallest run.
    """
    first = plan.attempts[0].diagnosis
    kind = KIND_OF_STAGE.get(first.stage or "") if first else None
    if first is None or first.memory_class == "not_memory" or kind is BufferKind.MODEL:
        return None
    effective = plan.world.estimate(plan.wanted).config
    smaller: list[tuple[str, int, int]] = [
        ("n_ctx", effective.n_ctx, SMALLEST_CTX),
        ("n_parallel", effective.n_parallel, 1),
    ]
    if kind is BufferKind.RS:
        smaller.reverse()
    parent, config = 0, plan.wanted
    for variable, now, least in smaller:
        if now <= least:
            continue
        config = config.evolve(**{variable: least})
        done = next((i for i, a in enumerate(plan.attempts) if a.trial.config == config), None)
        if done is None:
            if f"{TrialKind.SMALLEST}:{variable}" in plan.skipped:
                return None
            name = "context 4096" if variable == "n_ctx" else "1 slot"
            why = "Small enough to work if anything does; if it fails too, size is not the reason."
            predicted = plan.world.estimate(config)
            title = f"Smallest: {name}"
            return Trial(TrialKind.SMALLEST, config, parent, variable, now, least, title, why, "only a test", predicted)
        if plan.attempts[done].worked:
            return None
        parent = done
    return None


def _base(plan: Plan) -> int:
    """The attempt that changes start from: the last kept one, else the command as given."""
    kept = [
        i for i, a in enumerate(plan.attempts) if a.trial.kind is TrialKind.CHANGE and not a.worked and _kept(plan, i)
    ]
    return kept[-1] if kept else 0


def _kept(plan: Plan, index: int) -> bool:
    """A change that did not suffice alone is kept when it moved the failure on: less asked, or a later stage."""
    attempt = plan.attempts[index]
    parent = plan.attempts[attempt.trial.parent or 0]
    before, after = _refused(parent), _refused(attempt)
    if before is None or after is None:
        return False
    stages = ("weights", "kv", "rs", "compute", "output", "decode")
    old, new = (a.diagnosis.stage if a.diagnosis else None for a in (parent, attempt))
    if old in stages and new in stages and stages.index(new) > stages.index(old):
        return True
    return old == new and after[0] == before[0] and after[1] < before[1]


def _change(plan: Plan) -> Trial | None:
    """The next change: a single one that should be enough, else the first of several."""
    return _single_change(plan) or _partial_change(plan)


def _single_change(plan: Plan) -> Trial | None:
    """The best single change from the base that should work with what is known now."""
    for parent in dict.fromkeys((_base(plan), 0)):
        base = plan.attempts[parent]
        for fix in _candidates(plan, base):
            tries = sum(a.trial.variable == fix.variable and a.trial.kind is TrialKind.CHANGE for a in plan.attempts)
            if (
                tries >= TRIES_PER_VARIABLE
                or _tried(plan, fix.config)
                or f"{TrialKind.CHANGE}:{fix.variable}" in plan.skipped
            ):
                continue
            return _trial_of(plan, TrialKind.CHANGE, parent, fix)
    return None


def _candidates(plan: Plan, base: Attempt) -> tuple[Fix, ...]:
    """Fixes for an attempt's failure: what the diagnosis names for settings, else the ranked variables."""
    situation = _situation(plan, base.trial.config, base.diagnosis)
    named = _named_by_diagnosis(situation, base.diagnosis)
    if base.diagnosis is not None and base.diagnosis.memory_class == "not_memory":
        return named
    found = tuple(
        fix
        for name in order(situation.failing, single_types=not same_cache_types(plan.world.model))
        if useless(name, situation.failing, situation) is None and (fix := FIXES[name](situation)) is not None
    )
    single = tuple(
        fix for fix in found if len(changed_fields(base.trial.config, fix.config)) == 1 or fix.variable == "cache_type"
    )
    return single + named


def _named_by_diagnosis(situation: Situation, diagnosis: Diagnosis | None) -> tuple[Fix, ...]:
    """Single changes the diagnosis itself proposes (a refused setting, a fit that aborts)."""
    fixes = []
    for step in diagnosis.next_steps if diagnosis else ():
        if len(step.change) != 1:
            continue
        variable, after = next(iter(step.change.items()))
        if variable not in LaunchConfig.__dataclass_fields__ or getattr(situation.config, variable) == after:
            continue
        if diagnosis and diagnosis.memory_class == "memory" and variable in FIXES:
            continue  # the solver's size of this change is better than the log's
        config, budget = situation.try_change(**{variable: after})
        before = getattr(situation.config, variable)
        fixes.append(
            Fix(
                variable,
                before,
                after,
                f"{variable} {after}",
                step.why,
                "",
                config,
                budget,
                situation.room_bytes(budget),
            )
        )
    return tuple(fixes)


#: Changes large enough to matter when no single one suffices, least harm first: variable, value, title, cost.
_LADDER: tuple[tuple[str, Any, str, str], ...] = (
    ("tensor_split", None, "Split by free memory", "no cost"),
    ("swa_full", None, "No --swa-full", "less prompt reuse"),
    ("flash_attn", "on", "Flash attention on", "no cost where the device has it"),
    ("cache_type_k", "q8_0", "K type q8_0", "slightly less precise cache"),
    ("cache_type_v", "q8_0", "V type q8_0", "slightly less precise cache"),
    ("n_parallel", 1, "1 slot", "one request at a time"),
    ("n_ubatch", 128, "Micro-batch 128", "slower prompt processing"),
    ("cpu_moe", True, "All experts on the CPU", "slower generation"),
    ("n_ctx", SMALLEST_CTX, f"Context {SMALLEST_CTX}", "much shorter context"),
    ("n_gpu_layers", 0, "No GPU layers", "much slower generation"),
)


def _partial_change(plan: Plan) -> Trial | None:
    """When no single change suffices: the mildest one after which another would, kept as the base of the next.

    Each step still changes one variable from a run that was made. Where no pair is predicted to be enough either, the
    change that takes most off the culprit goes first.
    """
    parent = _base(plan)
    base = plan.attempts[parent]
    situation = _situation(plan, base.trial.config, base.diagnosis)
    need = situation.need_of_culprit(situation.budget)
    options: list[tuple[int, Fix]] = []
    for variable, after, title, cost in _LADDER:
        before = getattr(base.trial.config, variable)
        if before == after or f"{TrialKind.CHANGE}:{variable}" in plan.skipped:
            continue
        if useless(variable, situation.failing, situation) or (variable == "cpu_moe" and not plan.world.model.n_expert):
            continue
        config, budget = situation.try_change(**{variable: after})
        saved = need - situation.need_of_culprit(budget)
        if saved <= 0 or _tried(plan, config):
            continue
        why = "No single change is enough; after this one, which is kept, one more is."
        fix = Fix(variable, before, after, title, why, cost, config, budget, situation.room_bytes(budget))
        if _one_more_fits(situation, fix):
            return _trial_of(plan, TrialKind.CHANGE, parent, fix)
        options.append((saved, fix))
    if not options:
        return None
    _, fix = max(options, key=lambda option: option[0])
    return _trial_of(plan, TrialKind.CHANGE, parent, fix)


def _one_more_fits(situation: Situation, fix: Fix) -> bool:
    """Whether a single further change is predicted to be enough."""
    kind, culprit = failing_of(fix.budget)
    after = replace(situation, config=fix.config, budget=fix.budget, failing=kind, culprit=culprit)
    return any(
        FIXES[name](after) is not None
        for name in order(kind, single_types=not same_cache_types(situation.model))
        if name != fix.variable and useless(name, kind, after) is None
    )


def changed(plan: Plan, before: LaunchConfig, after: LaunchConfig) -> tuple[str, ...]:
    """Variables that differ; K and V types are one where the model refuses two."""
    return changed_fields(before, after, paired_types=same_cache_types(plan.world.model))


def _differs_from_wanted(plan: Plan, config: LaunchConfig) -> tuple[str, ...]:
    return changed(plan, plan.wanted, config)


def _best_working(plan: Plan) -> int | None:
    """The working attempt nearest to what was wanted.

    The smallest run is only a test as long as a milder single change may work; then it counts, if it is one itself.
    """
    working = [i for i, a in enumerate(plan.attempts) if a.worked]
    real = [i for i in working if plan.attempts[i].trial.kind is not TrialKind.SMALLEST]
    if real:
        return min(real, key=lambda i: (_distance(plan, plan.attempts[i].trial.config), -i))
    if not working or _single_change(plan) is not None:
        return None
    smallest = working[-1]
    alone = len(_differs_from_wanted(plan, plan.attempts[smallest].trial.config)) == 1
    return smallest if alone or _partial_change(plan) is None else None


def _distance(plan: Plan, config: LaunchConfig) -> tuple[int, float]:
    """How far from what was wanted: variables changed, then the share of the context and slots lost."""
    now, want = plan.world.estimate(config).config, plan.world.estimate(plan.wanted).config
    lost = (1 - now.n_ctx / max(1, want.n_ctx)) + (1 - now.n_parallel / max(1, want.n_parallel))
    return len(_differs_from_wanted(plan, config)), lost


def _put_back(plan: Plan, best: int) -> Trial | None:
    """Revert one of several changes; what still works without it was not needed."""
    config = plan.attempts[best].trial.config
    differing = _differs_from_wanted(plan, config)
    if len(differing) < 2:
        return None
    for variable in differing:
        wanted = value_of(plan.wanted, variable)
        reverted = with_value(config, variable, wanted)
        if _tried(plan, reverted) or f"{TrialKind.PUT_BACK}:{variable}" in plan.skipped:
            continue
        why = "Put back, to see whether this change was needed at all."
        now, title = value_of(config, variable), f"Put back {variable}"
        predicted = plan.world.estimate(reverted)
        return Trial(TrialKind.PUT_BACK, reverted, best, variable, now, wanted, title, why, "", predicted)
    return None


def _edge(plan: Plan, best: int) -> Trial | None:
    """A value between the largest that worked and the smallest that failed, for a variable that is a size."""
    config = plan.attempts[best].trial.config
    differing = _differs_from_wanted(plan, config)
    if len(differing) != 1 or differing[0] not in ("n_ctx", "n_parallel", "n_gpu_layers"):
        return None
    variable = differing[0]
    if (
        sum(a.trial.kind is TrialKind.EDGE for a in plan.attempts) >= EDGE_LAUNCHES
        or f"{TrialKind.EDGE}:{variable}" in plan.skipped
    ):
        return None
    good = _size(plan, config, variable)
    bad = min(
        (_size(plan, a.trial.config, variable) for a in plan.attempts
         if not a.worked and set(changed(plan, config, a.trial.config)) <= {variable}),
        default=None,
    )  # fmt: skip
    step = (
        256 * (1 if plan.world.estimate(config).config.kv_unified else max(1, config.n_parallel or 1))
        if variable == "n_ctx"
        else 1
    )
    if bad is None or bad - good <= max(step, EDGE_CLOSE * good):
        return None
    middle = (good + bad) // 2 // step * step
    predicted = FIXES[variable](_situation(plan, plan.wanted, plan.attempts[0].diagnosis))
    if predicted is not None:
        edge = _size(plan, predicted.config, variable)
        if good * (1 + EDGE_CLOSE) < edge < bad:
            middle = edge
        elif not _contradicted(plan):
            return None  # what works is where the numbers put the edge, and no run has proved them wrong
    tried = config.evolve(**{variable: middle})
    if middle <= good or _tried(plan, tried):
        return None
    why = f"{good} works and {bad} does not; the edge lies between them."
    return Trial(TrialKind.EDGE, tried, best, variable, good, middle, f"Edge: {variable} {middle}", why, "",
                 plan.world.estimate(tried))  # fmt: skip


def _size(plan: Plan, config: LaunchConfig, variable: str) -> int:
    budget = plan.world.estimate(config)
    if variable == "n_gpu_layers":
        return budget.offloaded_layers[0]
    value: int = getattr(budget.config, variable)
    return value


# --- the end --------------------------------------------------------------------------------------------------------

_CAPTIONS = {
    "n_ctx": "the context",
    "n_parallel": "the number of slots",
    "cache_type": "the K and V type",
    "cache_type_k": "the K type",
    "cache_type_v": "the V type",
    "n_gpu_layers": "the number of GPU layers",
    "n_cpu_moe": "experts on the device",
    "cpu_moe": "experts on the device",
    "tensor_split": "the split ratio",
    "swa_full": "--swa-full",
    "flash_attn": "flash attention",
    "n_ubatch": "the micro-batch",
    "fit": "llama.cpp's own fit",
    "device": "the choice of devices",
    "kv_offload": "the KV cache on the device",
}


def root_cause(plan: Plan) -> RootCause | None:
    """The variable of a pair of runs, one failed and one working, that differ in nothing else.

    The pair nearest to the command as given counts, so a pair with it wins over one between two changed runs.
    """
    pairs = []
    for i, failed in enumerate(plan.attempts):
        for j, worked in enumerate(plan.attempts):
            if failed.worked or not worked.worked:
                continue
            names = changed(plan, failed.trial.config, worked.trial.config)
            if len(names) == 1:
                own = worked.trial.kind is TrialKind.SMALLEST
                far = len(_differs_from_wanted(plan, failed.trial.config))
                pairs.append(((far, own, -j, i), names[0], i, j))
    if not pairs:
        return None
    _, variable, i, j = min(pairs)
    failed, worked = plan.attempts[i], plan.attempts[j]
    old, new = value_of(failed.trial.config, variable), value_of(worked.trial.config, variable)
    where = f": {_what_happened(failed.diagnosis)}" if failed.diagnosis else ""
    says = (
        f"It was {_CAPTIONS.get(variable, variable)}. With {_value(variable, old)} the launch fails{where}; "
        f"with {_value(variable, new)}, and nothing else changed, it works."
    )
    return RootCause(variable, says, i, j)


def _what_happened(diagnosis: Diagnosis) -> str:
    """The refusal by its title; for anything but memory the sentence says more."""
    return diagnosis.title if diagnosis.memory_class == "memory" else diagnosis.summary.rstrip(".")


def _value(variable: str, value: Any) -> str:
    if value is None:
        return f"{variable} left to its default"
    if isinstance(value, tuple):
        return f"{variable} " + ",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in value)
    return f"{variable} {str(value).lower() if isinstance(value, bool) else value}"


def needed(plan: Plan, best: int) -> tuple[str, ...]:
    """Changes of a working run without which, and with nothing else different, a run failed."""
    config = plan.attempts[best].trial.config
    pairs = (changed(plan, a.trial.config, config) for a in plan.attempts if not a.worked)
    single = {pair[0] for pair in pairs if len(pair) == 1}
    return tuple(name for name in _differs_from_wanted(plan, config) if name in single)


def _result(plan: Plan, best: int) -> Verdict:
    config = plan.attempts[best].trial.config
    cause = root_cause(plan)
    differing = _differs_from_wanted(plan, config)
    proven = needed(plan, best)
    rest = tuple(name for name in differing if name not in proven)
    if cause is None:
        says = f"It works with {' and '.join(differing)} changed, but no pair of runs separates them."
    elif len(proven) > 1:
        named = " and ".join(_CAPTIONS.get(name, name) for name in proven)
        says = f"{len(proven)} changes are needed together, {named}: putting back any one of them fails. {cause.says}"
    else:
        says = cause.says
    return Verdict("verified", f"{says}{_should_have_fit(plan)}", config, cause, rest)


def _should_have_fit(plan: Plan) -> str:
    """A sentence for a launch that was refused memory although the numbers leave room; empty otherwise."""
    first = plan.attempts[0]
    predicted, found = first.trial.predicted, first.diagnosis
    if predicted is None or predicted.fits is not True or found is None or found.memory_class != "memory":
        return ""
    return (
        " By the numbers the first launch had room, so this is not the capacity of a device: look for a limit of the "
        "backend or of the process, and try another backend or an older binary on the same command."
    )


def _no_fit(plan: Plan) -> Verdict:
    """The hard limit, in numbers."""
    diagnosis = plan.attempts[0].diagnosis
    says = "No single change, and no combination that was tried, makes this launch work."
    budget = plan.world.estimate(plan.wanted)
    weights = sum(d.model_bytes for d in (*budget.devices, budget.host))
    memory = [d.free_bytes for d in (*budget.devices, budget.host)]
    if all(m is not None for m in memory) and weights > sum(m for m in memory if m is not None):
        says = "The weights alone are larger than all free memory together; no setting can change that."
    if diagnosis is not None:
        says = f"{says} {diagnosis.summary}"
    return Verdict("no_fit", says, None, root_cause(plan))


def _stopped(plan: Plan) -> Verdict:
    best = _best_working(plan)
    config = plan.attempts[best].trial.config if best is not None else None
    return Verdict("stopped", "Stopped before the end; what was found is kept.", config, root_cause(plan))
