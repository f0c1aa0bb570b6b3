"""Which list of buffer types a tensor is chosen from, and with which operation it is probed.

Source: llama.cpp b11434, src/llama-arch.cpp (LLM_TENSOR_INFOS), src/llama-model-loader.cpp (create_tensor).
"""

import re
from dataclasses import dataclass
from enum import Enum


class Place(Enum):
    """Which layer's buffer types a tensor may take."""

    INPUT = "input"
    OUTPUT = "output"
    REPEATING = "repeating"


@dataclass(frozen=True, slots=True)
class TensorRole:
    """`block` is the layer it belongs to, None for input and output; `op` as ggml names it, None when never created."""

    place: Place
    op: str | None
    block: int | None


_BLOCK = re.compile(r"^(?:enc\.|dec\.)?(?:blk|posnet|convnext)\.(\d+)\.(.+)$")
_SUFFIXES = ("weight", "bias", "scale", "input_scale", "lora_a", "lora_b")

_INPUT = {
    "token_embd": "GET_ROWS",
    "position_embd": "GET_ROWS",
    "token_types": "GET_ROWS",
    "per_layer_token_embd": "GET_ROWS",
    "masked_embd_centroids": None,
    "masked_embd_ordering": None,
}
_OUTPUT_MUL = frozenset(
    {
        "cls.norm",
        "decision.hidden_norm",
        "decision.option_summary_norm",
        "decision.field_norm",
        "decision.option_norm",
        "decision.scales",
        "output_norm",
        "dec.output_norm",
        "enc.output_norm",
        "output_hc_scale",
        "output_hc_norm",
        "output_res_score",
    }
)
_OUTPUT_OTHER = {
    "output_hc_base": "ADD",
    "d2t": "GET_ROWS",
    "markov_w1": "GET_ROWS",
    "selector_predecessor": "GET_ROWS",
    "selector_successor": "GET_ROWS",
}
_OUTPUT_MUL_MAT = frozenset(
    {
        "output",
        "cls",
        "cls.output",
        "decision.proj_memory",
        "decision.proj_question",
        "decision.proj_option_question",
        "decision.proj_global",
        "decision.proj_option_context",
        "decision.proj_option_lexical",
        "decision.scorer",
        "decision.scorer_out",
        "dense_2",
        "dense_3",
        "output_hc_fn",
        "output_hc_down",
        "output_hc_up",
        "altup_proj",
        "altup_unembd_proj",
        "nextn.post_projection",
        "fc",
        "markov_w2",
        "conf_proj",
        "selector_hidden",
    }
)
#: Repeating weights without a block number in their name; created as block 0.
_UNNUMBERED = {
    "token_embd_norm": "MUL",
    "per_layer_proj_norm": "MUL",
    "per_layer_model_proj": "MUL_MAT",
    "rope_freqs": "ROPE",
    "rope_factors_long": "ROPE",
    "rope_factors_short": "ROPE",
    "hrm.z_l_init": "ADD",
    "conv1d": "IM2COL",
    "nextn.pre_projection": "MUL_MAT",
}
#: Weights of a layer that are not the matrix of a MUL_MAT.
_BLOCK_OPS = {
    **dict.fromkeys(("ple_conv1d", "ssm_conv1d", "shortconv.conv"), "SSM_CONV"),
    **dict.fromkeys(("attn_compressor_ape", "attn_rel_b", "ffn_gate_tid2eid", "nextn.embed_tokens"), "GET_ROWS"),
    **dict.fromkeys(("conv1", "conv2", "dw"), "IM2COL"),
    **dict.fromkeys(("hc_attn_base", "hc_ffn_base", "indexer_compressor_ape", "exp_probs_b", "exp_probs_b_vl"), "ADD"),
    **dict.fromkeys(("time_mix_decay", "time_mix_w0", "time_mix_a0", "time_mix_v0", "time_mix_lerp_fused"), "ADD"),
    **dict.fromkeys(
        (
            "ssm_d",
            "ssm_conv1d_q",
            "ssm_conv1d_k",
            "ssm_conv1d_v",
            "attn_res_score",
            "ffn_res_score",
            "hc_attn_scale",
            "hc_ffn_scale",
            "time_mix_lerp_x",
            "time_mix_ln",
            "time_mix_k_k",
            "time_mix_k_a",
            "time_mix_r_k",
            "channel_mix_lerp_k",
            "channel_mix_lerp_r",
            "layer_output_scale",
            "altup_correct_scale",
            "gamma",
            "attn_conv_base",
            "ffn_conv_base",
        ),
        "MUL",
    ),
    "attn_sinks": "SCALE",
    "ffn.act": "DIV",
    "time_mix_first": "RWKV_WKV6",
    "cross_attn_rel_b": None,
}
_EXPERTS = re.compile(r"^ffn_(down|gate|up|gate_up)_(ch|)exps$")
_OLD_EXPERT = re.compile(r"^ffn_(down|gate|up)\.\d+$")
_TIME_MIX_LERP = re.compile(r"^time_mix_lerp_[wkvrg]$")
_SCAN_STATE = frozenset(
    {"mamba", "mamba2", "jamba", "plamo2", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe"}
)


def role(name: str, architecture: str) -> TensorRole:
    """Place, probe operation and block of a tensor by its name."""
    base, suffix = _split(name)
    numbered = _BLOCK.match(base)
    if numbered:
        op = _block_op(numbered.group(2), architecture)
        return TensorRole(Place.REPEATING, _with_suffix(op, suffix), int(numbered.group(1)))
    if base in _INPUT:
        return TensorRole(Place.INPUT, _with_suffix(_INPUT[base], suffix), None)
    if base == "token_embd_norm" and architecture in ("lfm2", "lfm2moe"):
        return TensorRole(Place.OUTPUT, "MUL", None)
    if base in _UNNUMBERED:
        return TensorRole(Place.REPEATING, _with_suffix(_UNNUMBERED[base], suffix), 0)
    if base in _OUTPUT_MUL:
        return TensorRole(Place.OUTPUT, _with_suffix("MUL", suffix), None)
    if base in _OUTPUT_OTHER:
        return TensorRole(Place.OUTPUT, _with_suffix(_OUTPUT_OTHER[base], suffix), None)
    if base in _OUTPUT_MUL_MAT:
        return TensorRole(Place.OUTPUT, _with_suffix("MUL_MAT", suffix), None)
    return TensorRole(Place.REPEATING, _with_suffix("MUL_MAT", suffix), 0)


def _split(name: str) -> tuple[str, str]:
    base, _, suffix = name.rpartition(".")
    return (base, suffix) if base and suffix in _SUFFIXES else (name, "")


def _with_suffix(op: str | None, suffix: str) -> str | None:
    """A bias is always added, whatever its weight does."""
    if suffix == "bias" and op is not None:
        return "ADD_ID" if op == "MUL_MAT_ID" else "ADD"
    if suffix in ("lora_a", "lora_b"):
        return "MUL_MAT_ID"
    return op


def _block_op(name: str, architecture: str) -> str | None:
    if name == "ssm_a":
        return "SSM_SCAN" if architecture in _SCAN_STATE or architecture == "kimi-linear" else "MUL"
    if name in _BLOCK_OPS:
        return _BLOCK_OPS[name]
    if _EXPERTS.match(name) or _OLD_EXPERT.match(name):
        return "MUL_MAT_ID"
    if name.endswith(("norm", "norm1", "norm2", "norm_2")) or "_norm_" in name:
        return "MUL"
    return "ADD" if _TIME_MIX_LERP.match(name) else "MUL_MAT"
