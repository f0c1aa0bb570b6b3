"""The end of a walk: the root cause from pairs of runs, the result, the hard limit."""

from dataclasses import replace

from kvstudio.advise.beyond import builds_of, release, title_of
from kvstudio.advise.further import longer_context
from kvstudio.advise.hard_limit import hard_limit
from kvstudio.advise.hard_limit import says as limit_says
from kvstudio.advise.learned import over_cap, should_fit
from kvstudio.advise.plan_values import Attempt, RootCause, TrialKind, Verdict
from kvstudio.advise.record import Record, changed, differs, differs_from_wanted, typed_difference, with_typed
from kvstudio.advise.refine import best_working
from kvstudio.diagnose.values import Cause, Diagnosis
from kvstudio.units import format_bytes, format_room

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
    "load_mode": "how the weights are loaded",
    "repack": "repacked copies of the weights",
    "binary": "the build of llama.cpp",
    "other_process": "another process' memory",
}


def cannot_be_helped(diagnosis: Diagnosis | None) -> str | None:
    """The reason when no setting can change the failure."""
    if diagnosis is None or diagnosis.cause not in (Cause.FILE, Cause.UNSUPPORTED) or diagnosis.next_steps:
        return None
    return f"No setting changes this: {diagnosis.summary}"


def root_cause(record: Record) -> RootCause | None:
    """The variable of a pair of runs, one failed and one working, that differ in nothing else.

    The pair nearest to the command as given counts, so a pair with it wins over one between two changed runs.
    """
    pairs = []
    for i, failed in enumerate(record.attempts):
        for j, worked in enumerate(record.attempts):
            if failed.worked or not worked.worked:
                continue
            names = differs(record, failed.trial, worked.trial)
            if len(names) == 1:
                own = worked.trial.kind is TrialKind.SMALLEST
                far = len(differs_from_wanted(record, failed.trial.config))
                pairs.append(((far, own, -j, i), names[0], i, j))
    if not pairs:
        return None
    _, variable, i, j = min(pairs)
    return RootCause(variable, _cause_says(record, variable, record.attempts[i], record.attempts[j]), i, j)


def _cause_says(record: Record, variable: str, failed: Attempt, worked: Attempt) -> str:
    where = f": {_what_happened(failed.diagnosis)}" if failed.diagnosis else ""
    if variable == "other_process":
        ended = [c for c in record.world.competitors() if c.pid in set(worked.trial.freed) - set(failed.trial.freed)]
        names = ", ".join(f"{c.name} ({c.pid}) held {format_room(c.bytes)} of {c.device}" for c in ended)
        return f"It was another process' memory. While {names}, the launch fails{where}; without it, it works as given."
    if variable == "binary":
        return _builds_say(record, failed, worked, where)
    gone, come = typed_difference(failed.trial.config, worked.trial.config)
    return (
        f"It was {_CAPTIONS.get(variable, variable)}. W{with_typed(gone, come)[1:]} the launch fails{where}; "
        f"{with_typed(come, gone)}, and nothing else changed, it works."
    )


def _builds_say(record: Record, failed: Attempt, worked: Attempt, where: str) -> str:
    bad, good = failed.trial.config.program, worked.trial.config.program
    bad_build, good_build = builds_of(record, bad), builds_of(record, good)
    newer_fails = bad_build is not None and good_build is not None and good_build < bad_build
    named = "a regression" if newer_fails else "a difference between builds"
    return (
        f"It is {named} of llama.cpp. The same command fails with {title_of(record, bad)}{where}; "
        f"it works with {title_of(record, good)}."
    )


def _what_happened(diagnosis: Diagnosis) -> str:
    """The refusal by its title; for anything but memory the sentence says more."""
    return diagnosis.title if diagnosis.memory_class == "memory" else diagnosis.summary.rstrip(".")


