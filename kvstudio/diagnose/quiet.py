"""Runs no line ended: they went well, only complained, or the reason is not in the text."""

from dataclasses import replace

from kvstudio.diagnose import missing, quoting, stage, where, wording
from kvstudio.diagnose.failure import PART_ONLY
from kvstudio.diagnose.quoting import ENDINGS, Texts
from kvstudio.diagnose.timeline import Mark, Timeline
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome
from kvstudio.runlog.facts import mib
from kvstudio.runlog.signatures.row import Kind

#: Locking pages asks for no memory, only that what is there stays; measuring allocates nothing.
_NO_REQUEST = ("mlock", "draft_unmeasured", "extra_unmeasured", "state_restore", "proc_meminfo")
_PINNED_BACKENDS = ("Vulkan", "SYCL", "CANN", "CUDA")


def diagnose(run: Timeline, texts: Texts) -> Diagnosis:
    """A success, a harmless warning, a wrapper's text without a reason, or nothing at all."""
    success = run.of(Kind.SUCCESS)
    ends = [m for m in _ends(run) if not success or m.place > success[-1].place]
    if ends:
        return _without_reason(run, ends, texts)
    harmless = run.of(Kind.HARMLESS)
    if harmless:
        return _harmless(run, harmless, texts)
    if success:
        return _plain(run, Outcome.OK, "not_memory", "No failure", "The model was loaded and no line shows a failure.")
    moved = run.named("moved_to_cpu")
    if moved:
        return _moved(run, moved[0], texts)
    text = "No line of this text shows a failure of llama.cpp."
    return _plain(run, Outcome.UNKNOWN, "unknown", "No failure in this text", text, wants=_wants(run))


def over_recommended(run: Timeline, texts: Texts) -> Diagnosis | None:
    """Metal work that failed without a reason, after buffers that were more than macOS recommends; else None.

    Source: ggml-metal.m of 2023: a command buffer's status 5 is an error whose reason these versions did not print.
    """
    broken = run.named("metal_status")
    warned = [m for m in run.named("working_set_warning") if broken and m.place < broken[0].place]
    if not warned:
        return None
    key = warned[0]
    return Diagnosis(
        outcome=Outcome.FAILED,
        memory_class="memory",
        stage="decode",
        device="Metal",
        backend="Metal",
        requested_bytes=None,
        free_bytes=None,
        limit_bytes=None,
        cause=Cause.CAPACITY,
        key_line=quoting.key_line(key, texts),
        evidence=quoting.evidence([key, broken[0]]),
        title="Metal gave up with more in use than it may keep",
        summary="More was allocated than macOS recommends for the GPU, then the GPU failed without a reason: memory is "
        "the likely one.",
        missing=_wants(run),
        notes=quoting.notes(run),
    )


def _ends(run: Timeline) -> list[Mark]:
    """Lines that only say that it failed, or which part did."""
    # A measurement that failed says so in the words of a context that failed.
    measured = {m.line for m in run.named("ctx_other")}
    said = [m for m in run.marks if m.kind in ENDINGS or m.signature.name in PART_ONLY]
    return [m for m in said if m.signature.rank > 0 and m.line not in measured]


def _without_reason(run: Timeline, ends: list[Mark], texts: Texts) -> Diagnosis:
    """A failure of which only the wrapper's or the shell's last words are there."""
    telling = [m for m in ends if m.signature.rank > 1]
    key = max(telling, key=lambda m: (m.signature.rank, m.place)) if telling else None
    reached = stage.context_stage(run, ends[0].place)
    last = f" The last stage seen is {wording.PART[reached]}." if reached in wording.PART else ""
    says = quoting.says(key or ends[-1])
    text = f"It failed, but the line that says why is not in this text: {says}.{last}"
    part = key.signature.stage if key is not None and key.kind is Kind.PURPOSE else None
    title = "The reason is not in this text"
    return replace(_plain(run, Outcome.FAILED, "unknown", title, text, key, texts, _wants(run)), stage=part)


