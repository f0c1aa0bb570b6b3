"""Models without a cache of their own tokens: the BERT family and the decoder half of T5.

Source: src/models (bert, modern-bert, neo-bert, eurobert, gemma-embedding, t5), read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.tensor import F16, F32, I32, Tensor

_ROTATED_BERT = frozenset({"nomic-bert", "nomic-bert-moe", "jina-bert-v3"})
_PLAIN_BERT = frozenset({"bert", "nomic-bert-moe", "jina-bert-v3"})


class Encoder(Decoder):
    """Attention over the batch itself; the result is rows of the embedding, not logits."""

    output_norm: str | None = "output_norm"

    def attention_inputs(self) -> None:
        g = self.g
        self.base = g.attn_input_no_cache()
        if any(layer.is_swa for layer in g.r.layers):
            self.swa = g.attn_input_no_cache(swa=True)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        if self.output_norm is not None:
            w = g.r.weight(f"{self.output_norm}.weight")
            cur = g.build_norm(cur, w, g.r.weight(f"{self.output_norm}.bias"), self.s.norm, -1)
        g.embd = cur
        cur.is_output = True
        g.expand(cur)


class Bert(Encoder):
    """Norms behind the branches, learned or rotated positions."""

    output_norm = None

    def __init__(self, g: Blocks) -> None:
        rope = "all" if g.r.arch in _ROTATED_BERT else "none"
        super().__init__(g, Style(norm="layer", rope=rope, qk_norm="flat", qk_norm_kind="layer", act="gelu"))

    def begin(self) -> Tensor:
        g = self.g
        self.pos = g.inp_pos()
        cur = g.inp_embd()
        types = g.r.weight("token_types.weight")
        if types is not None:
            cur = g.add(cur, g.view(types, (g.n_embd,)))
        if g.r.arch == "bert":
            cur = g.add(g.get_rows(g.top("position_embd.weight"), self.pos), cur)
        norm, bias = g.r.weight("token_embd_norm.weight"), g.r.weight("token_embd_norm.bias")
        cur = g.build_norm(cur, norm, bias, "layer", 0)
        self.attention_inputs()
        self.out_ids = g.inp_out_ids()
        return cur

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur = self.attention(il, inp)
        cur, inp = self.select(il, cur, inp)
        cur = self.normed(g.add(cur, inp), il, "attn_output_norm")
        if g.w(il, "attn_norm_2") is not None:
            cur = self.normed(g.add(cur, inp), il, "attn_norm_2")
        mid = cur
        return self.normed(g.add(self.feed_forward(il, mid), mid), il, "layer_output_norm")

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g, arch = self.g, self.g.r.arch
        if g.w(il, "ffn_gate_inp") is not None:
            return g.moe(il, cur, act="gelu", norm_w=False, scale=self.scales_experts(), biases=False)
        if arch in _PLAIN_BERT:
            return g.ffn(il, cur, "gelu", gated=False)
        if arch == "jina-bert-v2":
            up = g.need(il, "ffn_up")
            fused = g.w(il, "ffn_gate") is None and up.ne[1] != g.r.layers[il].n_ff
            return g.ffn(il, cur, "geglu" if fused else "gelu")
        return g.ffn(il, cur, "silu")


class ModernBert(Encoder):
    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(norm="layer", tok_norm=True, act="geglu", attn_out_bias=False))

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = inp if g.w(il, "attn_norm") is None else self.normed(inp, il, "attn_norm")
        cur = self.attention(il, normed)
        cur, inp = self.select(il, cur, inp)
        mid = g.add(cur, inp)
        return g.add(g.ffn(il, self.normed(mid, il, "ffn_norm"), "geglu"), mid)


class NeoBert(Encoder):
    output_norm = "enc.output_norm"


class T5Decoder(Decoder):
    """Self attention with a position bias (no flash attention), then attention over the encoder's output."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(rope="none", attn_out_bias=True))
        self.encoded: Tensor | None = None
        self.buckets: Tensor | None = None
        self.cross: AttnInput | None = None

    def build(self) -> None:
        g = self.g
        n_enc = g.model.n_ctx_train
        g.prefix = "dec."
        cur = g.inp_embd()
        self.encoded = g.input(F32, g.n_embd, n_enc)
        self.buckets = g.input(I32, g.r.n_ctx_seq, g.nt)
        self.base = g.attn_input()
        self.cross = AttnInput("cross", n_enc)
        self.cross.mask = g.input(F16 if g.r.flash_attn else F32, n_enc, g.nt)
        self.out_ids = g.inp_out_ids()
        n_layer = int(g.model.hparams.get("dec_n_layer") or g.n_layer)
        for il in range(n_layer):
            cur = self.t5_layer(il, cur, last=il == n_layer - 1)
        g.prefix = ""
        g.head(cur, norm="dec.output_norm")

    def bias(self, il: int) -> Tensor:
        g = self.g
        assert self.buckets is not None
        rel = g.w(il, "attn_rel_b") or g.need(0, "attn_rel_b")
        flat = g.reshape(self.buckets, self.buckets.ne[0] * self.buckets.ne[1])
        rows = g.get_rows(rel, flat)
        rows = g.reshape(rows, rows.ne[0], self.buckets.ne[0], self.buckets.ne[1])
        return g.cont(g.permute(rows, 2, 0, 1, 3))

    def t5_layer(self, il: int, inp: Tensor, *, last: bool) -> Tensor:
        g = self.g
        assert self.base is not None and self.cross is not None and self.encoded is not None
        layer = g.r.layers[il]
        head, n_head, n_kv = layer.n_embd_head_k, layer.n_head, layer.n_head_kv
        normed = g.build_norm(inp, g.w(il, "attn_norm"), None, "rms", il)
        q, k, v = g.qkv(il, normed, head, n_head, head, n_kv)
        cur = g.attend(self.base, il, q, k, v, wo=g.need(il, "attn_o"), wo_b=g.b(il, "attn_o"), kq_b=self.bias(il))
        inp = g.add(cur, inp)
        normed = g.build_norm(inp, g.w(il, "cross_attn_norm"), None, "rms", il)
        n_enc = self.encoded.ne[1]
        q = g.reshape(g.mm(g.need(il, "cross_attn_q"), normed), head, n_head, g.nt)
        k = g.reshape(g.mm(g.need(il, "cross_attn_k"), self.encoded), head, n_kv, n_enc)
        v = g.reshape(g.mm(g.need(il, "cross_attn_v"), self.encoded), head, n_kv, n_enc)
        g.expand(q, k, v)
        cur = g.project(g.mha(q, k, v, self.cross.mask, il=il), g.need(il, "cross_attn_o"))
        if last:
            assert self.out_ids is not None
            cur, inp = g.get_rows(cur, self.out_ids), g.get_rows(inp, self.out_ids)
        mid = g.add(cur, inp)
        act = "gelu" if g.w(il, "ffn_gate") is not None else "relu"
        return g.add(g.ffn(il, g.build_norm(mid, g.w(il, "ffn_norm"), None, "rms", il), act), mid)


