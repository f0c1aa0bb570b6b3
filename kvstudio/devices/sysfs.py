"""Linux's /sys -> AMD cards with their live memory, and cards of other makers that are there but silent."""

import os
import re
from dataclasses import replace
from pathlib import Path

from kvstudio.devices.values import Device, DeviceSource

_PCI_NAME = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
AMD, NVIDIA = "0x1002", "0x10de"
#: Below this a card's own memory is only a carve-out of the host's.
_SMALLEST_CARD_BYTES = 2 * 1024**3


def read_amd(root: str = "/sys") -> tuple[Device, ...]:
    """Cards that the amdgpu driver runs, by PCI id."""
    devices: dict[str, Device] = {}
    for card in _cards(root):
        if _word(card / "vendor") == AMD and (card / "mem_info_vram_total").exists():
            pci = os.path.basename(os.path.realpath(card))
            devices[pci] = _amd(card, pci, root)
    ordered = [devices[pci] for pci in sorted(devices)]
    return tuple(_numbered(device, index) for index, device in enumerate(ordered))


def silent_nvidia(root: str = "/sys") -> tuple[str, ...]:
    """PCI ids of NVIDIA cards that the system sees, whether or not a driver runs them."""
    found = []
    try:
        names = sorted(os.listdir(os.path.join(root, "bus/pci/devices")))
    except OSError:
        return ()
    for name in names:
        folder = Path(root, "bus/pci/devices", name)
        if _PCI_NAME.fullmatch(name) and _word(folder / "vendor") == NVIDIA:
            kind = _word(folder / "class") or ""
            if kind.startswith(("0x0300", "0x0302")):
                found.append(name)
    return tuple(found)


def _cards(root: str) -> list[Path]:
    try:
        names = sorted(os.listdir(os.path.join(root, "class/drm")))
    except OSError:
        return []
    return [Path(root, "class/drm", name, "device") for name in names if re.fullmatch(r"card\d+", name)]


def _amd(card: Path, pci: str, root: str) -> Device:
    total, used = _number(card / "mem_info_vram_total"), _number(card / "mem_info_vram_used")
    integrated = total is not None and total < _SMALLEST_CARD_BYTES
    if integrated:
        # An integrated chip takes what it needs from the GTT, which is host memory.
        shared, shared_used = _number(card / "mem_info_gtt_total"), _number(card / "mem_info_gtt_used")
        total = (total or 0) + (shared or 0)
        used = None if used is None or shared_used is None else used + shared_used
    known = total is not None and used is not None
    return Device(
        name="ROCm",
        backend="ROCm",
        description=_word(card / "product_name") or f"AMD GPU {_word(card / 'device') or ''}".strip(),
        total_bytes=total,
        free_bytes=max(0, total - used) if total is not None and used is not None else None,
        source=DeviceSource.SYSFS,
        integrated=integrated,
        pci_id=pci,
        driver=_driver(root),
        reason=None if known else "amdgpu does not say how much memory is used",
    )


def _numbered(device: Device, index: int) -> Device:
    return replace(device, name=f"ROCm{index}")


def _driver(root: str) -> str | None:
    version = _word(Path(root, "module/amdgpu/version"))
    return f"amdgpu {version}" if version else "amdgpu"


def _word(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None


def _number(path: Path) -> int | None:
    word = _word(path)
    return int(word) if word and word.isdigit() else None
