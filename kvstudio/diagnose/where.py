"""Which device a failure happened on, how much was asked for, and what the log says was free there."""

import re
from dataclasses import dataclass

from kvstudio.diagnose.failure import Group
from kvstudio.diagnose.timeline import Timeline
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import AllocationFailed, BufferPrinted, DevicePrinted

#: The CPU backend asks for a little more than the buffer, to align its start.
CPU_ALIGNMENT = 64
_GPU_NAME = re.compile(
    r"(CUDA|ROCm|MUSA|Vulkan|SYCL|MTL|Metal|OpenCL|GPUOpenCL|CANN|HTP|WebGPU|OPENVINO|RPC|ET|VirtGPU)(\d*)(\[[^\]]*\])?"
)
#: A runtime error's details stand within this many events after it.
NEAR = 4
_RUNTIME_NAMES = {
    "CUDA": "CUDA",
    "CUBLAS": "CUDA",
    "ROCM": "ROCm",
    "HIP": "ROCm",
    "HIPBLAS": "ROCm",
    "ROCBLAS": "ROCm",
    "MUSA": "MUSA",
}
#: Calls whose names a HIP or MUSA build does not share with CUDA's.
_CALLS = {"hipMalloc": "ROCm", "musaMalloc": "MUSA", "cu": "CUDA", "hip": "ROCm"}
#: The OpenCL backend has one kind of buffer, whatever the device.
_OPENCL_BUFFERS = ("opencl_buffer", "opencl_buffer_limit")
#: So had the Metal backend, before it took the number of a device into the name.
_METAL_BUFFERS = ("metal_buffer", "metal_bytes")
_MALLOC_BACKENDS = ("CUDA", "ROCm", "MUSA")


@dataclass(frozen=True, slots=True)
class Where:
    """`name` is the buffer type as printed (`CUDA1`, `SYCL_Host`, `CPU`), or `device 1` when no line tells the backend.

    `free_bytes` is what the log printed last; `taken_bytes` what buffers printed since then took of it.
    """

    name: str | None
    backend: str | None
    requested_bytes: int | None
    exact: bool
    free_bytes: int | None
    total_bytes: int | None
    limit_bytes: int | None
    taken_bytes: int = 0


def find(run: Timeline, group: Group) -> Where:
    """Device and sizes of one refused request."""
    name = _device(run, group)
    backend = backend_of(name) or next((m.signature.backend for m in group.marks if m.signature.backend), None)
    requested, exact = _requested(group)
    free, total = memory_of(run, name, group.start)
    limits = [m.event.limit_bytes for m in group.marks if isinstance(m.event, AllocationFailed) and m.event.limit_bytes]
    taken = taken_from(run, name, group.start) if free is not None else 0
    return Where(name, backend, requested, exact, free, total, limits[0] if limits else None, taken)


def backend_of(name: str | None) -> str | None:
    """`CUDA` of `CUDA1` or `CUDA_Host`; None for `device 1`."""
    if name is None or name.startswith("device "):
        return None
    match = _GPU_NAME.match(name)
    if match:
        return {"MTL": "Metal", "GPUOpenCL": "OpenCL", "OPENVINO": "OpenVINO"}.get(match[1], match[1])
    return "CPU" if name.startswith(("CPU", "AMX", "Host")) else name.split("_")[0].rstrip("0123456789") or None


def _device(run: Timeline, group: Group) -> str | None:
    named = [m.event.device for m in group.marks if isinstance(m.event, AllocationFailed) and m.event.device]
    if named:
        return _plain(named[0])
    allocators = group.of(Kind.ALLOCATOR)
    index = next((m.groups["dev"] for m in allocators if "dev" in m.groups), None)
    if index is None:
        index = _current_device(run, group)
    backend = next((m.signature.backend for m in allocators if m.signature.backend), None)
    if backend == "SYCL" and any(m.groups.get("where") == "host" for m in allocators):
        return "SYCL_Host"
    if backend == "CPU":
        return "CPU"
    if any(m.signature.name in _OPENCL_BUFFERS for m in allocators):
        return "OpenCL"
    if backend is None:
        backend = _malloc_backend(run) or _spoken(group)
    if index is not None:
        return f"{backend}{index}" if backend else f"device {index}"
    only = _only_device(run, backend)
    if only is not None:
        return only
    if any(m.signature.name in _METAL_BUFFERS for m in allocators):
        return "Metal"
    overridden = {m.groups.get("buf") for m in run.named("override_buffer") if m.place < group.start}
    if len(overridden) == 1 and None not in overridden and not allocators:
        return next(iter(overridden))
    return backend if backend in _MALLOC_BACKENDS else None


