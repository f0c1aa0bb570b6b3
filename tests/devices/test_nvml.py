"""devices.nvml: what NVML says, and every way in which it does not."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from kvstudio.devices.nvml import pci_id, read
from kvstudio.units import GIB

CARD = {"name": "NVIDIA GeForce RTX 3090", "bus": "00000000:01:00.0", "total": 24 * GIB, "free": 20 * GIB}


#: As the binding calls what it raises without a driver.
LibraryNotFoundError = type("NVMLError_LibraryNotFound", (Exception,), {})


class FakeNvml:
    """Stands in for pynvml; `broken` maps a function's name to what it raises."""

    def __init__(self, cards: list[dict[str, Any]], broken: dict[str, Exception] | None = None) -> None:
        self.cards, self.broken, self.shut = cards, broken or {}, 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            if name in self.broken:
                raise self.broken[name]
            return getattr(self, f"do_{name[4:]}")(*args)

        return call

    def do_Init(self) -> None: ...

    def do_Shutdown(self) -> None:
        self.shut += 1

    def do_DeviceGetCount(self) -> int:
        return len(self.cards)

    def do_SystemGetDriverVersion(self) -> bytes:
        return b"550.1"

    def do_DeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return self.cards[index]

    def do_DeviceGetName(self, card: dict[str, Any]) -> Any:
        return card["name"]

    def do_DeviceGetPciInfo(self, card: dict[str, Any]) -> Any:
        return SimpleNamespace(busId=card["bus"])

    def do_DeviceGetMemoryInfo(self, card: dict[str, Any]) -> Any:
        return SimpleNamespace(total=card["total"], free=card["free"])

    def do_DeviceGetComputeRunningProcesses(self, card: dict[str, Any]) -> Any:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.get("compute", [])]

    def do_DeviceGetGraphicsRunningProcesses(self, card: dict[str, Any]) -> Any:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.get("graphics", [])]


def test_cards_come_in_pci_order_with_live_memory() -> None:
    library = FakeNvml([CARD | {"bus": b"00000000:41:00.0", "name": b"B"}, CARD])
    devices = read(library).devices
    assert [(d.description, d.pci_id) for d in devices] == [
        ("NVIDIA GeForce RTX 3090", "0000:01:00.0"),
        ("B", "0000:41:00.0"),
    ]
    assert (devices[0].total_bytes, devices[0].free_bytes, devices[0].driver) == (24 * GIB, 20 * GIB, "550.1")
    assert library.shut == 1


def test_processes_are_named_once_largest_first() -> None:
    me = os.getpid()
    card = CARD | {"compute": [(me, 1 * GIB), (999_999_999, 3 * GIB)], "graphics": [(me, None), (7, 2**64 - 1)]}
    processes = read(FakeNvml([card])).devices[0].processes
    assert [(p.pid, p.bytes) for p in processes] == [(999_999_999, 3 * GIB), (me, 1 * GIB), (7, None)]
    assert processes[0].name == "process 999999999"
    assert processes[1].name
    assert processes[1].user


def test_no_library_is_normal_and_a_broken_driver_is_said() -> None:
    missing = read(FakeNvml([], {"nvmlInit": LibraryNotFoundError("NVML Shared Library Not Found")}))
    assert (missing.devices, missing.absent) == ((), True)
    broken = read(FakeNvml([], {"nvmlInit": RuntimeError("Driver/library version mismatch")}))
    assert (broken.devices, broken.absent) == ((), False)
    assert broken.reason == "NVML: Driver/library version mismatch"


@pytest.mark.parametrize(
    "name",
    [
        "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses", "nvmlSystemGetDriverVersion",
        "nvmlShutdown",
    ],
)  # fmt: skip
def test_a_failing_question_costs_only_its_answer(name: str) -> None:
    reading = read(FakeNvml([CARD], {name: RuntimeError("GPU is lost")}))
    (device,) = reading.devices
    assert reading.reason is None
    if name in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"):
        assert (device.total_bytes, device.reason) == (None, "NVML: GPU is lost")
    else:
        assert (device.total_bytes, device.reason) == (24 * GIB, None)


def test_no_count_is_no_card_with_a_reason() -> None:
    assert read(FakeNvml([CARD], {"nvmlDeviceGetCount": OSError("no permission")})).reason == "NVML: no permission"


@pytest.mark.parametrize(
    ("bus", "expected"), [("00000000:01:00.0", "0000:01:00.0"), (b"0000:0A:00.0\0\0", "0000:0a:00.0"), ("?", None)]
)
def test_pci_ids(bus: str | bytes, expected: str | None) -> None:
    assert pci_id(bus) == expected


def test_this_machine_answers_somehow() -> None:
    reading = read()
    assert reading.devices or reading.reason
