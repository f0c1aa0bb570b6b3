"""Layers to devices, in the float32 arithmetic llama.cpp uses.

Source: llama.cpp b11434, src/llama-model.cpp (load_tensors).
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence

_F32 = struct.Struct("f")


def f32(value: float) -> float:
    """The nearest single-precision number."""
    result: float = _F32.unpack(_F32.pack(value))[0]
    return result


def split_points(shares: Sequence[float]) -> tuple[float, ...]:
    """Cumulative shares from 0 to 1; `shares` are proportions or bytes of free memory."""
    total = 0.0
    sums = []
    for share in shares:
        total = f32(total + f32(share))
        sums.append(total)
    return tuple(f32(point / total) if total else 0.0 for point in sums)


def assign(n_layer_all: int, n_gpu_layers: int, points: Sequence[float]) -> tuple[int | None, ...]:
    """Device index per layer, the output layer last (`n_layer_all` + 1 entries), None for the CPU.

    `n_gpu_layers` below zero means all.
    """
    slots = n_layer_all + 1
    wanted = slots if n_gpu_layers < 0 else n_gpu_layers
    start = max(slots - wanted, 0)
    active = min(wanted, slots) if points else 0
    last = len(points) - 1
    return tuple(
        min(bisect_right(points, f32((il - start) / active)), last) if start <= il < start + active else None
        for il in range(slots)
    )


def offloaded(n_layer_all: int, n_gpu_layers: int) -> tuple[int, int]:
    """(layers on devices, all) as the log prints them; it does not look whether there is a device."""
    slots = n_layer_all + 1
    return (slots if n_gpu_layers < 0 else min(n_gpu_layers, slots)), slots
