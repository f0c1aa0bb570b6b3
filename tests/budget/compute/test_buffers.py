"""Compute buffers beside what llama.cpp reserved."""

from typing import Any

import pytest

from kvstudio.budget.compute import compute_buffers
from kvstudio.budget.effective import resolve
from kvstudio.budget.extras import draft_effective
from kvstudio.budget.placement import place
from kvstudio.budget.values import Provenance
from kvstudio.devices.values import Device
from kvstudio.launch.argv import parse_argv
from kvstudio.units import GIB, MIB
from tests.budget import zoo

_EVERY = 37  # prime to the number of settings, so that all of them appear
_MEASURED = [row for row in zoo.rows() if zoo.is_first_context(row) and not row["compute_odd"]]
_RARE = [row for row in _MEASURED if row["arch"] == "deepseek4"]
_SAMPLE = [*_MEASURED[::_EVERY], *_RARE[::4]]


@pytest.mark.parametrize("row", _SAMPLE, ids=lambda row: f"{row['model']}-{row['cfg']}")
def test_measured_buffers_are_met(row: dict[str, Any]) -> None:
    model, config, devices = zoo.model(row["model"]), zoo.config(row), zoo.devices(row)
    effective = resolve(model, config, len(devices), config.build)
    placement = place(model, effective, devices, config)
    found = compute_buffers(model, effective, placement, config)
    names = dict(zip(placement.devices, placement.buffer_types, strict=True))
    host = next(name for name in found if name not in names.values())
    for where, want in row["want"].items():
        name = host if where == "host" else names.get(where)
        if name is None:  # a device that takes no part
            assert want["compute"] == 0
            continue
        size, provenance, why = found[name]
        assert size == pytest.approx(want["compute"], rel=0.001)
        assert provenance is Provenance.EXACT
        assert why


def _found(name: str, backend: str, *args: str, count: int = 1) -> dict[str, tuple[int, Provenance, str]]:
    model = zoo.model(name)
    config = parse_argv(("llama-server", "-m", "x.gguf", "-np", "1", *args)).evolve(build=11434)
    devices = tuple(Device(f"{backend}{i}", backend, total_bytes=24 * GIB, free_bytes=24 * GIB) for i in range(count))
    effective = resolve(model, config, count, 11434)
    return compute_buffers(model, effective, place(model, effective, devices, config), config)


def test_quantized_cache_costs_cuda_an_f16_copy_of_one_layer() -> None:
    plain = _found("llama31-8b", "CUDA", "-c", "131072", "-ngl", "99", "-fa", "on")["CUDA0"][0]
    quant = _found("llama31-8b", "CUDA", "-c", "131072", "-ngl", "99", "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")
    one_layer = 2 * (1024 + 1024) * 131072
    assert 0.8 * one_layer < quant["CUDA0"][0] - plain <= one_layer  # what else is alive then may be less


def test_experts_on_the_cpu_are_copied_to_the_device() -> None:
    moved = _found("qwen3-30b-a3b", "CUDA", "-c", "8192", "-ngl", "99", "--cpu-moe")
    stayed = _found("qwen3-30b-a3b", "CUDA", "-c", "8192", "-ngl", "99")
    assert moved["CUDA0"][0] > stayed["CUDA0"][0] + 100 * MIB
    assert "host memory" in moved["CUDA0"][2]


def test_longer_contexts_never_take_less() -> None:
    sizes = [_found("gemma3-4b", "CUDA", "-c", str(n), "-ngl", "99")["CUDA0"][0] for n in range(4096, 65537, 4096)]
    assert sizes == sorted(sizes)


def test_a_length_between_known_ones_is_read_off_the_line() -> None:
    name, args = "qwen3-8b" if "qwen3-8b" in zoo.shapes() else "qwen3-0.6b", ("-ngl", "99", "-fa", "on")
    for n in (8192, 16384, 32768):
        _found(name, "CUDA", "-c", str(n), *args)
    between = _found(name, "CUDA", "-c", "12288", *args)
    zoo.model(name).memo.clear()
    assert {k: v[0] for k, v in between.items()} == {
        k: v[0] for k, v in _found(name, "CUDA", "-c", "12288", *args).items()
    }


def test_backends_that_no_run_confirmed_are_estimates() -> None:
    for name in ("SYCL", "CUDA"):
        assert _found("llama31-8b", name, "-c", "8192", "-ngl", "99")[f"{name}0"][1] is Provenance.ESTIMATED
    assert _found("llama31-8b", "Vulkan", "-c", "8192", "-ngl", "99")["Vulkan0"][1] is Provenance.EXACT


@pytest.mark.parametrize("row", [r for r in zoo.rows() if not zoo.is_first_context(r)], ids=lambda r: r["model"])
def test_the_draft_context_of_next_token_blocks_is_met(row: dict[str, Any]) -> None:
    model, config, devices = zoo.model(row["model"]), zoo.config(row), zoo.devices(row)
    effective = draft_effective(resolve(model, config, len(devices), config.build), config, mtp=True)
    placement = place(model, effective, devices, config)
    sizes = [size for size, _, _ in compute_buffers(model, effective, placement, config).values()]
    assert sizes == [want["compute"] for want in row["want"].values()]


def test_an_unknown_draft_graph_says_so() -> None:
    model = zoo.model("mimo2-flash")
    config = parse_argv(("llama-server", "-m", "x.gguf", "-c", "4096", "-np", "1")).evolve(build=11434)
    effective = draft_effective(resolve(model, config, 0, 11434), config, mtp=True)
    with pytest.raises(LookupError):
        compute_buffers(model, effective, place(model, effective, (), config), config)
