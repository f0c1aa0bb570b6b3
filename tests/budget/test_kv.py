"""Caches and recurrent state: cells, streams and bytes by class."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstudio.budget.effective import resolve
from kvstudio.budget.kv import CacheSpec, cache_buffers, cache_specs
from kvstudio.budget.output import output_buffer_type, output_bytes
from kvstudio.budget.placement import place
from kvstudio.budget.recurrent import state_buffers, state_specs
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.units import MIB
from tests.budget import zoo
from tests.budget.models import gpus, model

LLAMA = model()


def specs(described: ModelInfo, **typed: Any) -> dict[str, CacheSpec]:
    found = cache_specs(described, resolve(described, LaunchConfig(**typed), 1))
    return {spec.kind: spec for spec in found}


def kv_bytes(described: ModelInfo, n_devices: int = 1, **typed: Any) -> int:
    config, devices = LaunchConfig(**typed), gpus(*(8.0,) * n_devices)
    effective = resolve(described, config, n_devices)
    buffers, _ = cache_buffers(
        described, cache_specs(described, effective), effective, place(described, effective, devices, config)
    )
    return sum(buffer.bytes for buffer in buffers)


def test_eight_billion_at_8192_cells() -> None:
    llama = zoo.model("llama31-8b")
    assert kv_bytes(llama, n_ctx=8192, n_parallel=1) == 1024 * MIB
    assert kv_bytes(llama, n_ctx=8192, n_parallel=1, cache_type_k="q8_0", cache_type_v="q8_0") == 544 * MIB


def test_latent_cells_of_deepseek() -> None:
    assert kv_bytes(zoo.model("deepseek-r1-671b"), n_ctx=4096, n_parallel=1) == 70272 * 4096


def test_windows_grow_with_unified_slots() -> None:
    gemma = zoo.model("gemma3-12b")
    assert specs(gemma, n_ctx=32768)["kv_swa"].cells == 1024 * 4 + 512
    split = specs(gemma, n_ctx=32768, n_parallel=4)["kv_swa"]
    assert (split.cells, split.streams) == (1536, 4)
    assert specs(gemma, n_ctx=32768, swa_full=True)["kv_swa"].cells == 32768
    assert specs(gemma, n_ctx=256, n_parallel=1)["kv_swa"].cells == 256


def test_without_flash_attention_rows_are_as_wide_as_the_widest() -> None:
    uneven = model("openelm", attention__head_count=(8, 16, 8, 8), attention__head_count_kv=(2, 4, 2, 2))
    assert [v for _, _, v in specs(uneven)["kv"].widths] == [128, 256, 128, 128]
    assert [v for _, _, v in specs(uneven, flash_attn="off")["kv"].widths] == [256] * 4


def test_deepseek4_keeps_a_stream_per_slot_even_unified() -> None:
    found = specs(zoo.model("deepseek-v4-flash"), n_ctx=32768)
    assert {kind: spec.streams for kind, spec in found.items()} == dict.fromkeys(found, 4)
    assert found["csa"].cells == 8192
    assert found["hca"].cells == 256


def test_indexer_cache_of_minimax_keeps_values_too() -> None:
    widths = specs(zoo.model("minimax-m3"))["indexer"].widths
    assert all(v > 0 for _, _, v in widths)


def test_mtp_block_of_glm4moe_keeps_cells_on_the_older_build() -> None:
    glm = model("glm4moe", nextn_predict_layers=1)
    assert len(specs(glm, build=10434)["kv"].widths) == 4
    assert len(specs(glm)["kv"].widths) == 3


@pytest.mark.parametrize("name", ["deepseek2", "cohere2moe", "glm4", "exaone4"])
def test_older_build_keeps_cells_for_mtp_blocks_it_cannot_run(name: str) -> None:
    described = model(name, nextn_predict_layers=1, attention__sliding_window=64)
    older, newer = specs(described, build=10434), specs(described)
    assert sum(len(spec.widths) for spec in older.values()) == 4
    assert sum(len(spec.widths) for spec in newer.values()) == 3


def test_some_hybrids_keep_cells_for_mtp_blocks() -> None:
    keys = {"nextn_predict_layers": 1, "attention__head_count_kv": (0, 8, 0, 8), "kda__head_dim": 64}
    mla = {"attention__key_length_mla": 64, "attention__value_length_mla": 64, "attention__kv_lora_rank": 64}
    kimi = specs(model("kimi-k3", **keys, **mla))["kv"]
    assert [il for il, _, _ in kimi.widths] == [1, 3]
    interval = specs(model("qwen35", nextn_predict_layers=1, full_attention_interval=2))["kv"]
    assert [il for il, _, _ in interval.widths] == [1]


def test_window_of_zero_tokens_holds_one_batch() -> None:
    described = model("gpt-oss", attention__sliding_window=0)
    assert specs(described, n_ctx=8192, n_ubatch=512)["kv_swa"].cells == 512


def test_hybrid_layers_keep_cells_or_state() -> None:
    jamba = zoo.model("jamba-1.5-mini")
    effective = resolve(jamba, LaunchConfig(n_parallel=2), 0)
    attention = {il for il, _, _ in cache_specs(jamba, effective)[0].widths}
    state = {il for il, _ in state_specs(jamba, effective)[0].widths}
    assert attention | state == set(range(jamba.n_layer))
    assert not attention & state


def test_state_grows_with_slots_not_with_context() -> None:
    mamba = zoo.model("mamba-2.8b")

    def state(**typed: Any) -> int:
        config = LaunchConfig(**typed)
        effective = resolve(mamba, config, 1)
        placement = place(mamba, effective, gpus(8), config)
        return sum(
            buffer.bytes for buffer in state_buffers(mamba, state_specs(mamba, effective), effective, placement)[0]
        )

    assert state(n_parallel=4) == 4 * state(n_parallel=1)
    assert state(n_ctx=65536, n_parallel=1) == state(n_ctx=4096, n_parallel=1)


def test_cells_stay_on_the_host_without_offload() -> None:
    config = LaunchConfig(kv_offload=False)
    effective = resolve(LLAMA, config, 1)
    buffers, _ = cache_buffers(
        LLAMA, cache_specs(LLAMA, effective), effective, place(LLAMA, effective, gpus(8), config)
    )
    assert [(buffer.name, buffer.device) for buffer in buffers] == [("CPU", None)]


def test_output_rows_are_one_per_slot_in_pinned_memory() -> None:
    config = LaunchConfig(n_parallel=3)
    effective = resolve(LLAMA, config, 1)
    placement = place(LLAMA, effective, gpus(8), config)
    assert output_bytes(LLAMA, effective, placement) == 4 * 1024 * 3
    assert output_bytes(LLAMA, effective, placement, rows=512) == 4 * 1024 * 512
    assert output_buffer_type(placement) == "CUDA_Host"


@settings(max_examples=40, deadline=None)
@given(cells=st.integers(1, 200_000), more=st.integers(0, 200_000), slots=st.integers(1, 16))
def test_more_context_never_lowers_the_cache(cells: int, more: int, slots: int) -> None:
    gemma = zoo.model("gemma3-4b")
    assert kv_bytes(gemma, 2, n_ctx=cells + more, n_parallel=slots) >= kv_bytes(gemma, 2, n_ctx=cells, n_parallel=slots)
