"""Settings as llama.cpp resolves them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.budget.effective import resolve
from kvstudio.budget.values import EffectiveConfig
from kvstudio.launch.argv import parse_argv
from kvstudio.launch.config import LaunchConfig
from tests.budget.models import model

LLAMA = model()
BERT = model("bert", attention__causal=False)


def of(**settings: Any) -> EffectiveConfig:
    return resolve(LLAMA, LaunchConfig(**settings), n_devices=1)


def test_server_alone_takes_four_unified_slots() -> None:
    auto = of()
    assert (auto.n_parallel, auto.kv_unified, auto.n_outputs_max) == (4, True, 4)
    assert (of(n_parallel=4).kv_unified, of(n_parallel=-1).n_parallel) == (False, 4)
    assert of(program="llama-cli").n_parallel == 1
    assert not of(program="/opt/bin/llama-cli.exe").kv_unified


def test_context_is_rounded_up_per_slot() -> None:
    split = of(n_ctx=5000, n_parallel=3)
    assert (split.n_ctx, split.n_ctx_seq) == (5376, 1792)
    whole = of(n_ctx=1000, n_parallel=1)
    assert (whole.n_ctx, whole.n_batch, whole.n_ubatch) == (1024, 1000, 512)


def test_t5_needs_one_pool() -> None:
    t5 = model("t5")
    for ran in (LaunchConfig(), LaunchConfig(n_parallel=1), LaunchConfig(n_parallel=4, kv_unified=True)):
        assert resolve(t5, ran, n_devices=1).errors == ()
    assert "-kvu" in resolve(t5, LaunchConfig(n_parallel=2), n_devices=1).errors[0]


def test_context_comes_from_the_model() -> None:
    assert of().n_ctx == 8192
    assert of(n_ctx=0, n_parallel=1).n_ctx == 8192


def test_fit_gives_every_slot_the_trained_context() -> None:
    assert of(n_parallel=3).n_ctx == 3 * 8192
    assert of(n_parallel=3, fit=False).n_ctx == 3 * 2816
    assert of(n_parallel=3, build=10434).n_ctx == 3 * 2816


def test_per_slot_pool() -> None:
    assert of(kv_unified_per_slot=2048, n_parallel=3, kv_unified=True).n_ctx == 6144


def test_batches_clamp_each_other() -> None:
    assert (of(n_batch=256).n_batch, of(n_batch=256).n_ubatch) == (256, 256)
    assert of(n_ubatch=4096).n_ubatch == 2048


def test_encoders_keep_their_batch() -> None:
    assert resolve(BERT, LaunchConfig(n_ctx=512, n_batch=2048), 0).n_batch == 2048


def test_embedding_mode_takes_the_batch_in_one_piece() -> None:
    embeds = of(embeddings=True)
    assert (embeds.n_batch, embeds.n_outputs_max, embeds.embeddings) == (512, 512, True)
    assert of(reranking=True).embeddings


def test_other_programs_reserve_a_row_per_token() -> None:
    assert of(program="llama-completion").n_outputs_max == 2048


def test_drafts_multiply_the_rows() -> None:
    assert of(spec_type="draft-mtp").n_outputs_max == 16
    assert of(spec_type="ngram-mod", n_parallel=1).n_outputs_max == 65
    assert of(spec_type="ngram-mod,draft-mtp", draft_n_max=90, n_parallel=1).n_outputs_max == 91


def test_snapshots_only_where_a_state_can_roll_back() -> None:
    rolls = resolve(model("lfm2", shortconv__l_cache=3), LaunchConfig(spec_type="draft-mtp"), 0)
    assert rolls.n_rs_seq == 3
    assert of(spec_type="draft-mtp").n_rs_seq == 0


def test_flash_attention() -> None:
    assert (of().flash_attn, of().flash_attn_on) == ("auto", True)
    assert of(cache_type_v="q8_0").flash_attn == "on"
    assert resolve(model("grok"), LaunchConfig(flash_attn="on"), 1).flash_attn == "off"
    assert of(split_mode="tensor").flash_attn == "on"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cache_type_v": "q4_0", "flash_attn": "off"}, "quantized V"),
        ({"split_mode": "tensor", "flash_attn": "off"}, "-sm tensor"),
        ({"n_parallel": 0}, "-np 0"),
        ({"n_ctx": -5}, "-c -5"),
        ({"n_parallel": 300}, "at most 256"),
    ],
)
def test_contradictions_are_errors(settings: dict[str, Any], says: str) -> None:
    assert any(says in error for error in of(**settings).errors)


def test_latent_attention_needs_one_cache_type() -> None:
    latent = model("deepseek2", attention__key_length_mla=192, attention__value_length_mla=128)
    assert any("same type" in error for error in resolve(latent, LaunchConfig(cache_type_k="q8_0"), 1).errors)


def test_blocks_must_divide_heads() -> None:
    odd = model("llama", attention__key_length=80, attention__value_length=80)
    assert resolve(odd, LaunchConfig(cache_type_k="q8_0"), 1).errors
    assert not resolve(odd, LaunchConfig(cache_type_k="q8_0", flash_attn="off"), 1).errors


def test_expert_shortcuts_are_overrides() -> None:
    assert len(of(n_cpu_moe=2).overrides) == 2
    assert of(cpu_moe=True, override_tensor=(("x", "CUDA0"),)).overrides[0] == ("x", "CUDA0")


def test_overrides_are_tried_as_typed() -> None:
    line = ("llama-server", "-m", "x.gguf", "--cpu-moe", "-ot", "exps=CUDA0")
    assert resolve(LLAMA, parse_argv(line), 1).overrides[-1] == ("exps", "CUDA0")


def test_layers_keep_auto_and_all() -> None:
    assert (of().n_gpu_layers, of(n_gpu_layers=-2).n_gpu_layers, of(n_gpu_layers=7).n_gpu_layers) == (-1, -2, 7)


def test_unread_builds_are_said() -> None:
    assert any("before b10434" in note for note in of(build=9000).notes)
    assert not any("b11434" in note for note in of().notes)


@given(n_ctx=st.integers(1, 10**6), n_parallel=st.integers(1, 256))
def test_context_never_shrinks_and_is_whole(n_ctx: int, n_parallel: int) -> None:
    effective = of(n_ctx=n_ctx, n_parallel=n_parallel)
    assert effective.n_ctx >= n_ctx
    assert effective.n_ctx_seq % 256 == 0
    assert effective.n_ctx == effective.n_ctx_seq * n_parallel
