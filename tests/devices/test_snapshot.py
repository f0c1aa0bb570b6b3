"""devices.snapshot and devices.json: a machine survives the way through a file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvstudio.devices.json import SCHEMA, from_json, to_json
from kvstudio.devices.snapshot import load, save
from kvstudio.devices.values import Device, DeviceProcess, DeviceSource, Machine
from kvstudio.errors import StoreError

MACHINE = Machine(
    devices=(
        Device(
            "CUDA0",
            "CUDA",
            "RTX",
            100,
            50,
            pci_id="0000:01:00.0",
            driver="1",
            processes=(DeviceProcess(1, "x", None),),
            max_buffer_bytes=40,
        ),
        Device("CUDA1", "CUDA", reason="GPU is lost"),
    ),
    host=Device("Host", "CPU", "ü CPU", 1000, 900, integrated=True),
    cpu="ü CPU",
    system="Linux",
    notes=("a note",),
)


def test_saved_machines_are_loaded_as_they_were(tmp_path: Path) -> None:
    path = str(tmp_path / "devices.json")
    save(path, MACHINE)
    snapshot = DeviceSource.SNAPSHOT
    expected = replace(
        MACHINE,
        devices=tuple(replace(device, source=snapshot) for device in MACHINE.devices),
        host=replace(MACHINE.host, source=snapshot),
    )
    assert load(path) == expected
    assert [each.name for each in tmp_path.iterdir()] == ["devices.json"]


def test_json_is_plain_with_null_for_unknown() -> None:
    plain = json.loads(json.dumps(to_json(MACHINE)))
    assert plain["schema"] == SCHEMA
    assert plain["devices"][1]["total_bytes"] is None
    assert plain["devices"][0]["processes"] == [{"pid": 1, "name": "x", "bytes": None, "user": None}]
    assert plain["devices"][0]["source"] == "listed"


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"schema": "kvstudio.devices/1"}', b"[" * 100_000, b" " * 5_000_000],
)
def test_damaged_files_are_named(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "devices.json"
    path.write_bytes(raw)
    with pytest.raises(StoreError) as caught:
        load(str(path))
    assert str(path) in caught.value.message


def test_a_file_that_is_no_json_is_told_by_line(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    path.write_text('{\n "schema" "x"}')
    with pytest.raises(StoreError) as caught:
        load(str(path))
    assert caught.value.message == f"{path}, line 2, column 11: expected JSON, a saved list of devices"
    assert "kvstudio-cli devices --json" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"devices": [{}]}, "devices[0] has no name"),
        ({"devices": [{"name": "A", "total_bytes": -1}]}, "devices[0].total_bytes is -1"),
        ({"devices": [{"name": "A", "free_bytes": "x"}]}, "devices[0].free_bytes is 'x'"),
        ({"devices": [{"name": "A", "processes": [{}]}]}, "devices[0]: a process has no pid"),
        ({"host": {"total_bytes": 1}}, "host has no name"),
    ],
)
def test_wrong_entries_are_named(change: dict[str, object], says: str) -> None:
    with pytest.raises(StoreError) as caught:
        from_json(to_json(MACHINE) | change)
    assert says in caught.value.message


def test_what_was_written_by_hand_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    path.write_text('{"devices": [{"name": "CUDA0", "total_bytes": 8589934592, "free_bytes": 8000000000}]}')
    machine = load(str(path))
    (device,) = machine.devices
    assert (device.name, device.backend, device.free_bytes) == ("CUDA0", "CUDA", 8000000000)
    assert (machine.host.name, machine.host.total_bytes, machine.host.free_bytes) == ("Host", None, None)


def test_missing_files_and_folders_are_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        load(str(tmp_path / "none.json"))
    with pytest.raises(StoreError, match="cannot be read"):
        load("nul\0byte")
    with pytest.raises(StoreError, match="cannot be saved"):
        save(str(tmp_path / "none" / "x.json"), MACHINE)


def test_an_old_file_survives_a_failed_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "devices.json"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(StoreError, match="No space left"):
        save(str(path), MACHINE)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["devices.json"]
