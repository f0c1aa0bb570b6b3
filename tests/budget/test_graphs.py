"""Compute buffers: followed, read off a line, or by a closed form."""

from dataclasses import replace

import pytest

from kvstudio.budget import closed_forms, graphs
from kvstudio.budget.effective import resolve
from kvstudio.budget.estimate import estimate
from kvstudio.budget.placement import place
from kvstudio.budget.values import Provenance
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.describe import describe
from kvstudio.units import GIB, MIB
from tests.budget import zoo
from tests.budget.models import gpus, model


@pytest.mark.parametrize("name", ["llama31-8b", "gemma3-4b", "qwen3-30b-a3b"])
def test_lengths_between_known_ones_are_what_following_gives(name: str) -> None:
    dragged = describe(zoo.header(name))
    for n_ctx in (4096, 9000, 10000, 20000, 30000, 40000):
        config = LaunchConfig(n_ctx=n_ctx, n_parallel=2)
        fresh = estimate(describe(zoo.header(name)), config, gpus(20, 20))
        ours = estimate(dragged, config, gpus(20, 20))
        assert [b.bytes for b in ours.buffers] == [b.bytes for b in fresh.buffers]


def test_unknown_graph_takes_the_closed_form() -> None:
    strange = model("brandnew")
    assert not graphs.can_follow(strange)
    budget = estimate(strange, LaunchConfig(n_ctx=4096), gpus(8))
    assert budget.devices[0].compute_bytes > 0
    assert {b.provenance for b in budget.buffers} == {Provenance.ESTIMATED}


def test_a_file_without_the_graphs_tensors_takes_the_closed_form() -> None:
    whole = zoo.header("llama31-8b")
    torn = describe(replace(whole, tensors=tuple(t for t in whole.tensors if "attn_q" not in t.name)))
    assert estimate(torn, LaunchConfig(n_ctx=4096), gpus(20)).devices[0].compute_bytes > 0


@pytest.mark.parametrize("name", ["llama31-8b", "qwen3-32b", "gemma3-12b", "mixtral-8x7b", "mistral-7b", "qwen2.5-7b"])
@pytest.mark.parametrize("backend", ["Vulkan", "CPU"])
def test_closed_forms_are_near_what_was_measured(name: str, backend: str) -> None:
    wanted = ("c4k", "c32k") if backend == "Vulkan" else ("cpu-c8k", "cpu-c32k-np4-kvu-q8")
    rows = [row for row in zoo.rows() if row["model"] == name and row["cfg"] in wanted]
    assert len(rows) == 2
    for row in rows:
        described, config, devices = zoo.model(name), zoo.config(row), zoo.devices(row)
        effective = resolve(described, config, len(devices))
        placement = place(described, effective, devices, config)
        sizes = closed_forms.compute_buffers(described, effective, placement)
        for buffer, _, _, measured in row["buffers"]:
            if measured:
                assert sizes[buffer][0] == pytest.approx(measured, rel=0.05)


def test_quantized_cache_costs_scratch_on_cuda() -> None:
    llama = zoo.model("llama31-8b")

    def compute(backend: str, kind: str) -> int:
        config = LaunchConfig(n_ctx=131072, n_parallel=1, cache_type_k=kind, cache_type_v=kind)
        devices = gpus(20, backend=backend)
        effective = resolve(llama, config, 1)
        placement = place(llama, effective, devices, config)
        return closed_forms.compute_buffers(llama, effective, placement)[f"{backend}0"][0]

    assert compute("CUDA", "q8_0") - compute("Vulkan", "q8_0") == 512 * MIB
    assert compute("CUDA", "f16") == compute("Vulkan", "f16")


def test_scores_without_flash_attention_fill_the_buffer() -> None:
    llama = zoo.model("llama31-8b")
    on = estimate(llama, LaunchConfig(n_ctx=32768, n_parallel=1), gpus(20))
    off = estimate(llama, LaunchConfig(n_ctx=32768, n_parallel=1, flash_attn="off"), gpus(20))
    assert off.devices[0].compute_bytes - on.devices[0].compute_bytes > GIB
