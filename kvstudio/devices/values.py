"""Devices as llama.cpp names them, with their memory at one moment."""

from dataclasses import dataclass
from enum import StrEnum


class DeviceSource(StrEnum):
    """Who told us of a device."""

    LISTED = "listed"  # the binary's own --list-devices
    NVML = "nvml"
    SYSFS = "sysfs"
    SYSMEM = "sysmem"
    WHAT_IF = "what-if"
    RPC = "rpc"
    LOG = "log"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """Another process that holds memory of a device; `bytes` is None where the driver does not say."""

    pid: int
    name: str
    bytes: int | None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A device and its memory; unknown figures are None and `reason` says why.

    `name` is llama.cpp's (`CUDA0`, `Vulkan1`, `MTL0`, `RPC0[host:port]`, `Host` for RAM); `backend` its prefix
    (`CUDA`, `ROCm`, `Vulkan`, `MTL`, `SYCL`, `RPC`, `CPU`...). `max_buffer_bytes` is the largest single allocation the
    driver takes (Vulkan's maxBufferSize, OpenCL's and SYCL's max_mem_alloc_size, Metal's maxBufferLength); None where
    nobody said.
    """

    name: str
    backend: str
    description: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    source: DeviceSource = DeviceSource.LISTED
    integrated: bool = False
    pci_id: str | None = None
    driver: str | None = None
    processes: tuple[DeviceProcess, ...] = ()
    reason: str | None = None
    max_buffer_bytes: int | None = None

    @property
    def used_bytes(self) -> int | None:
        """Bytes other processes (or the driver) hold now."""
        if self.total_bytes is None or self.free_bytes is None:
            return None
        return max(0, self.total_bytes - self.free_bytes)


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything probed at one moment: devices in llama.cpp's order, and the host's RAM."""

    devices: tuple[Device, ...]
    host: Device
    cpu: str = ""
    system: str = ""
    notes: tuple[str, ...] = ()
