"""Runs ended by something else than refused memory: the system, the file, the settings, a missing ability, a fault."""

from kvstudio.diagnose import missing, quoting, stage, steps, where
from kvstudio.diagnose.facts import RunFacts
from kvstudio.diagnose.quoting import ENDINGS, Texts
from kvstudio.diagnose.timeline import Mark, Timeline
from kvstudio.diagnose.values import Cause, Diagnosis, NextStep, Outcome
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import BufferPrinted

#: Lines up to this rank are overcome when the run goes on to allocate buffers.
OVERCOME_RANK = 3
#: It was only measured, and goes without.
_MEASURED = ("draft_unmeasured", "extra_unmeasured")
_NOWHERE = where.Where(None, None, None, True, None, None, None)
_RUNTIME = ("illegal_access", "runtime_other", "driver_version", "blas_start")
#: Memory may be the reason, which only another log or the free memory would tell.
_OPEN = ("rpc_gone", "blas_start")
_TITLES = {
    Cause.FILE: "The model file is the problem",
    Cause.CONFIG: "The settings are the problem",
    Cause.UNSUPPORTED: "Not supported by this build",
    Cause.BUG: "A fault inside llama.cpp",
    Cause.BACKEND_LIMIT: "Over a limit of the backend",
    Cause.CAPACITY: "Could not be fitted to free memory",
}

#: Refusals that have a better name than their cause.
_NAMED = {
    "cells_full": "The context is full",
    "port_taken": "The port is taken",
    "bad_argument": "The command line was not understood",
    "rpc_gone": "The other machine's server failed",
}


def diagnose(run: Timeline, texts: Texts, facts: RunFacts) -> Diagnosis | None:
    """The diagnosis of the line that ended the run; None when no such line is there."""
    killed = run.of(Kind.KILLED)
    if killed:
        return _killed(run, max(killed, key=lambda m: (m.signature.rank, -m.place)), texts, facts)
    decided = _candidates(run)
    if not decided:
        return None
    return _refused(run, max(decided, key=lambda m: (_weight(m, texts), -m.place)), texts, facts)


def _candidates(run: Timeline) -> list[Mark]:
    """Lines that can have ended the run: nothing that the run survived."""
    last_success = max((m.place for m in run.of(Kind.SUCCESS)), default=-1)
    marks = run.of(Kind.REFUSAL, Kind.PLANNER, Kind.FIT)
    return [m for m in marks if m.place > last_success and not _overcome(run, m)]


def _overcome(run: Timeline, mark: Mark) -> bool:
    if mark.kind is Kind.REFUSAL and mark.signature.rank <= OVERCOME_RANK:
        return any(isinstance(e, BufferPrinted) for e in run.events[mark.place :])
    if mark.signature.name == "ctx_other" and _only_measured(run, mark):
        return True
    if mark.signature.name == "ctx_other" or mark.kind is Kind.FIT:
        return _loaded_after(run, mark)
    return False


def _only_measured(run: Timeline, mark: Mark) -> bool:
    """Whether the context that could not be created was one to measure with: the run says so, or allocates buffers."""
    said = any(m.place > mark.place for m in run.named(*_MEASURED))
    return said or any(isinstance(e, BufferPrinted) for e in run.events[mark.place :])


def _loaded_after(run: Timeline, mark: Mark) -> bool:
    later = [m for m in run.marks if m.place > mark.place]
    loads = any(m.signature.name == "at_weights" for m in later)
    return loads and not any(m.kind in ENDINGS and m.signature.rank > 0 for m in later)


def _weight(mark: Mark, texts: Texts) -> int:
    """Rank, less for a line in which a wrapper or an exception repeats what another says."""
    text = quoting.message(mark, texts)
    repeated = "LMSTUDIO_STARTUP_ERROR" in text or "what():" in text
    return mark.signature.rank * 2 - repeated


def _killed(run: Timeline, key: Mark, texts: Texts, facts: RunFacts) -> Diagnosis:
    sure = key.signature.name in ("oom_kill", "oom_unit")
    if sure:
        summary = f"The system ended the process: {quoting.says(key)}. llama.cpp printed no error of its own."
    else:
        summary = (
            "The process was killed from outside. That is what the system does when host memory runs out, but only "
            "its own log proves it."
        )
    return Diagnosis(
        outcome=Outcome.FAILED,
        memory_class="memory" if sure else "unknown",
        stage="host",
        device=None,
        backend=None,
        requested_bytes=None,
        free_bytes=None,
        limit_bytes=None,
        cause=Cause.HOST_MEMORY,
        key_line=quoting.key_line(key, texts),
        evidence=quoting.evidence(run.of(Kind.KILLED, Kind.HINT)),
        title="Killed by the system for want of memory" if sure else "Killed from outside",
        summary=summary,
        next_steps=steps.for_memory("host", Cause.HOST_MEMORY, _NOWHERE, facts),
        missing=missing.of(run, device=None, backend=None, stage="host", memory=True, has_key=sure),
        generic_line=quoting.generic_line(run, key),
        notes=quoting.notes(run),
    )


