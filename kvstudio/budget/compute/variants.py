"""Decoders that differ from the common one in a step or two.

Source: src/models (files named after the architectures), read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.kinds import NO_ROPE_EVERY
from kvstudio.budget.compute.mla import STYLE as MLA_STYLE
from kvstudio.budget.compute.mla import MlaDecoder
from kvstudio.budget.compute.tensor import F32, Tensor

_SOFT_CAP_OPS = 3
#: Mixture sizes of Llama 4 whose Q and K are normalised.
_LLAMA4_UNNORMED_EXPERTS = 128


class GatedDecoder(Decoder):
    """The attention output is multiplied by a gate computed from the attention input, then projected."""

    gate_first = True

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g, layer = self.g, self.g.r.layers[il]
        q, k, v = g.qkv(il, cur, layer.n_embd_head_k, layer.n_head, layer.n_embd_head_v, layer.n_head_kv)
        weight = g.w(il, "attn_gate")
        gate = g.mm(weight, cur) if weight is not None else None
        q, k = self.position(il, q, k)
        out = g.attend(
            self.cache(il), il, q, k, v, sinks=g.w(il, "attn_sinks") if self.s.sinks else None,
            k_first=self.swa is not None,
        )  # fmt: skip
        if gate is not None:
            out = self.apply_gate(g.unary(gate), out, layer.n_head)
        return g.mm(g.need(il, "attn_output"), out, g.w(il, "attn_output", "scale"))

    def apply_gate(self, gate: Tensor, out: Tensor, n_head: int) -> Tensor:
        g = self.g
        if gate.ne[0] == out.ne[0]:
            return g.mul(out, gate)
        rows, width = out.ne[1], out.ne[0]
        out = g.mul(g.reshape(out, width // n_head, n_head, rows), g.reshape(gate, 1, n_head, rows))
        return g.reshape(out, width, rows)


class Llama4(Decoder):
    def rotates(self, il: int) -> bool:
        step = NO_ROPE_EVERY["llama4"] if self.g.model.n_swa else self.g.n_layer
        return (il + 1) % step != 0

    def scales_attention(self, il: int) -> bool:
        return not self.rotates(il)

    def position(self, il: int, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        g = self.g
        if not self.rotates(il):
            return q, k
        q, k = super().position(il, q, k)
        if g.model.n_expert != _LLAMA4_UNNORMED_EXPERTS:
            q, k = g.rms_norm(q), g.rms_norm(k)
        return q, k


class Cohere2Moe(Decoder):
    """Command-R's parallel residual with routed experts; the first layers always rotate."""

    def rotates(self, il: int) -> bool:
        return self.g.r.layers[il].is_swa or il < self.g.r.whole("leading_dense_block_count")

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        if g.w(il, "ffn_gate_inp") is None:
            return g.ffn(il, cur, "silu")
        out = self.experts(il, cur)
        if g.w(il, "ffn_up_shexp") is None:
            return out
        return g.scale(g.add(out, g.ffn(il, cur, "silu", names="ffn_{}_shexp")))


class SmallThinker(Decoder):
    """The router reads the layer's input, not what attention made of it."""

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        probs = g.mm(g.need(il, "ffn_gate_inp"), inp)
        cur = self.attention(il, self.normed(inp, il, "attn_norm"))
        if il == g.n_layer - 1:
            cur, inp, probs = self.select(il, cur, inp, probs)
        mid = g.add(cur, inp)
        out = g.moe(
            il, self.normed(mid, il, "ffn_norm"), act="relu", norm_w=True, scale=self.scales_experts(),
            gating=self.gating(), probs_in=probs, biases=False,
        )  # fmt: skip
        return g.add(out, mid)

    def rotates(self, il: int) -> bool:
        return not self.g.model.n_swa or il % NO_ROPE_EVERY["smallthinker"] != 0


class GroveMoe(Decoder):
    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        per_group = max(1, g.r.whole("experts_per_group", 1))
        chunks = g.model.n_expert // per_group
        probs = g.mm(g.need(il, "ffn_gate_inp"), cur)
        scale = self.scales_experts()
        out = g.moe(il, cur, norm_w=True, scale=scale, probs_in=probs, biases=False)
        more = g.moe(
            il, out, norm_w=True, scale=scale, probs_in=probs, biases=False, names="ffn_{}_chexps", n_expert=chunks,
            n_used=min(g.model.n_expert_used, chunks),
        )  # fmt: skip
        return g.add(out, g.scale(more))


class Bitnet(Decoder):
    def attention(self, il: int, cur: Tensor) -> Tensor:
        g, layer = self.g, self.g.r.layers[il]
        q, k, v = g.qkv(il, cur, layer.n_embd_head_k, layer.n_head, layer.n_embd_head_v, layer.n_head_kv)
        q, k = self.position(il, q, k)
        out = self.normed(g.attend(self.cache(il), il, q, k, v), il, "attn_sub_norm")
        return g.project(out, g.need(il, "attn_output"), g.b(il, "attn_output"), g.w(il, "attn_output", "scale"))

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        up, gate = g.need(il, "ffn_up"), g.need(il, "ffn_gate")
        cur = g.ffn_of(
            cur, "silu", up, None, g.w(il, "ffn_up", "scale"), gate, None, g.w(il, "ffn_gate", "scale"), None
        )
        return g.mm(g.need(il, "ffn_down"), self.normed(cur, il, "ffn_sub_norm"), g.w(il, "ffn_down", "scale"))