def needed(record: Record, best: int) -> tuple[str, ...]:
    """Changes of a working run without which, and with nothing else different, a run failed."""
    config = record.attempts[best].trial.config
    pairs = (changed(record, a.trial.config, config) for a in record.attempts if not a.worked)
    single = {pair[0] for pair in pairs if len(pair) == 1}
    return tuple(name for name in differs_from_wanted(record, config) if name in single)


def not_separated(record: Record, best: int) -> tuple[str, ...]:
    """Changes of a working run that no pair of runs has shown to be needed."""
    proven = needed(record, best)
    return tuple(n for n in differs_from_wanted(record, record.attempts[best].trial.config) if n not in proven)


def result(record: Record, best: int) -> Verdict:
    """The working command and what made the difference."""
    config = record.attempts[best].trial.config
    cause = root_cause(record)
    differing = differs_from_wanted(record, config)
    proven, rest = needed(record, best), not_separated(record, best)
    if cause is None:
        says = f"It works with {' and '.join(differing)} changed, but no pair of runs separates them."
    elif len(proven) > 1:
        named = " and ".join(_CAPTIONS.get(name, name) for name in proven)
        says = f"{len(proven)} changes are needed together, {named}: putting back any one of them fails. {cause.says}"
    else:
        says = cause.says
    says = f"{says}{_should_have_fit(record, cause)}{longer_context(record, config)}"
    return Verdict("verified", says, config, cause, rest)


def _should_have_fit(record: Record, cause: RootCause | None) -> str:
    """A sentence for a launch that was refused memory although the numbers leave room; empty otherwise."""
    if not should_fit(record) or (cause is not None and cause.variable == "binary"):
        return ""
    found = record.first.diagnosis
    if found is not None and over_cap(found):
        most, asked = format_bytes(found.limit_bytes or 0), format_bytes(found.requested_bytes or 0)
        return (
            f" This is not the capacity of a device: {found.device} takes at most {most} in one allocation, and "
            f"{asked} were asked for."
        )
    tried = [a.trial.config.program for a in record.attempts if a.trial.kind is TrialKind.BINARY and not a.worked]
    also = f" {', '.join(title_of(record, path) for path in tried)} fails alike." if tried else ""
    untried = "" if tried else ", and try another backend or an older binary on the same command"
    return (
        " By the numbers the first launch had room, so this is not the capacity of a device: look for a limit of the "
        f"backend or of the process{untried}.{also}"
    )


def only_undone(record: Record) -> Verdict | None:
    """The end where nothing but a change that was undone works; None where none of those did."""
    worked = [i for i in record.undone if record.attempts[i].worked]
    if not worked:
        return None
    found = result(record, worked[-1])
    return replace(found, says=f"Nothing else was found than what was undone. {found.says}")


def no_fit(record: Record) -> Verdict:
    """The hard limit, in numbers."""
    diagnosis = record.first.diagnosis
    says = "No single change, and no combination that was tried, makes this launch work."
    budget = record.estimate(record.wanted)
    places = (*budget.devices, budget.host)
    weights = sum(place.model_bytes - place.mapped_bytes for place in places)
    memory = [place.free_bytes for place in places]
    if all(m is not None for m in memory) and weights > sum(m for m in memory if m is not None):
        says = "The weights alone are larger than all free memory together; no setting can change that."
    limit = hard_limit(record) if diagnosis is None or diagnosis.memory_class == "memory" else None
    if limit is not None:
        says = f"{says} {limit_says(limit, record)}"
    rival = release(record)
    if rival is not None:
        says = f"{says} Without {rival.name} ({rival.pid}), which holds {format_room(rival.bytes)}, it would fit."
    if diagnosis is not None:
        says = f"{says} {diagnosis.summary}"
    return Verdict("no_fit", says, None, root_cause(record), hard_limit=limit)


def stopped(record: Record, says: str = "Stopped before the end; what was found is kept.") -> Verdict:
    """The walk ended early, with the best that was found."""
    best = best_working(record)
    if best is None:
        return Verdict("stopped", says, None, root_cause(record))
    config = record.attempts[best].trial.config
    return Verdict("stopped", says, config, root_cause(record), not_separated(record, best))
