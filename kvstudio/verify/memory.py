"""The memory of a running launch: what its process holds of RAM, and what drivers count per device."""

from collections.abc import Callable, Mapping
from typing import Protocol

import psutil

from kvstudio.devices import nvml, sysfs
from kvstudio.devices.values import Machine
from kvstudio.verify.values import MemorySample, PrintedBuffer

HOST = "Host"


class Driver(Protocol):
    """Counts memory by PCI id, whoever uses it."""

    def __call__(self) -> Mapping[str, int]: ...

    def close(self) -> None: ...


class AmdDriver:
    """The amdgpu driver, which writes its count into files."""

    def __call__(self) -> Mapping[str, int]:
        cards = ((card.pci_id, card.used_bytes) for card in sysfs.read_amd())
        return {pci: used for pci, used in cards if pci is not None and used is not None}

    def close(self) -> None:
        """Nothing is held."""


#: Drivers that can be asked while a launch runs; cards are told apart by their place on the bus.
DRIVERS: tuple[Callable[[], Driver], ...] = (nvml.UsedMemory, AmdDriver)


class Counter:
    """Used bytes by device name, for the devices of `machine` whose driver counts them; asks only drivers that do."""

    def __init__(self, machine: Machine | None, drivers: tuple[Callable[[], Driver], ...] = DRIVERS) -> None:
        self._names = {d.pci_id: d.name for d in (machine.devices if machine else ()) if d.pci_id is not None}
        self._drivers: list[Driver] = []
        for start in drivers if self._names else ():
            driver = start()
            if driver().keys() & self._names.keys():
                self._drivers.append(driver)
            else:
                driver.close()

    def __call__(self) -> dict[str, int]:
        counts = (count for driver in self._drivers for count in driver().items())
        return {self._names[pci]: used for pci, used in counts if pci in self._names}

    def close(self) -> None:
        """No more questions."""
        for driver in self._drivers:
            driver.close()
        self._drivers = []


class Resident:
    """Resident memory of a process and its children, sample after sample.

    Finding children means reading every process of the system, so that is done only now and then.
    """

    def __init__(self, pid: int | None, look_every: int = 16) -> None:
        self._pid, self._look_every, self._turn = pid, look_every, 0
        self._family: list[psutil.Process] = []

    def bytes(self) -> int | None:
        """Bytes now; None when the process is gone or not ours to see."""
        if self._pid is None:
            return None
        try:
            if self._turn % self._look_every == 0:
                process = psutil.Process(self._pid)
                self._family = [process, *process.children(recursive=True)]
            self._turn += 1
            total: int = self._family[0].memory_info().rss
        except psutil.Error:
            return None
        return total + sum(_resident(child) for child in self._family[1:])


def _resident(process: psutil.Process) -> int:
    try:
        size: int = process.memory_info().rss
    except psutil.Error:
        return 0  # ended since it was found
    return size


def sample(time_s: float, held: int | None, counted: Mapping[str, int], printed: Mapping[str, int]) -> MemorySample:
    """One point of the trace: a driver's figure where there is one, else the buffers printed so far.

    `held`: resident bytes of the launched processes.
    """
    used = {**printed, **counted}
    if held is not None:
        used[HOST] = held
    return MemorySample(time_s, tuple(sorted(used.items())))


def peaks(samples: tuple[MemorySample, ...], peak_rss_bytes: int | None = None) -> tuple[tuple[str, int], ...]:
    """The largest figure of each device; the system's own record of the process's peak counts for the host."""
    highest: dict[str, int] = {}
    for point in samples:
        for name, used in point.used_bytes:
            highest[name] = max(highest.get(name, 0), used)
    if peak_rss_bytes is not None:
        highest[HOST] = max(highest.get(HOST, 0), peak_rss_bytes)
    return tuple(sorted(highest.items()))


def learned_overhead(
    before: Mapping[str, int], peak: Mapping[str, int], buffers: tuple[PrintedBuffer, ...]
) -> tuple[tuple[str, int | None], ...]:
    """Memory each device used at the peak that no printed buffer explains; None where no driver counted it.

    `before` and `peak`: used bytes per counted device, all programs together.
    """
    printed: dict[str, int] = {}
    for buffer in buffers:
        if buffer.device is not None:
            printed[buffer.device] = printed.get(buffer.device, 0) + buffer.bytes
    return tuple(
        (name, max(0, peak[name] - before[name] - bytes_) if name in peak and name in before else None)
        for name, bytes_ in sorted(printed.items())
    )


def free_before(machine: Machine | None) -> tuple[tuple[str, int], ...]:
    """Free bytes per device, and of the host, as probed before the launch."""
    if machine is None:
        return ()
    return tuple((d.name, d.free_bytes) for d in (*machine.devices, machine.host) if d.free_bytes is not None)
