"""The gated delta rule in chunks: several slots and layers on the host make llama.cpp give up the fused operation.

The bytes are what llama-server b10434 reserved on software Vulkan devices of 2 GiB.
"""

import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.budget.values import BufferKind
from kvstudio.devices.values import Device
from kvstudio.launch.argv import parse_argv
from kvstudio.units import GIB
from tests.budget import zoo

ONE_HOST = ("-c", "4096", "-np", "2", "-ngl", "0")
TWO_PART = ("-c", "8192", "-np", "4", "-ngl", "20", "-ts", "1,1")


@pytest.mark.parametrize(
    ("name", "args", "measured"),
    [
        ("qwen35-27b", ONE_HOST, {"Vulkan0": 192463872, "Vulkan_Host": 33817728}),
        ("qwen35-27b", TWO_PART, {"Vulkan0": 180068352, "Vulkan1": 174080032, "Vulkan_Host": 34064000}),
        ("qwen3next-80b", ONE_HOST, {"Vulkan0": 533725184, "Vulkan_Host": 23276672}),
        ("qwen3next-80b", TWO_PART, {"Vulkan0": 542113792, "Vulkan1": 111552544, "Vulkan_Host": 23473792}),
    ],
)
def test_compute_buffers_of_partly_offloaded_slots(name, args, measured):
    config = parse_argv(("llama-server", "-m", "m.gguf", *args, "-fit", "on")).evolve(load_mode="none")
    devices = tuple(
        Device(f"Vulkan{i}", "Vulkan", total_bytes=2 * GIB, free_bytes=2 * GIB) for i in range(len(measured) - 1)
    )
    budget = estimate(zoo.model(name), config, devices, build=10434)
    assert {b.name: b.bytes for b in budget.buffers if b.kind is BufferKind.COMPUTE} == measured
