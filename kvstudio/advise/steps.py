"""Steps of a walk towards a first working run: the smallest run, then single changes, then the first of several."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvstudio.advise.accepted import accepted
from kvstudio.advise.fixes import FIXES, changed_fields, may_fit, same_cache_types, useless
from kvstudio.advise.fixes import SMALLEST_CTX as LEAST_CTX
from kvstudio.advise.learned import refused, situation
from kvstudio.advise.plan_values import Attempt, Trial, TrialKind
from kvstudio.advise.rank import order
from kvstudio.advise.record import Record, typed_difference, with_typed
from kvstudio.advise.situation import KIND_OF_STAGE, Situation, failing_of
from kvstudio.advise.values import Fix
from kvstudio.budget.values import BufferKind
from kvstudio.diagnose.values import Cause, Diagnosis
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import format_bytes

SMALLEST_CTX = 4096
TRIES_PER_VARIABLE = 2
_STAGES = ("weights", "kv", "rs", "compute", "output", "decode")


def as_given(record: Record) -> Trial:
    """The command as it was typed."""
    why = "The command as it was given, so that everything after it has something to differ from."
    predicted = record.estimate(record.wanted)
    host = predicted.host
    if host.fits is False:
        asked, free = format_bytes(host.need_bytes - host.mapped_bytes), format_bytes(host.free_bytes or 0)
        why = f"{why} It asks for {asked} of RAM and {free} are free, so the system may end it, or other programs."
    return Trial(TrialKind.AS_GIVEN, record.wanted, None, None, None, None, "As given", why, "", predicted)


def trial_of(record: Record, parent: int, fix: Fix, why: str | None = None) -> Trial:
    """A fix as a run to make."""
    return Trial(
        TrialKind.CHANGE, fix.config, parent, fix.variable, fix.before, fix.after, fix.title, why or fix.why, fix.cost,
        fix.budget, record.freed,
    )  # fmt: skip


#: What the next milder value of a variable would do: each proposal is the smallest change of it that should work.
_MILDER = {
    "n_parallel": "More slots would not fit.",
    "n_ubatch": "A larger one would not fit.",
    "n_gpu_layers": "More layers would not fit.",
    "n_cpu_moe": "Those of fewer layers would not be enough.",
    "cache_type": "A more precise type would not fit.",
    "cache_type_k": "A more precise type would not fit.",
    "cache_type_v": "A more precise type would not fit.",
}


def _smallest_change(record: Record, parent: int, fix: Fix) -> Trial:
    """The smallest change of a variable that should be enough, and words that say so."""
    milder = _MILDER.get(fix.variable, "")
    if (
        fix.variable == "n_gpu_layers"
        and fix.after > record.estimate(record.attempts[parent].trial.config).offloaded_layers[0]
    ):
        milder = "Fewer layers would not be enough."
    return trial_of(record, parent, fix, f"{fix.why} {milder}".strip())


def smallest(record: Record, whatever_the_numbers_say: bool = False) -> Trial | None:
    """The smallest run, reached one variable at a time: context 4096, then one slot; slots first for recurrent state.

    It tells a launch that is too large from one that cannot work at all. A refusal of the weights comes before context
    and slots matter, and a refused setting is not a matter of size: then there is no smallest run. Nor is there one
    that the numbers, as far as launches have borne them out, do not let work either: that would teach nothing new.
    """
    first = record.first.diagnosis
    kind = KIND_OF_STAGE.get(first.stage or "") if first else None
    if first is None or first.memory_class == "not_memory" or kind is BufferKind.MODEL:
        return None
    parent, config, sizes = record.start_index, record.wanted, _sizes(record, kind)
    if not whatever_the_numbers_say and not _may_work(
        record, config.evolve(**{name: least for name, _, least in sizes})
    ):
        return None
    for variable, now, least in sizes:
        config = config.evolve(**{variable: least})
        done = _made(record, config)
        if done is None:
            if record.was_skipped(TrialKind.SMALLEST, variable):
                return None
            return _smallest_trial(record, parent, config, variable, now, least)
        if record.attempts[done].worked:
            return None
        parent = done
    return None


def _may_work(record: Record, config: LaunchConfig) -> bool:
    """Whether the numbers leave settings a chance, or say nothing of them."""
    here, budget = situation(record, record.wanted, record.first.diagnosis), record.estimate(config)
    return budget.fits is not False or here.fits(budget)


def _sizes(record: Record, kind: BufferKind | None) -> list[tuple[str, int, int]]:
    """Variables of the smallest run that are larger now: name, value, smallest."""
    effective = record.estimate(record.wanted).config
    sizes = [("n_ctx", effective.n_ctx, SMALLEST_CTX), ("n_parallel", effective.n_parallel, 1)]
    if kind is BufferKind.RS:
        sizes.reverse()
    return [size for size in sizes if size[1] > size[2]]


def _made(record: Record, config: LaunchConfig) -> int | None:
    """The attempt with these settings in the world as it is now."""
    runs = enumerate(record.attempts)
    return next((i for i, a in runs if a.trial.config == config and a.trial.freed == record.freed), None)


def _smallest_trial(record: Record, parent: int, config: LaunchConfig, variable: str, now: int, least: int) -> Trial:
    name = f"context {SMALLEST_CTX}" if variable == "n_ctx" else "1 slot"
    why = "Small enough to work if anything does; if it fails too, size is not the reason."
    typed = getattr(record.wanted, variable)
    now = typed if typed and typed > 0 else now  # what was typed, where it was: contexts are padded
    return Trial(
        TrialKind.SMALLEST, config, parent, variable, now, least, f"Smallest: {name}", why, "only a test",
        record.estimate(config), record.freed,
    )  # fmt: skip


def base_of(record: Record) -> int:
    """The attempt that changes start from: the last kept one, else the command as given."""
    kept = [
        i
        for i, a in enumerate(record.attempts)
        if i > record.start_index and a.trial.kind is TrialKind.CHANGE and not a.worked
        if i not in record.undone and (_kept(record, i) or _nearer(record, i))
    ]
    return kept[-1] if kept else record.start_index


def _kept(record: Record, index: int) -> bool:
    """A change that did not suffice alone is kept when it moved the failure on: less asked, or a later stage.

    Settings that are taken at last are further on than any memory that was missing before.
    """
    attempt = record.attempts[index]
    parent = record.attempts[attempt.trial.parent or 0]
    if parent.diagnosis and attempt.diagnosis and _by_settings(parent.diagnosis) is not _by_settings(attempt.diagnosis):
        if _by_settings(parent.diagnosis):
            return attempt.diagnosis.memory_class == "memory"  # the settings are taken now, and memory is what is left
        # The weights are there: the settings of a context are looked at only after them.
        return _stage(parent) == "weights" and not _new_errors(parent, attempt)
    before, after = refused(parent), refused(attempt)
    if before is None or after is None:
        return False
    old, new = _stage(parent), _stage(attempt)
    if old in _STAGES and new in _STAGES and _STAGES.index(new) > _STAGES.index(old):
        return True
    return old == new and after[0] == before[0] and after[1] < before[1]


def _by_settings(found: Diagnosis) -> bool:
    return found.memory_class == "not_memory" and found.cause is Cause.CONFIG


def _stage(attempt: Attempt) -> str | None:
    return attempt.diagnosis.stage if attempt.diagnosis else None


def _new_errors(parent: Attempt, attempt: Attempt) -> bool:
    """Whether a change is refused itself."""
    before, after = (a.trial.predicted.config.errors if a.trial.predicted else () for a in (parent, attempt))
    return bool(set(after) - set(before))


def _nearer(record: Record, index: int) -> bool:
    """A change that was not meant to suffice alone is kept when less is missing after it, by the numbers.

    The refusal itself does not tell where something else than size is wrong too.
    """
    trial = record.attempts[index].trial
    here = situation(record, record.attempts[trial.parent or 0].trial.config, None)
    after = record.estimate(trial.config)
    return not here.fits(after) and here.short_bytes(after) < here.short_bytes(here.budget)


def again(record: Record) -> Trial | None:
    """The variable of the last run once more, from where that run started, with what its failure has taught."""
    last = record.attempts[-1].trial
    name = last.variable
    if (
        last.kind is not TrialKind.CHANGE
        or name not in ("n_ctx", "n_parallel", "n_gpu_layers", "n_cpu_moe", "n_ubatch")
        or last.parent is None
        or last.predicted is None
        or last.predicted.fits is False
        or len(record.attempts) - 1 in record.undone
        or record.tries(TrialKind.CHANGE, name) >= TRIES_PER_VARIABLE
        or record.was_skipped(TrialKind.CHANGE, name)
    ):
        return None
    parent = record.attempts[last.parent]
    here = situation(record, parent.trial.config, parent.diagnosis)
    fix = FIXES[name](here)
    if fix is None or record.was_tried(fix.config):
        return None
    step = _smallest_change(record, last.parent, fix)
    return replace(step, why=f"{fix.before or 'The default'} and {last.after} were refused. {step.why}")


def single_change(record: Record) -> Trial | None:
    """The best single change from the base that should work with what is known now."""
    for parent in dict.fromkeys((base_of(record), record.start_index)):
        for fix in candidates(record, record.attempts[parent]):
            if (
                record.tries(TrialKind.CHANGE, fix.variable) >= TRIES_PER_VARIABLE
                or record.was_tried(fix.config)
                or record.was_skipped(TrialKind.CHANGE, fix.variable)
            ):
                continue
            return _smallest_change(record, parent, fix)
    return None


def candidates(record: Record, base: Attempt) -> Iterator[Fix]:
    """Fixes for an attempt's failure: what the diagnosis names for settings, else the ranked variables.

    Each is worked out when it is asked for: it takes some dozen estimates.
    """
    here = situation(record, base.trial.config, base.diagnosis)
    if base.diagnosis is None or base.diagnosis.memory_class != "not_memory":
        for name in order(here.failing, single_types=not same_cache_types(record.world.model)):
            fix = FIXES[name](here) if useless(name, here.failing, here) is None else None
            if fix is None:
                continue
            if fix.variable == "cache_type" or len(changed_fields(base.trial.config, fix.config)) == 1:
                yield fix
    yield from _named_by_diagnosis(here, base.diagnosis)
    if not here.budget.config.errors:
        return
    refused_settings = base.diagnosis is not None and base.diagnosis.memory_class == "not_memory"
    need = here.need_of_culprit(here.budget)
    yield from (fix for fix in accepted(here) if refused_settings or here.need_of_culprit(fix.budget) <= need)
    if refused_settings:
        # They have to go even where what is left is too large: that is the next step.
        yield from accepted(here, and_fits=False)


def _named_by_diagnosis(here: Situation, diagnosis: Diagnosis | None) -> tuple[Fix, ...]:
    """Single changes the diagnosis itself proposes (a refused setting, a fit that aborts)."""
    fixes = []
    for step in diagnosis.next_steps if diagnosis else ():
        if len(step.change) != 1:
            continue
        variable, after = next(iter(step.change.items()))
        after = tuple(after) if isinstance(after, list) else after
        if variable not in LaunchConfig.__dataclass_fields__ or getattr(here.config, variable) == after:
            continue
        if diagnosis and diagnosis.memory_class == "memory" and variable in FIXES:
            continue  # the solver's size of this change is better than the log's
        if variable == "n_ctx" and diagnosis and diagnosis.memory_class == "not_memory":
            # A context that was full: the log's proposal knows nothing of the model's own length, which is the default.
            after = max(after, 2 * here.budget.config.n_ctx)
        config, budget = here.try_change(**{variable: after})
        if here.failing is not None and here.need_of_culprit(budget) > here.need_of_culprit(here.budget):
            continue
        before, room = getattr(here.config, variable), here.room_bytes(budget)
        gone, come = typed_difference(here.config, config)
        title = with_typed(come, gone)
        title = f"{title[0].upper()}{title[1:]}"
        fixes.append(Fix(variable, before, after, title, step.why, "", config, budget, room))
    # One that is expected to be refused for another reason only when nothing else is left.
    return tuple(sorted(fixes, key=lambda fix: here.newly_refused(fix.budget)))


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
    ("cache_type_k", "q4_0", "K type q4_0", "clearly less precise cache"),
    ("cache_type_v", "q4_0", "V type q4_0", "clearly less precise cache"),
    ("n_ctx", LEAST_CTX, f"Context {LEAST_CTX}", "much shorter context"),
    ("n_ubatch", 32, "Micro-batch 32", "much slower prompt processing"),
)


def partial_change(record: Record) -> Trial | None:
    """When no single change suffices: the mildest one after which another would, kept as the base of the next.

    Each step still changes one variable from a run that was made. Where no pair is predicted to be enough either, the
    change after which least is missing goes first, and of those alike the one that takes most off the culprit.
    """
    parent = base_of(record)
    base = record.attempts[parent]
    if base.diagnosis is not None and base.diagnosis.memory_class == "not_memory":
        return None
    here = situation(record, base.trial.config, base.diagnosis)
    need = here.need_of_culprit(here.budget)
    options: list[tuple[int, int, Fix]] = []
    for fix in _rungs(record, base, here):
        saved = need - here.need_of_culprit(fix.budget)
        if saved <= 0 or record.was_tried(fix.config):
            continue
        if _one_more_fits(here, fix):
            return trial_of(record, parent, fix)
        options.append((-here.short_bytes(fix.budget), saved, fix))
    if not options:
        return None
    *_, fix = max(options, key=lambda option: option[:2])
    return trial_of(record, parent, fix)


def _rungs(record: Record, base: Attempt, here: Situation) -> list[Fix]:
    """The steps of the ladder that apply here."""
    found = []
    why = "No single change is enough; after this one, which is kept, one more is."
    for variable, after, title, cost in _LADDER:
        before = getattr(base.trial.config, variable)
        if before == after or record.was_skipped(TrialKind.CHANGE, variable):
            continue
        if useless(variable, here.failing, here) or (variable == "cpu_moe" and not record.world.model.n_expert):
            continue
        if same_cache_types(record.world.model) and variable in ("cache_type_k", "cache_type_v"):
            continue  # one of two types that must agree
        if variable == "flash_attn" and before != "off":
            continue  # on by itself, wherever the device has it
        config, budget = here.try_change(**{variable: after})
        if here.newly_refused(budget):
            continue
        found.append(Fix(variable, before, after, title, why, cost, config, budget, here.room_bytes(budget)))
    return found


def _one_more_fits(here: Situation, fix: Fix) -> bool:
    """Whether a single further change is predicted to be enough."""
    kind, culprit = failing_of(fix.budget)
    after = replace(here, config=fix.config, budget=fix.budget, failing=kind, culprit=culprit)
    names = order(kind, single_types=not same_cache_types(here.model))
    return any(
        may_fit(name, after)
        # The placement last: each ratio takes estimates of its own, the others one.
        for name in sorted(names, key=lambda name: name == "split_ratio")
        if name != fix.variable and useless(name, kind, after) is None
    )
