"""One reserve graph, scheduled and allocated: bytes per backend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvstudio.budget.compute.alloc_size import alloc_bytes_of
from kvstudio.budget.compute.allocate import GraphAllocator
from kvstudio.budget.compute.backend import Backend
from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.families import build
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE, Reserve, pad
from kvstudio.budget.compute.kinds import kinds_of
from kvstudio.budget.compute.known import Known, Outline
from kvstudio.budget.compute.layers import Kept, all_layers, kept_layers
from kvstudio.budget.compute.program import NotPeriodicError, Part, Program, repeats_of
from kvstudio.budget.compute.reasons import label, sentence
from kvstudio.budget.compute.schedule import Assigned, Reorder, Schedule, Split, assign, ordered, split
from kvstudio.budget.compute.structure import structure_of
from kvstudio.budget.compute.support import VULKAN_TENSOR_LIMIT, support_of
from kvstudio.budget.compute.tensor import Tensor
from kvstudio.budget.compute.vulkan_order import reorder_new, reorder_old
from kvstudio.budget.placement_values import PlacedTensor, Placement
from kvstudio.budget.pooling import asked_pooling
from kvstudio.budget.values import EffectiveConfig
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.architectures import CacheClass
from kvstudio.model.values import ModelInfo

#: Backends that never take over an operation whose weight is on the host.
NO_OFFLOAD = frozenset({"RPC", "MTL", "OpenCL", "WebGPU", "OPENVINO", "HTP"})


#: Results that enter one split where layers follow each other: Q, K, V, the residual and a little more.
_CROSSING_USUAL = 6
#: Periods of a repetition that are kept when the usual few differ, before all are.
_MORE_PERIODS = 6
_IDLE = 0, sentence({})
#: Tokens per sequence the fused delta rule is probed with.
_DELTA_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Simulated:
    """Bytes per backend, what each holds when fullest, and whether the architecture's own graph was followed."""

    sizes: tuple[int, ...]
    reasons: tuple[str, ...]
    followed: bool


def simulate(
    reserve: Reserve, backends: list[Backend], kept: Kept, known: Known | None = None, settings: Any = None
) -> Simulated:
    """The compute buffers of a reserve, from representative layers where they do for all.

    `known` is what was found before, `settings` all that decides a reserve besides its placement.
    """
    known = Known() if known is None else known
    structure, used = structure_of(reserve, kept)
    key = settings, structure
    outline = known.outlines.get(key)
    if outline is None:
        outline = known.add(key, follow(reserve, backends, kept, used))
    if outline.parts is None:
        more = kept_layers(reserve, _MORE_PERIODS) if outline.more and kept.periods < _MORE_PERIODS else kept
        fresh = replace(reserve, weights={}, caches={})
        return simulate(fresh, backends, all_layers(reserve) if more is kept else more, known, settings)
    times = [gap.times for gap in kept.gaps]
    rank = {reserve.placement.devices[at]: i for i, at in enumerate(used)} | {backends[-1].name: len(used)}
    found = []
    for backend in backends:
        part = rank.get(kept.twins.get(backend.name, backend.name))
        if part is None:
            found.append(_IDLE)
            continue
        own = kept.twin_times.get(backend.name, {})
        missing = tuple(own.get(n, times[n]) for n in outline.parts[part])
        result = known.results.get((key, part, missing))
        if result is None:
            program = known.programs.get(key)
            if program is None:
                fresh = replace(reserve, weights={}, caches={})
                again = follow(fresh, backends, kept, used)
                assert isinstance(again, Program)
                known.add(key, again)
                program = again
            result = known.measured(key, program, part, missing)
        found.append(result)
    return Simulated(tuple(size for size, _ in found), tuple(why for _, why in found), outline.followed)


def follow(reserve: Reserve, backends: list[Backend], kept: Kept, used: Sequence[int]) -> Program | Outline:
    """Build, schedule and lay out the kept layers, or say that they do not do for all; `used` devices take part."""
    graph, followed = graph_of(reserve, kept.layers)
    makers = _makers(graph) if kept.gaps else []
    assigned = _assigned(graph, backends, reserve)
    some = len(kept.layers) < reserve.model.n_layer
    if some and (holds_copies(assigned.splits, backends, reserve) or copies_own_weights(assigned.splits, reserve)):
        return Outline(None)
    plan = ordered(graph, assigned, backends, _reorder(reserve))
    allocator = GraphAllocator(backends)
    allocator.run(plan.nodes, plan.leafs)
    try:
        repeats = repeats_of(allocator, kept, makers)
    except NotPeriodicError:
        return Outline(None, more=True)
    names = {id(leaf): name for name, leaf in reserve.weights.items()}
    copies = reserve.placement.pipeline_copies
    parts = []
    for at in (*used, len(backends) - 1):
        stream, backend = allocator.streams[at], backends[at]
        labels = [None if t is None else (label(t, names, copies), t.n_bytes) for t in stream.tensors]
        parts.append(Part(stream.events, labels, repeats[at], backend.alignment, backend.max_bytes))
    return Program(tuple(parts), followed)


