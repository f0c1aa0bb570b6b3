"""Which devices a case uses: a wish or a new probe in, the values of the case that change out."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kvstudio.case.values import Case
from kvstudio.devices.listed import named_by_server, option_names
from kvstudio.devices.values import Device, DeviceSource, Machine
from kvstudio.runlog.values import DevicePrinted

_VISIBLE_BYTES = 32 * 1024**2
_PRINTED_STEP_BYTES = 1024**2


def default_devices(machine: Machine) -> tuple[str, ...]:
    """What llama.cpp uses when no device is named: all but integrated ones, and those when there is nothing else."""
    discrete = tuple(d.name for d in machine.devices if not d.integrated)
    return discrete or tuple(d.name for d in machine.devices)


def named(devices: tuple[Device, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """The known devices that `-dev` names mean, in their order."""
    spoken = {option: name for name, option in option_names(tuple(d.name for d in devices)).items()}
    known = {d.name for d in devices}
    return tuple(n for n in (spoken.get(n, n) for n in names) if n in known)


def ticked(case: Case, name: str, on: bool) -> dict[str, Any]:
    """One device used or not; `-dev` says so where live devices are left out and nothing imagined is used."""
    chosen = tuple(
        d.name for d in case.devices if (d.name in case.chosen and d.name != name) or (on and d.name == name)
    )
    live = tuple(d.name for d in case.machine.devices) if case.machine else ()
    used = tuple(n for n in live if n in chosen)
    imagined = any(d.name in chosen for d in case.what_if)
    if case.machine is None or imagined or used == default_devices(case.machine):
        device = None
    else:
        spoken = option_names(live)
        device = tuple(spoken[n] for n in used) or ("none",)
    return {"chosen": chosen, "config": case.config.evolve(device=device)}


def with_what_if(case: Case, devices: tuple[Device, ...]) -> dict[str, Any]:
    """Devices that are not there, under names that are free, used at once."""
    taken = {d.name for d in case.devices}
    fresh = tuple(_renamed(d, taken) for d in devices)
    return {"what_if": case.what_if + fresh, "chosen": case.chosen + tuple(d.name for d in fresh)}


def without_what_if(case: Case, name: str) -> dict[str, Any]:
    """One of them less; this machine's own devices are used again when nothing else is."""
    what_if = tuple(d for d in case.what_if if d.name != name)
    chosen = tuple(n for n in case.chosen if n != name)
    if not chosen and case.machine is not None:
        chosen = default_devices(case.machine)
    return {"what_if": what_if, "chosen": chosen}


def with_machine(case: Case, machine: Machine) -> dict[str, Any]:
    """A new probe; empty when nothing changed that anybody could see."""
    if case.machine is not None and _much_the_same(case.machine, machine):
        return {}
    before = {d.name for d in case.machine.devices} if case.machine else set()
    names = {d.name for d in machine.devices} | {d.name for d in case.what_if}
    chosen = tuple(n for n in case.chosen if n in names)
    fresh = {d.name for d in machine.devices} - before
    if fresh and not any(d.name in chosen for d in case.what_if):
        used = (fresh & set(_wanted(case, machine))) | set(chosen)
        chosen = tuple(d.name for d in (*machine.devices, *case.what_if) if d.name in used)
    return {"machine": machine, "chosen": chosen}


def _wanted(case: Case, machine: Machine) -> tuple[str, ...]:
    """The devices of a machine that the settings name, else those llama.cpp takes by itself."""
    typed = case.config.device
    if typed is None:
        return default_devices(machine)
    spoken = option_names(tuple(d.name for d in machine.devices))
    return tuple(n for n, option in spoken.items() if n in typed or option in typed)


def devices_of_log(events: Iterable[Any], machine: Machine | None) -> tuple[Device, ...]:
    """Devices a log names that are not this machine's, the last word on each taken."""
    printed: dict[str, DevicePrinted] = {}
    for event in events:
        if isinstance(event, DevicePrinted) and event.total_bytes is not None and not _is_host(event.name):
            (name,) = named_by_server(((event.name, event.description or ""),))
            printed[name] = replace(event, name=name)
    live = {d.name: d for d in (machine.devices if machine else ())}
    if all(_alike(live.get(p.name), p) for p in printed.values()):
        return ()
    return tuple(
        Device(
            p.name,
            p.name.rstrip("0123456789"),
            p.description,
            p.total_bytes,
            p.free_bytes if p.free_bytes is not None else p.total_bytes,
            DeviceSource.LOG,
        )
        for p in printed.values()
    )


def same_devices(one: Machine, other: Machine | None) -> bool:
    """Whether two machines have devices of the same names and sizes."""

    def shape(machine: Machine) -> tuple[tuple[str, int | None], ...]:
        return tuple((d.name, d.total_bytes) for d in machine.devices)

    return other is not None and shape(one) == shape(other)


def without_doubles(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Each name once; the last of a name counts."""
    return tuple({d.name: d for d in devices}.values())


def _much_the_same(one: Machine, other: Machine) -> bool:
    """Whether nothing changed that anybody could see: a few MiB of free memory always come and go."""

    def still(a: Device, b: Device) -> bool:
        if a.free_bytes is None or b.free_bytes is None:
            return a == b
        moved = abs(a.free_bytes - b.free_bytes) >= _VISIBLE_BYTES
        return not moved and replace(a, free_bytes=b.free_bytes, processes=b.processes) == b

    devices = (*one.devices, one.host), (*other.devices, other.host)
    return len(devices[0]) == len(devices[1]) and all(map(still, *devices))


def _is_host(name: str) -> bool:
    return name.lower() in ("host", "cpu")


def _alike(live: Device | None, printed: DevicePrinted) -> bool:
    """Whether a printed device is the live one; totals are printed in whole MiB."""
    if live is None or live.total_bytes is None or printed.total_bytes is None:
        return False
    return abs(live.total_bytes - printed.total_bytes) <= _PRINTED_STEP_BYTES


def _renamed(device: Device, taken: set[str]) -> Device:
    """The device under a name that is free (`CUDA0` becomes `CUDA2` beside two others)."""
    name, number = device.name, 0
    stem = device.name.rstrip("0123456789") or device.name
    while name in taken:
        name = f"{stem}{number}"
        number += 1
    taken.add(name)
    return replace(device, name=name)
