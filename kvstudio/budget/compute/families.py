"""Which graph each architecture builds."""

from collections.abc import Callable
from dataclasses import replace

from kvstudio.budget.compute import (
    clef,
    cycles,
    dsa,
    dsv4,
    encoder,
    gemma,
    glm_next,
    hy_v4,
    hybrid,
    linear,
    mla,
    msa,
    mtp,
    qsa,
    rwkv,
    switch,
    variants,
)
from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style

_GEMMA = Style(
    scale_embd="rows", q_scale=True, attn_post="post_attention_norm", ffn_post="post_ffw_norm", act="gelu",
    attn_out_bias=False,
)  # fmt: skip
_LAYER = Style(norm="layer", act="gelu")

_GRANITE = Style(
    scale_embd="key", rope="key", rope_factors=True, branch_scale=True, shexp="plain", head_extra=1,
)  # fmt: skip

STYLES: dict[str, Style] = {
    "llama": Style(rope_factors=True),
    "baichuan": Style(rope="baichuan", attn_out_bias=False),
    "starcoder": Style(norm="layer", rope="none", pos=True, act="gelu"),
    "gpt2": Style(norm="layer", rope="none", pos=True, act="gelu"),
    "bloom": Style(norm="layer", rope="none", tok_norm=True, act="gelu"),
    "mpt": Style(norm="layer", rope="none", pos=True, qk_norm="flat", qk_norm_kind="layer", act="gelu"),
    "falcon": Style(norm="layer", residual="falcon", act="gelu", attn_out_bias=False),
    "gptneox": Style(norm="layer", residual="gptneox", act="gelu"),
    "phi2": Style(norm="layer", residual="phi2", act="gelu", q_scale=True),
    "phi3": Style(rope_factors=True, residual_first=True, q_scale=True, act="swiglu"),
    "phimoe": Style(norm="layer", rope_factors=True, residual_first=True, q_scale=True),
    "command-r": Style(norm="layer", qk_norm_kind="layer", residual="command-r", head_extra=1),
    "cohere2": Style(norm="layer", rope="swa", residual="command-r", head_extra=1, rope_factors=True),
    "stablelm": Style(norm="layer", qk_norm_kind="layer", residual="stablelm", attn_out_bias=False),
    "qwen": Style(attn_out_bias=False),
    "qwen2": Style(),
    "qwen3": Style(),
    "qwen3moe": Style(),
    "gemma": Style(scale_embd="plain", q_scale=True, act="gelu", attn_out_bias=False),
    "gemma2": Style(
        scale_embd="plain", q_scale=True, attn_post="post_attention_norm", ffn_post="post_ffw_norm", act="gelu",
        attn_out_bias=False, head_extra=3,
    ),
    "gemma3": _GEMMA,
    "olmo2": Style(
        qk_norm="row", attn_norm=None, ffn_norm=None, attn_post="post_attention_norm", ffn_post="post_ffw_norm",
        attn_out_bias=False,
    ),
    "smollm3": Style(rope="step"),
    "seed_oss": Style(ffn_norm="post_attention_norm"),
    "glm4": Style(
        attn_post="post_attention_norm", ffn_post="post_ffw_norm", ffn_post_pinned=True, act="swiglu",
        attn_out_bias=False,
    ),
    "nemotron": Style(norm="layer", act="relu_sqr"),
    "starcoder2": _LAYER,
    "internlm2": Style(),
    "mistral3": Style(rope_factors=True, attn_temp=True),
    "olmoe": Style(qk_norm="row", norm_w=False, attn_out_bias=False),
    "minimax-m2": Style(qk_norm="row", attn_out_bias=False, gating="key:sigmoid"),
    "qwen2moe": Style(norm_w=False, shexp="silu_div"),
    "dots1": Style(norm_w=None, gating="key:softmax", shexp="plain"),
    "bailingmoe2": Style(norm_w=None, gating="key:sigmoid", shexp="plain"),
    "bailingmoe": Style(norm_w=None, rope_factors=True, shexp="plain"),
    "deepseek": Style(norm_w=False, rope_factors=True, shexp="plain"),
    "mimo2": Style(sinks=True, gating="sigmoid", attn_out_bias=False),
    "glm4moe": Style(ffn_norm="post_attention_norm", norm_w=None, gating="key:sigmoid", shexp="plain",
                     attn_out_bias=False),
    "hunyuan-moe": Style(qk_norm="after", rope_factors=True, shexp="plain"),
    "hunyuan-dense": Style(qk_norm="after", rope_factors=True),
    "hunyuan_vl": Style(qk_norm="after", rope_factors=True),
    "ernie4_5": Style(attn_out_bias=False),
    "ernie4_5-moe": Style(shexp="plain", attn_out_bias=False),
    "exaone": Style(rope_factors=True),
    "exaone4": Style(rope="swa_or_all", rope_factors=True, attn_norm=None, ffn_norm=None,
                     attn_post="post_attention_norm", ffn_post="post_ffw_norm", attn_out_bias=False),
    "exaone-moe": Style(rope="swa", rope_factors=True, norm_w=None, gating="key:sigmoid", shexp="plain",
                        attn_out_bias=False),
    "granite": _GRANITE,
    "granitemoe": _GRANITE,
    "minicpm": replace(_GRANITE, scale_embd="always"),
    "refact": Style(rope="none", attn_out_bias=False),
    "jais": Style(norm="layer", rope="none"),
    "jais2": Style(norm="layer", act="relu_sqr"),
    "pockettts": Style(norm="layer", act="gelu", attn_out_bias=False),
    "plamo": Style(residual="plamo", attn_out_bias=False),
    "plamo3": Style(attn_post="post_attention_norm", ffn_post="post_ffw_norm", ffn_post_pinned=True, act="swiglu",
                    attn_out_bias=False),
    "xverse": Style(attn_out_bias=False),
    "orion": Style(norm="layer", attn_out_bias=False),
    "olmo": Style(norm="layer", attn_out_bias=False),
    "codeshell": Style(norm="layer", act="gelu"),
    "pangu-embedded": Style(),
    "maincoder": Style(qk_norm="after"),
    "chatglm": Style(act="swiglu", attn_out_bias=False),
    "dbrx": Style(norm="layer", ffn_norm="attn_output_norm", attn_out_bias=False),
    "arcee": Style(rope_factors=True, act="relu_sqr"),
    "arctic": Style(residual="arctic", attn_out_bias=False),
    "apertus": Style(rope_factors=True, act="xielu"),
    "maple": Style(rope="swa", attn_out_bias=False),
    "mellum": Style(),
    "qwen2vl": Style(),
    "paddleocr": Style(),
    "gpt-oss": Style(
        sinks=True, late_rows="before_norm", ffn_norm="post_attention_norm", norm_w=False, gating="softmax_weight",
    ),
}  # fmt: skip


