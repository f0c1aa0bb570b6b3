"""One reserve graph, scheduled and allocated: bytes per backend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvstudio.budget.compute.alloc_size import alloc_bytes_of
from kvstudio.budget.compute.allocate import GraphAllocator
from kvstudio.budget.compute.backend import Backend
from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.families import build
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE, Reserve, pad
from kvstudio.budget.compute.layers import Kept, all_layers, kept_layers
from kvstudio.budget.compute.reasons import sentence
from kvstudio.budget.compute.schedule import Schedule, assign, schedule
from kvstudio.budget.compute.support import support_of
from kvstudio.budget.compute.vulkan_order import reorder_new, reorder_old
from kvstudio.budget.placement_values import PlacedTensor, Placement
from kvstudio.budget.values import EffectiveConfig
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

#: Backends that never take over an operation whose weight is on the host.
NO_OFFLOAD = frozenset({"RPC", "MTL", "OpenCL", "WebGPU", "OPENVINO", "HTP"})


#: How many more layers are taken when the usual few have not settled, before all are.
_LONGER = 3
#: Results that enter one split where layers follow each other: Q, K, V, the residual and a little more.
_CROSSING_USUAL = 6


@dataclass(frozen=True, slots=True)
class Simulated:
    """Bytes per backend, what each holds when fullest, and whether the architecture's own graph was followed."""

    sizes: tuple[int, ...]
    reasons: tuple[str, ...]
    followed: bool


def simulate(reserve: Reserve, backends: list[Backend], kept: Kept) -> Simulated:
    """The compute buffers of a reserve, from representative layers where they do for all."""
    graph, followed = graph_of(reserve, kept.layers)
    plan = plan_of(graph, backends, reserve)
    if len(kept.layers) < reserve.model.n_layer and (holds_leafs(graph) or holds_copies(plan, backends, reserve)):
        fresh = replace(reserve, weights={}, caches={})
        return simulate(fresh, backends, all_layers(reserve))
    allocator = GraphAllocator(backends)
    allocator.run(plan.nodes, plan.leafs)
    if allocator.grown_in & kept.probation:
        fresh = replace(reserve, weights={}, caches={})
        more = kept_layers(reserve, _LONGER)
        settled = all_layers(reserve) if more.layers == kept.layers or kept.longer else more
        return simulate(fresh, backends, settled)
    sizes = allocator.sizes
    at = {backend.name: i for i, backend in enumerate(backends)}
    names = {id(leaf): name for name, leaf in reserve.weights.items()}
    copies = reserve.placement.pipeline_copies
    reasons = [sentence(live, names, copies) for live in allocator.at_peak]
    for device, twin in kept.twins.items():
        sizes[at[device]] = sizes[at[twin]]
        reasons[at[device]] = reasons[at[twin]]
    return Simulated(tuple(sizes), tuple(reasons), followed)


def holds_leafs(graph: Blocks) -> bool:
    """Whether layers make leafs of their own, which live as long as the graph: then every layer counts."""
    return any(leaf.home is None and not leaf.is_input for leaf in graph.leafs)


def holds_copies(plan: Schedule, backends: list[Backend], reserve: Reserve) -> bool:
    """Whether copies pile up layer by layer: many into one split, or any that the pipeline keeps for ever."""
    crossing = [sum(1 for source in split.inputs if source.op != "NONE") for split in plan.splits]
    if max(crossing) > _CROSSING_USUAL:
        return True
    if reserve.placement.pipeline_copies == 1:
        return False
    return len(plan.splits) > len(backends) + 1 or sum(crossing) > 2 * len(backends)


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
    config = reserve.config
    order = reorder_new if config.build >= MIXED_BATCH_SINCE else reorder_old
    return schedule(
        graph, backends, copies=reserve.placement.pipeline_copies, op_offload=config.op_offload,
        build=config.build, reorder=order,
    )  # fmt: skip


def flash_attn_survives(reserve: Reserve, backends: list[Backend], kept: Kept) -> bool:
    """llama.cpp's own probe: a graph of one token per sequence must keep every attention on its layer's device.

    Source: llama-context.cpp resolve_fused_ops, read at build 11434.
    """
    probe = replace(reserve, n_tokens=reserve.n_seqs, n_outputs=reserve.n_seqs, weights={}, caches={})
    graph, _ = graph_of(probe, kept.layers)
    assign(graph, backends, op_offload=reserve.config.op_offload)
    return all(backends[node.backend].name == reserve.device(il) for node, il in graph.fused_attention if il >= 0)


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
        pooling=config.pooling if config is not None else None,
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
