"""Qwen 4: several residual streams, gated delta nets, and attention to the best blocks of cells alone.

Source: src/models/qwen4exp.cpp, llama-memory-hybrid-idx.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.hybrid import DeltaNet
from kvstudio.budget.compute.pools import Pools, opened, pools_of
from kvstudio.budget.compute.recurrent import States
from kvstudio.budget.compute.tensor import F32, I32, Tensor

#: Position ids of one token.
_N_POS = 4


class SeparateStates(States):
    """Each convolution has a row of its own, whose end is made contiguous before it is kept."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        self.width_p = int(g.model.hparams.get("ple_conv_state") or 0)

    def state(self, kind: str, il: int) -> Tensor:
        if kind != "p":
            return super().state(kind, il)
        rows = self.n_rs * (1 + self.rollback)
        return self.g.r.cache("state_p", il, F32, (self.width_p, rows, 1))

    def conv_input(self, il: int, x: Tensor, kernel: int, channels: int) -> Tensor:
        return self.history("r", il, x, kernel - 1, channels)

    def history(self, kind: str, il: int, x: Tensor, kept: int, channels: int) -> Tensor:
        g = self.g
        both = g.concat(g.reshape(self.load(kind, il), kept, channels, self.n_seqs), x, 0)
        for _ in range(1 + self.rollback):
            self.store(kind, il, g.cont(g.view(both, (kept, channels, self.n_seqs), both.nb[1:3])))
        return both


