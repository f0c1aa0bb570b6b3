"""The largest single piece of a buffer: ggml cuts sums into several allocations, a tensor never.

Source: llama.cpp b11434, ggml-backend.cpp (alloc_buffer_n_plan), ggml-alloc.c (ggml_dyn_tallocr_new_chunk).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvstudio.budget.compute.alloc_size import alloc_bytes_of
from kvstudio.budget.compute.layers import kept_layers
from kvstudio.budget.compute.simulate import backends_of, graph_of, placed_by_name, plan_of, reserve_for
from kvstudio.budget.kv import cache_buffers, cache_specs
from kvstudio.budget.placement_values import BackendTraits, Placement
from kvstudio.budget.recurrent import state_buffers, state_specs
from kvstudio.budget.tensor_groups import pad, quantized_pad
from kvstudio.budget.tensor_split import tensor_parts
from kvstudio.budget.values import Buffer, BufferKind, EffectiveConfig
from kvstudio.header.types import TENSOR_TYPES
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo


def largest_allocation(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig, buffer: Buffer
) -> int | None:
    """Bytes of the largest allocation behind a device's buffer of the main context.

    That is the largest tensor, or a whole chunk where variables made chunks larger than what the backend takes.

    None where that is not followed: other contexts, and compute buffers of backends that leave an operation over their
    limit to the CPU.
    """
    measure = _MEASURES.get(buffer.kind)
    if buffer.device is None or buffer.context != "main" or measure is None:
        return None
    at = _At(model, effective, placement, config, buffer.device)
    chunk, most = at.trait.max_buffer_bytes, at.trait.max_alloc_bytes
    if chunk is not None and most is not None and chunk > most:
        return min(buffer.bytes or 0, chunk)
    return measure(at)


@dataclass(frozen=True, slots=True)
class _At:
    """A launch, looked at on one of its devices."""

    model: ModelInfo
    effective: EffectiveConfig
    placement: Placement
    config: LaunchConfig
    device: str

    @property
    def index(self) -> int:
        return self.placement.devices.index(self.device)

    @property
    def trait(self) -> BackendTraits:
        return self.placement.traits[self.index]


def _weight(at: _At) -> int:
    shares, largest = at.placement.shares, 0
    for placed in at.placement.tensors:
        if placed.device is None or (placed.device != at.device and not shares):
            continue
        tensor = placed.tensor
        n_bytes = tensor_parts(at.model, tensor, shares)[at.index] if shares else tensor.n_bytes
        more = quantized_pad(at.trait, TENSOR_TYPES[tensor.type_id], tensor.shape[0]) if n_bytes else 0
        largest = max(largest, pad(n_bytes + more, at.trait.alignment))
    return largest


def _cells(at: _At) -> int:
    """K and V of one layer are a tensor each."""
    largest = 0
    for spec in cache_specs(at.model, at.effective):
        for width in _distinct(spec.widths, at.placement):
            parts, _ = cache_buffers(at.model, (replace(spec, widths=(width,)),), at.effective, at.placement)
            largest = max([largest, *(max(part.k_bytes, part.v_bytes) for part in parts if part.device == at.device)])
    return largest


def _distinct(widths: tuple[tuple[int, int, int], ...], placement: Placement) -> tuple[tuple[int, int, int], ...]:
    """One layer of each width per device: equal ones need no second look."""
    kept = {(placement.layer_device[il], k, v): (il, k, v) for il, k, v in widths}
    return tuple(kept.values())


def _states(at: _At) -> int:
    """The convolution's state and the recurrent one of a layer are a tensor each."""
    largest = 0
    for spec in state_specs(at.model, at.effective):
        for il, widths in spec.widths:
            for index in range(len(widths)):
                alone = tuple(width if i == index else 0 for i, width in enumerate(widths))
                one = replace(spec, widths=((il, alone),))
                parts, _ = state_buffers(at.model, (one,), at.effective, at.placement)
                largest = max([largest, *(part.bytes for part in parts if part.device == at.device)])
    return largest


def _graph(at: _At) -> int | None:
    """The largest result of the reserved graph that gets memory of its own on the device."""
    if at.placement.shares or at.trait.max_tensor_bytes is not None:
        return None
    backends = backends_of(at.placement, at.effective.build)
    reserve = reserve_for(at.model, at.effective, at.placement, at.config, placed_by_name(at.placement))
    try:
        graph, _ = graph_of(reserve, kept_layers(reserve).layers)
        plan = plan_of(graph, backends, reserve)
    except (LookupError, ArithmeticError):  # the graph is not followed for this file
        return None
    sized = alloc_bytes_of(at.trait)
    own = (t for t, i in (*plan.nodes, *plan.leafs) if i == at.index and t.view_src is None and t.home is None)
    return max((pad(t.n_bytes if sized is None else sized(t), at.trait.alignment) for t in own), default=0)


_MEASURES: dict[BufferKind, Callable[[_At], int | None]] = {
    BufferKind.MODEL: _weight,
    BufferKind.KV: _cells,
    BufferKind.RS: _states,
    BufferKind.COMPUTE: _graph,
}
