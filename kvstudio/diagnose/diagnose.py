"""Lines and events of a log, and a budget if there is one, to the one line that decided and what it means."""

from collections.abc import Sequence

from kvstudio.budget.values import Budget
from kvstudio.diagnose import cause as causes
from kvstudio.diagnose import facts as run_facts
from kvstudio.diagnose import failure as failures
from kvstudio.diagnose import missing, stage, steps, where, wording
from kvstudio.diagnose.facts import RunFacts
from kvstudio.diagnose.timeline import Mark, Timeline, last_run
from kvstudio.diagnose.values import Cause, Diagnosis, Evidence, KeyLine, Outcome
from kvstudio.runlog.facts import mib
from kvstudio.runlog.parse import parse
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import AllocationFailed, BufferPrinted, LogEvent, LogLine, Note

MAX_EVIDENCE = 12
_END = (Kind.WRAPPER, Kind.CRASH, Kind.KILLED)


def diagnose(
    lines: Sequence[LogLine], events: Sequence[LogEvent] | None = None, budget: Budget | None = None
) -> Diagnosis:
    """What the log says happened.

    `lines` may be a part of the log: the lines that are quoted are looked up by number. `events` default to what
    `lines` state.
    """
    events = parse(lines) if events is None else events
    run = last_run(events)
    texts = {line.number: line for line in lines}
    facts = run_facts.gather(run)
    found = failures.find(run)
    decided = _by_failure(run, found, texts, facts, budget) if found is not None else None
    if decided is None:
        decided = _by_other_lines(run, texts, facts)
    if found is not None and decided is None:
        decided = _by_failure(run, found, texts, facts, budget, even_if_resolved=True)
    return decided or _nothing(run, texts)


def _by_failure(
    run: Timeline, found: failures.Failure, texts: dict[int, LogLine], facts: RunFacts, budget: Budget | None,
    *, even_if_resolved: bool = False,
) -> Diagnosis | None:  # fmt: skip
    """The diagnosis of refused memory; None when it was overcome and something else may have ended the run."""
    if found.resolved and not even_if_resolved and _ended_otherwise(run, found):
        return None
    group = found.group
    place = where.find(run, group)
    at, proof = stage.of_group(run, group, place.name)
    ruling = causes.of_memory(run, group, place, at, facts, budget)
    key = group.key
    outcome = Outcome.RECOVERED if found.resolved else Outcome.UNKNOWN if found.open_retry else Outcome.FAILED
    evidence = _evidence(run, found, key, proof)
    memory = "not_memory" if ruling.cause is Cause.UNSUPPORTED else "memory"
    summary = wording.memory_sentence(
        at, place, ruling.because, resolved=found.resolved, again=found.retried is not None
    )
    if found.open_retry:
        summary += " llama.cpp was trying again where the text ends; how that went is not in it."
    return Diagnosis(
        outcome, memory, at, place.name, place.backend, place.requested_bytes,
        _free(place, budget), place.limit_bytes or _budget_limit(budget, place), ruling.cause,
        _key_line(key, texts), (*evidence, *ruling.evidence)[:MAX_EVIDENCE],
        wording.title(at, place, ruling.cause), summary,
        () if found.resolved else steps.for_memory(at, ruling.cause, place, facts),
        missing.of(run, device=place.name, backend=place.backend, stage=at, memory=True, has_key=True),
        _generic_line(run, key), place.exact, _notes(run),
    )  # fmt: skip


def _ended_otherwise(run: Timeline, found: failures.Failure) -> bool:
    end = found.success.place if found.success is not None else found.group.end
    kinds = (Kind.REFUSAL, Kind.PLANNER, Kind.KILLED, Kind.CRASH)
    return any(m.place > end and m.kind in kinds and m.signature.rank > 0 for m in run.marks)


def _evidence(run: Timeline, found: failures.Failure, key: Mark, proof: Mark | None) -> tuple[Evidence, ...]:
    """The lines of the same failure, then what was tried afterwards, then other failures, in that order."""
    said: dict[int, str] = {}
    for mark in found.group.marks:
        said.setdefault(mark.line, _says(mark))
    if proof is not None:
        said.setdefault(proof.line, _says(proof))
    for passed in (found.retried, found.success):
        if passed is not None:
            said.setdefault(passed.line, _says(passed))
    for mark in run.marks:
        if mark.kind in (Kind.FIT, Kind.HINT) and mark.signature.name != "override_buffer":
            said.setdefault(mark.line, _says(mark))
    for group in (*found.others[:3], *found.earlier[-2:]):
        said.setdefault(group.key.line, f"another refusal: {_says(group.key)}")
    if found.others[3:]:
        last = found.others[-1].key
        said.setdefault(last.line, f"the last of {len(found.others) + 1} refusals: {_says(last)}")
    for mark in run.marks:
        if mark.signature.name == "pinned" and mark.place < key.place:
            said.setdefault(mark.line, _says(mark))
    return tuple(Evidence(line, says) for line, says in said.items())


