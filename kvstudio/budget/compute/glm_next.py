"""GLM 5 Next: delta attention, latent attention to chosen blocks of cells, and several residual streams.

Source: src/models/glm5-next.cpp, llama-memory-hybrid-idx.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Style
from kvstudio.budget.compute.linear import KimiK3
from kvstudio.budget.compute.pools import Pools, opened, pools_of
from kvstudio.budget.compute.recurrent import States
from kvstudio.budget.compute.streams import Streams
from kvstudio.budget.compute.tensor import F32, I32, Tensor

#: Micro-batches up to this size gather the chosen rows instead.
_GATHERS_UP_TO = 16


class GlmNext(Streams, KimiK3):
    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        r = g.r
        self.s = Style(norm_w=None, gating="key:sigmoid", shexp="plain", attn_out_bias=False)
        self.n_hc = r.whole("hyper_connection.count")
        self.n_iterations = r.whole("hyper_connection.sinkhorn_iterations")
        self.fused = True
        self.size = r.whole("attention.indexer.kpool")
        self.top = r.whole("attention.indexer.top_k")
        self.pools: Pools | None = None
        self.there: Tensor | None = None
        self.shared_mask: Tensor | None = None

    def begin(self) -> Tensor:
        g, config = self.g, self.g.r.config
        if config.n_ubatch <= _GATHERS_UP_TO and config.n_ctx > self.top + self.size - 1:
            raise LookupError("the graph that gathers chosen rows is not followed")
        cur = g.inp_embd()
        self.base = g.attn_input(k_only=True)
        self.states = States(g)
        self.pools = pools_of(g, self.size)
        tail = self.size - 1 if g.r.key("attention.indexer.kpool_select_tail", True) else 0
        n_best = min(self.pools.cells.ne[0], self.top // self.size)
        self.there = g.input(F32, self.size * n_best + tail, 1, 1, g.nt)
        g.expand(self.there)
        self.out_ids = g.inp_out_ids()
        return g.repeat(g.reshape(cur, g.n_embd, 1, g.nt), g.n_embd, self.n_hc, g.nt, 1)

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur, post, comb = self.hc_pre(il, inp, "attn")
        cur = self.normed(cur, il, "attn_norm")
        g.expand(cur)
        cur = self.delta(il, cur) if g.r.layers[il].is_recurrent else self.latent_layer(il, cur)
        mid = self.hc_post(cur, inp, post, comb)
        cur, post, comb = self.hc_pre(il, mid, "ffn")
        cur = self.feed_forward(il, self.normed(cur, il, "ffn_norm"))
        return self.hc_post(cur, mid, post, comb)

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        return super(KimiK3, self).feed_forward(il, cur)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        assert self.out_ids is not None
        flat = g.get_rows(g.reshape(cur, g.n_embd * self.n_hc, g.nt), self.out_ids)
        wide = g.reshape(flat, g.n_embd, self.n_hc, flat.ne[1])
        total, *others = (g.view(wide, (g.n_embd, flat.ne[1]), wide.nb[2:3]) for _ in range(self.n_hc))
        for stream in others:
            total = g.add(total, stream)
        g.head(g.scale(total))

    def output_gate(self, il: int, cur: Tensor, head: int, n_head: int) -> Tensor:
        g = self.g
        gate = g.mul_mat(g.need(il, "ssm_g_b"), g.mul_mat(g.need(il, "ssm_g_a"), cur))
        return g.reshape(gate, head, n_head, g.nt)

    # -- latent attention to chosen blocks -----------------------------------------------------------------------

    def latent_layer(self, il: int, cur: Tensor) -> Tensor:
        g, base = self.g, self.base
        assert base is not None and base.mask is not None
        low = g.mul_mat(g.need(il, "attn_q_a"), cur)
        low = g.build_norm(low, g.w(il, "attn_q_a_norm"), None, "rms", il)
        q = g.reshape(g.mul_mat(g.need(il, "attn_q_b"), low), self.head_k, g.r.layers[il].n_head, g.nt)
        latent = g.mul_mat(g.need(il, "attn_kv_a_mqa"), cur)
        latent = g.build_norm(latent, g.w(il, "attn_kv_a_norm"), None, "rms", il)
        k = g.reshape(latent, self.latent, 1, g.nt)
        q = g.permute(g.mul_mat(g.need(il, "attn_k_b"), g.permute(q, 0, 2, 1, 3)), 0, 2, 1, 3)
        full = g.model.hparams.get("indexer_full")
        if self.shared_mask is None or not isinstance(full, tuple | list) or full[il]:
            self.shared_mask = self.choose(il, cur, low)
        g.expand(q, k)
        cache = g.k_cache(base, il, self.latent)
        g.expand(g.store_k(base, k, il, cache))
        keys = g.cached_k(base, il, self.latent, 1, cache)
        values = g.view(keys, keys.ne, keys.nb[1:])
        mask = g.reshape(self.shared_mask, *base.mask.ne)
        out = g.mha(q, keys, values, mask, v_mla=g.need(il, "attn_v_b"), il=il)
        return g.mul_mat(g.need(il, "attn_output"), out)

    def choose(self, il: int, cur: Tensor, low: Tensor) -> Tensor:
        """The mask with everything closed but the cells of the best blocks and of none."""
        g, nt, pools, there = self.g, self.g.nt, self.pools, self.there
        assert self.base is not None and self.base.mask is not None and pools is not None and there is not None
        n, heads = (g.r.whole(f"attention.indexer.{name}") for name in ("key_length", "head_count"))
        q = g.reshape(g.mul_mat(g.need(il, "indexer.attn_q_b"), low), n, heads, nt)
        keys = self.pooled(il, cur, n, pools)
        weights = g.scale(g.mul_mat(g.need(il, "indexer.proj"), cur))
        n_pool = pools.cells.ne[0]
        score = g.make("LIGHTNING_INDEXER", F32, (n_pool, nt), q, keys, weights, pools.mask)
        best = g.top_k(score, min(n_pool, self.top // self.size))
        n_best = best.ne[0]
        scores = g.get_rows(g.reshape(score, 1, n_pool, nt), best)
        order = Tensor("ARGSORT", I32, (n_best, nt, 1, 1), (g.reshape(scores, n_best, nt),))
        best = g.get_rows(g.reshape(g.cast(best, F32), 1, n_best, nt), order)
        best = g.cast(g.cont(g.reshape(best, n_best, nt)), I32)
        cells = g.get_rows(pools.members, g.reshape(best, n_best * nt))
        cells = g.reshape(cells, self.size * n_best, nt)
        if there.ne[0] > cells.ne[0]:
            cells = g.concat(cells, pools.tail, 0)
        g.expand(cells)
        n_chosen, mask = cells.ne[0], self.base.mask
        live = g.unary(g.reshape(there, n_chosen, nt))
        rows = opened(g, mask, cells, live, g.make("ARANGE", F32, (n_chosen,)))
        n_kv = mask.ne[0]
        return g.add(g.view(rows, (n_kv, nt), rows.nb[2:3]), g.reshape(mask, n_kv, nt))

    def pooled(self, il: int, cur: Tensor, n: int, pools: Pools) -> Tensor:
        """One key per block, the mean of its cells' keys as a gate weighs them; kept beside what it is made of."""
        g, nt, size = self.g, self.g.nt, self.size
        key = g.mul_mat(g.need(il, "indexer.attn_k"), cur)
        key = g.build_norm(key, g.w(il, "indexer.k_norm"), g.b(il, "indexer.k_norm"), "layer", il)
        gate = g.mul_mat(g.need(il, "indexer_compressor_gate"), cur)
        packed = g.concat(g.concat(key, gate, 0), g.fill(g.new(F32, n, nt)), 0)
        cache = g.k_cache(pools.index, il, 3 * n)
        g.expand(g.store_k(pools.index, g.reshape(packed, 3 * n, 1, nt), il, cache))
        n_cells = cache.ne[1] * cache.ne[2]
        raws, sums = (g.view(cache, (width, n_cells), cache.nb[1:2]) for width in (2 * n, n))
        n_new = pools.fresh_cells.ne[0]
        rows = g.reshape(g.get_rows(raws, g.reshape(pools.fresh, size * n_new)), 2 * n, size, n_new)
        keys, gates = (g.view(rows, (n, size, n_new), rows.nb[1:3]) for _ in range(2))
        logits = g.add(gates, g.need(il, "indexer_compressor_ape"))
        logits = g.cont(g.permute(logits, 1, 0, 2, 3))
        share = g.reshape(g.soft_max(g.reshape(logits, size, n * n_new)), size, n, n_new)
        total = g.sum_rows(g.mul(share, g.cont(g.permute(keys, 1, 0, 2, 3))))
        g.expand(g.set_rows(sums, g.reshape(total, n, n_new), pools.fresh_cells))
        return g.reshape(g.get_rows(sums, pools.cells), n, 1, pools.cells.ne[0])


def build(g: Blocks) -> None:
    GlmNext(g).build()
