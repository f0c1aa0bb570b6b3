"""Hunyuan V4: sparse latent attention with a gate, between simple hyper-connections.

Source: src/models/hy-v4.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.dsa import DsaDecoder
from kvstudio.budget.compute.mla import latent_attention
from kvstudio.budget.compute.tensor import F32, Tensor


class HyV4(DsaDecoder):
    rotates_keys = False

    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        self.n_hc = g.r.whole("hyper_connection.count")
        self.sparse_cells = self.index_top > 0

    def build(self) -> None:
        g = self.g
        cur = self.begin()
        cur = g.repeat(g.reshape(cur, g.n_embd, 1, g.nt), g.n_embd, self.n_hc, g.nt, 1)
        for il in g.kept:
            cur = self.layer(il, cur)
            g.close_layer(il)
        assert self.out_ids is not None
        flat = g.get_rows(g.reshape(cur, g.n_embd * self.n_hc, g.nt), self.out_ids)
        cur = g.reshape(flat, g.n_embd, self.n_hc, g.r.n_outputs)
        weights = g.mul(self.mixes(cur, g.top("output_hc_fn.weight")), g.top("output_hc_scale.weight"))
        weights = g.scale(g.unary(g.add(weights, g.top("output_hc_base.weight"))))
        g.head(self.reduced(cur, weights))

    def attention_inputs(self) -> None:
        if self.sparse_cells:
            super().attention_inputs()
        else:
            self.base = self.g.attn_input(k_only=True)

    def layer(self, il: int, inp: Tensor) -> Tensor:
        cur, post = self.opened(il, inp, "attn")
        mid = self.spread(self.attention(il, self.normed(cur, il, "attn_norm")), inp, post)
        cur, post = self.opened(il, mid, "ffn")
        return self.spread(self.feed_forward(il, self.normed(cur, il, "ffn_norm")), mid, post)

    def attend_cells(self, il: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        g, sinks = self.g, self.g.w(il, "attn_sinks")
        if self.sparse_cells:
            return self.sparse(il, q, k, v, sinks)
        assert self.base is not None
        return latent_attention(g, self.base, il, q, k, v, g.need(il, "attn_v_b"), sinks=sinks)

    def output(self, il: int, attended: Tensor, cur: Tensor) -> Tensor:
        g = self.g
        gate = g.unary(g.mul_mat(g.need(il, "attn_gate"), cur))
        return g.mul_mat(g.need(il, "attn_output"), g.mul(attended, gate))

    # -- hyper-connections ---------------------------------------------------------------------------------------

    def mixes(self, x: Tensor, fn: Tensor) -> Tensor:
        g = self.g
        return g.mul_mat(fn, g.rms_norm(g.reshape(x, g.n_embd * self.n_hc, x.ne[2])))

    def opened(self, il: int, x: Tensor, part: str) -> tuple[Tensor, Tensor]:
        """The block's input, and with which weights its result goes back to the streams."""
        g, hc, nt = self.g, self.n_hc, x.ne[2]
        mixes = self.mixes(x, g.need(il, f"hc_{part}_fn"))
        scale, base = g.need(il, f"hc_{part}_scale"), g.need(il, f"hc_{part}_base")
        before, after = (
            g.unary(g.add(g.mul(g.view(mixes, (hc, nt), mixes.nb[1:2]), g.view(scale, (1,))), g.view(base, (hc,))))
            for _ in range(2)
        )
        return self.reduced(x, g.scale(before)), g.scale(g.scale(after))

    def reduced(self, x: Tensor, weights: Tensor) -> Tensor:
        g, nt = self.g, x.ne[2]
        wide = g.cast(x, F32)
        result: Tensor | None = None
        for _ in range(self.n_hc):
            cur = g.mul(g.view(wide, (g.n_embd, nt), wide.nb[2:3]), g.view(weights, (1, nt), weights.nb[1:2]))
            result = cur if result is None else g.add(result, cur)
        assert result is not None
        return g.cast(result, x.type)

    def spread(self, x: Tensor, residual: Tensor, post: Tensor) -> Tensor:
        g, nt = self.g, x.ne[1]
        x, post, wide = g.cast(x, F32), g.cast(post, F32), g.cast(residual, F32)
        out: Tensor | None = None
        for _ in range(self.n_hc):
            stream = g.view(wide, (g.n_embd, nt), wide.nb[2:3])
            cur = g.add(stream, g.mul(x, g.view(post, (1, nt), post.nb[1:2])))
            cur = g.reshape(cur, g.n_embd, 1, nt)
            out = cur if out is None else g.concat(out, cur, 1)
        assert out is not None
        return g.cast(out, residual.type)


def build(g: Blocks) -> None:
    HyV4(g).build()
