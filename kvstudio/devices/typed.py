"""`CUDA0=24GiB/22GiB` -> Device."""

import re

from kvstudio.devices.listed import backend_of
from kvstudio.devices.values import Device, DeviceSource
from kvstudio.errors import ConfigError
from kvstudio.units import MIB, format_bytes, parse_size

_NAME = re.compile(r"[A-Za-z][\w.-]*(?:\[[^\[\]\s]+\])?")
_HINT = "Write it like CUDA0=24GiB or CUDA0=24GiB/22GiB (total/free)."
#: No machine has more; a larger figure is a typing error.
MAX_BYTES = 2**50


def parse_device(text: str) -> Device:
    """A device of `NAME=TOTAL[/FREE]`; without FREE all of it is free.

    Raises: ConfigError that quotes what is wrong.
    """
    name, equals, sizes = text.strip().rpartition("=")
    name = name.strip()
    if not equals or not sizes.strip():
        raise ConfigError(f"device {text!r} has no memory size", _HINT)
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"device {text!r} has no name that llama.cpp could print", _HINT)
    total_text, slash, free_text = sizes.partition("/")
    total = _size(text, total_text)
    free = _size(text, free_text) if slash else total
    if total == 0:
        raise ConfigError(f"device {text!r} has no memory", _HINT)
    if free > total:
        raise ConfigError(
            f"device {text!r} has {format_bytes(free)} free of {format_bytes(total)}", "Free comes after the slash."
        )
    return Device(name, backend_of(name), "", total, free, DeviceSource.WHAT_IF)


def _size(text: str, size: str) -> int:
    try:
        n_bytes = parse_size(size)
    except ConfigError as problem:
        raise ConfigError(f"device {text!r}: {problem.message}", _HINT) from problem
    if 0 < n_bytes < MIB:
        raise ConfigError(f"device {text!r}: {size.strip()} is {n_bytes} bytes; the unit is missing", _HINT)
    if n_bytes > MAX_BYTES:
        raise ConfigError(f"device {text!r}: {size.strip()} is more memory than any machine has", _HINT)
    return n_bytes
