"""`2 x 24 GiB`, `RTX 4090 + RTX 3060`, `two 16 GB cards` -> devices that are not there (yet)."""

import re
from collections.abc import Iterable
from dataclasses import replace

from kvstudio.devices.cards import Card, find_card
from kvstudio.devices.listed import backend_of
from kvstudio.devices.typed import MAX_BYTES, parse_device
from kvstudio.devices.values import Device, DeviceSource
from kvstudio.errors import ConfigError
from kvstudio.units import GIB, format_bytes, parse_size

MAX_DEVICES = 16  # Source: GGML_CUDA_MAX_DEVICES and GGML_VK_MAX_DEVICES
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
            "single": 1, "dual": 2, "triple": 3, "quad": 4}  # fmt: skip
_PARTS = re.compile(r"\s*(?:[,;+&\n]|\band\b|\bplus\b)\s*", re.IGNORECASE)
_COUNT = re.compile(r"(\d{1,3})\s*(?:[x×*]|times\b)\s*(.+)|(.+?)\s+[x×*]\s*(\d{1,2})", re.IGNORECASE)
_WORD_COUNT = re.compile(rf"({'|'.join(_NUMBERS)})\s+(.+)", re.IGNORECASE)
_BARE_COUNT = re.compile(
    r"(\d{1,2})\s+(?=(?:nvidia|geforce|amd|radeon|rtx|gtx|rx|tesla|intel|arc)\b)(.+)", re.IGNORECASE
)
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|gigs?|gigabytes?)\b", re.IGNORECASE)
_FILLER = re.compile(r"\b(?:cards?|gpus?|devices?|of|with|vram|memory|ram|each|total)\b", re.IGNORECASE)
_NAMED = re.compile(r"^\s*[A-Za-z][\w.-]*(?:\[[^\]]*\])?\s*=")
_BACKENDS = {
    "cuda": "CUDA",
    "rocm": "ROCm",
    "hip": "ROCm",
    "vulkan": "Vulkan",
    "metal": "MTL",
    "mtl": "MTL",
    "sycl": "SYCL",
}
_HINT = "Write it like 24 GiB, 2 x 16 GiB, RTX 4090, or CUDA0=24GiB/20GiB."


def parse(text: str, taken: Iterable[str] = ()) -> tuple[Device, ...]:
    """Devices by count and size, by name of a well-known card, or as `NAME=TOTAL[/FREE]`, several joined by `,` or `+`.

    They are called as the backend would (`CUDA0`, `ROCm0`), names in `taken` left out. Sizes are powers of 1024.

    Raises: ConfigError that quotes the part that is not understood.
    """
    names = set(taken)
    devices: list[Device] = []
    for part in filter(None, _PARTS.split(text.strip())):
        for device in _devices(part):
            if device.name in names and _NAMED.match(part):
                raise ConfigError(f"the device {device.name} is there twice", "Give each device its own name.")
            name = device.name if _NAMED.match(part) else _free_name(device.backend, names)
            names.add(name)
            devices.append(_renamed(device, name))
        if len(devices) > MAX_DEVICES:
            raise ConfigError(f"{len(devices)} devices are more than llama.cpp can use", f"Use {MAX_DEVICES} at most.")
    if not devices:
        raise ConfigError("no device was written", _HINT)
    return tuple(devices)


def _devices(part: str) -> list[Device]:
    if _NAMED.match(part):
        return [parse_device(part)]
    count, rest = _count(part)
    if not 0 < count <= MAX_DEVICES:
        raise ConfigError(f"{count} devices are more or fewer than llama.cpp can use: {part!r}", _HINT)
    return [_one(part, rest)] * count


def _count(part: str) -> tuple[int, str]:
    match = _COUNT.fullmatch(part)
    if match:
        return (int(match[1]), match[2]) if match[1] else (int(match[4]), match[3])
    match = _WORD_COUNT.fullmatch(part)
    if match:
        return _NUMBERS[match[1].lower()], match[2]
    match = _BARE_COUNT.fullmatch(part)
    return (int(match[1]), match[2]) if match else (1, part)


def _one(part: str, text: str) -> Device:
    """One device of a size, a card's name, or both."""
    size = _SIZE.search(text)
    name = " ".join(_FILLER.sub(" ", _SIZE.sub(" ", text)).split())
    backend = _BACKENDS.get(name.lower())
    card = find_card(name) if name and backend is None else None
    if size is None and card is None:
        return Device(backend or "CUDA", backend or "CUDA", "", *_bare(part, text), DeviceSource.WHAT_IF)
    if size is not None and card is None and name and backend is None:
        raise ConfigError(f"not a card I know: {name!r}", "Write only its memory, like 24 GiB.")
    n_bytes = (
        parse_size("".join(filter(None, (size[1], size[2] or "g")))) if size else (card.gib[0] if card else 0) * GIB
    )
    _check(part, n_bytes, card)
    kind = backend or (card.backend if card else "CUDA")
    description = card.name if card else f"{format_bytes(n_bytes)} card"
    return Device(kind, kind, description, n_bytes, n_bytes, DeviceSource.WHAT_IF)


def _bare(part: str, text: str) -> tuple[int, int]:
    """A number alone is GiB when small, bytes when it can only be that."""
    try:
        number = parse_size(text)
    except ConfigError as problem:
        raise ConfigError(f"neither a size nor a card I know: {part!r}", _HINT) from problem
    n_bytes = number * GIB if number < 2048 else number
    _check(part, n_bytes, None)
    return n_bytes, n_bytes


def _check(part: str, n_bytes: int, card: Card | None) -> None:
    if not 64 * 1024**2 <= n_bytes <= MAX_BYTES:
        raise ConfigError(f"{format_bytes(n_bytes)} is no size of a device: {part!r}", _HINT)


def _free_name(backend: str, names: set[str]) -> str:
    return next(f"{backend}{index}" for index in range(len(names) + 1) if f"{backend}{index}" not in names)


def _renamed(device: Device, name: str) -> Device:
    return replace(device, name=name, backend=backend_of(name))
