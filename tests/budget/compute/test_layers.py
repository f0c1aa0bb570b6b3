"""Which layers stand for all."""

from dataclasses import replace

import pytest

from kvstudio.budget.compute.known import Known
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


@pytest.mark.parametrize(
    ("name", "backend", "count", "args"),
    [
        ("deepseek-v4-flash", "RPC", 2, ("-c", "131072", "-np", "1", "-ngl", "99", "-b", "2048", "-ub", "2048")),
        ("deepseek-v32-685b", "RPC", 6, ("-c", "32768", "-ngl", "55", "-ts", "0,5,3,8,3,1", "--cpu-moe", "-nkvo")),
        ("glm5-744b", "CUDA", 8, ("-c", "32768", "-ngl", "60", "-ncmoe", "20")),
        ("gptneox-20b", "SYCL", 4, ("-c", "4096", "-ngl", "8", "-ub", "1024", "-ts", "0,1,2,7")),
    ],
)
def test_layers_left_out_are_played_as_often_as_they_are(
    name: str, backend: str, count: int, args: tuple[str, ...]
) -> None:
    reserve = _reserve(name, backend, count, *args)
    backends = backends_of(reserve.placement, reserve.config.build)
    kept = kept_layers(reserve)
    assert len(kept.layers) < reserve.model.n_layer
    fresh = replace(reserve, weights={}, caches={})
    assert simulate(reserve, backends, kept).sizes == simulate(fresh, backends, all_layers(fresh)).sizes


def test_what_is_remembered_is_what_a_fresh_look_gives() -> None:
    known = Known()
    for n_gpu_layers in range(20, 80, 4):
        args = ("-c", "8192", "-np", "1", "-ngl", str(n_gpu_layers))
        reserve = _reserve("qwen3-235b-a22b", "CUDA", 4, *args)
        backends = backends_of(reserve.placement, reserve.config.build)
        kept = kept_layers(reserve)
        remembered = simulate(reserve, backends, kept, known, "same")
        fresh = replace(reserve, weights={}, caches={})
        assert remembered == simulate(fresh, backends, kept)
    assert len(known.outlines) < 15
