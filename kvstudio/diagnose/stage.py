"""At which stage of a launch a line stands: from what it says, from its neighbours, from what had been printed."""

import re

from kvstudio.diagnose.failure import Group
from kvstudio.diagnose.timeline import Mark, Timeline
from kvstudio.diagnose.where import NEAR
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import BufferPrinted, CachePrinted, CommandSeen, ModelSeen

_DRAFT_PATH = re.compile(
    r"(?:^|[/\\_\-. ])(?:draft|eagle\d?|dflash|dspark|speculat\w+)(?:[/\\_\-. ]|$|er\b|s\b)"
    # A main model that brings its MTP layers has the word inside its name.
    r"|(?:^|[/\\])mtp[_\-.]|[_\-.]mtp\.gguf$",
    re.IGNORECASE,
)
#: Functions of backends that run only with a graph; weights, too, may be copied by the asynchronous ones.
_OF_GRAPH = re.compile(r"_async$|graph_compute|compute_forward|_op_|mul_mat|fattn|flash_attn|_pool")
_RUNTIME = frozenset({"cuda_runtime", "pool_call", "metal_command_memory", "vulkan_device_lost", "metal_2023_nil"})
#: What ggml called its Metal buffers in 2023.
_METAL_BUFFERS = {
    "data": "weights",
    "kv": "kv",
    "eval": "compute",
    "scr0": "compute",
    "scr1": "compute",
    "alloc": "compute",
}


def context_stage(run: Timeline, place: int) -> str | None:
    """The stage the run had reached when the event at `place` was printed; None when nothing before it tells."""
    stage: str | None = None
    kv_seen = False
    recurrent = False
    signatures = {m.place: m.signature for m in run.marks}
    for n, event in enumerate(run.events[:place]):
        if isinstance(event, BufferPrinted):
            kv_seen = kv_seen or event.kind == "kv"
            stage = _after_buffer(event.kind, kv_seen)
            recurrent = recurrent or event.kind == "rs"
        elif isinstance(event, CachePrinted):
            stage = "compute" if event.kind == "rs" else "kv"
            kv_seen = True
        elif n in signatures:
            signature = signatures[n]
            if signature.kind is Kind.STAGE:
                stage = "weights" if signature.name == "fit_done" else signature.stage
            elif signature.kind is Kind.SUCCESS:
                stage = "decode"
            elif signature.kind is Kind.FIT:
                stage = "weights"
    return stage


def _after_buffer(kind: str, kv_seen: bool) -> str:
    """The stage after a printed buffer. Since 2025 the output buffer stands before the KV cache."""
    return {
        "model": "weights", "kv": "kv", "rs": "rs", "compute": "compute", "lora": "lora", "mmproj": "mmproj",
        "output": "compute" if kv_seen else "kv",
    }.get(kind, "compute")  # fmt: skip


def of_group(run: Timeline, group: Group, buffer_name: str | None) -> tuple[str | None, Mark | None]:
    """The stage of a memory failure and the mark that shows it, where one line does."""
    context = context_stage(run, group.start)
    part, proof = _part(run, group, context)
    if part is not None:
        return part, proof
    stage, proof = _said(run, group, context)
    if stage is None:
        stage, proof = _from_context(group, context), None
        if stage in (None, "kv", "compute", "output") and _in_graph(run, group):
            stage = "decode"
    if stage == "weights" and buffer_name is not None and buffer_name.endswith("_Host"):
        return "host", proof
    return stage, proof


def _said(run: Timeline, group: Group, context: str | None) -> tuple[str | None, Mark | None]:
    """What llama.cpp itself says the request was for, in this group or, without a success between, in a later one."""
    purposes = [m for m in group.of(Kind.PURPOSE) if m.signature.stage]
    if not purposes:
        purposes = _later_purposes(run, group)
    if purposes:
        stage = purposes[0].signature.stage
        if stage == "compute" and context == "decode" and not _creates_context_after(run, group):
            stage = "decode"
        return stage, purposes[0]
    stated = [m for m in group.marks if m.signature.stage]
    if stated:
        stage = stated[0].signature.stage
        if stage in ("compute", "decode") and context in ("decode", "mmproj"):
            stage = context
        elif stage == "compute" and _decodes_after(run, group):
            stage = "decode"
        return stage, stated[0]
    return None, None


