"""Model buffers: what the weights take, by buffer as the log names it.

Source: llama.cpp b11434, src/llama-model.cpp (load_tensors, get_mapping_range), ggml/src/ggml-backend.cpp.
"""

from dataclasses import dataclass

from kvstudio.budget.placement_values import Placement
from kvstudio.budget.tensor_groups import CPU, LAZY, pad, quantized_pad
from kvstudio.budget.tensor_split import META, tensor_parts
from kvstudio.header.types import TENSOR_TYPES
from kvstudio.model.values import ModelInfo


@dataclass(frozen=True, slots=True)
class WeightBuffer:
    """One model buffer; `shard` is the file it maps, None when it is allocated."""

    name: str
    device: str | None
    bytes: int
    n_tensors: int
    shard: int | None = None


def model_buffers(model: ModelInfo, placement: Placement) -> tuple[WeightBuffer, ...]:
    """Every model buffer: devices first in their order, then host memory; a mapped one per file it touches."""
    if placement.shares:
        return _split_buffers(model, placement)
    return _whole_buffers(placement)


def _split_buffers(model: ModelInfo, placement: Placement) -> tuple[WeightBuffer, ...]:
    """With `-sm tensor`: every device's part of what is on devices, and the host's buffers as ever."""
    totals, count = [0] * len(placement.devices), 0
    for placed in placement.tensors:
        if placed.device is None:
            continue
        count += 1
        for index, n_bytes in enumerate(tensor_parts(model, placed.tensor, placement.shares)):
            trait, kind = placement.traits[index], TENSOR_TYPES[placed.tensor.type_id]
            more = quantized_pad(trait, kind, placed.tensor.shape[0]) if n_bytes else 0
            totals[index] += pad(n_bytes + more, trait.alignment)
    parts = [
        WeightBuffer(META, device, n_bytes, count)
        for device, n_bytes in zip(placement.devices, totals, strict=True)
        if n_bytes
    ]
    return (*parts, *(buffer for buffer in _whole_buffers(placement) if buffer.device is None))


def _whole_buffers(placement: Placement) -> tuple[WeightBuffer, ...]:
    sizes: dict[str, int] = {}
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for group in placement.groups:
        for spot, n_bytes in group.sizes:
            sizes[spot] = sizes.get(spot, 0) + n_bytes
        for spot, span in group.ranges:
            first, last = spans.get((spot, span.shard), (span.first, span.last))
            spans[spot, span.shard] = min(first, span.first), max(last, span.last)
    counts = _counts(placement)
    device_of = dict(zip(placement.buffer_types, placement.devices, strict=True))
    found = [
        WeightBuffer(CPU if spot == LAZY else spot, device_of.get(spot), n_bytes, counts.get(spot, 0))
        for spot, n_bytes in sizes.items()
    ]
    found += [
        WeightBuffer(_mapped_name(spot), device_of.get(spot), last - first, counts.get(spot, 0), shard)
        for (spot, shard), (first, last) in spans.items()
    ]
    order = {name: index for index, name in enumerate(placement.devices)}
    return tuple(sorted(found, key=lambda buffer: (order.get(buffer.device or "", len(order)), buffer.shard or 0)))


def _mapped_name(spot: str) -> str:
    return f"{CPU if spot == LAZY else spot}_Mapped"


def _counts(placement: Placement) -> dict[str, int]:
    counts: dict[str, int] = {}
    for group in placement.groups:
        for spot, n in group.counts:
            counts[spot] = counts.get(spot, 0) + n
    return counts
