"""DeepSeek sparse attention: an indexer with a cache of its own picks the cells latent attention may look at.

Source: src/models (deepseek32, glm-dsa), llama-graph.cpp build_attn for k_dsa, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE
from kvstudio.budget.compute.mla import MlaDecoder, latent_attention
from kvstudio.budget.compute.tensor import F32, I64, Tensor


class DsaDecoder(MlaDecoder):
    #: Whether the indexer's rows are turned by a fixed matrix before they are compared.
    rotates_keys = True

    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        r = g.r
        self.n_index = r.whole("attention.indexer.head_count")
        self.index_head = r.whole("attention.indexer.key_length")
        self.index_top = r.whole("attention.indexer.top_k")
        self.fused = r.fused_indexer
        self.index: AttnInput | None = None
        self.chosen: Tensor | None = None

    def attention_inputs(self) -> None:
        g = self.g
        self.base = g.attn_input(k_only=True)
        self.index = AttnInput("lid", g.r.n_ctx_seq)
        self.index.k_idxs = g.input(I64, g.nt)
        self.index.mask = g._mask(g.r.n_ctx_seq, flash=self.fused)
        n = 64
        while self.index_head % (2 * n) == 0:
            n *= 2
        self.index.k_rot = g.input(F32, n, n)

    def query(self, il: int, cur: Tensor) -> Tensor:
        return self.g.mul_mat(self.g.need(il, "attn_q_b"), cur)

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        assert self.pos is not None and self.base is not None
        low = g.mul_mat(g.need(il, "attn_q_a"), cur)
        low = g.build_norm(low, g.w(il, "attn_q_a_norm"), None, "rms", il)
        if g.w(il, "indexer.attn_q_b") is not None and self.is_full(il):
            self.chosen = self.pick(il, cur, low)
        layer = g.r.layers[il]
        n_head, nope = layer.n_head, self.head_k - self.rope_dim
        q = g.mul_mat(g.need(il, "attn_q_b"), low)
        step = (4 * self.head_k, 4 * self.head_k * n_head)
        q_nope = g.view(q, (nope, n_head, g.nt), step)
        q_pe = g.rope(g.view(q, (self.rope_dim, n_head, g.nt), step), self.pos)
        latent, k_pe = self.compressed(il, cur)
        q_nope = g.mul_mat(g.need(il, "attn_k_b"), g.permute(q_nope, 0, 2, 1, 3))
        q = g.concat(g.permute(q_nope, 0, 2, 1, 3), q_pe, 0)
        v = g.reshape(latent, self.latent, 1, g.nt)
        k = g.concat(v, k_pe, 0)
        return self.output(il, self.attend_cells(il, q, k, v), cur)

    def attend_cells(self, il: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.sparse(il, q, k, v)

    def output(self, il: int, attended: Tensor, cur: Tensor) -> Tensor:
        """The attention's result, projected; `cur` is what it was computed from."""
        g = self.g
        return g.project(attended, g.need(il, "attn_output"), None, g.w(il, "attn_output", "scale"))

    def is_full(self, il: int) -> bool:
        full = self.g.model.hparams.get("indexer_full")
        return bool(full[il]) if isinstance(full, tuple | list) and il < len(full) else True

    def pick(self, il: int, cur: Tensor, low: Tensor) -> Tensor:
        g, inp = self.g, self.index
        assert inp is not None and inp.k_rot is not None and self.pos is not None
        n, heads, nt = self.index_head, self.n_index, g.nt
        q = self.turned(g.reshape(g.mul_mat(g.need(il, "indexer.attn_q_b"), low), n, heads, nt))
        k = g.mul_mat(g.need(il, "indexer.attn_k"), cur)
        k = g.build_norm(k, g.w(il, "indexer.k_norm"), g.b(il, "indexer.k_norm"), "layer", il)
        k = self.turned(g.reshape(k, n, 1, nt))
        if self.rotates_keys:
            q, k = g.mul_mat(inp.k_rot, q), g.mul_mat(inp.k_rot, k)
        cache = g.k_cache(inp, il, n)
        g.expand(g.store_k(inp, k, il, cache))
        weights = g.mul_mat(g.need(il, "indexer.proj"), cur)
        keys = g.cached_k(inp, il, n, 1, cache)
        streams = keys.ne[3]
        per = nt // streams
        q = g.view(q, (n, heads, per, streams), (q.nb[1], q.nb[2], q.nb[3] // streams))
        weights = g.view(
            weights, (heads, per, 1, streams), (weights.nb[1], weights.nb[2] // streams, weights.nb[3] // streams)
        )
        weights = g.scale(weights)
        score = self.score(q, keys, weights)
        return g.cont(g.top_k(score, min(score.ne[0], self.index_top)))

    def turned(self, x: Tensor) -> Tensor:
        """The rotated indexer row; older builds rotate a part and join it with the rest."""
        g = self.g
        assert self.pos is not None
        if g.r.config.build >= MIXED_BATCH_SINCE:
            return g.rope(x, self.pos)
        turned = g.rope(g.view(x, (self.rope_dim, *x.ne[1:3]), x.nb[1:3]), self.pos)
        return g.concat(turned, g.view(x, (x.ne[0] - self.rope_dim, *x.ne[1:3]), x.nb[1:3]), 0)

    def score(self, q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        g, inp = self.g, self.index
        assert inp is not None and inp.mask is not None
        if self.fused:
            ne = (keys.ne[2], q.ne[2], 1, q.ne[3])
            return g.make("LIGHTNING_INDEXER", F32, ne, q, keys, weights, inp.mask)
        kq = g.mul_mat(g.permute(keys, 0, 2, 1, 3), g.permute(q, 0, 2, 1, 3))
        kq = g.cont(g.permute(kq, 2, 1, 0, 3))
        score = g.sum_rows(g.mul(g.unary(kq), weights))
        score = g.cont(g.permute(score, 2, 1, 0, 3))
        return g.add(score, inp.mask)

    def sparse(self, il: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> Tensor:
        g, inp, chosen = self.g, self.base, self.chosen
        assert inp is not None and inp.mask is not None and chosen is not None
        g.expand(q, v, k)
        cache = g.k_cache(inp, il, k.ne[0] * k.ne[1])
        g.expand(g.store_k(inp, k, il, cache))
        mask = self.masked(inp.mask, chosen)
        keys = g.cached_k(inp, il, k.ne[0], k.ne[1], cache)
        values = g.view(keys, (v.ne[0], *keys.ne[1:]), keys.nb[1:])
        return g.mha(q, keys, values, mask, sinks=sinks, v_mla=g.need(il, "attn_v_b"), il=il)

    def masked(self, mask: Tensor, chosen: Tensor) -> Tensor:
        """The mask with everything closed but the chosen cells."""
        g = self.g
        closed = g.fill(mask)
        closed = g.view(closed, (1, closed.ne[0], closed.ne[1], closed.ne[3]), closed.nb[:3])
        ids = g.view(
            chosen, (chosen.ne[0], chosen.ne[1], chosen.ne[3], 1), (*chosen.nb[1:3], chosen.ne[3] * chosen.nb[3])
        )
        zeros = g.fill(g.new(F32, 1, *ids.ne[:3]))
        opened = g.set_rows(closed, zeros, ids)
        ne, nb = opened.ne, opened.nb
        opened = g.view(opened, (ne[1], ne[2], 1, ne[3]), (nb[2], nb[3], nb[3]))
        return g.add(opened, mask)


class Dots3(DsaDecoder):
    """Layers with a window attend to a latent cache of their own; every head's result is gated."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        r = g.r
        own = (self.latent, self.head_k, self.head_v)
        names = ("kv_lora_rank", "key_length_mla", "value_length_mla")
        windowed = tuple(r.whole(f"attention.{name}_swa") for name in names)
        self.sizes = (own, windowed)

    def attention_inputs(self) -> None:
        super().attention_inputs()
        self.swa = self.g.attn_input(swa=True, k_only=True)

    def attention(self, il: int, cur: Tensor) -> Tensor:
        self.latent, self.head_k, self.head_v = self.sizes[self.g.r.layers[il].is_swa]
        return super().attention(il, cur)

    def is_full(self, il: int) -> bool:
        return not self.g.r.layers[il].is_swa

    def compressed(self, il: int, cur: Tensor, *, rotate: bool = True) -> tuple[Tensor, Tensor]:
        g = self.g
        assert self.pos is not None
        latent, k_pe = super().compressed(il, cur, rotate=False)
        return latent, g.rope(g.build_norm(k_pe, g.w(il, "attn_k_norm"), None, "rms", il), self.pos)

    def attend_cells(self, il: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        g = self.g
        if not g.r.layers[il].is_swa:
            return self.sparse(il, q, k, v)
        assert self.swa is not None
        return latent_attention(g, self.swa, il, q, k, v, g.need(il, "attn_v_b"))

    def output(self, il: int, attended: Tensor, cur: Tensor) -> Tensor:
        g, n_head, rows = self.g, self.g.r.layers[il].n_head, attended.ne[1]
        gate = g.reshape(g.unary(g.mul_mat(g.need(il, "attn_gate"), cur)), 1, n_head, rows)
        gated = g.mul(g.reshape(attended, self.head_v, n_head, rows), gate)
        return super().output(il, g.reshape(gated, self.head_v * n_head, rows), cur)


def build(g: Blocks) -> None:
    DsaDecoder(g).build()


BUILDERS = {"deepseek32": build, "glm-dsa": build, "dots3note": lambda g: Dots3(g).build()}