def _makers(graph: Blocks) -> list[tuple[Tensor, int]]:
    """Leafs that one layer makes for itself, with the layer: they have memory from the start until they are used."""
    own = {id(leaf): leaf for leaf in graph.leafs if leaf.home is None and not leaf.is_input}
    users: dict[int, set[int]] = {}
    for node in graph.nodes if own else ():
        for src in node.src:
            if id(src) in own:
                users.setdefault(id(src), set()).add(node.layer)
    return [(own[leaf], min(layers)) for leaf, layers in users.items() if len(layers) == 1]


def holds_copies(splits: Sequence[Split], backends: list[Backend], reserve: Reserve) -> bool:
    """Whether copies pile up layer by layer: many into one split, or any that the pipeline keeps for ever."""
    crossing = [sum(1 for source in split.inputs if source.op != "NONE") for split in splits]
    if max(crossing) > _CROSSING_USUAL:
        return True
    if reserve.placement.pipeline_copies == 1:
        return False
    return len(splits) > len(backends) + 1 or sum(crossing) > 2 * len(backends)


def copies_own_weights(splits: Sequence[Split], reserve: Reserve) -> bool:
    """Whether weights leave their layer's own device: only then it matters of which type each layer's are."""
    devices = reserve.placement.layer_device
    own = {
        id(leaf)
        for name, leaf in reserve.weights.items()
        if (il := reserve.placed[name].layer) is not None and leaf.home is not None and leaf.home == devices[il]
    }
    return any(
        id(source if source.view_src is None else source.view_src) in own for split in splits for source in split.inputs
    )


def graph_of(reserve: Reserve, layers: Sequence[int]) -> tuple[Blocks, bool]:
    """Raises: LookupError when the file lacks what its architecture's graph is made of, or has it in other shapes."""
    graph = Blocks(reserve, layers)
    try:
        followed = build(graph)
        graph.pool()
    except (AssertionError, TypeError, ValueError, ZeroDivisionError) as error:
        # A header is hostile input: shapes that contradict each other surface wherever the graph first uses them.
        raise LookupError(f"the graph of {reserve.arch} does not fit this file") from error
    return graph, followed


def plan_of(graph: Blocks, backends: list[Backend], reserve: Reserve) -> Schedule:
    return ordered(graph, _assigned(graph, backends, reserve), backends, _reorder(reserve))


def _assigned(graph: Blocks, backends: list[Backend], reserve: Reserve) -> Assigned:
    config = reserve.config
    copies = reserve.placement.pipeline_copies
    return split(graph, backends, copies=copies, op_offload=config.op_offload, build=config.build)


def _reorder(reserve: Reserve) -> Reorder:
    return reorder_new if reserve.config.build >= MIXED_BATCH_SINCE else reorder_old


def flash_attn_survives(
    reserve: Reserve, backends: list[Backend], known: Known | None = None, settings: Any = None
) -> bool:
    """llama.cpp's own probe: a graph of one token per sequence must keep every attention on its layer's device.

    `known` and `settings` as for `simulate`. Source: llama-context.cpp resolve_fused_ops, read at build 11434.
    """
    return _survives(reserve, backends, known, (settings, "attention"), 1, lambda graph: graph.fused_attention)


def delta_net_survives(
    reserve: Reserve, backends: list[Backend], known: Known | None = None, settings: Any = None
) -> bool:
    """The same probe for the gated delta rule, with more tokens: several slots may reach what is worth offloading."""
    return _survives(
        reserve,
        backends,
        known,
        (settings, "delta", reserve.flash_attn),
        _DELTA_TOKENS,
        lambda graph: graph.fused_delta,
    )


def _survives(
    reserve: Reserve,
    backends: list[Backend],
    known: Known | None,
    settings: Any,
    per_seq: int,
    fused: Callable[[Blocks], list[tuple[Tensor, int]]],
) -> bool:
    known = Known() if known is None else known
    # An operation's device depends on its own layer and the two beside it: two periods and the last show every case.
    kept = kept_layers(reserve, 2)
    key = settings, _batch_of_probe(reserve, per_seq), structure_of(reserve, kept)[0]
    found = known.survives.get(key)
    if found is None:
        n_tokens = per_seq * reserve.n_seqs
        probe = replace(reserve, n_tokens=n_tokens, n_outputs=n_tokens, weights={}, caches={})
        graph, _ = graph_of(probe, kept.layers)
        assign(graph, backends, op_offload=reserve.config.op_offload)
        found = all(backends[node.backend].name == reserve.device(il) for node, il in fused(graph) if il >= 0)
        known.keep_probe(key, found)
    return found


