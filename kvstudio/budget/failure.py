"""Which allocation fails first, in llama.cpp's own order.

Weights come first, then the output buffer, the caches, the recurrent state, and the compute buffers last; within a
kind, by buffer type name, compute by device. Source: llama.cpp b11434, src/llama-model.cpp, src/llama-context.cpp.
"""

from collections.abc import Iterable

from kvstudio.budget.placement_values import Placement
from kvstudio.budget.values import Buffer, BufferKind, DeviceBudget, EffectiveConfig, FirstFailure

_ORDER = (BufferKind.MODEL, BufferKind.OUTPUT, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE)


def first(
    buffers: tuple[Buffer, ...],
    devices: tuple[DeviceBudget, ...],
    host: DeviceBudget,
    placement: Placement,
    effective: EffectiveConfig,
) -> FirstFailure | None:
    """The first buffer its device has no room for; None when all fit or nothing is known of the memory.

    Mapped weights are not allocated and cannot fail.
    """
    left = {device.name: device.free_bytes - (device.overhead_bytes or 0) for device in devices if device.free_bytes}
    left |= {device.name: 0 for device in devices if device.free_bytes == 0}
    if host.free_bytes is not None:
        left[host.name] = host.free_bytes
    for buffer in _in_order(buffers, placement):
        name = buffer.device or host.name
        need = buffer.bytes or 0
        if name not in left or need == 0 or buffer.name.endswith("_Mapped"):
            continue
        if need > left[name]:
            free = max(0, left[name])
            return FirstFailure(name, buffer.kind, need, need - free, free)
        left[name] -= need
    return None


def _in_order(buffers: tuple[Buffer, ...], placement: Placement) -> Iterable[Buffer]:
    order = {name: index for index, name in enumerate(placement.devices)}
    for kind in _ORDER:
        of_kind = [buffer for buffer in buffers if buffer.kind is kind]
        if kind is BufferKind.COMPUTE:
            yield from sorted(of_kind, key=lambda buffer: order.get(buffer.device or "", len(order)))
        elif kind is BufferKind.MODEL:
            yield from sorted(of_kind, key=lambda buffer: buffer.name)
        else:
            yield from of_kind