class T5Encoder(Encoder):
    output_norm = "enc.output_norm"

    def build(self) -> None:
        g = self.g
        g.prefix = "enc."
        cur = g.inp_embd()
        buckets = g.input(I32, g.nt, g.nt)
        inp = g.attn_input_no_cache()
        self.out_ids = g.inp_out_ids()
        for il in range(g.n_layer):
            layer = g.r.layers[il]
            head, n_head, n_kv = layer.n_embd_head_k, layer.n_head, layer.n_head_kv
            q, k, v = g.qkv(il, self.normed(cur, il, "attn_norm"), head, n_head, head, n_kv)
            rel = g.w(il, "attn_rel_b") or g.need(0, "attn_rel_b")
            rows = g.get_rows(rel, g.reshape(buckets, g.nt * g.nt))
            kq_b = g.cont(g.permute(g.reshape(rows, rows.ne[0], g.nt, g.nt), 2, 0, 1, 3))
            out = g.attend(inp, il, q, k, v, wo=g.need(il, "attn_o"), kq_b=kq_b)
            out, cur = self.select(il, out, cur)
            mid = g.add(out, cur)
            act = "gelu" if g.w(il, "ffn_gate") is not None else "relu"
            cur = g.add(g.ffn(il, self.normed(mid, il, "ffn_norm"), act), mid)
        g.prefix = ""
        self.finish(cur)


_GEMMA_EMBEDDING = Style(
    scale_embd="rows", q_scale=True, attn_post="post_attention_norm", ffn_post="post_ffw_norm", act="gelu",
    attn_out_bias=False,
)  # fmt: skip

BUILDERS: dict[str, Callable[[Blocks], None]] = {
    **{name: (lambda g: Bert(g).build()) for name in
       ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3")},
    "modern-bert": lambda g: ModernBert(g).build(),
    "neo-bert": lambda g: NeoBert(g, Style(act="swiglu", attn_out_bias=False)).build(),
    "llama-embed": lambda g: Encoder(g, Style(rope_factors=True)).build(),
    "eurobert": lambda g: Encoder(g, Style(attn_out_bias=False)).build(),
    "gemma-embedding": lambda g: Encoder(g, _GEMMA_EMBEDDING).build(),
    "t5": lambda g: T5Decoder(g).build(),
    "t5encoder": lambda g: T5Encoder(g, Style(attn_out_bias=False)).build(),
}  # fmt: skip
