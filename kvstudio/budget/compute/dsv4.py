"""DeepSeek V4: hyper-connections around each block, and attention over a window joined with compressed cells.

Source: src/models/deepseek4.cpp, src/llama-kv-cache-dsv4.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE
from kvstudio.budget.compute.streams import Streams
from kvstudio.budget.compute.tensor import F16, F32, I32, I64, Tensor
from kvstudio.budget.kv import cache_specs

_CSA, _HCA = 4, 128


class Compressed:
    """Inputs of one compressed cache: which rows of the running state are read, kept and written.

    `ratio`: tokens in one cell; `overlap`: whether a cell also reads the tokens of the one before; `head`: its width.
    """

    def __init__(self, g: Blocks, kind: str, ratio: int, head: int, cells: int, *, flash: bool, rot: int) -> None:
        r = g.r
        self.kind, self.ratio, self.head, self.cells = kind, ratio, head, cells
        self.overlap = ratio == _CSA
        factor = 2 if self.overlap else 1
        self.rows = factor * ratio
        self.width = factor * head
        self.streams = r.config.n_parallel
        each = -(-g.nt // r.n_seqs // ratio)
        blocks = g.nt // ratio + r.n_seqs if r.config.build >= MIXED_BATCH_SINCE else each * r.n_seqs
        persist = min(g.nt, self.rows * self.streams)
        rollback = r.config.n_rs_seq
        self.planes = self.streams * (1 + rollback)
        self.pos = g.input(I32, g.nt)
        self.persist_src, self.persist_dst = g.input(I32, persist), g.input(I32, persist)
        self.restore: tuple[Tensor, Tensor] | None = None
        self.snapshot: tuple[Tensor, Tensor] | None = None
        if rollback:
            n = self.rows * self.streams
            self.restore = g.input(I32, n), g.input(I32, n)
            self.snapshot = g.input(I32, n * rollback), g.input(I32, n * rollback)
        self.reads = g.input(I32, factor * ratio * blocks)
        self.writes = g.input(I64, blocks)
        self.write_pos = g.input(I32, blocks)
        self.blocks = blocks
        self.mask = g.input(F16 if flash else F32, cells, g.nt // r.n_seqs, 1, r.n_seqs)
        self.rot = g.input(F32, rot, rot) if rot else None

    def cache(self, g: Blocks, il: int) -> Tensor:
        return g.r.cache(f"k_{self.kind}", il, g.r.type_k, (self.head, self.cells, self.streams))

    def state(self, g: Blocks, il: int, what: str) -> Tensor:
        """All rows of a layer's running state, snapshots included."""
        leaf = g.r.cache(f"{self.kind}_{what}", il, F32, (self.width, self.rows, self.planes))
        return g.view(leaf, (self.width, self.rows * self.planes), leaf.nb[1:2])


