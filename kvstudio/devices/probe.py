"""All that can be known about this machine's memory now -> Machine; a source that fails takes no other along."""

from kvstudio.devices import nvml, sysfs, sysmem, vulkaninfo
from kvstudio.devices.listed import is_listing, parse_listed
from kvstudio.devices.merge import merge, unlisted
from kvstudio.devices.values import Device, DeviceSource, Machine


def probe(listed: str | None = None) -> Machine:
    """The machine as it is now. `listed` is what the chosen binary's `--list-devices` printed: it decides which devices
    there are and how they are called; drivers add live memory, processes and PCI ids. Without it names are assumed.
    """
    reading = nvml.read()
    cards = reading.devices + sysfs.read_amd()
    silent = () if reading.devices else _silent(reading)
    host, host_notes = sysmem.read_host()
    devices, notes = combine(listed, cards, silent)
    devices = vulkaninfo.read(devices)
    driver = () if reading.absent or reading.reason is None else (reading.reason,)
    return Machine(devices, host, host.description, sysmem.system_name(), (*driver, *notes, *host_notes))


def combine(
    listed: str | None, cards: tuple[Device, ...], silent: tuple[Device, ...] = ()
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Devices and notes from a listing and the drivers' cards; `silent` are cards without a working driver."""
    if listed is None:
        return cards + silent, ()
    devices = parse_listed(listed)
    if not devices and not is_listing(listed):
        note = "the llama.cpp program did not list its devices; names are assumed"
        return cards + silent, (note,)
    unused = unlisted(devices, cards)
    notes = tuple(f"{card.description} is here, but this llama.cpp program does not use it" for card in unused)
    silent_notes = tuple(f"{card.description}: {card.reason}" for card in silent if not devices)
    return merge(devices, cards), notes + silent_notes


def _silent(reading: nvml.NvmlReading) -> tuple[Device, ...]:
    """NVIDIA cards on the bus that NVML says nothing about."""
    return tuple(
        Device(
            f"CUDA{index}",
            "CUDA",
            f"NVIDIA GPU at {pci}",
            source=DeviceSource.SYSFS,
            pci_id=pci,
            reason=reading.reason or "NVML does not list this card",
        )
        for index, pci in enumerate(sysfs.silent_nvidia())
    )
