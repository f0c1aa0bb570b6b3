"""What each backend's buffer types do to sizes, by the prefix of a device's name.

Source: llama.cpp b11434, ggml/src/ggml-<backend>; Vulkan's alignments are properties of the device, measured here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kvstudio.budget.limits import limits_of
from kvstudio.budget.placement_values import BackendTraits
from kvstudio.devices.values import Device
from kvstudio.units import GIB, MIB

CPU_ALIGNMENT = 32  # TENSOR_ALIGNMENT
_CUDA_ALIGNMENT = 128

_TRAITS: dict[str, BackendTraits] = {
    name: BackendTraits(name, *row)
    for name, *row in (
        # alignment, largest buffer, host type, its alignment, async+events, pads quantized rows, f16 scratch, extra
        ("CUDA", _CUDA_ALIGNMENT, None, "CUDA_Host", 32, True, True, True),
        ("ROCm", _CUDA_ALIGNMENT, None, "ROCm_Host", 32, True, True, True),
        ("MUSA", _CUDA_ALIGNMENT, None, "MUSA_Host", 32, True, True, True),
        ("Vulkan", 16, GIB, "Vulkan_Host", 64, True, False, False, 32),
        ("MTL", 32, None, None, 32, True, False, False),
        ("SYCL", _CUDA_ALIGNMENT, None, "SYCL_Host", 32, True, True, True),
        ("CANN", _CUDA_ALIGNMENT, None, "CANN_Host", 32, True, True, False),
        ("OpenCL", 128, None, None, 32, False, False, False),
        ("OPENVINO", 32, None, None, 32, False, False, False),
        ("WebGPU", 256, None, None, 32, False, False, False),
        ("RPC", 32, None, None, 32, True, False, False),
        ("HTP", 128, GIB, None, 32, False, False, False),
        ("CPU", CPU_ALIGNMENT, None, None, 32, False, False, False),
    )
}
_ALIASES = {"Metal": "MTL", "GPUOpenCL": "OpenCL", "HIP": "ROCm", "OpenVINO": "OPENVINO"}
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_UNKNOWN = BackendTraits("", 128, None, None, 32, False, False, False)

#: Backends that still offer `-sm row`. Source: ggml_backend_split_buffer_type in their registries.
ROW_SPLIT = frozenset({"SYCL", "HTP"})
#: Backends whose weights can be mapped straight from the file.
MAPS_WEIGHTS = frozenset({"MTL", "CPU"})


#: Largest storage buffer (maxStorageBufferRange): a 32-bit number on graphics cards, little on Mesa's software device.
_VULKAN_TENSOR_LIMIT = 2**32 - 1
_SOFTWARE_TENSOR_LIMIT = 128 * MIB
_SOFTWARE_DEVICE = "llvmpipe"


def traits_of(device: Device, env: Mapping[str, str] = _NO_VARIABLES) -> BackendTraits:
    """The rules of a device's backend under the launch's variables; an unknown one is taken to pad like CUDA and to
    have no host type.
    """
    known = _TRAITS.get(_ALIASES.get(device.backend, device.backend))
    if known is None:
        return replace(_UNKNOWN, backend=device.backend)
    limits = limits_of(known.backend, device, env)
    chunk = limits.chunk_bytes if limits.chunk_bytes is not None else known.max_buffer_bytes
    found = replace(known, max_buffer_bytes=chunk, max_alloc_bytes=limits.most_bytes)
    if known.backend == "Vulkan":
        software = _SOFTWARE_DEVICE in device.description.lower()
        range_bytes = _SOFTWARE_TENSOR_LIMIT if software else _VULKAN_TENSOR_LIMIT
        most = limits.most_bytes
        return replace(found, max_tensor_bytes=range_bytes if most is None else min(range_bytes, most))
    return found


def is_known(backend: str) -> bool:
    return _ALIASES.get(backend, backend) in _TRAITS


@dataclass(frozen=True, slots=True)
class CpuTraits:
    """What the CPU backend was compiled for: it decides which matrices are repacked into CPU_REPACK or AMX buffers."""

    amx: bool = False
    avx512: bool = False
    arm: bool = False


#: The CPU backends of the binaries the rules were measured with; others may repack other types.
_MEASURED_CPU: dict[int, CpuTraits] = {10434: CpuTraits(amx=True, avx512=True)}


def cpu_traits(build: int) -> CpuTraits:
    """The CPU backend taken for a build: what was measured with it, else plain AVX2."""
    return _MEASURED_CPU.get(build, CpuTraits())
