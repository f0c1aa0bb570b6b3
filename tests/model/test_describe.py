"""Header to ModelInfo: architecture rules, odd metadata, names."""

import pytest

from kvstudio.errors import HeaderError
from kvstudio.header.values import Header
from kvstudio.model.architectures import ARCHITECTURES, CacheClass
from kvstudio.model.describe import describe
from tests.budget import zoo
from tests.budget.models import header, model


def test_every_architecture_is_described() -> None:
    for name in ARCHITECTURES:
        described = model(name)
        assert len(described.layers) == described.n_layer_all
        assert described.architecture == name


@pytest.mark.parametrize("name", sorted(zoo.shapes()))
def test_real_shapes_are_fully_known(name: str) -> None:
    described = zoo.model(name)
    assert described.known_architecture
    assert described.missing_keys == ()
    assert described.n_vocab > 0


def test_window_pattern_is_sparse_first_or_dense_first() -> None:
    sparse = model("gemma3", n_layer=12, attention__sliding_window=512)
    dense = model("cohere2moe", n_layer=8, attention__sliding_window=512)
    assert [layer.is_swa for layer in sparse.layers] == [True] * 5 + [False] + [True] * 5 + [False]
    assert [layer.is_swa for layer in dense.layers] == [False, True, True, True] * 2


def test_window_pattern_of_the_file_wins_over_the_period() -> None:
    own = model("gemma3", attention__sliding_window=512, attention__sliding_window_pattern=(0, 1, 1, 0))
    period = model("gemma3", attention__sliding_window=512, attention__sliding_window_pattern=2)
    assert [layer.is_swa for layer in own.layers] == [False, True, True, False]
    assert [layer.is_swa for layer in period.layers] == [True, False, True, False]


def test_window_off_makes_a_plain_cache() -> None:
    off = model("gemma3")
    assert off.n_swa == 0
    assert off.hparams["cache"] is CacheClass.UNIFIED


def test_window_of_llama4_is_fixed_unless_zero() -> None:
    assert model("llama4").n_swa == 8192
    assert model("llama4", attention__sliding_window=0).n_swa == 0


def test_phi3_ignores_its_window() -> None:
    assert model("phi3", attention__sliding_window=2047).n_swa == 0


def test_exaone4_has_windows_only_with_64_layers() -> None:
    assert model("exaone4", n_layer=64).n_swa == 4096
    assert model("exaone4", n_layer=30, attention__sliding_window=4096).n_swa == 0


def test_window_heads_have_their_own_width() -> None:
    described = model(
        "gemma4",
        attention__sliding_window=512,
        attention__sliding_window_pattern=(1, 1, 1, 0),
        attention__key_length=512,
        attention__value_length=512,
        attention__key_length_swa=256,
        attention__value_length_swa=256,
        attention__shared_kv_layers=1,
    )
    assert [layer.n_embd_head_k for layer in described.layers] == [256, 256, 256, 512]
    assert [layer.has_kv for layer in described.layers] == [True, True, True, False]


def test_per_layer_heads() -> None:
    described = model("openelm", attention__head_count=(8, 8, 16, 16), attention__head_count_kv=(2, 2, 4, 4))
    assert [layer.n_embd_k_gqa for layer in described.layers] == [128, 128, 256, 256]


def test_kv_heads_default_to_heads_where_the_array_ends() -> None:
    described = model("deci", attention__head_count_kv=(2, 0))
    assert [layer.n_head_kv for layer in described.layers] == [2, 0, 8, 8]


def test_mtp_blocks_are_not_trunk() -> None:
    described = model("qwen35", n_layer=5, nextn_predict_layers=1, ssm__inner_size=64, ssm__state_size=16)
    assert (described.n_layer, described.n_layer_all) == (4, 5)
    assert [layer.is_recurrent for layer in described.layers] == [True, True, True, False, False]
    assert [layer.has_kv for layer in described.layers] == [False, False, False, True, False]


def test_deepseek4_without_mtp_weights_has_no_mtp_block() -> None:
    assert model("deepseek4", nextn_predict_layers=1, attention__sliding_window=128).n_layer_nextn == 0