class Dsv4Decoder(Streams, Decoder):
    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style())
        r = g.r
        self.head = r.layers[0].n_embd_head_k
        self.n_hc = r.whole("hyper_connection.count")
        self.n_iterations = r.whole("hyper_connection.sinkhorn_iterations")
        self.n_index = r.whole("attention.indexer.head_count")
        self.index_head = r.whole("attention.indexer.key_length")
        self.index_top = r.whole("attention.indexer.top_k")
        self.groups = r.whole("attention.output_group_count")
        self.low = r.whole("attention.output_lora_rank")
        self.hashed = r.whole("hash_layer_count")
        self.ratios = g.model.hparams["compress_ratios"]
        self.newer = r.config.build >= MIXED_BATCH_SINCE
        #: The fused operations need support by every layer's device; of the earlier ones only the CPU had it.
        self.fused = self.newer or not any(r.placement.layer_device[: g.n_layer])
        self.compressed: dict[str, Compressed] = {}

    # -- whole graph ---------------------------------------------------------------------------------------------

    def build(self) -> None:
        g = self.g
        cur = g.inp_embd()
        self.pos = g.inp_pos()
        self.out_ids = g.inp_out_ids()
        self.attention_inputs()
        cur = g.repeat(g.reshape(cur, g.n_embd, 1, g.nt), g.n_embd, self.n_hc, g.nt, 1)
        for il in g.kept:
            cur = self.layer(il, cur)
            g.close_layer(il)
        flat = g.get_rows(g.reshape(cur, g.n_embd * self.n_hc, g.nt), self.out_ids)
        cur = g.reshape(flat, g.n_embd, self.n_hc, g.r.n_outputs)
        g.head(self.hc_head(cur))

    def attention_inputs(self) -> None:
        g = self.g
        r = g.r
        cells = {spec.kind: spec.cells for spec in cache_specs(g.model, r.config)}
        self.base = AttnInput("swa", cells["kv_swa"])
        self.base.k_idxs = g.input(I64, g.nt)
        self.base.mask = g.input(F16 if r.flash_attn else F32, self.base.n_kv, g.nt // r.n_seqs, 1, r.n_seqs)
        rot = g._rot_k(swa=True)
        self.base.k_rot = g._rot(rot)
        index_rot = 64
        while self.index_head % (2 * index_rot) == 0:
            index_rot *= 2
        for kind, ratio, head, name, turned in (
            ("csa", _CSA, self.head, "csa", rot),
            ("hca", _HCA, self.head, "hca", rot),
            ("lid", _CSA, self.index_head, "indexer", index_rot),
        ):
            if name in cells:
                flash = self.fused_index if kind == "lid" else r.flash_attn
                self.compressed[kind] = Compressed(g, kind, ratio, head, cells[name], flash=flash, rot=turned)
        g.expand(self.base.mask)

    @property
    def fused_index(self) -> bool:
        return self.g.r.fused_indexer

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur, post, comb = self.hc_pre(il, inp, "attn")
        cur = self.attention(il, self.normed(cur, il, "attn_norm"))
        mid = self.hc_post(cur, inp, post, comb)
        cur, post, comb = self.hc_pre(il, mid, "ffn")
        g.expand(mid, post, comb)
        cur = self.feed_forward(il, self.normed(cur, il, "ffn_norm"))
        return self.hc_post(cur, mid, post, comb)

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        hashed = il < self.hashed
        chosen = g.get_rows(g.need(il, "ffn_gate_tid2eid"), g.tokens) if hashed and g.tokens is not None else None
        out = g.moe(
            il, cur, norm_w=bool(g.r.key("expert_weights_norm")), scale=self.scales_experts(),
            gating="sqrt_softplus", probs_b=not hashed, selected=chosen, limit=self.clamps(il, "swiglu_clamp_exp"),
        )  # fmt: skip
        up, gate, down = (g.need(il, f"ffn_{part}_shexp") for part in ("up", "gate", "down"))
        limit = self.clamps(il, "swiglu_clamp_shexp") or self.clamps(il, "swiglu_clamp_exp")
        return g.add(out, g.ffn_of(cur, "silu", up, None, None, gate, None, None, down, limit=limit))

    def clamps(self, il: int, key: str) -> bool:
        """Whether the activation is clamped by operations of its own, which later builds have merged with it."""
        value = self.g.r.key(key)
        if self.newer or value is None:
            return False
        return float(value[min(il, len(value) - 1)] if isinstance(value, tuple | list) else value) > 0

    # -- hyper-connections ---------------------------------------------------------------------------------------

    def hc_head(self, x: Tensor) -> Tensor:
        g = self.g
        mixes = self.mixes(x, g.top("output_hc_fn.weight"))
        pre = self.affine(mixes, g.top("output_hc_scale.weight"), g.top("output_hc_base.weight"))
        return self.weighted(x, g.scale(g.unary(pre)), fused=False)

    # -- rotation ------------------------------------------------------------------------------------------------

    def turned(self, x: Tensor, pos: Tensor, op: str = "ROPE") -> Tensor:
        """The rotated rows; older builds rotate their ends and join them with the rest."""
        g = self.g
        if self.newer:
            return g.make(op, x.type, x.ne, x, pos)
        n = g.r.whole("rope.dimension_count")
        end = g.view(x, (n, *x.ne[1:3]), x.nb[1:3])
        return g.concat(g.view(x, (x.ne[0] - n, *x.ne[1:3]), x.nb[1:3]), g.make(op, x.type, end.ne, end, pos), 0)

    # -- attention -----------------------------------------------------------------------------------------------

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g, n_head = self.g, self.g.r.layers[il].n_head
        assert self.pos is not None and self.base is not None
        low = g.build_norm(g.mul_mat(g.need(il, "attn_q_a"), cur), g.w(il, "attn_q_a_norm"), None, "rms", il)
        q = g.reshape(g.mul_mat(g.need(il, "attn_q_b"), low), self.head, n_head, g.nt)
        q = self.turned(g.rms_norm(q), self.pos)
        kv = g.build_norm(g.mul_mat(g.need(il, "attn_kv"), cur), g.w(il, "attn_kv_a_norm"), None, "rms", il)
        kv = self.turned(g.reshape(kv, self.head, 1, g.nt), self.pos)
        ratio = self.ratios[il]
        if ratio == _CSA:
            self.compress(il, cur, self.compressed["csa"], "attn_compressor")
            self.compress(il, cur, self.compressed["lid"], "indexer_compressor")
        elif ratio == _HCA:
            self.compress(il, cur, self.compressed["hca"], "attn_compressor")
        chosen = self.pick(il, low, cur) if ratio == _CSA else None
        more = {_CSA: "csa", _HCA: "hca"}.get(ratio)
        out = self.attend_joined(il, q, kv, None if more is None else self.compressed[more], chosen)
        out = g.reshape(out, self.head, n_head, g.nt)
        out = self.turned(out, self.pos, "ROPE_BACK")
        wide = self.head * n_head // self.groups
        out = g.permute(g.reshape(out, wide, self.groups, g.nt), 0, 2, 1, 3)
        out = g.permute(g.mul_mat(self.grouped_output(il, wide), out), 0, 2, 1, 3)
        return g.mul_mat(g.need(il, "attn_output_b"), g.cont(out, self.low * self.groups, g.nt))

    def grouped_output(self, il: int, wide: int) -> Tensor:
        """The first half of the output projection, which is loaded in another shape than it is stored in."""
        g, name = self.g, f"blk.{il}.attn_output_a.weight"
        stored = g.need(il, "attn_output_a")
        shape = (wide, self.low, self.groups, 1)
        if stored.ne != shape:
            leaf = Tensor("NONE", stored.type, shape)
            leaf.home, leaf.weight = stored.home, True
            g.r.weights[name] = stored = leaf
        return stored

    def attend_joined(self, il: int, q: Tensor, kv: Tensor, more: Compressed | None, chosen: Tensor | None) -> Tensor:
        """Attention over the window and, behind it, the compressed cells."""
        g, inp = self.g, self.base
        assert inp is not None and inp.mask is not None
        if inp.k_rot is not None:
            q, kv = g.rotate(q, inp.k_rot), g.rotate(kv, inp.k_rot)
        g.expand(q, kv)
        cache = g.r.cache("k_swa", il, g.r.type_k, (self.head, inp.n_kv, g.r.config.n_parallel))
        g.expand(g.store_k(inp, kv, il, cache))
        keys, mask = g.cached_k(inp, il, self.head, 1, cache), inp.mask
        if more is not None:
            keys = g.concat(keys, self.cells(il, more), 2)
            mask = g.concat(mask, more.mask if chosen is None else self.opened(more.mask, chosen), 0)
        out = g.mha(q, keys, keys, mask, sinks=g.w(il, "attn_sinks"), il=il)
        return out if inp.k_rot is None else g.rotate(out, inp.k_rot)

    def cells(self, il: int, more: Compressed) -> Tensor:
        g, inp = self.g, AttnInput(more.kind, more.cells)
        keys = g.cached_k(inp, il, more.head, 1, more.cache(g, il))
        return g.view(keys, keys.ne, keys.nb[1:])

    def opened(self, mask: Tensor, chosen: Tensor) -> Tensor:
        """The mask with everything closed but the chosen cells."""
        g = self.g
        closed = g.fill(mask)
        closed = g.view(closed, (1, closed.ne[0], closed.ne[1], closed.ne[3]), closed.nb[:3])
        ids = g.view(
            chosen, (chosen.ne[0], chosen.ne[1], chosen.ne[3], 1), (*chosen.nb[1:3], chosen.ne[3] * chosen.nb[3])
        )
        zeros = g.fill(g.new(F16 if g.r.flash_attn else F32, 1, *ids.ne[:3]))
        opened = g.set_rows(closed, zeros, ids)
        ne, nb = opened.ne, opened.nb
        return g.add(g.view(opened, (ne[1], ne[2], 1, ne[3]), (nb[2], nb[3], nb[3])), mask)

    def pick(self, il: int, low: Tensor, cur: Tensor) -> Tensor:
        """The compressed cells worth attending to."""
        g, inp, heads, n = self.g, self.compressed["lid"], self.n_index, self.index_head
        assert self.pos is not None and inp.rot is not None
        q = g.reshape(g.mul_mat(g.need(il, "indexer.attn_q_b"), low), n, heads, g.nt)
        q = g.rotate(self.turned(q, self.pos), inp.rot)
        weights = g.scale(g.mul_mat(g.need(il, "indexer.proj"), cur))
        keys = self.cells(il, inp)
        streams = keys.ne[3]
        per = g.nt // streams
        q = g.view(q, (n, heads, per, streams), (q.nb[1], q.nb[2], q.nb[3] // streams))
        weights = g.view(
            weights, (heads, per, 1, streams), (weights.nb[1], weights.nb[2] // streams, weights.nb[3] // streams)
        )
        if self.fused_index:
            score = g.make("LIGHTNING_INDEXER", F32, (keys.ne[2], per, 1, streams), q, keys, weights, inp.mask)
        else:
            if weights.ne[2] == 1:
                weights = g.view(weights, (heads, per, 1, streams), weights.nb[1:])
            kq = g.mul_mat(g.permute(keys, 0, 2, 1, 3), g.permute(q, 0, 2, 1, 3))
            kq = g.cont(g.permute(kq, 2, 1, 0, 3))
            score = g.sum_rows(g.mul(g.unary(kq), weights))
            score = g.add(g.cont(g.permute(score, 2, 1, 0, 3)), inp.mask)
        return g.cont(g.top_k(score, min(score.ne[0], self.index_top)))

    # -- compression ---------------------------------------------------------------------------------------------

    def compress(self, il: int, cur: Tensor, inp: Compressed, names: str) -> None:
        """The batch's share in the running state: cells that are full go to the cache, the rest is kept."""
        g = self.g
        kv = g.mul_mat(g.need(il, f"{names}_kv"), cur)
        score = g.mul_mat(g.need(il, f"{names}_gate"), cur)
        score = g.add(score, g.get_rows(g.need(il, f"{names}_ape"), inp.pos))
        old_kv, old_score = self.restored(il, inp, "kv"), self.restored(il, inp, "score")
        n = inp.rows * inp.streams
        source_kv = g.concat(g.view(old_kv, (inp.width, n), old_kv.nb[1:2]), kv, 1)
        source_score = g.concat(g.view(old_score, (inp.width, n), old_score.nb[1:2]), score, 1)
        pooled = self.overlapped if inp.overlap else self.plain
        comp = self.pooled(*pooled(inp, source_kv, source_score))
        comp = self.turned(g.build_norm(comp, g.need(il, f"{names}_norm"), None, "rms", il), inp.write_pos)
        if inp.rot is not None:
            comp = g.rotate(comp, inp.rot)
        cache = inp.cache(g, il)
        flat = g.view(comp, (inp.head, inp.blocks), comp.nb[2:3])
        if cache.ne[2] > 1:
            cache = g.reshape(cache, cache.ne[0], cache.ne[1] * cache.ne[2])
        g.expand(g.set_rows(cache, flat, inp.writes))
        if inp.snapshot is not None:
            src, dst = inp.snapshot
            whole_kv, whole_score = g.concat(old_kv, kv, 1), g.concat(old_score, score, 1)
            kept = [g.set_rows(inp.state(g, il, "kv"), g.get_rows(whole_kv, src), dst)]
            kept.append(g.set_rows(inp.state(g, il, "score"), g.get_rows(whole_score, src), dst))
            g.expand(*kept)
        last_kv, last_score = g.get_rows(kv, inp.persist_src), g.get_rows(score, inp.persist_src)
        g.expand(
            g.set_rows(inp.state(g, il, "kv"), last_kv, inp.persist_dst),
            g.set_rows(inp.state(g, il, "score"), last_score, inp.persist_dst),
        )

    def restored(self, il: int, inp: Compressed, what: str) -> Tensor:
        g, state = self.g, inp.state(self.g, il, what)
        if inp.restore is None:
            return state
        src, dst = inp.restore
        return g.set_rows(inp.state(g, il, what), g.get_rows(state, src), dst)

    def plain(self, inp: Compressed, kv: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        g, shape = self.g, (inp.head, inp.ratio, inp.blocks)
        return g.reshape(g.get_rows(kv, inp.reads), *shape), g.reshape(g.get_rows(score, inp.reads), *shape)

    def overlapped(self, inp: Compressed, kv: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        g = self.g
        kv, score = (g.get_rows(self.with_empty_row(x), inp.reads) for x in (kv, score))
        halves = []
        for _ in range(2):
            for rows in (kv, score):
                half = g.cont(g.view(rows, (inp.head, inp.ratio * inp.blocks), rows.nb[1:2]))
                halves.append(g.reshape(half, inp.head, inp.ratio, inp.blocks))
        return g.concat(halves[0], halves[2], 1), g.concat(halves[1], halves[3], 1)

    def with_empty_row(self, x: Tensor) -> Tensor:
        g = self.g
        return g.concat(x, g.reshape(g.scale(g.view(x, (x.ne[0],))), x.ne[0], 1), 1)

    def pooled(self, values: Tensor, scores: Tensor) -> Tensor:
        g = self.g
        values, scores = (g.cont(g.permute(x, 1, 0, 2, 3)) for x in (values, scores))
        total = g.sum_rows(g.mul(values, g.soft_max(scores)))
        return g.cont(g.permute(total, 1, 0, 2, 3))


def build(g: Blocks) -> None:
    Dsv4Decoder(g).build()
