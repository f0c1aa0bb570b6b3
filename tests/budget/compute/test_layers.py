"""Which layers stand for all."""

from dataclasses import replace

import pytest

from kvstudio.budget.compute.layers import all_layers, kept_layers
from kvstudio.budget.compute.simulate import backends_of, placed_by_name, reserve_for, simulate
from kvstudio.budget.effective import resolve
from kvstudio.budget.placement import place
from kvstudio.devices.values import Device
from kvstudio.launch.argv import parse_argv
from kvstudio.units import GIB
from tests.budget import zoo


def _reserve(name: str, backend: str, count: int, *args: str):  # type: ignore[no-untyped-def]
    model = zoo.model(name)
    config = parse_argv(("llama-server", "-m", "x.gguf", *args)).evolve(build=11434)
    devices = tuple(Device(f"{backend}{i}", backend, total_bytes=24 * GIB, free_bytes=24 * GIB) for i in range(count))
    effective = resolve(model, config, count, 11434)
    placement = place(model, effective, devices, config)
    return reserve_for(model, effective, placement, config, placed_by_name(placement))


def test_equal_layers_are_few() -> None:
    kept = kept_layers(_reserve("qwen3-235b-a22b", "CUDA", 8, "-c", "8192", "-ngl", "99"))
    assert len(kept.layers) < 30
    assert kept.layers[0] == 0 and kept.layers[-1] == 93


def test_devices_with_the_same_load_are_built_once() -> None:
    kept = kept_layers(_reserve("qwen3-235b-a22b", "CUDA", 8, "-c", "8192", "-ngl", "99"))
    assert set(kept.twins.values()) == {"CUDA1"}
    assert {"CUDA0", "CUDA7"}.isdisjoint(kept.twins)


def test_windows_keep_their_period() -> None:
    kept = kept_layers(_reserve("gemma3-12b", "CUDA", 1, "-c", "8192", "-ngl", "99"))
    layers = zoo.model("gemma3-12b").layers
    assert {layers[il].is_swa for il in kept.layers} == {True, False}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("llama31-8b", ("-c", "8192", "-np", "1", "-ngl", "99")),
        ("qwen3-30b-a3b", ("-c", "8192", "-np", "2", "-ngl", "99", "-fa", "off")),
        ("gemma3-12b", ("-c", "16384", "-ngl", "99", "-ctk", "q8_0", "-ctv", "q8_0")),
        ("qwen3next-80b", ("-c", "8192", "-np", "1", "-ngl", "99", "--cpu-moe")),
        ("jamba-reasoning-3b", ("-c", "8192", "-np", "1", "-ngl", "12")),
    ],
)
def test_few_layers_give_what_all_give(name: str, args: tuple[str, ...]) -> None:
    for backend, count in (("CUDA", 2), ("Vulkan", 1)):
        reserve = _reserve(name, backend, count, *args)
        backends = backends_of(reserve.placement, reserve.config.build)
        few = simulate(reserve, backends, kept_layers(reserve))
        fresh = replace(reserve, weights={}, caches={})
        assert few.sizes == simulate(fresh, backends, all_layers(fresh)).sizes
