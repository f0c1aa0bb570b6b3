"""Devices as llama.cpp lists them + cards as their drivers see them -> one list, in llama.cpp's order."""

import re
from dataclasses import replace

from kvstudio.devices.values import Device, DeviceSource

#: A backend's total differs from the driver's by what the driver keeps for itself.
_SAME_TOTAL = 0.06
_NOISE = re.compile(r"\((?:R|TM|C)\)|[®™]|\bNVIDIA\b|\bGeForce\b|\bAMD\b|\bGraphics\b|\([^)]*\)", re.IGNORECASE)
_MAKER = {DeviceSource.NVML: re.compile(r"nvidia|geforce|tesla|quadro|\brtx|\bgtx|\b[ahlvbt]\d{1,3}\b", re.IGNORECASE),
          DeviceSource.SYSFS: re.compile(r"amd|radeon|instinct|radv|\bmi\d{2,3}", re.IGNORECASE)}  # fmt: skip


def merge(listed: tuple[Device, ...], cards: tuple[Device, ...]) -> tuple[Device, ...]:
    """Each listed device with its card's live memory, PCI id, driver and processes, if the card is found.

    Matched by PCI id where both know it, else by name and total. Of equal cards the first goes with the first when
    all are listed; when only some are (`CUDA_VISIBLE_DEVICES`), those whose free memory is nearest.
    """
    pairs = _by_pci(listed, cards)
    rest = [card for index, card in enumerate(cards) if index not in pairs.values()]
    open_devices = [index for index in range(len(listed)) if index not in pairs]
    chosen = {index: cards[card] for index, card in pairs.items()}
    for index in open_devices:
        matching = [card for card in rest if _alike(listed[index], card)]
        if not matching:
            continue
        twins = [other for other in open_devices if other not in chosen and _alike(listed[other], matching[0])]
        all_listed = len(twins) == len(matching)
        card = matching[0] if all_listed else min(matching, key=lambda each: _distance(listed[index], each))
        chosen[index] = card
        rest.remove(card)
    return tuple(_joined(device, chosen.get(index)) for index, device in enumerate(listed))


def unlisted(listed: tuple[Device, ...], cards: tuple[Device, ...]) -> tuple[Device, ...]:
    """Cards that no listed device can be: the program has no backend for them, or a variable hides them."""
    return tuple(card for card in cards if not any(_alike(device, card) for device in listed))


def _by_pci(listed: tuple[Device, ...], cards: tuple[Device, ...]) -> dict[int, int]:
    places = {card.pci_id: index for index, card in enumerate(cards) if card.pci_id}
    return {index: places[device.pci_id] for index, device in enumerate(listed) if device.pci_id in places}


def _alike(device: Device, card: Device) -> bool:
    if device.source == DeviceSource.RPC or device.backend in ("CPU", "RPC", "MTL"):
        return False
    if device.pci_id and card.pci_id:
        return device.pci_id == card.pci_id
    names = _plain(device.description), _plain(card.description)
    if names[0] and names[0] == names[1]:
        return True
    maker = _MAKER.get(card.source)
    if card.source != DeviceSource.SYSFS or maker is None or maker.search(device.description) is None:
        return False
    # amdgpu rarely knows the card's name: its total has to do.
    if device.total_bytes is None or card.total_bytes is None:
        return False
    return abs(device.total_bytes - card.total_bytes) <= _SAME_TOTAL * card.total_bytes


def _plain(description: str) -> str:
    return " ".join(_NOISE.sub(" ", description).lower().split())


def _distance(device: Device, card: Device) -> int:
    if device.free_bytes is None or card.free_bytes is None:
        return 2**62
    return abs(device.free_bytes - card.free_bytes)


def _joined(device: Device, card: Device | None) -> Device:
    if card is None:
        return device
    total = device.total_bytes if device.total_bytes is not None else card.total_bytes
    free = card.free_bytes if card.free_bytes is not None else device.free_bytes
    if total is not None and free is not None:
        free = min(free, total)
    known = total is not None and free is not None
    return replace(
        device,
        total_bytes=total,
        free_bytes=free,
        integrated=device.integrated or card.integrated,
        pci_id=device.pci_id or card.pci_id,
        driver=device.driver or card.driver,
        processes=card.processes,
        reason=None if known else card.reason or device.reason,
    )