class Deci(Decoder):
    """Layers may lack attention, or replace it by one matrix, or lack the feed-forward block."""

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g, layer = self.g, self.g.r.layers[il]
        cur = inp if layer.n_head == 0 else self.normed(inp, il, "attn_norm")
        if layer.n_head > 0 and layer.n_head_kv == 0:
            cur = g.mm(g.need(il, "attn_output"), cur)
        elif layer.n_head > 0:
            cur = self.attention(il, cur)
        if layer.n_ff == 0:
            return inp  # llama.cpp passes the input on, whatever attention made of it
        cur, inp = self.select(il, cur, inp)
        mid = g.add(cur, inp) if layer.n_head > 0 else cur
        return g.add(self.feed_forward(il, self.normed(mid, il, "ffn_norm")), mid)


class Deepstack(Decoder):
    """Qwen3-VL: image features of deeper layers ride along in the embedding and are added in the first layers."""

    def begin(self) -> Tensor:
        g = self.g
        extra = g.r.whole("n_deepstack_layers")
        self.wide: Tensor | None = None
        cur = g.inp_embd(n_embd_inp=g.n_embd * (1 + extra))
        self.wide = cur.view_src
        self.pos = g.inp_pos()
        self.attention_inputs()
        self.out_ids = g.inp_out_ids()
        return cur

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur = super().layer(il, inp)
        if il < g.r.whole("n_deepstack_layers") and self.wide is not None:
            cur = g.add(cur, g.view(self.wide, (g.n_embd, g.nt), self.wide.nb[1:2]))
        return cur


class NoCache(Decoder):
    """Diffusion models and embedding variants: the decoder's layers over the batch alone."""

    def attention_inputs(self) -> None:
        self.base = self.g.attn_input_no_cache()


class AfMoe(GatedDecoder):
    """The attention branch is normalised before the last layer picks its rows."""

    def attention(self, il: int, cur: Tensor) -> Tensor:
        return self.normed(super().attention(il, cur), il, "post_attention_norm")


class PlainMla(MlaDecoder):
    """Latent attention without the absorbed form (PLM, MiniCPM 3)."""

    def __init__(self, g: Blocks, style: Style) -> None:
        super().__init__(g, style)
        self.absorbed = False
        layer = g.r.layers[0]
        self.head_k, self.head_v = layer.n_embd_head_k, layer.n_embd_head_v

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        if g.r.arch == "plm":
            return super().layer(il, inp)
        cur = self.attention(il, self.normed(inp, il, "attn_norm"))
        cur, inp = self.select(il, cur, inp)
        mid = g.add(g.scale(cur), inp)
        return g.add(g.scale(g.ffn(il, self.normed(mid, il, "ffn_norm"), "silu")), mid)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        if g.r.arch == "plm":
            super().finish(cur)
            return
        cur = g.build_norm(cur, g.r.weight("output_norm.weight"), None, "rms", -1)
        g.embd = cur
        cur.is_output = True
        g.logits(g.scale(cur))


class Chameleon(Decoder):
    """Norms before or, in the larger model, behind the branches; logits of image tokens are overwritten."""

    _FIRST_IMAGE, _LAST_IMAGE = 4, 8196

    def layer(self, il: int, inp: Tensor) -> Tensor:
        if not self.g.r.key("swin_norm"):
            return super().layer(il, inp)
        cur, inp = self.select(il, self.attention(il, inp), inp)
        cur = self.normed(cur, il, "attn_norm")
        mid = self.g.add(cur, inp)
        return self.g.add(self.normed(self.feed_forward(il, cur), il, "ffn_norm"), mid)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        cur = g.build_norm(cur, g.r.weight("output_norm.weight"), None, "rms", -1)
        g.embd = cur
        cur.is_output = True
        cur = g.mm(g.top("output.weight"), cur, g.r.weight("output.scale"))
        hidden = g.clamp(g.new(F32, self._LAST_IMAGE - self._FIRST_IMAGE))
        cur = g.op("SET", cur, hidden)
        cur.is_output = True
        g.expand(cur)


