"""The context that drafts with a model's own next-token block: one layer over embeddings and hidden states.

Source: graph_mtp in src/models (bailingmoe3, cohere2moe, deepseek2, deepseek32, glm-dsa, glm4-moe, hy-v3, mimo2,
nemotron-h-moe, qwen3next, qwen35, qwen35moe, qwen4exp,
step35), read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.dsa import DsaDecoder
from kvstudio.budget.compute.hybrid import DeltaNet, NemotronH
from kvstudio.budget.compute.linear import BailingMoe3
from kvstudio.budget.compute.mla import MlaDecoder
from kvstudio.budget.compute.qsa import Qwen4
from kvstudio.budget.compute.tensor import F32, I32, Tensor
from kvstudio.budget.compute.variants import Cohere2Moe, GatedDecoder, cohere2moe_style

_GATED = Style(norm_w=None, gating="key:sigmoid", shexp="plain", rope_factors=True)


class Block:
    """One architecture's block; `decoder` makes its attention and feed-forward.

    `early`: the rows asked for are picked before the feed-forward (`ffn`) or the last norm (`norm`), else behind it.
    """

    early = ""

    def __init__(self, g: Blocks, decoder: Decoder) -> None:
        self.g = g
        self.decoder = decoder
        self.il = g.model.n_layer

    def build(self) -> None:
        g, il, decoder = self.g, self.il, self.decoder
        tokens, hidden = g.input(I32, g.nt), g.input(F32, g.n_embd, g.nt)
        own = g.w(il, "nextn.embed_tokens")
        embd = g.get_rows(g.top("token_embd.weight") if own is None else own, tokens)
        decoder.pos = g.inp_pos()
        decoder.out_ids = g.inp_out_ids()
        self.attention_inputs()
        hidden = g.build_norm(hidden, g.w(il, "nextn.hnorm"), None, decoder.s.norm, il)
        embd = g.build_norm(embd, g.w(il, "nextn.enorm"), None, decoder.s.norm, il)
        cur = g.mm(g.need(il, "nextn.eh_proj"), g.concat(embd, hidden, 0), g.w(il, "nextn.eh_proj", "scale"))
        self.head(self.layer(cur))

    def attention_inputs(self) -> None:
        g, decoder = self.g, self.decoder
        latent = isinstance(decoder, MlaDecoder) and not isinstance(decoder, DsaDecoder) and decoder.absorbed
        windowed = g.r.layers[self.il].is_swa
        decoder.base = g.attn_input(swa=windowed, k_only=latent)
        decoder.swa = decoder.base if windowed or any(layer.is_swa for layer in g.r.layers) else None

    def layer(self, inp: Tensor) -> Tensor:
        g, decoder, il = self.g, self.decoder, self.il
        cur = self.attention(decoder.normed(inp, il, "attn_norm"))
        if self.early == "attention":
            cur, inp = self.asked(cur), self.asked(inp)
        mid = g.add(cur, inp)
        if self.early == "ffn":
            mid = self.asked(mid)
        return g.add(decoder.feed_forward(il, decoder.normed(mid, il, self.ffn_norm)), mid)

    @property
    def ffn_norm(self) -> str | None:
        return self.decoder.s.ffn_norm

    def attention(self, cur: Tensor) -> Tensor:
        return self.decoder.attention(self.il, cur)

    def asked(self, cur: Tensor) -> Tensor:
        assert self.decoder.out_ids is not None
        return self.g.get_rows(cur, self.decoder.out_ids)

    def head(self, cur: Tensor, kind: str | None = None) -> None:
        g, il = self.g, self.il
        cur = self.asked(cur) if self.early == "norm" else cur
        norm = g.w(il, "nextn.shared_head_norm")
        norm = g.w(il, "layer_output_norm") if norm is None else norm
        norm = g.r.weight("output_norm.weight") if norm is None else norm
        cur = g.build_norm(cur, norm, None, kind or self.decoder.s.norm, -1)
        cur.is_output = True
        cur = cur if self.early else self.asked(cur)
        own = g.w(il, "nextn.shared_head_head")
        out = g.mm(g.top("output.weight") if own is None else own, cur)
        for _ in range(self.decoder.s.head_extra):
            out = g.scale(out)
        out.is_output = True
        g.expand(out)


class DeltaBlock(Block):
    """The attention layer among delta nets."""

    ffn_norm = "post_attention_norm"

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, DeltaNet(g))
        self.early = "attention" if g.r.arch == "qwen3next" else ""

    def attention(self, cur: Tensor) -> Tensor:
        assert isinstance(self.decoder, DeltaNet)
        return self.decoder.gated_attention(self.il, cur)


class LateBlock(Block):
    early = "norm"


class MimoBlock(LateBlock):
    """Its values are scaled behind the attention."""

    def attention(self, cur: Tensor) -> Tensor:
        out = super().attention(cur)
        return self.g.scale(out) if self.g.r.number("attention.value_scale") else out


class NemotronBlock(Block):
    early = "ffn"
    ffn_norm = "post_attention_norm"

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, NemotronH(g))

    def head(self, cur: Tensor, kind: str | None = None) -> None:
        super().head(cur, "layer")


class CohereBlock(Block):
    """Attention and experts side by side; it always rotates."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, _RotatingCohere(g, cohere2moe_style(g)))

    def layer(self, inp: Tensor) -> Tensor:
        g, decoder, il = self.g, self.decoder, self.il
        normed = decoder.normed(inp, il, "attn_norm")
        cur = decoder.attention(il, normed)
        return g.add(g.add(decoder.feed_forward(il, normed), inp), cur)


