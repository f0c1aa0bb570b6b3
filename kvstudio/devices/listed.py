"""What `--list-devices` printed -> devices, in llama.cpp's order."""

import re

from kvstudio.devices.values import Device, DeviceSource
from kvstudio.units import MIB

#: Source: `common_print_available_devices` in common/arg.cpp, build 11434; names may hold an address in brackets.
_LINE = re.compile(
    r"^[ \t]*(?P<name>[^\s:\[\]]+(?:\[[^\]]*\])?)[ \t]*: (?P<description>.*?)"
    r"[ \t]*\((?P<total>\d{1,12}) MiB, (?P<free>\d{1,12}) MiB free\)[ \t\r]*$",
    re.MULTILINE,
)
_BACKEND = re.compile(r"[A-Za-z_]+")
#: Chips that share the host's memory, as their drivers name them.
_INTEGRATED = re.compile(
    r"Radeon(?:\(TM\)|™)? (?:\d{3}M|80[456]0S|Graphics|Vega \d+ Graphics)\b"
    r"|Intel(?:\(R\))? (?:Iris|UHD|HD Graphics|Graphics)"
    r"|Intel\(R\) Arc\(TM\) (?:\d{3}V? |Graphics)|RADV (?:RAVEN|RENOIR|REMBRANDT|PHOENIX|CEZANNE|STRIX|GFX1151|HAWK)"
    r"|Strix Halo|Adreno|Mali-|Tegra|Orin|Thor|GB10",
    re.IGNORECASE,
)


def parse_listed(text: str) -> tuple[Device, ...]:
    """Devices of a `--list-devices` answer; other lines are ignored."""
    return tuple(_device(match) for match in _LINE.finditer(text))


def is_listing(text: str) -> bool:
    """Whether a program answered the question at all, be it with `(none)`."""
    return "vailable devices" in text or _LINE.search(text) is not None


def backend_of(name: str) -> str:
    """`CUDA` of `CUDA0`, `RPC` of `RPC0[host:port]`, `CPU` of the host."""
    match = _BACKEND.match(name)
    prefix = match[0] if match else name
    return "CPU" if prefix in ("Host", "CPU") else prefix


def is_integrated(description: str) -> bool:
    """Whether the device's memory is the host's, by its name."""
    return _INTEGRATED.search(description) is not None


def _device(match: re.Match[str]) -> Device:
    name, description = match["name"], match["description"].strip()
    total, free = int(match["total"]) * MIB, int(match["free"]) * MIB
    backend = backend_of(name)
    known = total > 0
    return Device(
        name=name,
        backend=backend,
        description=description,
        total_bytes=total if known else None,
        free_bytes=min(free, total) if known else None,
        source=DeviceSource.RPC if backend == "RPC" else DeviceSource.LISTED,
        integrated=is_integrated(description),
        reason=None if known else "the driver does not report this device's memory",
    )