def _plain(name: str) -> str:
    """`CPU_Mapped` and `CPU_REPACK` are memory of the CPU; a pinned host buffer keeps its name."""
    return name.removesuffix("_Mapped").removesuffix("_REPACK").removesuffix("_Private").removesuffix("_Shared")


def _spoken(group: Group) -> str | None:
    """The runtime a `CUDA error` line names; `cudaMalloc` proves nothing, HIP and MUSA builds print it too."""
    for mark in group.marks:
        api = mark.groups.get("api", "")
        if mark.signature.name == "cuda_runtime":
            return _RUNTIME_NAMES.get(api.upper())
        if api in _CALLS:
            return _CALLS[api]
    return None


def _current_device(run: Timeline, group: Group) -> str | None:
    """`current device: 0` stands on the line after a runtime error."""
    for mark in run.named("current_device"):
        if group.start < mark.place <= group.end + NEAR:
            return mark.groups["dev"]
    return None


def _names(run: Timeline) -> list[str]:
    events = (e.name for e in run.events if isinstance(e, BufferPrinted | DevicePrinted))
    failed = (e.device for e in run.events if isinstance(e, AllocationFailed) and e.device)
    named = (m.groups["buf"] for m in run.named("device_named"))
    return [*events, *failed, *named]


def _malloc_backend(run: Timeline) -> str | None:
    """The one CUDA-like backend that the log's device and buffer names show."""
    seen = {b for name in _names(run) if (b := backend_of(name)) in _MALLOC_BACKENDS}
    if not seen:
        seen = {m.groups["api"] for m in run.named("cuda_runtime") if m.groups.get("api") in _MALLOC_BACKENDS}
        # Builds of 2023 and 2024 called every runtime CUDA; the failing call itself tells.
        seen = {"ROCm"} if run.named("hip_call") else seen
    return seen.pop() if len(seen) == 1 else None


def _only_device(run: Timeline, backend: str | None) -> str | None:
    """The device the log names, when it names one only: of the backend that refused, or of any if that is not said."""
    names = {n for n in map(_plain, _names(run)) if (m := _GPU_NAME.fullmatch(n)) and (m[2] or n == "Metal")}
    ours = {n for n in names if backend is None or backend_of(n) == backend}
    if len(ours) > 1:
        # The line on its working set calls the device by the name of the backend.
        ours.discard("Metal")
    return ours.pop() if len(ours) == 1 else None


def _requested(group: Group) -> tuple[int | None, bool]:
    """The whole buffer where ggml says it, else the allocator's figure; the CPU's aligned request counts as exact."""
    key_sizes = [
        m.event for m in group.of(Kind.ALLOCATOR) if isinstance(m.event, AllocationFailed) and m.event.bytes is not None
    ]
    whole = [
        m.event for m in group.of(Kind.BUFFER) if isinstance(m.event, AllocationFailed) and m.event.bytes is not None
    ]
    exact = [e.bytes for e in (*key_sizes, *whole) if e.bytes_exact and e.bytes is not None]
    if exact:
        return max(exact), True
    if key_sizes:
        return key_sizes[0].bytes, False
    sized = [m.event.bytes for m in group.marks if isinstance(m.event, AllocationFailed) and m.event.bytes is not None]
    return (sized[0], False) if sized else (None, True)


def memory_of(run: Timeline, name: str | None, before: int | None = None) -> tuple[int | None, int | None]:
    """Free and total bytes the log prints for a device before a place: the last figures count."""
    free = total = None
    for event in run.events[:before]:
        if isinstance(event, DevicePrinted) and event.name == name:
            free = event.free_bytes if event.free_bytes is not None else free
            total = event.total_bytes if event.total_bytes is not None else total
    return free, total


def taken_from(run: Timeline, name: str | None, before: int) -> int:
    """Bytes of buffers the log prints on a device between its last free figure and a place."""
    taken = 0
    for event in run.events[:before]:
        if isinstance(event, DevicePrinted) and event.name == name and event.free_bytes is not None:
            taken = 0
        elif isinstance(event, BufferPrinted) and event.name == name:
            taken += event.bytes
    return taken
