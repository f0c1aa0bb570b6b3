"""What a backend takes in one allocation, from the device's own figure and the variables that change it.

Source: llama.cpp b11434, get_max_size and alloc_buffer of ggml/src/ggml-<backend>.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvstudio.devices.values import Device, DeviceSource
from kvstudio.units import GIB, MIB

#: Variables that decide how large a buffer may be.
VARIABLES = frozenset(
    {
        "GGML_VK_FORCE_MAX_ALLOCATION_SIZE",
        "GGML_VK_FORCE_MAX_BUFFER_SIZE",
        "GGML_VK_SUBALLOCATION_BLOCK_SIZE",
        "GGML_SYCL_HOST_PINNED_MEM_2G",
        "GGML_HEXAGON_MBUF",
        "GGML_HEXAGON_VMEM",
    }
)
#: Backends whose driver's figure is both where sums are cut and what is refused.
_ONE_FIGURE = frozenset({"OpenCL", "OPENVINO", "MTL", "RPC"})
_VULKAN_BLOCK = GIB
_SYCL_PINNED = 2 * GIB


@dataclass(frozen=True, slots=True)
class Limits:
    """`chunk_bytes`: larger sums are cut into buffers of that size; `most_bytes`: one allocation over it is refused.

    None: no limit, or not known.
    """

    chunk_bytes: int | None = None
    most_bytes: int | None = None


def limits_of(backend: str, device: Device, env: Mapping[str, str]) -> Limits:
    """The limits of a device; a single tensor is never cut, so only one larger than `most_bytes` is refused."""
    most = device.max_buffer_bytes
    if backend == "Vulkan":
        return _vulkan(most, env)
    if backend == "SYCL":
        pinned = bool((_number(env.get("GGML_SYCL_HOST_PINNED_MEM_2G")) or 0) & 1)
        return Limits(min(filter(None, (most, _SYCL_PINNED if pinned else None)), default=None), most)
    if backend == "WebGPU":
        # Its list of devices gives maxBufferSize as the memory, for want of anything else.
        listed = device.total_bytes if device.source in (DeviceSource.LISTED, DeviceSource.LOG) else None
        most = most if most is not None else listed
        return Limits(most, most)
    if backend == "HTP":
        chunk, virtual = _number(env.get("GGML_HEXAGON_MBUF")), _number(env.get("GGML_HEXAGON_VMEM"))
        return Limits(chunk * MIB if chunk else None, virtual * MIB if virtual else most)
    return Limits(most, most) if backend in _ONE_FIGURE else Limits()


def _vulkan(most: int | None, env: Mapping[str, str]) -> Limits:
    """Sums are cut at 1 GiB, which every driver takes; a buffer is refused over maxBufferSize."""
    forced = _number(env.get("GGML_VK_FORCE_MAX_BUFFER_SIZE"))
    block = _number(env.get("GGML_VK_SUBALLOCATION_BLOCK_SIZE")) or _VULKAN_BLOCK
    allocation = _number(env.get("GGML_VK_FORCE_MAX_ALLOCATION_SIZE"))
    return Limits(
        min(filter(None, (block, allocation if allocation is not None else most)), default=block),
        forced if forced is not None else most,
    )


def _number(text: str | None) -> int | None:
    """The digits a C program would read; None without any."""
    match = re.match(r"\s*(\d+)", text) if text else None
    return int(match[1]) if match else None