def test_looped_layers_are_counted_per_loop() -> None:
    described = model("nanbeige", n_layer=3, num_loops=2)
    assert described.n_layer_all == 6
    assert described.hparams["n_layer_phys"] == 3


def test_router_layer_is_added() -> None:
    described = model("graniteswitch", attention__head_count_kv=2)
    assert described.n_layer_all == 5
    assert described.layers[-1].n_head_kv == 1
    assert described.layers[-1].has_kv


def test_state_widths() -> None:
    mamba = model("mamba", ssm__conv_kernel=4, ssm__inner_size=1024, ssm__state_size=16, ssm__group_count=8)
    mamba2 = model("mamba2", ssm__conv_kernel=4, ssm__inner_size=1024, ssm__state_size=128, ssm__group_count=8)
    rwkv = model("rwkv6qwen2", wkv__head_size=64, token_shift_count=1)
    assert (mamba.hparams["n_embd_r"], mamba.hparams["n_embd_s"]) == (3 * 1024, 16 * 1024)
    assert mamba2.hparams["n_embd_r"] == 3 * (1024 + 2 * 8 * 128)
    assert (rwkv.hparams["n_embd_r"], rwkv.hparams["n_embd_s"]) == (512, 512 * 64)


def test_indexer_layers_of_glm() -> None:
    early = model("glm-dsa", n_layer=8)
    late = model("glm-dsa", n_layer=8, context_length=1048576)
    assert all(early.hparams["indexer_full"])
    assert [il for il, full in enumerate(late.hparams["indexer_full"]) if full] == [0, 1, 2, 6]


def test_unknown_architecture_is_estimated_from_generic_keys() -> None:
    described = model("brandnew", attention__head_count_kv=2)
    assert not described.known_architecture
    assert described.layers[0].n_head_kv == 2
    assert any("brandnew" in note for note in described.notes)


def test_missing_required_key_is_named() -> None:
    described = model("gemma3n")
    assert not described.known_architecture
    assert described.missing_keys == ("gemma3n.attention.sliding_window",)
    assert described.hparams["cache"] is CacheClass.UNIFIED


def test_head_count_is_missed() -> None:
    assert "llama.attention.head_count" in model("llama", attention__head_count=None).missing_keys


@pytest.mark.parametrize("value", [0, -1, 10**9, "many", 3.5, float("nan"), True, (1, 2)])
def test_absurd_block_count_is_refused_by_name_and_value(value: object) -> None:
    with pytest.raises(HeaderError, match=r"llama\.block_count is"):
        describe(header("llama", block_count=value))


def test_missing_block_count_is_refused() -> None:
    with pytest.raises(HeaderError, match=r"llama\.block_count is missing"):
        describe(header("llama", block_count=None))


def test_odd_optional_key_is_ignored_and_named() -> None:
    described = model("llama", attention__key_length="wide")
    assert described.layers[0].n_embd_head_k == 64
    assert any("llama.attention.key_length is 'wide'" in note for note in described.notes)


def test_architecture_must_be_named() -> None:
    whole = header()
    without = Header(whole.path, 3, {}, whole.tensors, whole.shards)
    with pytest.raises(HeaderError, match=r"general\.architecture is missing"):
        describe(without)


def test_projector_is_no_main_model() -> None:
    assert any("--mmproj" in note for note in model("clip").notes)


def test_name_falls_back_to_the_file_without_shard_numbers() -> None:
    whole = header()
    split = Header("/x/Big-Q4-00001-of-00003.gguf", 3, whole.metadata, whole.tensors, whole.shards)
    assert describe(split).name == "Big-Q4"
    assert describe(split).file_type == "Q4_K_M"
    assert describe(split).size_label == "17.8M"


def test_file_says_whether_attention_looks_ahead() -> None:
    assert model("bert").hparams["causal_attn"]
    assert not model("bert", attention__causal=False).hparams["causal_attn"]
    assert not model("llada", attention__causal=True).hparams["causal_attn"]
