"""The budget turned round, and llama.cpp's own fitting."""

from typing import Any

import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.budget.fit import fit
from kvstudio.budget.solve import Launch, largest_n_ctx, most_gpu_layers, most_parallel
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB
from tests.budget import zoo
from tests.budget.models import gpus

LLAMA = zoo.model("llama31-8b")
HOST = Device("Host", "CPU", total_bytes=64 * GIB, free_bytes=60 * GIB)


@pytest.mark.parametrize("name", ["llama31-8b", "gemma3-12b", "deepseek-v2-lite"])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("free", [9.5, 11.0])
def test_largest_context_is_the_edge(name: str, slots: int, free: float) -> None:
    described, config = zoo.model(name), LaunchConfig(n_parallel=slots)
    found = largest_n_ctx(Launch(described, config, gpus(free)))
    if found is None:
        assert not estimate(described, config.evolve(n_ctx=256 * slots), gpus(free)).fits
        return
    assert estimate(described, config.evolve(n_ctx=found), gpus(free)).fits
    if found < described.n_ctx_train * slots:
        assert not estimate(described, config.evolve(n_ctx=found + 256 * slots), gpus(free)).fits


def test_most_slots_is_the_edge() -> None:
    gemma, config = zoo.model("gemma3-12b"), LaunchConfig(n_ctx=16384)
    found = most_parallel(Launch(gemma, config, gpus(13)))
    assert found is not None
    assert 1 < found < 256
    assert estimate(gemma, config.evolve(n_parallel=found), gpus(13)).fits
    assert not estimate(gemma, config.evolve(n_parallel=found + 1), gpus(13)).fits


def test_many_slots_are_not_followed_where_few_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def budget(launch: Launch, n_parallel: int) -> Any:
        asked.append(n_parallel)
        return estimate(launch.model, launch.config.evolve(n_parallel=n_parallel), launch.devices)

    monkeypatch.setattr(Launch, "budget", budget)
    assert most_parallel(Launch(LLAMA, LaunchConfig(n_ctx=16384), gpus(1))) is None
    assert asked == [1]
    assert most_parallel(Launch(LLAMA, LaunchConfig(n_ctx=512), gpus(80))) == 256


def test_most_layers_on_devices_is_the_edge() -> None:
    config = LaunchConfig(n_ctx=8192, n_parallel=1)
    found = most_gpu_layers(Launch(LLAMA, config, gpus(4)))
    assert found is not None
    assert 0 < found < 33
    assert estimate(LLAMA, config.evolve(n_gpu_layers=found), gpus(4)).fits
    assert not estimate(LLAMA, config.evolve(n_gpu_layers=found + 1), gpus(4)).fits
    assert most_gpu_layers(Launch(LLAMA, config, gpus(20))) == 33


def test_nothing_fits_or_nothing_is_known() -> None:
    assert largest_n_ctx(Launch(LLAMA, LaunchConfig(), gpus(1))) is None
    assert largest_n_ctx(Launch(LLAMA, LaunchConfig(), (Device("CUDA0", "CUDA"),))) is None


def test_the_trained_context_ends_the_search_unless_it_may_go_on() -> None:
    launch = Launch(LLAMA, LaunchConfig(n_parallel=1, cache_type_k="q4_0", cache_type_v="q4_0"), gpus(40))
    trained = LLAMA.n_ctx_train
    assert largest_n_ctx(launch) == trained
    beyond = largest_n_ctx(launch, beyond_trained=True)
    assert beyond is not None
    assert beyond > trained
    assert launch.budget(n_ctx=beyond).fits
    assert not launch.budget(n_ctx=beyond + 256).fits


def test_one_allocation_over_the_backends_limit_ends_the_search_too() -> None:
    roomy = (Device("OpenCL0", "OpenCL", "", 64 * GIB, 64 * GIB, max_buffer_bytes=GIB // 2),)
    launch = Launch(LLAMA, LaunchConfig(n_parallel=1), roomy)
    found = largest_n_ctx(launch, beyond_trained=True)
    assert found is not None
    assert launch.budget(n_ctx=found).fits
    failure = launch.budget(n_ctx=found + 256).first_failure
    assert failure is not None
    assert failure.limit_bytes == GIB // 2


def test_overhead_that_runs_have_shown_counts() -> None:
    config, devices = LaunchConfig(n_parallel=1), gpus(11)
    plain = largest_n_ctx(Launch(LLAMA, config, devices))
    held = largest_n_ctx(Launch(LLAMA, config, devices, overhead={"CUDA0": GIB}))
    assert plain is not None
    assert held is not None
    assert held < plain


def test_fit_leaves_alone_what_fits() -> None:
    assert fit(LLAMA, LaunchConfig(n_ctx=4096), gpus(20)).status == "unchanged"
    assert fit(LLAMA, LaunchConfig(fit=False), gpus(1)).status == "off"
    assert fit(LLAMA, LaunchConfig(), (Device("CUDA0", "CUDA"),)).status == "unknown"


def test_fit_shortens_an_automatic_context_first() -> None:
    found = fit(LLAMA, LaunchConfig(), gpus(12))
    assert found.status == "changed"
    assert [name for name, _ in found.changes] == ["n_ctx"]
    assert found.config.n_ctx is not None
    assert 4096 <= found.config.n_ctx < 131072
    assert found.config.n_ctx % 256 == 0
    device = estimate(LLAMA, found.config.evolve(load_mode="none"), gpus(12)).devices[0]
    assert device.need_bytes <= 11 * GIB


def test_fit_moves_layers_when_the_context_is_typed() -> None:
    found = fit(LLAMA, LaunchConfig(n_ctx=32768), gpus(6))
    assert dict(found.changes).keys() == {"n_gpu_layers"}
    device = estimate(LLAMA, found.config.evolve(load_mode="none"), gpus(6)).devices[0]
    assert device.need_bytes <= 5 * GIB


def test_fit_keeps_experts_of_some_layers_on_the_host() -> None:
    moe = zoo.model("qwen3-30b-a3b")
    found = fit(moe, LaunchConfig(n_ctx=8192), gpus(12))
    changes = dict(found.changes)
    assert changes["n_gpu_layers"] == 49
    assert all(target == "CPU" for _, target in changes["override_tensor"])
    device = estimate(moe, found.config.evolve(load_mode="none"), gpus(12)).devices[0]
    assert device.need_bytes <= 11 * GIB


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({"n_gpu_layers": 33}, "-ngl"),
        ({"n_gpu_layers": -2}, "-ngl"),
        ({"override_tensor": (("x", "CPU"),)}, "-ot"),
        ({"split_mode": "tensor"}, "-sm tensor"),
    ],
)
def test_what_blocks_fit(typed: dict[str, Any], says: str) -> None:
    found = fit(LLAMA, LaunchConfig(n_ctx=65536, **typed), gpus(6))
    assert found.status == "blocked"
    assert says in found.why


