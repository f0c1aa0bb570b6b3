"""Which allocation fails first, in llama.cpp's own order.

Weights come first, then the output buffer, the caches, the recurrent state, and the compute buffers last; within a
kind, by buffer type name, compute by device. A backend's limit on one allocation is looked at before its memory.
Source: llama.cpp b11434, src/llama-model.cpp, src/llama-context.cpp.
"""

from collections.abc import Callable, Iterable

from kvstudio.budget.placement_values import Placement
from kvstudio.budget.values import Buffer, BufferKind, DeviceBudget, FirstFailure

_ORDER = (BufferKind.MODEL, BufferKind.OUTPUT, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE)


#: Bytes of the largest single allocation behind a buffer; None when not known.
Largest = Callable[[Buffer], int | None]


def first(
    buffers: tuple[Buffer, ...],
    devices: tuple[DeviceBudget, ...],
    host: DeviceBudget,
    placement: Placement,
    largest: Largest,
) -> FirstFailure | None:
    """The first buffer its device has no room for, or whose backend refuses so large an allocation; None when all fit
    or nothing is known of the memory.

    Weights mapped into host memory are not allocated and cannot fail.
    """
    left = {device.name: device.free_bytes - (device.overhead_bytes or 0) for device in devices if device.free_bytes}
    left |= {device.name: 0 for device in devices if device.free_bytes == 0}
    if host.free_bytes is not None:
        left[host.name] = host.free_bytes
    most = {name: trait.max_alloc_bytes for name, trait in zip(placement.devices, placement.traits, strict=True)}
    for buffer in _in_order(buffers, placement):
        name = buffer.device or host.name
        need = buffer.bytes or 0
        limit = most.get(name)
        if limit is not None and need > limit:
            asked = largest(buffer) or 0
            if asked > limit:
                return FirstFailure(name, buffer.kind, asked, asked - limit, _free(left.get(name)), limit)
        if name not in left or need == 0 or buffer.name.endswith("_Mapped"):
            continue
        if need > left[name]:
            free = max(0, left[name])
            return FirstFailure(name, buffer.kind, need, need - free, free)
        left[name] -= need
    return None


def _free(left: int | None) -> int | None:
    return None if left is None else max(0, left)


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