#: Caches whose cells are a multiple of 256 however long the context is.
_EVEN_CACHES = (CacheClass.UNIFIED, CacheClass.ISWA, CacheClass.HYBRID, CacheClass.RECURRENT)
_WIDEST_VALUE = 4
_HEADS_AT_MOST = 256


def _batch_of_probe(reserve: Reserve, per_seq: int) -> Any:
    """What of the batch and the cells may change where an operation of a probe runs.

    The number of cells does as soon as a tensor may be too large for a device, the number of sequences when a device
    may take over what the host has the weights of, else only whether there are several.
    """
    config, model = reserve.config, reserve.model
    streams = reserve.n_stream
    if model.hparams["cache"] not in _EVEN_CACHES:
        return config.n_ctx, config.n_ctx_seq, config.n_parallel
    on_host = kinds_of(model, reserve.placement).on_host
    n_seqs = reserve.n_seqs if on_host else min(reserve.n_seqs, 2)
    width = max(max(layer.n_embd_k_gqa, layer.n_embd_v_gqa) for layer in reserve.layers)
    heads = max(_HEADS_AT_MOST, *(layer.n_head for layer in reserve.layers))
    largest = _WIDEST_VALUE * reserve.n_ctx_seq * max(width * streams, heads * per_seq * reserve.n_seqs)
    limits = [
        min(VULKAN_TENSOR_LIMIT, trait.max_tensor_bytes or VULKAN_TENSOR_LIMIT)
        for trait in reserve.placement.traits
        if trait.backend == "Vulkan"
    ]
    too_large = bool(limits) and largest > min(limits)
    return n_seqs, (config.n_ctx, config.n_ctx_seq, reserve.n_seqs) if too_large else None


def reserve_for(
    model: ModelInfo,
    effective: EffectiveConfig,
    placement: Placement,
    config: LaunchConfig | None,
    placed: Mapping[str, PlacedTensor],
) -> Reserve:
    """The worst case of `graph_reserve`: a full micro-batch spread over all sequences."""
    n_tokens = min(effective.n_ctx, effective.n_ubatch)
    n_outputs = min(n_tokens, effective.n_outputs_max)
    n_seqs = effective.n_parallel
    flash = effective.flash_attn_on if effective.flash_attn_on is not None else effective.flash_attn != "off"
    return Reserve(
        model, effective, placement, pad(n_tokens, n_seqs), n_seqs, n_outputs, flash,
        embeddings=effective.embeddings,
        pooling=asked_pooling(config) if config is not None else None,
        placed=placed,
    )  # fmt: skip


def placed_by_name(placement: Placement) -> dict[str, PlacedTensor]:
    """Tensors as the graph asks for them: the tied output under its own name, rope factors once per home."""
    placed: dict[str, PlacedTensor] = {}
    for tensor in placement.tensors:
        name = tensor.tensor.name
        if name.startswith("rope_f"):
            placed[f"{name}@{tensor.device or 'CPU'}"] = tensor
        elif name == "token_embd.weight" and tensor.duplicate:
            placed["output.weight"] = tensor
        else:
            placed[name] = tensor
    if "output.weight" not in placed and "token_embd.weight" in placed:
        placed["output.weight"] = placed["token_embd.weight"]
    return placed


def backends_of(placement: Placement, build: int) -> list[Backend]:
    traits = {t.backend: t for t in placement.traits}
    result = []
    host, host_alignment, host_max = "CPU", 32, None
    for at, name in enumerate(placement.devices):
        t = placement.traits[at] if at < len(placement.traits) else next(iter(traits.values()))
        if at == 0 and t.host_buffer_type is not None:
            host, host_alignment, host_max = t.host_buffer_type, t.host_alignment, t.max_buffer_bytes
        result.append(
            Backend(
                name,
                name,
                t.alignment,
                t.max_buffer_bytes,
                offloads=t.backend not in NO_OFFLOAD,
                reorders=t.backend == "Vulkan",
                supports=support_of(t.backend, build, t.max_tensor_bytes),
                alloc_bytes=alloc_bytes_of(t),
            )
        )
    result.append(Backend("CPU", host, host_alignment, host_max, offloads=False, reorders=False))
    return result