class _RotatingCohere(Cohere2Moe):
    def rotates(self, il: int) -> bool:
        return True


class BailingBlock(Block):
    def __init__(self, g: Blocks) -> None:
        super().__init__(g, BailingMoe3(g))

    def attention(self, cur: Tensor) -> Tensor:
        assert isinstance(self.decoder, BailingMoe3)
        return self.decoder.latent_layer(self.il, cur)


class QwenBlock(Block):
    """All residual streams of the trunk come in; attention to chosen blocks of cells."""

    def __init__(self, g: Blocks) -> None:
        self.qwen = Qwen4(g)
        super().__init__(g, self.qwen)

    def build(self) -> None:
        g, il, qwen, hc = self.g, self.il, self.qwen, self.qwen.n_hc
        embd = g.get_rows(g.top("token_embd.weight"), g.input(I32, g.nt))
        hidden = g.reshape(g.input(F32, g.n_embd * hc, g.nt), g.n_embd, hc, g.nt)
        qwen.memory_inputs()
        assert qwen.states is not None
        # The draft's memory has no states, but their ids are asked for all the same.
        g.expand(qwen.states.ids.copy)
        hidden = g.build_norm(hidden, g.w(il, "nextn.hnorm"), None, "rms", il)
        embd = g.reshape(g.build_norm(embd, g.w(il, "nextn.enorm"), None, "rms", il), g.n_embd, 1, g.nt)
        embd = g.repeat(embd, g.n_embd, hc, g.nt, 1)
        wide = g.mm(g.need(il, "nextn.eh_proj"), g.concat(embd, hidden, 0), g.w(il, "nextn.eh_proj", "scale"))
        cur, share = qwen.mixed(wide, il, "attn")
        wide = qwen.combined(wide, qwen.sparse_attention(il, cur), share)
        cur, share = qwen.mixed(wide, il, "ffn")
        wide = qwen.combined(wide, qwen.feed_forward(il, cur), share)
        flat = g.reshape(wide, g.n_embd * hc, g.nt)
        rows = self.asked(flat)
        flat.is_output = True
        g.expand(flat)
        _, cur = qwen.one_stream(g.reshape(rows, g.n_embd, hc, rows.ne[1]), il, "nextn.hc_head")
        out = g.mm(g.top("output.weight"), cur)
        out.is_output = True
        g.expand(out)


_BLOCKS: dict[str, Callable[[Blocks], Block]] = {
    "qwen3next": DeltaBlock,
    "qwen35": DeltaBlock,
    "qwen35moe": DeltaBlock,
    "qwen4exp": QwenBlock,
    "glm-dsa": lambda g: Block(g, MlaDecoder(g)),
    "deepseek32": lambda g: Block(g, MlaDecoder(g)),
    "deepseek2": lambda g: Block(g, MlaDecoder(g)),
    "glm4moe": lambda g: Block(
        g, Decoder(g, Style(ffn_norm="post_attention_norm", norm_w=None, gating="key:sigmoid", shexp="plain",
                            attn_out_bias=False))
    ),
    "hy_v3": lambda g: Block(g, Decoder(g, Style(norm_w=None, gating="key:sigmoid", shexp="plain", rope_factors=True))),
    "step35": lambda g: LateBlock(g, GatedDecoder(g, _GATED)),
    "mimo2": lambda g: MimoBlock(g, Decoder(g, Style(sinks=True, attn_out_bias=False))),
    "cohere2moe": CohereBlock,
    "nemotron_h_moe": NemotronBlock,
    "bailingmoe3": BailingBlock,
}  # fmt: skip


#: Blocks whose measured bytes were not met to the last one.
_NEARLY_MET = frozenset({"mimo2"})


def build(g: Blocks) -> bool:
    """Whether the block is followed to the byte. Raises LookupError where the architecture's is not known."""
    block = _BLOCKS.get(g.r.arch)
    if block is None:
        raise LookupError(f"the draft graph of {g.r.arch} is not known")
    block(g).build()
    return g.r.arch not in _NEARLY_MET
