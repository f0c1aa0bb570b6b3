"""devices.probe and devices.merge: llama.cpp's names, the drivers' figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvstudio.devices import nvml, sysmem
from kvstudio.devices.merge import merge
from kvstudio.devices.probe import combine, probe
from kvstudio.devices.sysfs import read_amd, silent_nvidia
from kvstudio.devices.values import Device, DeviceProcess, DeviceSource
from kvstudio.units import GIB, MIB


def card(index: int, name: str = "NVIDIA GeForce RTX 3090", free: int = 20, total: int = 24) -> Device:
    busy = (DeviceProcess(10 + index, "game", GIB),)
    return Device(f"CUDA{index}", "CUDA", name, total * GIB, free * GIB, DeviceSource.NVML,
                  pci_id=f"0000:0{index + 1}:00.0", driver="550", processes=busy)  # fmt: skip


def listing(*rows: tuple[str, str, int, int]) -> str:
    lines = [f"  {name}: {says} ({total} MiB, {free} MiB free)" for name, says, total, free in rows]
    return "\n".join(["Available devices:", *lines])


def test_listed_devices_get_live_memory_and_processes() -> None:
    text = listing(
        ("CUDA0", "NVIDIA GeForce RTX 4090", 24080, 23000), ("CUDA1", "NVIDIA GeForce RTX 3090", 24111, 24000)
    )
    cards = (card(0), card(1, "NVIDIA GeForce RTX 4090", free=5))
    devices, notes = combine(text, cards)
    assert [(d.name, d.total_bytes, d.free_bytes) for d in devices] == [
        ("CUDA0", 24080 * MIB, 5 * GIB),
        ("CUDA1", 24111 * MIB, 20 * GIB),
    ]
    assert (devices[0].pci_id, devices[0].processes[0].pid) == ("0000:02:00.0", 11)
    assert notes == ()


def test_equal_cards_are_matched_in_order() -> None:
    text = listing(
        ("CUDA0", "NVIDIA GeForce RTX 3090", 24111, 24000), ("CUDA1", "NVIDIA GeForce RTX 3090", 24111, 24000)
    )
    devices, _ = combine(text, (card(0, free=3), card(1, free=24)))
    assert [d.pci_id for d in devices] == ["0000:01:00.0", "0000:02:00.0"]


def test_a_hidden_twin_is_told_by_its_free_memory() -> None:
    text = listing(("CUDA0", "NVIDIA GeForce RTX 3090", 24111, 23900))
    devices, _ = combine(text, (card(0, free=3), card(1, free=23)))
    assert devices[0].pci_id == "0000:02:00.0"


def test_pci_ids_win_over_names() -> None:
    listed = (Device("Vulkan0", "Vulkan", "other name", 24 * GIB, 24 * GIB, pci_id="0000:02:00.0"),)
    assert merge(listed, (card(0), card(1, free=7)))[0].free_bytes == 7 * GIB


def test_free_never_exceeds_the_listed_total() -> None:
    text = listing(("CUDA0", "NVIDIA GeForce RTX 3090", 24000, 23900))
    devices, _ = combine(text, (card(0, free=24),))
    assert devices[0].free_bytes == 24000 * MIB


def test_a_vanished_card_keeps_its_place_and_says_why() -> None:
    text = listing(("CUDA0", "NVIDIA GeForce RTX 3090", 0, 0))
    lost = replace(card(0), total_bytes=None, free_bytes=None, reason="NVML: GPU is lost")
    devices, _ = combine(text, (lost,))
    assert (devices[0].total_bytes, devices[0].reason) == (None, "NVML: GPU is lost")


def test_unused_cards_are_noted() -> None:
    devices, notes = combine("Available devices:\n  (none)\n", (card(0),))
    assert devices == ()
    assert notes == ("NVIDIA GeForce RTX 3090 is here, but this llama.cpp program does not use it",)


def test_without_a_listing_names_are_assumed() -> None:
    assert [d.name for d in combine(None, (card(0), card(1)))[0]] == ["CUDA0", "CUDA1"]
    devices, notes = combine("error: unknown argument", (card(0),))
    assert [d.name for d in devices] == ["CUDA0"]
    assert "names are assumed" in notes[0]


def test_remote_and_metal_devices_are_never_a_card_here() -> None:
    text = listing(("RPC0[a:1]", "NVIDIA GeForce RTX 3090", 24000, 100), ("MTL0", "Apple M2", 24000, 200))
    devices, _ = combine(text, (card(0),))
    assert [d.free_bytes for d in devices] == [100 * MIB, 200 * MIB]


def make_amd(root: Path, index: int, pci: str, *, vram: int, used: int, gtt: int = 0) -> None:
    real = root / "devices" / pci
    real.mkdir(parents=True)
    for name, value in {
        "vendor": "0x1002", "device": "0x744c", "mem_info_vram_total": vram, "mem_info_vram_used": used,
        "mem_info_gtt_total": gtt, "mem_info_gtt_used": 0,
    }.items():  # fmt: skip
        (real / name).write_text(f"{value}\n")
    folder = root / "class" / "drm" / f"card{index}"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(real)


def test_amd_cards_are_read_and_matched_by_total(tmp_path: Path) -> None:
    make_amd(tmp_path, 1, "0000:0b:00.0", vram=24 * GIB - 16 * MIB, used=4 * GIB)
    make_amd(tmp_path, 0, "0000:0c:00.0", vram=16 * GIB, used=GIB)
    make_amd(tmp_path, 2, "0000:0d:00.0", vram=512 * MIB, used=100 * MIB, gtt=32 * GIB)
    cards = read_amd(str(tmp_path))
    assert [(c.name, c.pci_id, c.integrated) for c in cards] == [
        ("ROCm0", "0000:0b:00.0", False),
        ("ROCm1", "0000:0c:00.0", False),
        ("ROCm2", "0000:0d:00.0", True),
    ]
    assert cards[2].total_bytes == 32 * GIB + 512 * MIB
    text = listing(
        ("ROCm0", "AMD Radeon RX 7800 XT", 16368, 16000), ("Vulkan1", "Radeon RX 7900 XTX (RADV)", 24560, 24000)
    )
    devices, notes = combine(text, cards[:2])
    assert [d.pci_id for d in devices] == ["0000:0c:00.0", "0000:0b:00.0"]
    assert devices[1].free_bytes == 20 * GIB - 16 * MIB
    assert notes == ()


def test_cards_without_a_driver_are_seen_on_the_bus(tmp_path: Path) -> None:
    for pci, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:01:00.1", "0x10de", "0x040300"),
        ("0000:02:00.0", "0x8086", "0x030000"),
    ):
        folder = tmp_path / "bus/pci/devices" / pci
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor)
        (folder / "class").write_text(kind)
    assert silent_nvidia(str(tmp_path)) == ("0000:01:00.0",)
    assert silent_nvidia(str(tmp_path / "none")) == ()
    assert read_amd(str(tmp_path)) == ()


def test_the_host_has_memory_and_a_name() -> None:
    host, _ = sysmem.read_host()
    assert host.total_bytes and host.free_bytes
    assert 0 < host.free_bytes <= host.total_bytes
    assert (host.name, host.backend, host.source) == ("Host", "CPU", DeviceSource.SYSMEM)


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_limit_counts(tmp_path: Path, version: int) -> None:
    base = tmp_path / "sys/fs/cgroup"
    base.mkdir(parents=True)
    if version == 2:
        names = {"memory.max": GIB, "memory.current": 600 * MIB, "memory.stat": f"inactive_file {200 * MIB}"}
    else:
        names = {
            "memory/memory.limit_in_bytes": GIB,
            "memory/memory.usage_in_bytes": 600 * MIB,
            "memory/memory.stat": f"total_inactive_file {200 * MIB}",
        }
    for name, value in names.items():
        (base / name).parent.mkdir(exist_ok=True)
        (base / name).write_text(f"{value}\n")
    host, notes = sysmem.read_host(str(tmp_path))
    assert host.total_bytes == GIB
    assert host.free_bytes is not None and host.free_bytes <= GIB - 400 * MIB
    assert "container" in notes[0]


def test_probe_survives_a_driver_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "read", lambda: nvml.NvmlReading((), "NVML: Driver/library version mismatch"))
    machine = probe(listing(("CUDA0", "NVIDIA GeForce RTX 3090", 24111, 24000)))
    assert machine.devices[0].free_bytes == 24000 * MIB
    assert "NVML: Driver/library version mismatch" in machine.notes
    assert machine.host.total_bytes
    assert machine.system
