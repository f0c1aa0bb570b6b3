"""Where the RAM is short: mapped weights, no copies, more layers on devices; none of it where a device is."""

import pytest

from kvstudio.advise.suggest import suggest
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB
from tests.advise.world import device
from tests.budget import zoo


def host(free_gib):
    return Device("Host", "CPU", "", 64 * GIB, int(free_gib * GIB))


def offered(fixes):
    return {fix.variable: fix for fix in fixes}


def fixes_of(name, config, devices, free_gib, build=None):
    return offered(suggest(zoo.model(name), config, devices, host=host(free_gib), build=build, limit=20))


def test_weights_that_are_read_into_memory_are_mapped_instead():
    config = LaunchConfig(model_path="m.gguf", n_ctx=4096, fit=False, load_mode="none", repack=False)
    fix = fixes_of("llama31-8b", config, (), 3)["load_mode"]
    assert fix.budget.fits
    assert fix.after is None
    assert fix.config == config.evolve(load_mode=None)


def test_copies_of_the_weights_are_left_out():
    config = LaunchConfig(model_path="m.gguf", n_ctx=4096, n_gpu_layers=0, fit=False)
    fix = fixes_of("llama31-8b", config, (), 3)["repack"]
    assert fix.budget.fits
    assert {b.name for b in fix.budget.buffers}.isdisjoint({"CPU_REPACK", "AMX"})


def test_more_layers_go_to_a_device_with_room_and_no_more_than_it_takes():
    config = LaunchConfig(model_path="m.gguf", n_ctx=65536, n_parallel=1, n_gpu_layers=4, fit=False)
    fix = fixes_of("llama31-8b", config, (device(0, 24),), 5)["n_gpu_layers"]
    assert fix.budget.fits
    assert fix.after > 4
    assert fixes_of("llama31-8b", config, (device(0, 2),), 5).get("n_gpu_layers") is None
    one_less = suggest(
        zoo.model("llama31-8b"), config.evolve(n_gpu_layers=fix.after - 1), (device(0, 24),), host=host(5)
    )
    assert one_less


@pytest.mark.parametrize("variable", ["load_mode", "repack"])
def test_where_a_device_is_short_ram_is_not_the_matter(variable):
    config = LaunchConfig(model_path="m.gguf", n_ctx=131072, n_gpu_layers=99, fit=False, load_mode="none")
    fixes = fixes_of("llama31-8b", config, (device(0, 12),), 60)
    assert fixes
    assert variable not in fixes


def test_without_devices_no_experts_are_moved_off_them():
    config = LaunchConfig(model_path="m.gguf", n_ctx=4096, fit=False, load_mode="none", repack=False)
    fixes = fixes_of("qwen3-30b-a3b", config, (), 3)
    assert "n_cpu_moe" not in fixes
    assert "load_mode" in fixes
