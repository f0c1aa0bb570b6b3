"""What a device leaves to the CPU decides where a graph runs."""

from dataclasses import replace

import pytest

from kvstudio.budget.compute.support import support_of
from kvstudio.budget.compute.tensor import F32, Tensor
from kvstudio.budget.estimate import estimate
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB
from tests.budget import zoo

NAMED = Device("Vulkan0", "Vulkan", "llvmpipe (LLVM 15.0.6, 256 bits)", 2 * GIB, 2 * GIB)


@pytest.mark.parametrize("build", [10434, 11434])
def test_a_device_of_small_tensors_takes_no_larger_ones(build):
    wide = Tensor("NONE", F32, (1024, 1024, 64, 1))
    node = Tensor("SCALE", F32, (1024, 1024, 1, 1), (wide,))
    card, software = support_of("Vulkan", build), support_of("Vulkan", build, 128 * MIB)
    assert card is not None
    assert software is not None
    assert card(node)
    assert not software(node)
    assert software(Tensor("SCALE", F32, (1024, 1024, 1, 1), (Tensor("NONE", F32, (1024, 1024, 1, 1)),)))


def test_experts_too_large_for_a_device_are_not_copied_to_it_either():
    """As llama-server b10434 printed on Mesa's software device: 88 MiB there, 52 MiB in host memory."""
    config = LaunchConfig(n_ctx=8192, n_parallel=2, n_gpu_layers=99)
    budget = estimate(zoo.model("qwen3-30b-a3b"), config, (NAMED,), build=10434)
    assert budget.devices[0].compute_bytes // MIB == 88
    assert budget.host.compute_bytes // MIB == 52
    roomy = estimate(zoo.model("qwen3-30b-a3b"), config, (replace(NAMED, description="a card"),), build=10434)
    assert roomy.host.compute_bytes // MIB < 52