class Qwen4(DeltaNet):
    """`wide` is the residual, (n_embd, streams, tokens); `weights` what each stream gets of a block's result."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        self.n_hc = g.r.whole("hyper_connection.count")
        self.pools: Pools | None = None
        self.fresh_pos: Tensor | None = None
        self.chosen: Tensor | None = None
        self.hashed: Tensor | None = None

    def memory_inputs(self) -> None:
        g = self.g
        self.base = g.attn_input()
        self.states = SeparateStates(g)
        size = int(g.model.hparams.get("indexer_kpool") or 0)
        if size:
            self.pools = pools_of(g, size)
            self.fresh_pos = g.input(I32, _N_POS * self.pools.fresh_cells.ne[0])
        self.pos = g.inp_pos()
        self.out_ids = g.inp_out_ids()

    def begin(self) -> Tensor:
        g = self.g
        cur = g.inp_embd()
        self.memory_inputs()
        n_hashes = (g.r.whole("ple.ngram_size") - 1) * g.r.whole("ple.heads_per_ngram")
        if n_hashes > 0 and g.r.key("ple.layers"):
            table = g.top("per_layer_token_embd.weight")
            rows = g.get_rows(table, g.input(I32, n_hashes * g.nt))
            self.hashed = g.reshape(rows, table.ne[0] * n_hashes, g.nt)
            g.expand(self.hashed)
        wide = g.repeat(g.reshape(cur, g.n_embd, 1, g.nt), g.n_embd, self.n_hc, g.nt, 1)
        g.expand(wide)
        return wide

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g, wide = self.g, inp
        if g.w(il, "ple_key") is not None and self.hashed is not None:
            wide = self.with_hashes(il, wide, self.hashed)
        cur, share = self.mixed(wide, il, "attn")
        g.expand(cur)
        if g.r.layers[il].is_recurrent:
            cur = self.linear(il, cur)
        else:
            cur = self.sparse_attention(il, cur)
        if il == g.n_layer - 1 and self.out_ids is not None:
            cur, share = g.get_rows(cur, self.out_ids), g.get_rows(share, self.out_ids)
            flat = g.get_rows(g.reshape(wide, g.n_embd * self.n_hc, g.nt), self.out_ids)
            wide = g.reshape(flat, g.n_embd, self.n_hc, flat.ne[1])
        wide = self.combined(wide, cur, share)
        cur, share = self.mixed(wide, il, "ffn")
        return self.combined(wide, self.feed_forward(il, cur), share)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        norm, down, up = (g.top(f"output_hc_{name}.weight") for name in ("norm", "down", "up"))
        rows = cur.ne[2]
        gated = g.mul(*self.gate(cur, norm, down, up, active=True))
        gated = g.reshape(gated, g.n_embd, self.n_hc, rows)
        first, *others = (g.view(gated, (g.n_embd, rows), gated.nb[2:3]) for _ in range(self.n_hc))
        total = g.cont(first)
        for stream in others:
            total = g.add(total, stream)
        g.logits(g.scale(total))

    # -- residual streams ----------------------------------------------------------------------------------------

    def gate(
        self, wide: Tensor, norm: Tensor, down: Tensor, up: Tensor, *, active: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The normalised streams side by side, and what each value is weighed with."""
        g = self.g
        flat = g.reshape(g.mul(g.rms_norm(wide), norm), g.n_embd * self.n_hc, wide.ne[2])
        gate = g.mm(up, g.unary(g.scale(g.mm(down, flat))))
        return flat, g.unary(gate) if active else gate

    def mixed(self, wide: Tensor, il: int, block: str) -> tuple[Tensor, Tensor]:
        """One stream out of all, and how much of the result each is to get."""
        flat, one = self.one_stream(wide, il, f"hc_{block}")
        return one, self.g.mm(self.g.need(il, f"hc_{block}_inject"), flat)

    def one_stream(self, wide: Tensor, il: int, prefix: str) -> tuple[Tensor, Tensor]:
        """The normalised streams side by side, and one out of all."""
        g, rows = self.g, wide.ne[2]
        flat, gate = self.gate(wide, *(g.need(il, f"{prefix}_{name}") for name in ("norm", "down", "up")))
        streams = (g.reshape(x, g.n_embd, self.n_hc, rows) for x in (flat, gate))
        return flat, g.make("DSV4_HC_PRE", F32, (g.n_embd, rows), *streams)

    def combined(self, wide: Tensor, cur: Tensor, share: Tensor) -> Tensor:
        g = self.g
        weights = g.scale(g.unary(g.scale(share)))
        return g.make("DSV4_HC_POST", F32, wide.ne, cur, wide, weights)

    # -- attention to chosen blocks ------------------------------------------------------------------------------

    def sparse_attention(self, il: int, cur: Tensor) -> Tensor:
        pools = self.pools
        self.chosen = None
        if pools is not None and self.g.r.per_layer("attention.compress_ratios", il):
            self.chosen = self.opened(pools, *self.choose(il, cur, pools))
        return self.gated_attention(il, cur)

    def attend_heads(self, il: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        g, inp, chosen = self.g, self.base, self.chosen
        if chosen is None:
            return super().attend_heads(il, q, k, v)
        assert inp is not None and inp.mask is not None
        return g.attend(inp, il, q, k, v, mask=g.reshape(chosen, *inp.mask.ne))

    def choose(self, il: int, cur: Tensor, pools: Pools) -> tuple[Tensor, Tensor, Tensor]:
        """(cells of the best blocks and of none, the blocks, their scores)."""
        g, nt = self.g, self.g.nt
        assert self.pos is not None and self.fresh_pos is not None
        n, heads, size = (
            g.r.whole("attention.indexer.key_length"),
            g.r.whole("attention.indexer.head_count"),
            pools.size,
        )
        raw = g.mm(g.need(il, "indexer.k_proj"), cur)
        empty = g.fill(g.new(F32, n, nt))
        packed = g.reshape(g.concat(raw, empty, 0), 2 * n, 1, nt)
        cache = g.k_cache(pools.index, il, 2 * n)
        g.expand(g.store_k(pools.index, packed, il, cache))
        raws, sums = (g.view(cache, (n, cache.ne[1] * cache.ne[2]), cache.nb[1:2]) for _ in range(2))
        n_new = pools.fresh_cells.ne[0]
        rows = g.reshape(g.get_rows(raws, g.reshape(pools.fresh, size * n_new)), n, size, n_new)
        first, *others = (g.view(rows, (n, n_new), rows.nb[2:3]) for _ in range(size))
        total = g.cont(first)
        for row in others:
            total = g.add(total, row)
        total = g.build_norm(g.scale(total), g.w(il, "indexer.k_norm"), None, "rms", il)
        total = g.reshape(g.rope(g.reshape(total, n, 1, n_new), self.fresh_pos), n, n_new)
        g.expand(g.set_rows(sums, total, pools.fresh_cells))
        keys = g.reshape(g.get_rows(sums, pools.cells), n, 1, pools.cells.ne[0])
        q = g.reshape(g.mm(g.need(il, "indexer.q_proj"), cur), n, heads, nt)
        q = g.rope(g.build_norm(q, g.w(il, "indexer.q_norm"), None, "rms", il), self.pos)
        even = g.fill(g.new(F32, heads, nt))
        n_pool = pools.cells.ne[0]
        score = g.make("LIGHTNING_INDEXER", F32, (n_pool, nt), q, keys, even, pools.mask)
        best = g.top_k(score, min(n_pool, g.r.whole("attention.indexer.top_k") // size))
        cells = g.get_rows(pools.members, g.reshape(best, best.n_elements))
        cells = g.concat(g.reshape(cells, size * best.ne[0], nt), pools.tail, 0)
        g.expand(cells)
        return cells, best, score

    def opened(self, pools: Pools, cells: Tensor, best: Tensor, score: Tensor) -> Tensor:
        """The mask with everything closed but the chosen cells; each that is not there goes to a row of its own."""
        g, nt = self.g, self.g.nt
        assert self.base is not None and self.base.mask is not None
        n_best = best.ne[0]
        scores = g.get_rows(g.reshape(score, 1, score.ne[0], nt), best)
        there = g.repeat(g.clamp(g.scale(scores)), pools.size, n_best, nt, 1)
        there = g.reshape(there, pools.size * n_best, nt)
        there = g.concat(there, g.clamp(g.scale(g.cast(pools.tail, F32))), 0)
        spare = g.scale(g.op("CUMSUM", g.fill(there)))
        rows = opened(g, self.base.mask, cells, there, spare)
        mask, row = self.base.mask, rows.nb[2]
        steps = (row, row * mask.ne[1], row * mask.ne[1] * mask.ne[2])
        return g.add(g.view(rows, mask.ne, steps), mask)

    # -- hashed n-grams ------------------------------------------------------------------------------------------

    def with_hashes(self, il: int, wide: Tensor, hashed: Tensor) -> Tensor:
        g, nt, hc = self.g, self.g.nt, self.n_hc
        states = self.states
        assert isinstance(states, SeparateStates)
        key, value = g.mm(g.need(il, "ple_key"), hashed), g.mm(g.need(il, "ple_value"), hashed)

        def normed(x: Tensor, name: str) -> Tensor:
            return g.mul(g.rms_norm(g.reshape(x, g.n_embd, hc, nt)), g.need(il, name))

        key, query = normed(key, "ple_norm_key"), normed(wide, "ple_norm_query")
        score = g.scale(g.sum_rows(g.mul(key, query)))
        size = g.op("SQRT", g.clamp(g.unary(score)))
        gate = g.unary(g.mul(g.unary(score), size))
        value = g.repeat(g.reshape(value, g.n_embd, 1, nt), g.n_embd, hc, nt, 1)
        gated = g.mul(value, gate)
        channels, n, seqs = hc * g.n_embd, states.per_seq, states.n_seqs
        flat = g.reshape(normed(g.reshape(gated, channels, nt), "ple_norm_conv"), channels, nt)
        weight = g.need(il, "ple_conv1d")
        taps, step = g.r.whole("ple.conv_kernel"), g.r.whole("ple.ngram_size")
        both = states.history("p", il, g.transpose(g.reshape(flat, channels, n, seqs)), (taps - 1) * step, channels)
        total: Tensor | None = None
        for _ in range(taps):
            shifted = g.cont(g.transpose(g.view(both, (n, channels, seqs), both.nb[1:3])))
            column = g.reshape(g.cont(g.view(weight, (1, channels), weight.nb[1:2])), channels)
            term = g.mul(shifted, column if column.type == F32 else g.cast(column, F32))
            total = term if total is None else g.add(total, term)
        assert total is not None
        out = g.reshape(g.cont(g.unary(total)), g.n_embd, hc, nt)
        return g.add(wide, g.add(gated, out))


def build(g: Blocks) -> None:
    Qwen4(g).build()
