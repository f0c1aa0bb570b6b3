"""MiniMax M3: blocks of cells are scored by an indexer and only the best are attended to.

Source: src/models/minimax-m3.cpp, read at build 11434. The reserve sees an empty cache, so position tables have their
smallest size.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.inputs import pad
from kvstudio.budget.compute.tensor import F16, F32, I32, I64, Tensor

_SMALLEST_POSITIONS = 256


class MsaDecoder(Decoder):
    def __init__(self, g: Blocks) -> None:
        style = Style(norm_w=None, gating="key:sigmoid", shexp="plain", act="swiglu_oai", attn_out_bias=False)
        super().__init__(g, style)
        r = g.r
        self.block = r.whole("attention.indexer.block_size", 128)
        self.best = r.whole("attention.indexer.top_k", 16)
        self.n_index = r.whole("attention.indexer.head_count")
        self.index_head = r.whole("attention.indexer.key_length")
        self.lead = r.whole("leading_dense_block_count")
        self.sparse = r.flash_attn and (r.config.n_parallel == 1 or not r.config.kv_unified)
        self.index: AttnInput | None = None

    def attention_inputs(self) -> None:
        g, r = self.g, self.g.r
        self.base = g.attn_input()
        if not self.sparse:
            return
        self.index = AttnInput("idx", r.n_ctx_seq)
        self.index.k_idxs = g.input(I64, g.nt)
        mask = self.base.mask
        assert mask is not None
        self.n_kv, self.per, _, self.streams = mask.ne
        self.n_pos = pad(_SMALLEST_POSITIONS, self.block)
        self.n_blocks = self.n_pos // self.block
        self.bias = g.input(F32, self.n_blocks, g.nt)
        self.pos_mask = g.input(F32, self.n_pos, g.nt)
        self.slots = g.input(I32, self.n_pos, self.streams)
        self.decodes = self.per == 1
        if not self.decodes:
            self.cell_block = g.input(I32, self.n_kv, self.streams)
            self.wide_mask = g.cast(mask, F32)

    def attention(self, il: int, cur: Tensor) -> Tensor:
        if not self.sparse or il < self.lead or self.decodes:
            return super().attention(il, cur)
        g, layer, base, index = self.g, self.g.r.layers[il], self.base, self.index
        assert self.pos is not None and base is not None and index is not None
        q, k, v = g.qkv(il, cur, layer.n_embd_head_k, layer.n_head, layer.n_embd_head_v, layer.n_head_kv)
        q, k = self.position(il, q, k)
        n = self.index_head
        iq = g.reshape(g.mm(self.indexer(il, "q_proj"), cur), n, self.n_index, g.nt)
        ik = g.reshape(g.mm(self.indexer(il, "k_proj"), cur), n, 1, g.nt)
        iq = g.rope(g.build_norm(iq, self.indexer(il, "q_norm"), None, "rms", il), self.pos)
        ik = g.rope(g.build_norm(ik, self.indexer(il, "k_norm"), None, "rms", il), self.pos)
        cache = g.k_cache(index, il, n)
        g.expand(g.store_k(index, ik, il, cache))
        index_keys = g.cached_k(index, il, n, 1, cache)
        if base.k_rot is not None:
            q, k = g.rotate(q, base.k_rot), g.rotate(k, base.k_rot)
        if base.v_rot is not None:
            v = g.rotate(v, base.v_rot)
        g.expand(q, k, v)
        g.expand(g.store_k(base, k, il), g.store_v(base, v, il))
        keys = g.cached_k(base, il, layer.n_embd_head_k, layer.n_head_kv)
        values = g.cached_v(base, il, layer.n_embd_head_v, layer.n_head_kv)
        outs = [self.stream(il, q, iq, index_keys, keys, values) for _ in range(self.streams)]
        out = outs[0]
        for more in outs[1:]:
            out = g.concat(out, more, 1)
        if base.v_rot is not None:
            out = g.rotate(out, base.v_rot)
        return g.project(out, g.need(il, "attn_output"), None, g.w(il, "attn_output", "scale"))

    def indexer(self, il: int, name: str) -> Tensor:
        return self.g.need(il, f"indexer.{name}")

    def stream(self, il: int, q: Tensor, iq: Tensor, index_keys: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        g, per, n_pos, blocks = self.g, self.per, self.n_pos, self.n_blocks
        heads, n_kv = self.n_index, self.n_kv
        iq = g.view(iq, (self.index_head, heads, per), iq.nb[1:3])
        ik = g.view(index_keys, (self.index_head, n_kv), index_keys.nb[2:3])
        slots = g.view(self.slots, (n_pos,))
        pos_mask = g.view(self.pos_mask, (n_pos, 1, per), (self.pos_mask.nb[1], self.pos_mask.nb[1]))
        cells = g.view(self.cell_block, (n_kv,))
        wide = g.view(self.wide_mask, (n_kv, per, 1), (self.wide_mask.nb[1], self.wide_mask.nb[3]))
        bias = g.view(self.bias, (blocks, 1, per), (self.bias.nb[1], self.bias.nb[1]))
        q = g.view(q, (q.ne[0], q.ne[1], per), q.nb[1:3])
        k = g.view(keys, (*keys.ne[:3], 1), keys.nb[1:])
        v = g.view(values, (*values.ne[:3], 1), values.nb[1:])
        picked = g.get_rows(ik, slots)
        score = g.mul_mat(picked, g.reshape(iq, self.index_head, heads * per))
        score = g.reshape(score, n_pos, heads, per)
        score = Tensor("ADD", score.type, score.ne, (score, pos_mask), score.nb, score)
        pooled = g.make("POOL_2D", F32, (blocks, heads, per), score)
        best = g.top_k(g.add(pooled, bias), min(self.best, blocks))
        closed = g.repeat(g.cast(g.scale(bias), F16), blocks, heads, per, 1)
        zero = g.scale(g.cast(best, F32))
        n_best = best.ne[0]
        opened = g.set_rows(
            g.reshape(closed, 1, blocks, heads * per), g.reshape(zero, 1, n_best, heads * per),
            g.reshape(best, n_best, heads * per),
        )  # fmt: skip
        opened = g.cont(g.permute(g.reshape(opened, blocks, heads, per), 0, 2, 1, 3))
        by_block = g.cont(g.transpose(g.reshape(opened, blocks, per * heads)))
        by_cell = g.cont(g.transpose(g.get_rows(by_block, cells)))
        by_cell = g.reshape(by_cell, n_kv, per, heads)
        mask = Tensor("ADD", by_cell.type, by_cell.ne, (by_cell, wide), by_cell.nb, by_cell)
        mask = g.cast(g.reshape(mask, n_kv, per, 1, heads), F16)
        return self.fused(il, q, g.permute(k, 0, 3, 1, 2), g.permute(v, 0, 3, 1, 2), mask)

    def fused(self, il: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Grouped attention: each group of query heads is one sequence of the operation."""
        g = self.g
        head, n_head, tokens, groups = q.ne[0], q.ne[1], q.ne[2], k.ne[3]
        per_group = n_head // g.r.layers[il].n_head_kv
        rows = n_head * tokens // (per_group * groups)
        q = g.reshape(q, head, per_group, groups, rows) if q.is_contiguous else g.cont(q, head, per_group, groups, rows)
        q = g.permute(q, 0, 2, 3, 1)
        out = g.flash_attn(q, k, v, mask, None)
        g.fused_attention.append((out, il))
        out = g.permute(out, 0, 1, 3, 2)
        out = out if out.is_contiguous else g.cont(out)
        return g.reshape(out, head * n_head, tokens)


def build(g: Blocks) -> None:
    MsaDecoder(g).build()