def _says(mark: Mark) -> str:
    if isinstance(mark.event, Note):
        return mark.event.says
    values = {k: v for k, v in mark.event.groups}
    if isinstance(mark.event, AllocationFailed) and mark.event.device:
        values.setdefault("buf", mark.event.device)
    text = mark.signature.says
    for name, value in values.items():
        text = text.replace("{" + name + "}", value[:200])
    return text


def _key_line(key: Mark, texts: dict[int, LogLine]) -> KeyLine:
    line = texts.get(key.line)
    return KeyLine(key.line, line.text if line is not None else "")


def _generic_line(run: Timeline, key: Mark | None) -> int | None:
    """The last line that only says it failed."""
    after = [m.line for m in run.marks if m.kind in _END and (key is None or m.line > key.line)]
    return after[-1] if after else None


def _free(place: where.Where, budget: Budget | None) -> int | None:
    if place.free_bytes is not None or budget is None:
        return place.free_bytes
    return next((d.free_bytes for d in budget.devices if d.name == place.name), None)


def _budget_limit(budget: Budget | None, place: where.Where) -> int | None:
    first = budget.first_failure if budget is not None else None
    return first.limit_bytes if first is not None and first.device == place.name else None


def _notes(run: Timeline) -> tuple[str, ...]:
    if run.n_runs > 1:
        return (f"The text holds {run.n_runs} runs; this is about number {run.number}, the last that shows its end.",)
    return ()


# ---- everything that is not refused memory


def _by_other_lines(run: Timeline, texts: dict[int, LogLine], facts: RunFacts) -> Diagnosis | None:
    last_success = max((m.place for m in run.of(Kind.SUCCESS)), default=-1)
    killed = [m for m in run.of(Kind.KILLED)]
    if killed:
        return _killed(run, max(killed, key=lambda m: (m.signature.rank, -m.place)), texts, facts)
    decided = _candidates(run, last_success)
    if decided:
        key = max(decided, key=lambda m: (_weight(run, m, texts), -m.place))
        return _refused(run, key, texts, facts)
    return None


def _candidates(run: Timeline, last_success: int) -> list[Mark]:
    """Lines that can have ended the run: nothing that the run survived."""
    found = []
    for mark in run.of(Kind.REFUSAL, Kind.PLANNER, Kind.FIT):
        survived = mark.place < last_success or (mark.signature.rank <= 3 and _buffers_after(run, mark))
        if mark.signature.name == "ctx_other" and _loaded_after(run, mark):
            continue
        if survived or (mark.kind is Kind.FIT and _loaded_after(run, mark)):
            continue
        found.append(mark)
    return found


def _buffers_after(run: Timeline, mark: Mark) -> bool:
    return mark.kind is Kind.REFUSAL and any(isinstance(e, BufferPrinted) for e in run.events[mark.place :])


def _loaded_after(run: Timeline, mark: Mark) -> bool:
    return any(m.place > mark.place and m.signature.name == "at_weights" for m in run.marks) and not any(
        m.place > mark.place and m.kind in (Kind.WRAPPER, Kind.CRASH, Kind.KILLED) and m.signature.rank > 0
        for m in run.marks
    )


def _weight(run: Timeline, mark: Mark, texts: dict[int, LogLine]) -> int:
    """Rank, less for a line that a wrapper repeats and for what an exception text says again."""
    line = texts.get(mark.line)
    text = line.message if line is not None else ""
    wrapped = "LMSTUDIO_STARTUP_ERROR" in text or "what():" in text or text.lstrip().startswith(('{"', '"error'))
    return mark.signature.rank * 2 - (1 if wrapped else 0)


def _killed(run: Timeline, key: Mark, texts: dict[int, LogLine], facts: RunFacts) -> Diagnosis:
    place = where.Where(None, None, None, True, None, None, None)
    evidence = tuple(Evidence(m.line, _says(m)) for m in run.marks if m.kind in (Kind.KILLED, Kind.HINT))[:MAX_EVIDENCE]
    sure = key.signature.name in ("oom_kill", "oom_unit")
    summary = (
        f"The system ended the process: {_says(key)}. llama.cpp printed no error of its own."
        if sure
        else "The process was killed from outside with status 137; that is what the system does when host memory runs out, but only its own log proves it."
    )
    return Diagnosis(
        Outcome.FAILED, "memory" if sure else "unknown", "host", None, None, None, None, None, Cause.HOST_MEMORY,
        _key_line(key, texts), evidence, "Killed by the system for want of memory" if sure else "Killed from outside", summary,
        steps.for_memory("host", Cause.HOST_MEMORY, place, facts),
        missing.of(run, device=None, backend=None, stage="host", memory=True, has_key=sure), _generic_line(run, key), True, _notes(run),
    )  # fmt: skip


