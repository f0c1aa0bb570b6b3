"""Bytes to text and back, in the IEC units llama.cpp prints."""

import re

from kvstudio.errors import ConfigError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
_STEPS = (("TiB", 1024**4), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def format_bytes(n_bytes: int) -> str:
    """`19864223744` as `"18.5 GiB"`: one decimal, the largest unit that keeps it at 1 or above."""
    for unit, size in _STEPS:
        if abs(n_bytes) >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} B"


def format_gib(n_bytes: int) -> str:
    """The GiB figure alone, one decimal, for axes and bars that name the unit once."""
    return f"{n_bytes / GIB:.1f}"


def format_room(n_bytes: int) -> str:
    """A room or shortage in GiB with one decimal, in MiB where that would say 0.0."""
    if abs(n_bytes) < GIB // 20:
        return f"{n_bytes / MIB:.1f} MiB"
    return f"{format_gib(n_bytes)} GiB"


def format_mib(n_bytes: int) -> str:
    """MiB with one decimal, for comparing with a figure of the log."""
    return f"{n_bytes / MIB:.1f} MiB"


def group_digits(n_bytes: int) -> str:
    """Raw bytes grouped with narrow no-break spaces, for tooltips."""
    return f"{n_bytes:,}".replace(",", "\u202f")


def parse_size(text: str) -> int:
    """Bytes of a typed size: `24GiB`, `24G`, `2048MiB`, `2048 MB`, plain bytes. Units are powers of 1024.

    Raises: ConfigError when the text is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ConfigError(f"not a size: {text!r}", "Write it like 24GiB, 2048MiB or a number of bytes.")
    number, prefix, _ = match.groups()
    return int(float(number) * 1024 ** _POWER[prefix.lower()] + 0.5) if "." in number or prefix else int(number)