def test_typed_split_blocks_fit_on_several_devices() -> None:
    found = fit(LLAMA, LaunchConfig(n_ctx=65536, tensor_split=(1.0, 1.0)), gpus(3, 3))
    assert found.status == "blocked"
    assert "-ts" in found.why


def test_blocked_fit_may_have_shortened_the_context() -> None:
    found = fit(LLAMA, LaunchConfig(n_gpu_layers=33), gpus(4))
    assert found.status == "blocked"
    assert dict(found.changes) == {"n_ctx": 4096}


def test_full_context_typed_as_zero_is_kept() -> None:
    found = fit(LLAMA, LaunchConfig(n_ctx=0), gpus(12))
    assert "n_ctx" not in dict(found.changes)


def test_fit_on_the_cpu_only_shortens() -> None:
    small = Device("Host", "CPU", total_bytes=12 * GIB, free_bytes=11 * GIB)
    assert dict(fit(LLAMA, LaunchConfig(), (), small).changes).keys() == {"n_ctx"}
    assert fit(LLAMA, LaunchConfig(n_ctx=131072), (), small).status == "blocked"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({}, "will shorten the context"),
        ({"n_ctx": 65536}, "will move layers"),
        ({"n_ctx": 65536, "n_gpu_layers": 33}, "changes nothing"),
        ({"n_gpu_layers": 33}, "only shorten the context"),
    ],
)
def test_the_budget_says_what_fit_will_do(typed: dict[str, Any], says: str) -> None:
    assert any(says in note for note in estimate(LLAMA, LaunchConfig(**typed), gpus(6)).notes)
    quiet = estimate(LLAMA, LaunchConfig(fit=False, **typed), gpus(6)).notes
    assert not any("--fit" in note for note in quiet)


def _software(n_devices: int) -> tuple[Device, ...]:
    """Mesa's software devices, on which llama-server b10434 was watched while it fitted."""
    return tuple(
        Device(f"Vulkan{index}", "Vulkan", "llvmpipe", total_bytes=2 * GIB, free_bytes=2 * GIB)
        for index in range(n_devices)
    )


@pytest.mark.parametrize(
    ("name", "n_ctx", "n_gpu_layers", "first_override", "n_overrides"),
    [
        ("llama32-3b", 8192, 10, None, 0),
        ("olmoe-1b-7b", 4096, 14, r"blk\.4\.ffn_(gate|up|gate_up|down).*", 13),
    ],
)
def test_fit_ends_where_llama_server_ended(
    name: str,
    n_ctx: int,
    n_gpu_layers: int,
    first_override: str | None,
    n_overrides: int,
) -> None:
    config = LaunchConfig(n_ctx=n_ctx, n_parallel=1, build=10434)
    found = fit(zoo.model(name), config, _software(1)).config
    overrides = found.override_tensor or ()
    assert found.n_gpu_layers == n_gpu_layers
    assert len(overrides) == n_overrides
    assert (overrides[0][0] if overrides else None) == first_override


def test_fit_carries_the_budget_of_what_is_launched() -> None:
    found = fit(LLAMA, LaunchConfig(n_ctx=32768), gpus(6), overhead={"CUDA0": 100})
    assert found.budget is not None
    assert found.budget.fits is True
    assert found.budget.offloaded_layers[0] == found.config.n_gpu_layers
    assert found.budget.devices[0].overhead_bytes == 100
    assert not any("--fit" in note for note in found.budget.notes)
    assert fit(LLAMA, LaunchConfig(n_ctx=4096), gpus(20)).budget is None


@pytest.mark.parametrize("free", [[20.0], [9.3], [9.0], [6.0], [5.0, 5.0], [12.0, 4.0]])
@pytest.mark.parametrize("target", [None, (64,), (2048, 64)])
def test_knowing_the_typed_budget_changes_no_answer(free: list[float], target: tuple[int, ...] | None) -> None:
    config, devices = LaunchConfig(n_ctx=32768, fit_target=target), gpus(*free)
    typed = estimate(LLAMA, config, devices, HOST)
    assert fit(LLAMA, config, devices, HOST, typed=typed) == fit(LLAMA, config, devices, HOST)
