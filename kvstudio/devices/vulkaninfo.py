"""What `vulkaninfo` prints -> the largest buffer each Vulkan device takes, which no list of devices says."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from kvstudio.devices.values import Device

PROGRAM = "vulkaninfo"
TIMEOUT_S = 5.0
_GPU = re.compile(r"^GPU\d+:[ \t\r]*$", re.MULTILINE)
_NAME = re.compile(r"^[ \t]*deviceName[ \t]*=[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
_SIZE = re.compile(
    r"^[ \t]*(maxBufferSize|maxMemoryAllocationSize)[ \t]*=[ \t]*(0x[0-9a-fA-F]{1,16}|\d{1,20})\b", re.MULTILINE
)


def parse(text: str) -> tuple[tuple[str, int], ...]:
    """Name and largest buffer of each device; those that do not say are left out.

    Without maintenance4 there is no maxBufferSize, and llama.cpp takes the largest allocation for it.
    """
    found: list[tuple[str, int]] = []
    for part in _GPU.split(text)[1:]:
        name = _NAME.search(part)
        sizes = {match[1]: int(match[2], 0) for match in _SIZE.finditer(part)}
        most = sizes.get("maxBufferSize", sizes.get("maxMemoryAllocationSize"))
        if name and most:
            found.append((name[1], most))
    return tuple(found)


def with_limits(devices: tuple[Device, ...], told: Iterable[tuple[str, int]]) -> tuple[Device, ...]:
    """Vulkan devices with the limit of the device of that name; equal names have equal limits or none is taken."""
    limits: dict[str, set[int]] = {}
    for name, most in told:
        limits.setdefault(name, set()).add(most)

    def limited(device: Device) -> Device:
        sizes = limits.get(device.description, set())
        return (
            replace(device, max_buffer_bytes=min(sizes)) if device.backend == "Vulkan" and len(sizes) == 1 else device
        )

    return tuple(limited(device) for device in devices)


@lru_cache(maxsize=4)
def ask(path: str) -> tuple[tuple[str, int], ...]:
    """Run the program once: a driver's limits do not change. Nothing when it fails or hangs."""
    hidden = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        answer = subprocess.run(
            (path,), stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False, creationflags=hidden
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse(answer.stdout.decode("utf-8", "replace"))


def read(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Devices with what `vulkaninfo` knows of them; unchanged without Vulkan devices or without the program."""
    path = shutil.which(PROGRAM) if any(device.backend == "Vulkan" for device in devices) else None
    return with_limits(devices, ask(path)) if path else devices
