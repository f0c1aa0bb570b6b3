"""Models of many families that no rule was fitted to, beside what llama.cpp reserved for them, to the byte."""

import json
import lzma
from collections import Counter
from typing import Any

import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.budget.extras import MTP
from kvstudio.budget.values import Budget, BufferKind
from kvstudio.devices.values import Device
from kvstudio.launch.argv import parse_argv
from kvstudio.model.describe import describe
from kvstudio.units import MIB
from tests.budget import zoo

#: Models of real sizes, then ones of odd sizes and files that mix many types, under settings that few people type.
_FILES: tuple[dict[str, Any], ...] = tuple(
    json.loads(lzma.decompress((zoo.DATA / name).read_bytes())) for name in ("later.json.xz", "odd.json.xz")
)
_SHAPES: dict[str, Any] = {name: shape for file in _FILES for name, shape in file["shapes"].items()}
_COLUMN = {BufferKind.MODEL: 0, BufferKind.KV: 1, BufferKind.RS: 1, BufferKind.COMPUTE: 2}


def _all(kind: str) -> list[dict[str, Any]]:
    return [row for file in _FILES for row in file[kind]]


def _budget(row: dict[str, Any]) -> Budget:
    model = describe(zoo.header(row["model"], _SHAPES))
    n_bytes = row["device_mib"] * MIB
    devices = tuple(
        Device(f"Vulkan{i}", "Vulkan", total_bytes=n_bytes, free_bytes=n_bytes) for i in range(row["devices"])
    )
    config = parse_argv(("llama-server", "-m", "x.gguf", *row["args"])).evolve(load_mode="none")
    return estimate(model, config, devices, build=row["build"])


def _name(row: dict[str, Any]) -> str:
    return f"{row['model']} {' '.join(row['args'])}"


@pytest.mark.parametrize("row", _all("rows"), ids=_name)
def test_every_buffer_is_the_measured_one(row: dict[str, Any]) -> None:
    budget = _budget(row)

    assert budget.config.errors == ()
    got: Counter[tuple[str, int]] = Counter()
    for buffer in budget.buffers:
        if buffer.context == "main" and buffer.kind in _COLUMN:
            got[buffer.name, _COLUMN[buffer.kind]] += buffer.bytes or 0
    want = {(name, i): size for name, *sizes in row["buffers"] for i, size in enumerate(sizes) if size}
    assert {key: size for key, size in got.items() if size} == want


@pytest.mark.parametrize("row", _all("aborted"), ids=_name)
def test_launches_that_aborted_are_announced(row: dict[str, Any]) -> None:
    assert any("abort" in error for error in _budget(row).config.errors)


@pytest.mark.parametrize("row", _all("drafts"), ids=_name)
def test_a_models_own_draft_context_is_the_measured_one(row: dict[str, Any]) -> None:
    found: Counter[BufferKind] = Counter()
    for buffer in _budget(row).buffers:
        if buffer.context == MTP:
            found[buffer.kind] += buffer.bytes or 0
    assert (found[BufferKind.KV] + found[BufferKind.RS], found[BufferKind.COMPUTE]) == (row["context"], row["compute"])