def _wants(run: Timeline) -> tuple[str, ...]:
    return missing.of(run, device=None, backend=None, stage=None, memory=False, has_key=False)


def _harmless(run: Timeline, harmless: tuple[Mark, ...], texts: Texts) -> Diagnosis:
    key = max(harmless, key=lambda m: (m.signature.rank, -m.place))
    unusable = key.signature.cause == "unsupported"
    asks = key.signature.name not in _NO_REQUEST
    pinned = _pinned_backend(key, harmless, texts) if key.signature.name.startswith("pinned") else None
    return Diagnosis(
        outcome=Outcome.OK,
        memory_class="memory" if asks and not unusable else "not_memory",
        stage=None if unusable else key.signature.stage,
        device=f"{pinned}_Host" if pinned else None,
        backend=pinned,
        requested_bytes=_stated_bytes(key) if asks else None,
        free_bytes=None,
        limit_bytes=None,
        cause=Cause.UNSUPPORTED if unusable else Cause.HOST_MEMORY if pinned else Cause.UNKNOWN,
        key_line=quoting.key_line(key, texts),
        evidence=quoting.evidence(harmless),
        title="The GPU cannot be used" if unusable else "A harmless warning",
        summary=f"{quoting.sentence(key)} {'The model runs on the CPU.' if unusable else 'It did not end the run.'}",
        bytes_exact="bytes" in key.groups,
        notes=quoting.notes(run),
    )


def _stated_bytes(mark: Mark) -> int | None:
    if "bytes" in mark.groups:
        return int(mark.groups["bytes"])
    return mib(mark.groups["mib"]) if "mib" in mark.groups else None


def _pinned_backend(mark: Mark, harmless: tuple[Mark, ...], texts: Texts) -> str:
    """The backend a warning names, or the warning right after it, which repeats the same refusal."""
    near = [m for m in harmless if m.signature.name == "pinned" and 0 <= m.line - mark.line <= 1]
    text = " ".join(quoting.message(m, texts) for m in (mark, *near)).lower()
    spoken = next((name for name in _PINNED_BACKENDS if name.lower() in text), None)
    return spoken or mark.signature.backend or "CUDA"


def _moved(run: Timeline, key: Mark, texts: Texts) -> Diagnosis:
    """A layer beside its operation: when all were meant for the GPU, fitting moved one for want of a little memory."""
    device = key.groups.get("other")
    return Diagnosis(
        outcome=Outcome.RECOVERED,
        memory_class="unknown",
        stage="compute",
        device=device,
        backend=where.backend_of(device),
        requested_bytes=None,
        free_bytes=None,
        limit_bytes=None,
        cause=Cause.CAPACITY,
        key_line=quoting.key_line(key, texts),
        evidence=quoting.evidence([key]),
        title="A layer ended up on the CPU",
        summary=f"{quoting.sentence(key)} When all layers were meant for the GPU, it was a little short of memory and "
        "one was moved; nothing failed.",
        missing=missing.of(run, device=device, backend=None, stage="compute", memory=True, has_key=True),
        notes=quoting.notes(run),
    )


def _plain(
    run: Timeline,
    outcome: Outcome,
    memory_class: str,
    title: str,
    summary: str,
    key: Mark | None = None,
    texts: Texts | None = None,
    wants: tuple[str, ...] = (),
) -> Diagnosis:
    return Diagnosis(
        outcome=outcome,
        memory_class=memory_class,
        stage=None,
        device=None,
        backend=None,
        requested_bytes=None,
        free_bytes=None,
        limit_bytes=None,
        cause=Cause.UNKNOWN,
        key_line=quoting.key_line(key, texts or {}) if key is not None else None,
        evidence=quoting.evidence(m for m in run.marks if m.kind in ENDINGS or m.kind is Kind.SUCCESS),
        title=title,
        summary=summary,
        missing=wants,
        generic_line=quoting.generic_line(run, key),
        notes=quoting.notes(run),
    )