def _refused(run: Timeline, key: Mark, texts: dict[int, LogLine], facts: RunFacts) -> Diagnosis:
    groups = key.groups
    planner = key.kind is Kind.PLANNER
    fit = key.kind is Kind.FIT
    at = _refusal_stage(run, key)
    cause = _refusal_cause(key)
    runtime = (
        where.find(run, failures.Group([key])) if key.signature.name in ("illegal_access", "runtime_other") else None
    )
    device = (
        groups.get("buf")
        or (_runtime_device(run, key) if runtime else None)
        or (_single_device(facts) if fit else None)
    )
    free = facts.devices.get(device or "", (None, None))[0]
    related = [
        m
        for m in run.marks
        if m.kind in (Kind.REFUSAL, Kind.PLANNER, Kind.FIT, Kind.HINT) or m.signature.name == "exception_text"
    ]
    evidence = tuple(Evidence(m.line, _says(m)) for m in _unique([key, *related]))[:MAX_EVIDENCE]
    asked = int(groups["bytes"]) if planner and "bytes" in groups else None
    says = _says(key)
    memory_class = "memory" if fit or key.signature.cause == "backend_limit" else "not_memory"
    summary = says[0].upper() + says[1:] + "."
    if planner:
        summary += " This is not a lack of memory: a smaller context does not help, another version may."
    return Diagnosis(
        Outcome.FAILED, memory_class, at, device, where.backend_of(device), asked, free, None, cause,
        _key_line(key, texts), evidence, _refusal_title(key, cause), summary,
        steps.for_refusal(key.signature.name, facts) if not fit else steps.for_memory("fit", cause, _nowhere(), facts),
        () if not fit else missing.of(run, device=device, backend=None, stage=at, memory=True, has_key=True),
        _generic_line(run, key), True, _notes(run),
    )  # fmt: skip


def _nowhere() -> where.Where:
    return where.Where(None, None, None, True, None, None, None)


def _refusal_stage(run: Timeline, key: Mark) -> str | None:
    """Only failures that are about memory, or about ggml's plan of it, have a stage."""
    if key.kind is Kind.PLANNER:
        if key.groups.get("what", "").endswith(".weight"):
            return "weights"
        return stage.of_mark(run, key)
    if key.kind is Kind.FIT:
        part = next((m for m in run.named("draft_failed", "mmproj_failed") if m.place > key.place), None)
        return part.signature.stage if part is not None else "fit"
    if key.signature.cause == "backend_limit":
        return stage.context_stage(run, key.place) or "compute"
    return None


def _refusal_cause(key: Mark) -> Cause:
    if key.kind is Kind.FIT:
        return Cause.CONFIG if "already set by user" in key.groups.get("why", "") else Cause.CAPACITY
    return Cause(key.signature.cause) if key.signature.cause else Cause.UNKNOWN


def _runtime_device(run: Timeline, key: Mark) -> str | None:
    backend = next((name for name in ("CUDA", "ROCm", "MUSA") if name in _text(key)), None)
    for mark in run.named("current_device"):
        if 0 < mark.place - key.place <= 4:
            return f"{backend}{mark.groups['dev']}" if backend else f"device {mark.groups['dev']}"
    return None


def _text(mark: Mark) -> str:
    return mark.groups.get("api", "")


def _single_device(facts: RunFacts) -> str | None:
    return next(iter(facts.devices)) if len(facts.devices) == 1 else None


def _unique(marks: list[Mark]) -> list[Mark]:
    seen: dict[int, Mark] = {}
    for mark in marks:
        seen.setdefault(mark.line, mark)
    return list(seen.values())


def _refusal_title(key: Mark, cause: Cause) -> str:
    return {
        Cause.FILE: "The model file is the problem",
        Cause.CONFIG: "The settings are the problem",
        Cause.UNSUPPORTED: "Not supported by this build",
        Cause.BUG: "A fault inside llama.cpp",
        Cause.BACKEND_LIMIT: "Over a limit of the backend",
        Cause.CAPACITY: "Could not be fitted to free memory",
    }.get(cause, "Failed")


