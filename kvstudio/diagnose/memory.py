"""A refused request for memory, with everything around it, to a Diagnosis."""

from kvstudio.budget.values import Budget
from kvstudio.diagnose import cause as causes
from kvstudio.diagnose import missing, quoting, stage, steps, where, wording
from kvstudio.diagnose.facts import RunFacts
from kvstudio.diagnose.failure import Failure
from kvstudio.diagnose.quoting import MAX_EVIDENCE, Texts
from kvstudio.diagnose.timeline import Mark, Timeline
from kvstudio.diagnose.values import Cause, Diagnosis, Evidence, Outcome
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import BufferPrinted, CachePrinted, ConfigPrinted

#: Hints that only repeat what their own line says already, or stand there once per tensor.
_UNQUOTED = ("override_buffer", "device_named", "instance_started")
#: How far back a line of a request is looked for, and the one that a cut line may start with.
NEAR = 12
_PROGRESS = "prompt processing progress"
#: Further refusals that are quoted one by one; of more only the last is.
OTHERS = 3


def diagnose(run: Timeline, found: Failure, texts: Texts, facts: RunFacts, budget: Budget | None) -> Diagnosis:
    """What was asked of which device for what, why it was refused, and whether that ended the run."""
    place = where.find(run, found.group)
    at, proof = stage.of_group(run, found.group, place.name)
    if at == "compute" and not run.named("context_failed") and _serving(found.group.key, texts):
        at = "decode"
    ruling = causes.of_memory(run, found, place, at, facts, budget)
    memory_class = _memory_class(found, ruling.cause)
    if memory_class == "not_memory":
        at = None
    key = found.group.key
    return Diagnosis(
        outcome=_outcome(run, found),
        memory_class=memory_class,
        stage=at,
        device=place.name,
        backend=place.backend,
        requested_bytes=place.requested_bytes,
        free_bytes=_free(place, budget),
        limit_bytes=place.limit_bytes or (causes.budget_limit(budget, place) if budget is not None else None),
        cause=ruling.cause,
        key_line=quoting.key_line(key, texts),
        evidence=(*_evidence(run, found, proof), *ruling.evidence)[:MAX_EVIDENCE],
        title=wording.title(at, place, ruling.cause),
        summary=_summary(run, found, at, place, ruling.because),
        next_steps=() if found.resolved else steps.for_memory(at, ruling.cause, place, facts),
        missing=missing.of(
            run,
            device=place.name,
            backend=place.backend,
            stage=at,
            memory=True,
            has_key=True,
            split=ruling.cause is Cause.PLACEMENT and place.free_bytes is None and budget is None,
        ),
        generic_line=quoting.generic_line(run, key),
        bytes_exact=place.exact,
        notes=quoting.notes(run),
    )


def _serving(key: Mark, texts: Texts) -> bool:
    """Whether the lines just before are those of a server at work on a request."""
    near = (quoting.message_at(key.line - n, texts) for n in range(1, NEAR))
    return any((message.startswith("slot ") and "| task " in message) or _PROGRESS in message for message in near)


def ended_otherwise(run: Timeline, found: Failure) -> bool:
    """Whether a refusal that was overcome is followed by something that ended the run."""
    end = found.success.place if found.success is not None else found.group.end
    kinds = (Kind.REFUSAL, Kind.PLANNER, Kind.KILLED, Kind.CRASH)
    return any(m.place > end and m.kind in kinds and m.signature.rank > 0 for m in run.marks)


def _memory_class(found: Failure, cause: Cause) -> str:
    """A lost device proves no shortage by itself; a driver's other reason proves there was none."""
    if {m.signature.name for m in found.group.marks} == {"vulkan_device_lost"}:
        return "unknown"
    return "not_memory" if cause is Cause.UNSUPPORTED else "memory"


def _outcome(run: Timeline, found: Failure) -> Outcome:
    if found.resolved or _tried_again(run, found):
        return Outcome.RECOVERED
    return Outcome.UNKNOWN if found.open_retry else Outcome.FAILED


def _tried_again(run: Timeline, found: Failure) -> bool:
    """Whether llama.cpp's own second try is the last that is told, where only warnings and errors are.

    A second try that fails says so at once; one that works prints a buffer, at a level that such a text leaves out.
    """
    if not found.open_retry or found.retried is None or found.retried.signature.name != "retry_pipeline":
        return False
    return not any(isinstance(e, BufferPrinted | CachePrinted | ConfigPrinted) for e in run.events)


def _summary(run: Timeline, found: Failure, at: str | None, place: where.Where, because: str) -> str:
    if {m.signature.name for m in found.group.marks} == {"vulkan_device_lost"}:
        return f"{quoting.sentence(found.group.key)[:-1]}: {because}."
    text = wording.memory_sentence(at, place, because, resolved=found.resolved, again=found.retried is not None)
    if _tried_again(run, found):
        text += " llama.cpp tried again without pipeline parallelism, and no line of the text says that this failed."
    elif found.open_retry:
        text += " It was tried again where the text ends; how that went is not in it."
    if at == "mmproj" and found.resolved:
        text += " The first image will ask for it again."
    return text


def _evidence(run: Timeline, found: Failure, proof: Mark | None) -> tuple[Evidence, ...]:
    """The lines of the same failure, then what was tried afterwards, then hints, then other refusals."""
    passed = [m for m in (proof, found.retried, found.success) if m is not None]
    hints = [m for m in run.of(Kind.FIT, Kind.HINT) if m.signature.name not in _UNQUOTED]
    pinned = [m for m in run.named("pinned") if m.place < found.group.start]
    near = quoting.evidence([*found.group.marks, *passed, *hints, *pinned])
    return (*near, *_other_refusals(found))


def _other_refusals(found: Failure) -> list[Evidence]:
    shown = (*found.others[:OTHERS], *found.earlier[-2:])
    said = [Evidence(g.key.line, f"another refusal: {quoting.says(g.key)}") for g in shown]
    if found.others[OTHERS:]:
        last = found.others[-1].key
        said.append(Evidence(last.line, f"the last of {len(found.others) + 1} refusals: {quoting.says(last)}"))
    return said


def _free(place: where.Where, budget: Budget | None) -> int | None:
    if place.free_bytes is not None or budget is None:
        return place.free_bytes
    return next((d.free_bytes for d in budget.devices if d.name == place.name), None)