def build(g: Blocks) -> bool:
    """Build the graph of `g`'s architecture; True when that architecture is followed, False for the generic decoder."""
    arch = g.r.arch
    if g.r.config.mtp_context:
        return mtp.build(g)
    builder = BUILDERS.get(arch)
    if builder is not None:
        builder(g)
        return True
    style = STYLES.get(arch)
    Decoder(g, style or Style(rope_factors=True)).build()
    return style is not None


def _grok(g: Blocks) -> None:
    """The norm behind the experts goes by either of two names."""
    ffn_post = "layer_output_norm" if g.w(0, "layer_output_norm") is not None else "post_ffw_norm"
    style = Style(scale_embd="always", attn_post="attn_output_norm", ffn_post=ffn_post, ffn_post_pinned=True,
                  act="gelu", shexp="halved", attn_out_bias=False,
                  head_extra=4 if g.r.number("final_logit_softcapping") else 1)  # fmt: skip
    Decoder(g, style).build()


BUILDERS: dict[str, Callable[[Blocks], None]] = {
    "clef": clef.build,
    "deepseek2": mla.build,
    "deepseek4": dsv4.build,
    "hy_v4": hy_v4.build,
    "minimax-m3": msa.build,
    "gemma3n": gemma.gemma3n,
    "glm5-next": glm_next.build,
    "qwen4exp": qsa.build,
    "graniteswitch": switch.build,
    "gemma4": gemma.gemma4,
    "grok": _grok,
    **cycles.BUILDERS,
    **dsa.BUILDERS,
    **encoder.BUILDERS,
    **hybrid.BUILDERS,
    **linear.BUILDERS,
    **rwkv.BUILDERS,
    **variants.BUILDERS,
}
