"""What `--list-devices` printed -> devices, in llama.cpp's order."""

import re
from dataclasses import replace

from kvstudio.devices.values import Device, DeviceSource
from kvstudio.units import MIB

#: Source: `common_print_available_devices` in common/arg.cpp, build 11434; names may hold an address in brackets.
_LINE = re.compile(
    r"^[ \t]*(?P<name>[^\s:\[\]]+(?:\[[^\]]*\])?)[ \t]*: (?P<description>.*?)"
    r"[ \t]*\((?P<total>\d{1,12}) MiB, (?P<free>\d{1,12}) MiB free\)[ \t\r]*$",
    re.MULTILINE,
)
#: OpenCL's start says it, for the device that llama.cpp then takes for all. Source: ggml-opencl.cpp, build 11434.
_OPENCL_LIMIT = re.compile(r"ggml_opencl: max mem alloc size:[ \t]*(\d{1,9}) MB")
_BACKEND = re.compile(r"[A-Za-z_]+")
_OPENCL = ("OpenCL", "GPUOpenCL")
_RPC_NAME = re.compile(r"RPC\d+")
#: What stands for the description of a remote device: its server.
_ENDPOINT = re.compile(r"\S+:\d{1,5}")
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
    devices = tuple(_device(match) for match in _LINE.finditer(text))
    limit = _OPENCL_LIMIT.search(text)
    if limit is not None:
        most = int(limit[1]) * MIB
        devices = tuple(replace(d, max_buffer_bytes=most) if d.backend in _OPENCL else d for d in devices)
    names = named_by_server(tuple((device.name, device.description) for device in devices))
    return tuple(replace(device, name=name) for device, name in zip(devices, names, strict=True))


def named_by_server(devices: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Names for (name, description) as buffers will carry them: `RPC1` of a second server is `RPC0[host:port]`.

    Source: ggml-rpc.cpp, build 11434: a device list counts over all servers, a buffer type within its server.
    """
    names: list[str] = []
    for name, description in devices:
        end = f"[{description}]"
        remote = _RPC_NAME.fullmatch(name) and _ENDPOINT.fullmatch(description)
        names.append(f"RPC{sum(earlier.endswith(end) for earlier in names)}{end}" if remote else name)
    return tuple(names)


def option_names(names: tuple[str, ...]) -> dict[str, str]:
    """What `-dev` calls each device: remote ones are counted over all servers, in their order."""
    remote = [name for name in names if backend_of(name) == "RPC"]
    return {name: f"RPC{remote.index(name)}" if name in remote else name for name in names}


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
