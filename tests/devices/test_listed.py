"""devices.listed: llama.cpp's own device list."""

import pytest

from kvstudio.devices.listed import backend_of, is_integrated, is_listing, option_names, parse_listed
from kvstudio.devices.values import DeviceSource
from kvstudio.units import MIB

TEXT = """ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
Available devices:
  CUDA0: NVIDIA GeForce RTX 4090 (24080 MiB, 23640 MiB free)
  CUDA1: NVIDIA GeForce RTX 3060 (LHR) (11909 MiB, 11800 MiB free)\r
  Vulkan0: llvmpipe (LLVM 15.0.6, 256 bits) (2048 MiB, 2048 MiB free)
  RPC0[192.168.1.2:50052]: 192.168.1.2:50052 (24105 MiB, 24105 MiB free)
  RPC[box:50052]: RPC[box:50052] (100 MiB, 90 MiB free)
  CUDA2: Odd (0 MiB, 0 MiB free)
"""


def test_devices_come_in_order_with_their_memory() -> None:
    devices = parse_listed(TEXT)
    assert [device.name for device in devices] == [
        "CUDA0", "CUDA1", "Vulkan0", "RPC0[192.168.1.2:50052]", "RPC[box:50052]", "CUDA2",
    ]  # fmt: skip
    assert [device.backend for device in devices] == ["CUDA", "CUDA", "Vulkan", "RPC", "RPC", "CUDA"]
    assert devices[1].description == "NVIDIA GeForce RTX 3060 (LHR)"
    assert (devices[0].total_bytes, devices[0].free_bytes) == (24080 * MIB, 23640 * MIB)
    assert devices[0].used_bytes == 440 * MIB
    assert devices[2].description == "llvmpipe (LLVM 15.0.6, 256 bits)"
    assert devices[3].source is DeviceSource.RPC


def test_a_device_without_figures_is_unknown_with_a_reason() -> None:
    device = parse_listed(TEXT)[-1]
    assert (device.total_bytes, device.free_bytes) == (None, None)
    assert device.reason


def test_no_device_is_an_answer_and_noise_is_none() -> None:
    assert parse_listed("Available devices:\n  (none)\n") == ()
    assert is_listing("Available devices:\n  (none)\n")
    assert not is_listing("error: unknown argument: --list-devices\n")


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("CUDA12", "CUDA"),
        ("MTL0", "MTL"),
        ("RPC0[a:1]", "RPC"),
        ("Host", "CPU"),
        ("CPU", "CPU"),
        ("GPUOpenCL", "GPUOpenCL"),
    ],
)
def test_backends(name: str, backend: str) -> None:
    assert backend_of(name) == backend


@pytest.mark.parametrize(
    ("description", "integrated"),
    [
        ("NVIDIA GeForce RTX 4090", False),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", False),
        ("AMD Radeon Graphics (RADV PHOENIX)", True),
        ("AMD Radeon 780M", True),
        ("AMD Radeon(TM) 8060S Graphics", True),
        ("Intel(R) UHD Graphics 770 (ADL-S GT1)", True),
        ("Intel(R) Arc(TM) A770 Graphics (DG2)", False),
        ("NVIDIA Tegra Orin (nvgpu)", True),
        ("Apple M2 Max", False),
    ],
)
def test_integrated_chips_are_told_by_name(description: str, integrated: bool) -> None:
    assert is_integrated(description) is integrated


def test_a_remote_device_is_named_by_its_server_as_its_buffers_are() -> None:
    text = """Available devices:
  RPC0: box:50052 (100 MiB, 90 MiB free)
  RPC1: box:50052 (50 MiB, 50 MiB free)
  RPC2: other:50052 (24105 MiB, 24105 MiB free)
  CUDA0: Card (10 MiB, 9 MiB free)
"""
    devices = parse_listed(text)
    names = tuple(device.name for device in devices)
    assert names == ("RPC0[box:50052]", "RPC1[box:50052]", "RPC0[other:50052]", "CUDA0")
    assert devices[2].source is DeviceSource.RPC
    assert devices[2].free_bytes == 24105 * MIB
    assert list(option_names(names).values()) == ["RPC0", "RPC1", "RPC2", "CUDA0"]


def test_opencl_says_its_largest_buffer_when_it_starts():
    text = (
        "ggml_opencl: max mem alloc size: 1024 MB\nAvailable devices:\n  GPUOpenCL: Adreno (4096 MiB, 4096 MiB free)\n"
    )
    assert [d.max_buffer_bytes for d in parse_listed(text)] == [1024 * MIB]
    assert [d.max_buffer_bytes for d in parse_listed(text.partition("\n")[2])] == [None]