def _nothing(run: Timeline, texts: dict[int, LogLine]) -> Diagnosis:
    """No line decides: a success, a harmless warning, a wrapper's text, or nothing at all."""
    success = run.of(Kind.SUCCESS)
    ends = [m for m in run.of(*_END) if not success or m.place > success[-1].place]
    strong = [m for m in ends if m.signature.rank > 0]
    harmless = run.of(Kind.HARMLESS)
    if not strong and harmless:
        return _harmless(run, harmless, texts)
    if success and not strong:
        return _simple(
            run,
            Outcome.OK,
            "not_memory",
            None,
            texts,
            "No failure",
            "The model was loaded and no line shows a failure.",
            (),
        )
    if not ends:
        moved = run.named("moved_to_cpu")
        if moved:
            return _moved(run, moved[0], texts)
        wants = missing.of(run, device=None, backend=None, stage=None, memory=False, has_key=False)
        return _simple(
            run,
            Outcome.UNKNOWN,
            "unknown",
            None,
            texts,
            "No failure in this text",
            "No line of this text shows a failure of llama.cpp.",
            wants,
        )
    telling = [m for m in ends if m.signature.rank > 1]
    key = max(telling, key=lambda m: (m.signature.rank, m.place)) if telling else None
    wants = missing.of(run, device=None, backend=None, stage=None, memory=False, has_key=False)
    outcome = Outcome.FAILED if strong else Outcome.UNKNOWN
    reached = stage.context_stage(run, ends[0].place)
    at = f" The last stage seen is {wording.PART[reached]}." if reached in wording.PART else ""
    return _simple(
        run, outcome, "unknown", key, texts, "The reason is not in this text",
        f"It failed, but the line that says why is not in this text: {_says(key or ends[-1])}.{at}", wants,
    )  # fmt: skip


def _harmless(run: Timeline, harmless: tuple[Mark, ...], texts: dict[int, LogLine]) -> Diagnosis:
    key = max(harmless, key=lambda m: (m.signature.rank, -m.place))
    n_bytes = _stated_bytes(key)
    driver = key.signature.cause == "unsupported"
    pinned = key.signature.name.startswith("pinned")
    says = _says(key)
    return Diagnosis(
        Outcome.OK, "not_memory" if driver else "memory", None if driver else key.signature.stage,
        f"{_pinned_backend(run, key, texts)}_Host" if pinned else None, _pinned_backend(run, key, texts) if pinned else None,
        n_bytes, None, None,
        Cause.UNSUPPORTED if driver else Cause.HOST_MEMORY if pinned else Cause.UNKNOWN,
        _key_line(key, texts), tuple(Evidence(m.line, _says(m)) for m in harmless[:MAX_EVIDENCE]),
        "The GPU cannot be used" if driver else "A harmless warning",
        f"{says[0].upper() + says[1:]}." + (" The model runs on the CPU instead." if driver else " It did not end the run."),
        (), (), None, False, _notes(run),
    )  # fmt: skip


def _stated_bytes(mark: Mark) -> int | None:
    if "bytes" in mark.groups:
        return int(mark.groups["bytes"])
    return mib(mark.groups["mib"]) if "mib" in mark.groups else None


def _pinned_backend(run: Timeline, key: Mark, texts: dict[int, LogLine]) -> str:
    line = texts.get(key.line)
    text = line.text.lower() if line is not None else ""
    spoken = next((name for name in ("Vulkan", "SYCL", "CANN", "CUDA") if name.lower() in text), None)
    return spoken or key.signature.backend or "CUDA"


def _moved(run: Timeline, key: Mark, texts: dict[int, LogLine]) -> Diagnosis:
    other = key.groups.get("other")
    return Diagnosis(
        Outcome.RECOVERED, "unknown", "compute", other, where.backend_of(other), None, None, None, Cause.CAPACITY,
        _key_line(key, texts), (Evidence(key.line, _says(key)),), "A layer ended up on the CPU",
        f"{_says(key).capitalize()}: when all layers were meant for the GPU, it was a little short of memory and one was moved; nothing failed.",
        (), missing.of(run, device=other, backend=None, stage="compute", memory=True, has_key=True), None, True, _notes(run),
    )  # fmt: skip


def _simple(
    run: Timeline, outcome: Outcome, memory_class: str, key: Mark | None, texts: dict[int, LogLine], title: str, summary: str,
    wants: tuple[str, ...],
) -> Diagnosis:  # fmt: skip
    marks = [m for m in run.marks if m.kind in _END or m.kind is Kind.SUCCESS]
    return Diagnosis(
        outcome, memory_class, None, None, None, None, None, None, Cause.UNKNOWN,
        _key_line(key, texts) if key is not None else None, tuple(Evidence(m.line, _says(m)) for m in _unique(marks)[:MAX_EVIDENCE]),
        title, summary, (), wants, _generic_line(run, None), True, _notes(run),
    )  # fmt: skip