def _refused(run: Timeline, key: Mark, texts: Texts, facts: RunFacts) -> Diagnosis:
    fit = key.kind is Kind.FIT
    at = _stage(run, key)
    cause = _cause(run, key)
    device = _device(run, key, facts)
    related = run.of(Kind.REFUSAL, Kind.PLANNER, Kind.FIT, Kind.HINT)
    return Diagnosis(
        outcome=Outcome.FAILED,
        memory_class=_memory_class(key, cause),
        stage=at,
        device=device,
        backend=where.backend_of(device),
        requested_bytes=_planned_bytes(key),
        free_bytes=facts.devices.get(device or "", (None, None))[0],
        limit_bytes=None,
        cause=cause,
        key_line=quoting.key_line(key, texts),
        evidence=quoting.evidence([key, *related, *run.named("exception_text")]),
        title=_NAMED.get(key.signature.name) or _TITLES.get(cause, "Failed"),
        summary=_summary(key),
        next_steps=_steps(key, cause, facts, _no_flash(run)),
        missing=missing.of(run, device=device, backend=None, stage=at, memory=True, has_key=True) if fit else (),
        generic_line=quoting.generic_line(run, key),
        notes=quoting.notes(run),
    )


def _memory_class(key: Mark, cause: Cause) -> str:
    if key.signature.name in _OPEN:
        return "unknown"
    return "memory" if key.kind is Kind.FIT or cause is Cause.BACKEND_LIMIT else "not_memory"


def _summary(key: Mark) -> str:
    text = quoting.sentence(key)
    if key.kind is Kind.PLANNER:
        text += " This is not a lack of memory: a smaller context does not help, another version may."
    return text


def _no_flash(run: Timeline) -> bool:
    """Whether llama.cpp says that flash attention does not work with this model or device."""
    return bool(run.named("fa_forced_off"))


def _steps(key: Mark, cause: Cause, facts: RunFacts, no_flash: bool) -> tuple[NextStep, ...]:
    if key.kind is Kind.FIT:
        return steps.for_memory("fit", cause, _NOWHERE, facts)
    found = steps.for_refusal(key.signature.name, facts)
    return tuple(step for step in found if not (no_flash and "flash_attn" in step.change))


def _planned_bytes(key: Mark) -> int | None:
    """Bytes a planner error needed; no figure of such a line is free memory."""
    planned = key.groups.get("bytes") if key.kind is Kind.PLANNER else None
    return int(planned) if planned is not None else None


def _stage(run: Timeline, key: Mark) -> str | None:
    """Only failures that are about memory, or about ggml's plan of it, have a stage."""
    if key.kind is Kind.PLANNER:
        return "weights" if key.groups.get("what", "").endswith(".weight") else stage.of_mark(run, key)
    if key.kind is Kind.FIT:
        part = next((m for m in run.named("draft_failed", "mmproj_failed") if m.place > key.place), None)
        return part.signature.stage if part is not None else "fit"
    if key.signature.cause == "backend_limit":
        return stage.context_stage(run, key.place) or "compute"
    return None


def _cause(run: Timeline, key: Mark) -> Cause:
    if key.signature.name == "v_quant_fa" and _no_flash(run):
        return Cause.UNSUPPORTED
    if key.kind is Kind.FIT:
        return Cause.CONFIG if "already set by user" in key.groups.get("why", "") else Cause.CAPACITY
    return Cause(key.signature.cause) if key.signature.cause else Cause.UNKNOWN


def _device(run: Timeline, key: Mark, facts: RunFacts) -> str | None:
    """The device the line names, the current one of a runtime error, or the only one a fit was about."""
    if "buf" in key.groups:
        return key.groups["buf"]
    if key.signature.name in _RUNTIME:
        return _current(run, key)
    return next(iter(facts.devices)) if key.kind is Kind.FIT and len(facts.devices) == 1 else None


def _current(run: Timeline, key: Mark) -> str | None:
    backend = {"CUDA": "CUDA", "ROCm": "ROCm", "HIP": "ROCm", "MUSA": "MUSA"}.get(key.groups.get("api", ""))
    for mark in run.named("current_device"):
        if 0 < mark.place - key.place <= where.NEAR:
            return f"{backend}{mark.groups['dev']}" if backend else f"device {mark.groups['dev']}"
    return None