class Talkie(Decoder):
    """Norms without weights, and the normalised embedding added again behind every layer."""

    def begin(self) -> Tensor:
        g = self.g
        self.skip = g.rms_norm(g.inp_embd())
        self.pos = g.inp_pos()
        self.attention_inputs()
        self.out_ids = g.inp_out_ids()
        return self.skip

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur, inp, skip = self.select(il, self.attention(il, g.rms_norm(inp)), inp, self.skip)
        mid = g.add(cur, inp)
        cur = g.add(g.ffn(il, g.rms_norm(mid), "silu"), mid)
        return g.add(cur, g.mul(skip, g.need(il, "layer_output_scale")))

    def position(self, il: int, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        g = self.g
        q, k = super().position(il, q, k)
        return g.build_norm(q, g.w(il, "attn_q_norm"), None, "rms", il), g.rms_norm(k)


class CogVlm(Decoder):
    """Every row goes to the end, asked for or not."""

    def begin(self) -> Tensor:
        g = self.g
        cur = g.inp_embd()
        self.pos = g.inp_pos()
        self.attention_inputs()
        return cur


class OpenElm(Decoder):
    """The residual is picked and added before the attention's result."""

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur = self.attention(il, self.normed(inp, il, "attn_norm"))
        inp, cur = self.select(il, inp, cur)
        mid = g.add(inp, cur)
        return g.add(self.feed_forward(il, self.normed(mid, il, "ffn_norm")), mid)


def cohere2moe_style(g: Blocks) -> Style:
    return Style(
        norm="rms" if g.r.number("attention.layer_norm_rms_epsilon") else "layer", residual="command-r",
        rope_factors=True, norm_w=None, gating="key:sigmoid", head_extra=1, late_rows="after_norm",
    )  # fmt: skip


def _caps(g: Blocks) -> int:
    return _SOFT_CAP_OPS if g.r.number("final_logit_softcapping") else 0


BUILDERS: dict[str, Callable[[Blocks], None]] = {
    "afmoe": lambda g: AfMoe(
        g, Style(scale_embd="plain", rope="step", norm_w=None, gating="key:sigmoid", shexp="plain",
                 ffn_post="post_ffw_norm", ffn_post_pinned=True)
    ).build(),
    "laguna": lambda g: GatedDecoder(g, Style(norm_w=None, gating="key:sigmoid", shexp="plain")).build(),
    "step35": lambda g: GatedDecoder(
        g, Style(norm_w=None, gating="key:sigmoid", shexp="plain", rope_factors=True, late_rows="before_norm")
    ).build(),
    "muse-glimmer": lambda g: AfMoe(
        g, Style(rope="swa", ffn_post="post_ffw_norm", head_extra=1 + _caps(g))
    ).build(),
    "spark2_5": lambda g: GatedDecoder(g, Style(act="gelu")).build(),
    "llama4": lambda g: Llama4(
        g, Style(rope_factors=True, qk_norm="none", attn_temp=True, norm_w=False, gating="sigmoid", shexp="plain")
    ).build(),
    "cohere2moe": lambda g: Cohere2Moe(g, cohere2moe_style(g)).build(),
    "hy_v3": lambda g: Decoder(
        g, Style(rope_factors=True, norm_w=None, gating="key:sigmoid", shexp="plain", late_rows="after_norm")
    ).build(),
    "granite_swa": lambda g: Decoder(
        g, Style(scale_embd="key", rope="key", rope_factors=True, branch_scale=True, sinks=True, head_extra=1)
    ).build(),
    "smallthinker": lambda g: SmallThinker(g, Style(gating="key:sigmoid")).build(),
    "grovemoe": lambda g: GroveMoe(g, Style()).build(),
    "bitnet": lambda g: Bitnet(g, Style()).build(),
    "deci": lambda g: Deci(g, Style(rope_factors=True)).build(),
    "qwen3vl": lambda g: Deepstack(g, Style()).build(),
    "qwen3vlmoe": lambda g: Deepstack(g, Style()).build(),
    "qwen3tts": lambda g: Deepstack(g, Style()).build(),
    "chameleon": lambda g: Chameleon(g, Style(qk_norm_kind="layer", attn_out_bias=False)).build(),
    "talkie": lambda g: Talkie(g, Style(qk_norm="none", attn_out_bias=False, head_extra=1)).build(),
    "cogvlm": lambda g: CogVlm(g, Style(attn_out_bias=False)).build(),
    "openelm": lambda g: OpenElm(g, Style(attn_out_bias=False)).build(),
    "dream": lambda g: NoCache(g, Style()).build(),
    "llada": lambda g: NoCache(g, Style(attn_out_bias=False)).build(),
    "llada-moe": lambda g: NoCache(g, Style(norm_w=False, attn_out_bias=False)).build(),
    "rnd1": lambda g: NoCache(g, Style()).build(),
    "deepseek2-ocr": lambda g: Decoder(
        g, Style(norm_w=None, gating="key:softmax", shexp="plain", attn_out_bias=False)
    ).build(),
    "mistral4": lambda g: MlaDecoder(g, MLA_STYLE).build(),
    "plm": lambda g: PlainMla(g, Style(act="relu_sqr", attn_out_bias=False)).build(),
    "minicpm3": lambda g: PlainMla(
        g, Style(scale_embd="plain", rope_factors=True, attn_out_bias=False, head_extra=0)
    ).build(),
}  # fmt: skip
