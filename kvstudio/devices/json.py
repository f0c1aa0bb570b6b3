"""Machine <-> plain data for JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kvstudio.devices.listed import backend_of
from kvstudio.devices.values import Device, DeviceProcess, DeviceSource, Machine
from kvstudio.errors import StoreError

SCHEMA = "kvstudio.devices/1"
_UNKNOWN_HOST = Device("Host", "CPU", "", None, None, DeviceSource.SNAPSHOT)


def to_json(machine: Machine) -> dict[str, Any]:
    """Plain data with the machine's devices and host; bytes are integers, unknown is null."""
    return {
        "schema": SCHEMA,
        "devices": [_device(device) for device in machine.devices],
        "host": _device(machine.host),
        "cpu": machine.cpu,
        "system": machine.system,
        "notes": list(machine.notes),
    }


def from_json(plain: object) -> Machine:
    """A machine of `to_json`, or of as much of it as somebody wrote by hand: a list `devices` of names and sizes.

    Its devices say that they come from a snapshot.

    Raises: StoreError naming what is missing or wrong.
    """
    if not isinstance(plain, Mapping) or plain.get("schema", SCHEMA) != SCHEMA:
        raise StoreError(f"expected devices in the form {SCHEMA}", "Save them with: kvstudio-cli devices --json")
    devices = plain.get("devices")
    if not isinstance(devices, list):
        raise StoreError("expected a list `devices`", "Save them with: kvstudio-cli devices --json")
    notes = plain.get("notes")
    return Machine(
        devices=tuple(_read_device(each, f"devices[{index}]") for index, each in enumerate(devices)),
        host=_UNKNOWN_HOST if plain.get("host") is None else _read_device(plain["host"], "host"),
        cpu=str(plain.get("cpu") or ""),
        system=str(plain.get("system") or ""),
        notes=tuple(map(str, notes)) if isinstance(notes, list) else (),
    )


def _device(device: Device) -> dict[str, Any]:
    return asdict(device) | {"source": str(device.source), "processes": [asdict(each) for each in device.processes]}


def _read_device(plain: object, where: str) -> Device:
    if not isinstance(plain, Mapping) or not isinstance(plain.get("name"), str) or not plain["name"]:
        raise StoreError(f"{where} has no name", "Save the devices again with: kvstudio-cli devices --json")
    processes = plain.get("processes")
    return Device(
        name=plain["name"],
        backend=str(plain.get("backend") or backend_of(plain["name"])),
        description=str(plain.get("description") or ""),
        total_bytes=_bytes(plain, "total_bytes", where),
        free_bytes=_bytes(plain, "free_bytes", where),
        source=DeviceSource.SNAPSHOT,
        integrated=bool(plain.get("integrated")),
        pci_id=_text(plain, "pci_id"),
        driver=_text(plain, "driver"),
        processes=tuple(_process(each, where) for each in processes) if isinstance(processes, list) else (),
        reason=_text(plain, "reason"),
        max_buffer_bytes=_bytes(plain, "max_buffer_bytes", where),
    )


def _process(plain: object, where: str) -> DeviceProcess:
    if not isinstance(plain, Mapping) or type(plain.get("pid")) is not int:
        raise StoreError(f"{where}: a process has no pid", "Save the devices again.")
    return DeviceProcess(
        plain["pid"], str(plain.get("name") or ""), _bytes(plain, "bytes", where), _text(plain, "user")
    )


def _bytes(plain: Mapping[str, Any], name: str, where: str) -> int | None:
    value = plain.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise StoreError(f"{where}.{name} is {value!r}, expected bytes", "Correct the file or save the devices again.")
    return value


def _text(plain: Mapping[str, Any], name: str) -> str | None:
    value = plain.get(name)
    return None if value is None else str(value)
