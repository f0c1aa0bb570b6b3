"""devices.typed and devices.what_if: devices that somebody wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.devices.cards import CARDS, find_card
from kvstudio.devices.typed import parse_device
from kvstudio.devices.what_if import parse
from kvstudio.errors import ConfigError
from kvstudio.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "name", "backend", "total", "free"),
    [
        ("CUDA0=24GiB", "CUDA0", "CUDA", 24 * GIB, 24 * GIB),
        ("CUDA1=24GiB/22GiB", "CUDA1", "CUDA", 24 * GIB, 22 * GIB),
        ("Vulkan0=2048MiB/0", "Vulkan0", "Vulkan", 2 * GIB, 0),
        ("RPC0[10.0.0.2:50052]=8G", "RPC0[10.0.0.2:50052]", "RPC", 8 * GIB, 8 * GIB),
        ("Host=64 GB / 50.5 GB", "Host", "CPU", 64 * GIB, int(50.5 * GIB)),
        (" MTL0 = 1024 MiB ", "MTL0", "MTL", GIB, GIB),
    ],
)
def test_typed_devices(text: str, name: str, backend: str, total: int, free: int) -> None:
    device = parse_device(text)
    assert (device.name, device.backend, device.total_bytes, device.free_bytes) == (name, backend, total, free)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CUDA0",
        "CUDA0=",
        "=24GiB",
        "CUDA0=many",
        "CUDA0=0",
        "CUDA0=2GiB/3GiB",
        "CUDA0=1/2/3",
        "0=1GiB",
        "CUDA0=99999999T",
    ],
)
def test_typed_devices_that_are_wrong_are_quoted(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_device(text)
    assert repr(text) in caught.value.message
    assert caught.value.hint


def devices(text: str) -> list[tuple[str, int]]:
    return [(device.name, (device.total_bytes or 0) // MIB) for device in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24 GiB", [("CUDA0", 24576)]),
        ("24GB", [("CUDA0", 24576)]),
        ("24", [("CUDA0", 24576)]),
        ("a 24 GB card", [("CUDA0", 24576)]),
        ("12 gigs", [("CUDA0", 12288)]),
        ("6144MiB", [("CUDA0", 6144)]),
        ("2 x 24 GiB", [("CUDA0", 24576), ("CUDA1", 24576)]),
        ("2x24GB", [("CUDA0", 24576), ("CUDA1", 24576)]),
        ("2 × 24 GiB", [("CUDA0", 24576), ("CUDA1", 24576)]),
        ("24GB x 2", [("CUDA0", 24576), ("CUDA1", 24576)]),
        ("two 16 GB cards", [("CUDA0", 16384), ("CUDA1", 16384)]),
        ("dual RTX 3090", [("CUDA0", 24576), ("CUDA1", 24576)]),
        ("2 RTX 3090", [("CUDA0", 24576), ("CUDA1", 24576)]),
        ("24 GiB, 12 GiB", [("CUDA0", 24576), ("CUDA1", 12288)]),
        ("RTX 4090 + RTX 3060", [("CUDA0", 24576), ("CUDA1", 12288)]),
        ("3090 and a 3060", [("CUDA0", 24576), ("CUDA1", 12288)]),
        ("4060 ti 16gb", [("CUDA0", 16384)]),
        ("4060 Ti", [("CUDA0", 8192)]),
        ("NVIDIA GeForce RTX 4090", [("CUDA0", 24576)]),
        ("RX 7900 XTX", [("ROCm0", 24576)]),
        ("7900xtx, rtx-3090", [("ROCm0", 24576), ("CUDA0", 24576)]),
        ("8x H100 80GB", [(f"CUDA{n}", 81920) for n in range(8)]),
        ("vulkan 8GB", [("Vulkan0", 8192)]),
        ("CUDA3=24GiB/20GiB", [("CUDA3", 24576)]),
        ("CUDA0=8GiB, 12GiB", [("CUDA0", 8192), ("CUDA1", 12288)]),
    ],
)
def test_spellings(text: str, expected: list[tuple[str, int]]) -> None:
    assert devices(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a card", "RTX 9999", "0 x 24GB", "99 x 24GB", "banana 24GB", "1 MiB", "CUDA0=1GiB, CUDA0=2GiB", "-5GB"],
)
def test_what_is_not_understood_is_said(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.hint


def test_names_in_use_are_left_out() -> None:
    assert [d.name for d in parse("2 x 24 GiB", taken=("CUDA0", "CUDA2"))] == ["CUDA1", "CUDA3"]


def test_every_card_is_found_by_its_own_name() -> None:
    assert len(CARDS) > 100
    for card in CARDS:
        assert find_card(card.name) == card
        (device,) = parse(card.name)
        assert (device.total_bytes, device.backend) == (card.gib[0] * GIB, card.backend)


@given(st.text(max_size=40) | st.from_regex(r"[0-9x ]{0,6}[a-zA-Z0-9 =/+,]{0,20}", fullmatch=True))
def test_any_text_is_devices_or_a_config_error(text: str) -> None:
    try:
        found = parse(text)
    except ConfigError:
        return
    assert len({device.name for device in found}) == len(found)
    assert all(device.total_bytes for device in found)
