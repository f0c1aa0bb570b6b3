"""What a launched process and its children hold, seen cheaply."""

import os
import subprocess
import sys

import psutil
import pytest

from kvstudio.devices import nvml
from kvstudio.devices.values import Device, Machine
from kvstudio.verify.memory import HOST, Counter, Resident, peaks, sample
from tests.devices.test_nvml import CARD, FakeNvml

SLEEPS = "import subprocess, sys, time; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"


def test_children_count_and_those_that_end_do_not():
    code = SLEEPS + "; print(c.pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        try:
            resident = Resident(parent.pid, look_every=1000)
            both = resident.bytes()
            assert both > psutil.Process(parent.pid).memory_info().rss
            psutil.Process(child).kill()
            psutil.Process(parent.pid).memory_info()
            parent.kill()
        finally:
            parent.kill()
            parent.wait()
        assert resident.bytes() is None


def test_a_process_that_never_was_is_unknown():
    assert Resident(None).bytes() is None
    assert Resident(2**22 + 12345).bytes() is None
    assert Resident(os.getpid()).bytes() > 1 << 20


def test_a_counter_outdoes_what_was_printed():
    point = sample(1.0, 7, {"CUDA0": 5}, {"CUDA0": 3, "CUDA1": 2})
    assert point.used_bytes == (("CUDA0", 5), ("CUDA1", 2), (HOST, 7))
    assert sample(1.0, None, {}, {}).used_bytes == ()
    assert dict(peaks((point, sample(2.0, 9, {}, {"CUDA1": 4})), 8)) == {"CUDA0": 5, "CUDA1": 4, HOST: 9}


def machine_of(**pci):
    devices = tuple(Device(name, "CUDA", pci_id=place) for name, place in pci.items())
    return Machine(devices, Device("Host", "CPU"))


def test_drivers_count_the_devices_of_the_machine_by_their_place_on_the_bus():
    library = FakeNvml(
        [dict(CARD), CARD | {"bus": "00000000:02:00.0", "free": CARD["total"]}, CARD | {"bus": "00000000:03:00.0"}]
    )
    counter = Counter(machine_of(CUDA1="0000:01:00.0", CUDA0="0000:02:00.0"), (lambda: nvml.UsedMemory(library),))
    assert counter() == {"CUDA1": 4 << 30, "CUDA0": 0}
    library.cards[0]["free"] -= 1 << 30
    assert counter()["CUDA1"] == 5 << 30, "asked anew each time"
    assert library.shut == 0, "and left open in between"
    counter.close()
    counter.close()
    assert library.shut == 1
    assert counter() == {}


def test_a_driver_that_knows_none_of_the_devices_is_let_go():
    library = FakeNvml([CARD])
    counter = Counter(machine_of(Vulkan0="0000:09:00.0"), (lambda: nvml.UsedMemory(library),))
    assert counter() == {}
    assert library.shut == 1


def test_a_machine_without_places_asks_no_driver():
    assert Counter(machine_of(), (lambda: pytest.fail("asked"),))() == {}
    assert Counter(None)() == {}


@pytest.mark.parametrize(
    "broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo"]
)
def test_a_driver_that_fails_counts_nothing(broken):
    library = FakeNvml([CARD], {broken: RuntimeError("no")})
    assert Counter(machine_of(CUDA0="0000:01:00.0"), (lambda: nvml.UsedMemory(library),))() == {}


def test_a_card_that_vanishes_while_it_is_watched_is_left_out():
    library = FakeNvml([CARD])
    counter = Counter(machine_of(CUDA0="0000:01:00.0"), (lambda: nvml.UsedMemory(library),))
    library.broken["nvmlDeviceGetMemoryInfo"] = RuntimeError("GPU is lost")
    assert counter() == {}
