"""NVIDIA's management library -> live memory of each card and who holds it; every error becomes a reason."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from kvstudio.devices.processes import describe_process
from kvstudio.devices.values import Device, DeviceProcess, DeviceSource

_PCI = re.compile(r"^(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$")
#: NVML's way to say that a figure is not known, where the binding does not turn it into None.
_UNKNOWN_BYTES = 2**64 - 1


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """Cards by PCI order; `reason` says why there are none, None when NVML answered; `absent` without the library."""

    devices: tuple[Device, ...]
    reason: str | None = None
    absent: bool = False


def read(library: Any = None) -> NvmlReading:
    """Ask NVML. `library` is the module to use, by default `pynvml`, which is loaded here and nowhere else."""
    try:
        nvml = import_module("pynvml") if library is None else library
    except Exception as problem:  # a broken installation of the binding raises anything
        return NvmlReading((), f"NVML cannot be loaded: {problem}", absent=True)
    try:
        nvml.nvmlInit()
    except Exception as problem:  # the binding's errors have no common base that is always there
        missing = type(problem).__name__ in ("NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded")
        return NvmlReading((), _says(problem), absent=missing)
    try:
        return _read_all(nvml)
    finally:
        _try(nvml.nvmlShutdown)


class UsedMemory:
    """Used bytes by PCI id, asked again and again: NVML stays open in between, for opening it takes far longer than
    the answer. Cards it does not know are left out; without NVML there are none."""

    def __init__(self, library: Any = None) -> None:
        self._nvml: Any = None
        self._cards: dict[str, Any] = {}
        nvml, _ = _try(lambda: import_module("pynvml")) if library is None else (library, None)
        if nvml is None or _try(nvml.nvmlInit)[1] is not None:
            return
        self._nvml = nvml
        count, _ = _try(nvml.nvmlDeviceGetCount)
        for index in range(int(count or 0)):
            handle, _ = _try(partial(nvml.nvmlDeviceGetHandleByIndex, index))
            info, _ = _try(partial(nvml.nvmlDeviceGetPciInfo, handle))
            pci = pci_id(info.busId) if handle is not None and info is not None else None
            if pci is not None:
                self._cards[pci] = handle

    def __call__(self) -> dict[str, int]:
        asked = {pci: _try(partial(self._nvml.nvmlDeviceGetMemoryInfo, card))[0] for pci, card in self._cards.items()}
        return {pci: int(memory.total - memory.free) for pci, memory in asked.items() if memory is not None}

    def close(self) -> None:
        """Let go of NVML; may be called again."""
        if self._nvml is not None:
            _try(self._nvml.nvmlShutdown)
            self._nvml, self._cards = None, {}


def pci_id(bus_id: str | bytes) -> str | None:
    """`0000:01:00.0` of NVML's `00000000:01:00.0`."""
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id
    match = _PCI.match(text.strip("\0 ").lower())
    return match[1] if match else None


def _read_all(nvml: Any) -> NvmlReading:
    count, reason = _try(nvml.nvmlDeviceGetCount)
    if count is None:
        return NvmlReading((), reason)
    driver, _ = _try(nvml.nvmlSystemGetDriverVersion)
    driver_text = _text(driver) if driver is not None else None
    devices = tuple(_device(nvml, index, driver_text) for index in range(int(count)))
    return NvmlReading(tuple(sorted(devices, key=lambda device: device.pci_id or "~")))


def _device(nvml: Any, index: int, driver: str | None) -> Device:
    handle, reason = _try(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return Device(f"CUDA{index}", "CUDA", "NVIDIA GPU", source=DeviceSource.NVML, driver=driver, reason=reason)
    name, _ = _try(lambda: nvml.nvmlDeviceGetName(handle))
    bus, _ = _try(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
    memory, reason = _try(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return Device(
        name=f"CUDA{index}",
        backend="CUDA",
        description=_text(name) if name is not None else "NVIDIA GPU",
        total_bytes=int(memory.total) if memory is not None else None,
        free_bytes=int(memory.free) if memory is not None else None,
        source=DeviceSource.NVML,
        pci_id=pci_id(bus) if bus is not None else None,
        driver=driver,
        processes=_processes(nvml, handle),
        reason=reason if memory is None else None,
    )


def _processes(nvml: Any, handle: Any) -> tuple[DeviceProcess, ...]:
    """Whoever computes or draws on the card, the largest first; a process that does both is named once."""
    found: dict[int, int | None] = {}
    for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        running, _ = _try(partial(ask, handle))
        for process in running or ():
            used = process.usedGpuMemory
            known = None if used is None or used >= _UNKNOWN_BYTES else int(used)
            found[int(process.pid)] = max(filter(None, (known, found.get(int(process.pid)))), default=None)
    processes = [describe_process(pid, used) for pid, used in found.items()]
    return tuple(sorted(processes, key=lambda process: (-(process.bytes or 0), process.pid)))


def _try(ask: Callable[[], Any]) -> tuple[Any, str | None]:
    """The answer, or None and why there is none: a card may vanish between two questions."""
    try:
        return ask(), None
    except Exception as problem:
        return None, _says(problem)


def _says(problem: Exception) -> str:
    return f"NVML: {str(problem).strip() or type(problem).__name__}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