def _later_purposes(run: Timeline, group: Group) -> list[Mark]:
    for mark in run.marks:
        if mark.place <= group.end:
            continue
        if mark.kind is Kind.RETRY and mark.signature.stage:
            return [mark]
        if mark.kind in (Kind.SUCCESS, Kind.RETRY, Kind.START):
            break
        if mark.kind is Kind.PURPOSE and mark.signature.stage not in (None, "draft", "mmproj", "lora"):
            return [mark]
    return []


def _decodes_after(run: Timeline, group: Group) -> bool:
    """Whether the next thing that is said to have failed is running the model."""
    later = (m.signature for m in run.marks if m.place > group.end and m.kind in (Kind.PURPOSE, Kind.WRAPPER))
    return (first := next(later, None)) is not None and first.name in ("decode_failed", "batch_failed")


def _creates_context_after(run: Timeline, group: Group) -> bool:
    return any(m.place > group.start and m.signature.name == "context_failed" for m in run.marks)


def _from_context(group: Group, context: str | None) -> str | None:
    names = {m.signature.name for m in group.marks}
    for mark in group.marks:
        if mark.groups.get("tensor", "").endswith(".weight"):
            return "weights"
        if mark.signature.name.startswith("metal_2023") and mark.groups.get("what") in _METAL_BUFFERS:
            return _METAL_BUFFERS[mark.groups["what"]]
    if names & _RUNTIME and context in (None, "compute", "output"):
        return "decode"
    if names & {"opencl_invalid_size", "opencl_create"} and context is None:
        # CLBlast builds allocate while they copy the weights over; the pool of a running model reuses those buffers.
        return "weights"
    if names & {"openvino_limit", "openvino_alloc"} and context in (None, "kv"):
        return context or "decode"
    if context == "fit":
        return "fit"
    return context


def _in_graph(run: Timeline, group: Group) -> bool:
    """Whether the function that a runtime error names right after itself is one of a running graph."""
    named = run.named("in_function", "current_device")
    near = (m.groups.get("what", "") for m in named if group.start < m.place <= group.end + NEAR)
    return any(map(_OF_GRAPH.search, near))


def _part(run: Timeline, group: Group, context: str | None) -> tuple[str | None, Mark | None]:
    """Draft model, projector or adapter, when the failing part was one of them."""
    for mark in run.marks:
        if mark.place <= group.end:
            continue
        if mark.kind in (Kind.SUCCESS, Kind.START, Kind.RETRY):
            break
        if mark.signature.name in ("draft_failed", "mmproj_failed", "lora_failed"):
            return mark.signature.stage, mark
    if context in ("draft", "mmproj", "lora"):
        return context, None
    if _draft_file(run, group):
        return "draft", None
    if _loading_draft(run, group):
        return "draft", None
    return None, None


def _draft_file(run: Timeline, group: Group) -> bool:
    """Whether the model named by the failing chain is the draft model."""
    named = [e for e in run.events[group.end + 1 : group.end + 12] if isinstance(e, ModelSeen)]
    drafts = {name for e in run.events if isinstance(e, CommandSeen) for name in _draft_names(e.text)}
    main = [e.path for e in run.events[: group.start] if isinstance(e, ModelSeen) and e.role == "model"]
    return any(
        e.path in drafts or (_DRAFT_PATH.search(e.path.rsplit("/", 1)[-1]) and (not main or main[0] != e.path))
        for e in named[:1]
    )


def _draft_names(command: str) -> list[str]:
    return re.findall(r"(?:-md|--model-draft|--spec-draft-model) +(\S+)", command)


def _loading_draft(run: Timeline, group: Group) -> bool:
    """Whether a draft began to load before the failure and nothing ended that."""
    for mark in reversed([m for m in run.marks if m.place < group.start]):
        if mark.kind is Kind.SUCCESS:
            return False
        if mark.signature.name == "at_draft":
            return True
    return any(isinstance(e, ModelSeen) and e.role == "draft" for e in run.events[: group.start])


def of_mark(run: Timeline, mark: Mark) -> str | None:
    """The stage of a line that is no allocator's."""
    return mark.signature.stage or context_stage(run, mark.place)
