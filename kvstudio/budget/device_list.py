"""Which devices llama.cpp takes, in which order.

Source: llama.cpp b11434, src/llama.cpp (llama_prepare_model_devices).
"""

from kvstudio.devices.listed import option_names
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig


def choose(devices: tuple[Device, ...], config: LaunchConfig) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices that are used, and what llama.cpp refuses about the choice."""
    if config.device is not None:
        chosen, errors = _named(devices, config.device)
    else:
        chosen, errors = _automatic(devices), ()
    if config.split_mode == "none" and chosen:
        return _main(chosen, config.main_gpu or 0, errors)
    return chosen, errors


def _named(devices: tuple[Device, ...], names: tuple[str, ...]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Exactly the named ones, in that order; `none` is no device."""
    if names == ("none",):
        return (), ()
    known = {device.name: device for device in devices}
    spoken = option_names(tuple(known))
    short = {spoken[name]: device for name, device in known.items()}
    found = [known.get(name) or short.get(name) for name in names]
    missing = [name for name, device in zip(names, found, strict=True) if device is None]
    errors = (f"--device {missing[0]}: there is no such device.",) if missing else ()
    return tuple(device for device in found if device is not None), errors


def _automatic(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """RPC first, then graphics cards (one per PCI id), integrated ones only when there is no card."""
    remote = [device for device in devices if device.backend == "RPC"]
    cards: list[Device] = []
    seen: set[str] = set()
    for device in devices:
        if device.backend in ("RPC", "CPU", "BLAS") or device.integrated or device.pci_id in seen:
            continue
        cards.append(device)
        seen |= {device.pci_id} if device.pci_id else set()
    integrated = [device for device in devices if device.integrated and device.backend != "CPU"]
    if not cards and integrated:
        cards = [device for device in integrated if device.backend == integrated[0].backend]
    return (*remote, *cards)


def _main(
    devices: tuple[Device, ...], index: int, errors: tuple[str, ...]
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    if index < 0:
        return (), errors
    if index >= len(devices):
        there = "there is 1 device" if len(devices) == 1 else f"there are {len(devices)} devices"
        return devices, (*errors, f"-mg {index} is refused: {there}.")
    return (devices[index],), errors
