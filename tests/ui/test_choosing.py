"""Devices of a case: ticks, imagined ones, new probes and logs, each as the values that change."""

from dataclasses import replace

from kvstudio.case.values import Case
from kvstudio.devices.values import Device, DeviceSource, Machine
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import DevicePrinted
from kvstudio.ui import choosing
from kvstudio.units import GIB, MIB

ONE, TWO = (Device(f"CUDA{i}", "CUDA", "card", 24 * GIB, 23 * GIB) for i in range(2))
SMALL = Device("Vulkan0", "Vulkan", "graphics of the processor", 8 * GIB, 6 * GIB, integrated=True)
HOST = Device("Host", "CPU", "", 64 * GIB, 50 * GIB)
BOTH = Case(machine=Machine((ONE, TWO), HOST), chosen=("CUDA0", "CUDA1"))


def test_integrated_devices_are_used_only_where_there_is_nothing_else():
    assert choosing.default_devices(Machine((ONE, SMALL), HOST)) == ("CUDA0",)
    assert choosing.default_devices(Machine((SMALL,), HOST)) == ("Vulkan0",)


def test_leaving_one_out_is_said_to_llama_cpp_and_taking_it_back_is_not():
    less = BOTH.replace(**choosing.ticked(BOTH, "CUDA0", False))
    assert less.chosen == ("CUDA1",)
    assert less.config.device == ("CUDA1",)
    again = less.replace(**choosing.ticked(less, "CUDA0", True))
    assert again.chosen == ("CUDA0", "CUDA1")
    assert again.config.device is None


def test_leaving_all_out_is_said_as_none():
    none = BOTH.replace(**choosing.ticked(BOTH, "CUDA0", False))
    assert choosing.ticked(none, "CUDA1", False)["config"].device == ("none",)


def test_imagined_devices_get_free_names_and_are_used():
    changes = choosing.with_what_if(BOTH, (replace(ONE, source=DeviceSource.WHAT_IF),) * 2)
    assert changes["chosen"] == ("CUDA0", "CUDA1", "CUDA2", "CUDA3")
    more = BOTH.replace(**changes)
    # With something imagined in use no command line could name the devices.
    assert choosing.ticked(more, "CUDA0", False)["config"].device is None


def test_without_the_last_imagined_one_the_machine_is_used_again():
    imagined = replace(ONE, name="GPU0", source=DeviceSource.WHAT_IF)
    only = BOTH.replace(what_if=(imagined,), chosen=("GPU0",))
    assert choosing.without_what_if(only, "GPU0") == {"what_if": (), "chosen": ("CUDA0", "CUDA1")}


def test_a_probe_that_shows_nothing_new_changes_nothing():
    moved = replace(ONE, free_bytes=ONE.free_bytes - MIB)
    assert choosing.with_machine(BOTH, Machine((moved, TWO), HOST)) == {}
    gone = replace(ONE, free_bytes=10 * GIB)
    assert choosing.with_machine(BOTH, Machine((gone, TWO), HOST))["chosen"] == ("CUDA0", "CUDA1")


def test_a_device_that_comes_is_ticked_as_the_settings_say():
    few = Case(machine=Machine((ONE,), HOST), chosen=("CUDA0",))
    assert choosing.with_machine(few, Machine((ONE, TWO), HOST))["chosen"] == ("CUDA0", "CUDA1")
    named = few.replace(config=LaunchConfig(device=("CUDA0",)))
    assert choosing.with_machine(named, Machine((ONE, TWO), HOST))["chosen"] == ("CUDA0",)


def test_a_device_that_goes_is_no_longer_chosen():
    assert choosing.with_machine(BOTH, Machine((ONE,), HOST))["chosen"] == ("CUDA0",)


def test_devices_of_a_log_are_taken_when_they_are_not_this_machine():
    mine = DevicePrinted(1, "CUDA0", description="card", total_bytes=24 * GIB, free_bytes=20 * GIB)
    assert choosing.devices_of_log((mine,), BOTH.machine) == ()
    other = replace(mine, total_bytes=8 * GIB, free_bytes=7 * GIB)
    (found,) = choosing.devices_of_log((mine, other), BOTH.machine)
    assert (found.total_bytes, found.free_bytes, found.source) == (8 * GIB, 7 * GIB, DeviceSource.LOG)
