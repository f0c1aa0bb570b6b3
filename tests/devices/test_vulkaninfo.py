"""devices.vulkaninfo: the largest buffer of each Vulkan device."""

import stat
import sys

import pytest

from kvstudio.devices import vulkaninfo
from kvstudio.devices.values import Device

#: The lines that matter, as vulkaninfo 1.3 prints them, between others of their sections.
PRINTED = """\
Device Properties and Extensions:
=================================
GPU0:
VkPhysicalDeviceProperties:
---------------------------
\tapiVersion        = 1.3.230 (4206822)
\tdeviceName        = llvmpipe (LLVM 15.0.6, 256 bits)

VkPhysicalDeviceLimits:
\tmaxStorageBufferRange                           = 134217728

VkPhysicalDeviceMaintenance3Properties:
\tmaxPerSetDescriptors    = 1024
\tmaxMemoryAllocationSize = 0x80000000

VkPhysicalDeviceMaintenance4Properties:
\tmaxBufferSize = 0xffffffff

GPU1:
VkPhysicalDeviceProperties:
\tdeviceName        = An older card

VkPhysicalDeviceMaintenance3Properties:
\tmaxMemoryAllocationSize = 0x7fff0000
"""


def vulkan(index: int, name: str) -> Device:
    return Device(f"Vulkan{index}", "Vulkan", name)


def test_each_device_says_its_largest_buffer():
    assert vulkaninfo.parse(PRINTED) == (
        ("llvmpipe (LLVM 15.0.6, 256 bits)", 0xFFFFFFFF),
        ("An older card", 0x7FFF0000),
    )


@pytest.mark.parametrize(
    "text", ["", "GPU0:\n", "\tmaxBufferSize = 1\n", "GPU0:\n\tdeviceName = x\n\tmaxBufferSize = 0\n"]
)
def test_what_does_not_say_it_is_left_out(text):
    assert vulkaninfo.parse(text) == ()


def test_devices_are_found_by_name():
    devices = (vulkan(0, "An older card"), vulkan(1, "Another"), Device("CUDA0", "CUDA", "An older card"))
    found = vulkaninfo.with_limits(devices, vulkaninfo.parse(PRINTED))
    assert [d.max_buffer_bytes for d in found] == [0x7FFF0000, None, None]


def test_equal_names_with_different_limits_tell_nothing():
    found = vulkaninfo.with_limits((vulkan(0, "card"),), (("card", 1 << 30), ("card", 1 << 32)))
    assert found[0].max_buffer_bytes is None


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the program")
@pytest.mark.parametrize("ending", ["exit 0", "exit 1", "kill -9 $$"])
def test_the_program_on_path_is_asked_once(tmp_path, monkeypatch, ending):
    calls = tmp_path / "calls"
    (tmp_path / "printed").write_text(PRINTED)
    program = tmp_path / vulkaninfo.PROGRAM
    program.write_text(f"#!/bin/sh\necho x >> {calls}\n/bin/cat {tmp_path / 'printed'}\n{ending}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):
        found = vulkaninfo.read((vulkan(0, "An older card"),))
        assert found[0].max_buffer_bytes == 0x7FFF0000
    assert calls.read_text().count("x") == 1


def test_without_vulkan_devices_nothing_runs(monkeypatch):
    monkeypatch.setattr(vulkaninfo, "ask", lambda path: pytest.fail("asked"))
    devices = (Device("CUDA0", "CUDA", "An older card"),)
    assert vulkaninfo.read(devices) is devices


def test_a_program_that_cannot_run_tells_nothing(tmp_path):
    assert vulkaninfo.ask(str(tmp_path / "missing")) == ()
