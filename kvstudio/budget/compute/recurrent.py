"""Layers that keep a state instead of a cache: state copies, convolutions, Mamba 1 and 2, gated delta net.

Source: llama-graph.cpp build_rs, src/models/mamba-base.cpp and delta-net-base.cpp, read at build 11434.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.delta import chunked
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE
from kvstudio.budget.compute.tensor import F32, I32, Tensor

Gather = Callable[[Tensor, Tensor], Tensor]


@dataclass(slots=True)
class StateInput:
    """The ids of the states a batch reads: all, those of the batch, and those only moved."""

    copy: Tensor
    main: Tensor
    tail: Tensor
    extra: Tensor


class States:
    """Recurrent parts of one graph."""

    def __init__(self, g: Blocks) -> None:
        self.g = g
        hp = g.model.hparams
        self.width_r = int(hp.get("n_embd_r") or 0)
        self.width_s = int(hp.get("n_embd_s") or 0)
        self.rollback = g.r.config.n_rs_seq
        self.n_rs = g.r.config.n_parallel
        self.n_seqs = g.r.n_seqs
        self.per_seq = g.nt // g.r.n_seqs
        ids = g.input(I32, self.n_rs)
        self.ids = StateInput(
            ids,
            g.view(ids, (self.n_seqs,)),
            g.view(ids, (self.n_rs - 1,)),
            g.view(ids, (self.n_rs - self.n_seqs,)),
        )

    def state(self, kind: str, il: int) -> Tensor:
        width = self.width_r if kind == "r" else self.width_s
        return self.g.r.cache(f"state_{kind}", il, F32, (width, self.n_rs * (1 + self.rollback), 1))

    def load(self, kind: str, il: int, gather: Gather | None = None) -> Tensor:
        """The states of the batch; the others are moved along. `gather` reads them inside its own operation."""
        g = self.g
        cache = self.state(kind, il)
        width = cache.ne[0]
        states = g.reshape(cache, width, cache.ne[1])
        g.expand(g.scale_inplace(g.view(states, (width,))))
        if g.r.config.build >= MIXED_BATCH_SINCE:
            moved = g.get_rows(states, self.ids.copy if gather is None else self.ids.tail)
            out = (
                g.view(moved, (width, self.n_seqs), moved.nb[1:2]) if gather is None else gather(states, self.ids.main)
            )
            g.expand(out)
            extra = g.view(moved, (width, self.n_rs - self.n_seqs), moved.nb[1:2])
            g.expand(g.cpy(extra, g.view(cache, (width, self.n_rs - self.n_seqs), cache.nb[1:2])))
            return out
        out = g.get_rows(states, self.ids.main) if gather is None else gather(states, self.ids.main)
        g.expand(out)
        extra = g.get_rows(states, self.ids.extra)
        g.expand(g.cpy(extra, g.view(cache, (width * (self.n_rs - self.n_seqs),))))
        return out

    def store(self, kind: str, il: int, rows: Tensor) -> None:
        g = self.g
        cache = self.state(kind, il)
        g.expand(g.cpy(rows, g.view(cache, (cache.ne[0], self.n_seqs), cache.nb[1:2])))

    @property
    def fuses_delta(self) -> bool:
        """Snapshots for going back are written by the fused operation alone, wherever it runs."""
        return self.g.r.fused_delta or self.rollback > 0 or self.per_seq == 1

    def unit(self, rows: Tensor) -> Tensor:
        """Rows at length one: an operation of its own in earlier builds, a scaled norm in later ones."""
        g = self.g
        return g.scale(g.rms_norm(rows)) if g.r.config.build >= MIXED_BATCH_SINCE else g.l2_norm(rows)

    @property
    def slots(self) -> int:
        """Snapshots written per batch."""
        return min(self.per_seq, 1 + self.rollback)

    # -- convolution ---------------------------------------------------------------------------------------------

    def conv_input(self, il: int, x: Tensor, kernel: int, channels: int) -> Tensor:
        """Old convolution state and the batch side by side; the end of it is stored. `x` is already transposed."""
        g = self.g
        old = g.reshape(self.load("r", il), kernel - 1, channels, self.n_seqs)
        both = g.concat(old, x, 0)
        self.store_conv(il, both, kernel - 1, channels)
        return both

    def store_conv(self, il: int, both: Tensor, kept: int, channels: int) -> None:
        g = self.g
        for _ in range(1 + self.rollback):
            last = g.view(both, (kept, channels, self.n_seqs), both.nb[1:3])
            self.store("r", il, last)

    def conv(self, both: Tensor, kernel: Tensor) -> Tensor:
        g = self.g
        n = both.ne[0] - kernel.ne[0] + 1
        return g.make("SSM_CONV", F32, (both.ne[1], n, both.ne[2]), both, kernel)

    # -- mamba ---------------------------------------------------------------------------------------------------

    def scan(
        self, states: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, ids: Tensor, kept: int
    ) -> Tensor:
        s = states
        n = x.n_elements + kept * s.ne[0] * s.ne[1] * s.ne[2] * ids.ne[0]
        return self.g.make("SSM_SCAN", F32, (n,), s, x, dt, a, b, c, ids)

    def mamba1(self, il: int, cur: Tensor) -> Tensor:
        g, hp = self.g, self.g.model.hparams
        kernel, inner, d_state, rank = (
            int(hp[k]) for k in ("ssm_d_conv", "ssm_d_inner", "ssm_d_state", "ssm_dt_rank")
        )  # fmt: skip
        n, seqs = self.per_seq, self.n_seqs
        old = g.reshape(self.load("r", il), kernel - 1, inner, seqs)
        cur = g.reshape(cur, cur.ne[0], n, seqs)
        xz = g.mm(g.need(il, "ssm_in"), cur, g.w(il, "ssm_in", "scale"))
        x = g.view(xz, (inner, *xz.ne[1:3]), xz.nb[1:3])
        z = g.view(xz, (inner, *xz.ne[1:3]), xz.nb[1:3])
        both = g.concat(old, g.transpose(x), 0)
        last = g.view(both, (kernel - 1, inner, seqs), both.nb[1:3])
        cache = self.state("r", il)
        g.expand(g.cpy(last, g.view(cache, ((kernel - 1) * inner * seqs,))))
        x = self.conv(both, g.need(il, "ssm_conv1d"))
        bias = g.b(il, "ssm_conv1d")
        x = g.unary(x if bias is None else g.add(x, bias))
        x_db = g.mm(g.need(il, "ssm_x"), x)
        dt = g.view(x_db, (rank, n, seqs), x_db.nb[1:3])
        b = g.view(x_db, (d_state, 1, n, seqs), (4 * d_state, x_db.nb[1], x_db.nb[2]))
        c = g.view(x_db, (d_state, 1, n, seqs), (4 * d_state, x_db.nb[1], x_db.nb[2]))
        if g.w(il, "ssm_dt_norm") is not None or g.r.key("ssm.dt_b_c_rms"):
            dt = g.build_norm(dt, g.w(il, "ssm_dt_norm"), None, "rms", il)
            b = g.build_norm(b, g.w(il, "ssm_b_norm"), None, "rms", il)
            c = g.build_norm(c, g.w(il, "ssm_c_norm"), None, "rms", il)
        else:
            dt = g.cont(dt)
        dt = g.mm(g.need(il, "ssm_dt"), dt)
        bias = g.b(il, "ssm_dt")
        dt = dt if bias is None else g.add(dt, bias)
        flat = x
        x = g.reshape(x, 1, inner, n, seqs)
        a = self.bare(il, "ssm_a")

        def gather(states: Tensor, ids: Tensor) -> Tensor:
            shaped = g.reshape(states, d_state, 1, inner, states.ne[1])
            return self.scan(shaped, x, dt, a, b, c, ids, 1)

        out = self.load("s", il, gather)
        cache = self.state("s", il)
        size = d_state * inner * seqs
        g.expand(g.cpy(g.view(out, (size,)), g.view(cache, (size,))))
        y = g.view(out, (inner, n, seqs), x.nb[2:4])
        y = g.add(y, g.mul(flat, self.bare(il, "ssm_d")))
        y = g.glu(g.cont(z), y)
        cur = g.mm(g.need(il, "ssm_out"), y, g.w(il, "ssm_out", "scale"))
        return g.reshape(cur, cur.ne[0], n * seqs)

    def bare(self, il: int, name: str) -> Tensor:
        """A weight that is stored without a suffix."""
        return self.g.need(il, name)

    def mamba2(self, il: int, cur: Tensor) -> Tensor:
        g, hp = self.g, self.g.model.hparams
        kernel, inner, d_state, n_head, groups = (
            int(hp[k]) for k in ("ssm_d_conv", "ssm_d_inner", "ssm_d_state", "ssm_dt_rank", "ssm_n_group")
        )  # fmt: skip
        n, seqs, head = self.per_seq, self.n_seqs, inner // n_head
        width = inner + 2 * groups * d_state
        old = g.reshape(self.load("r", il), kernel - 1, width, seqs)
        modern = g.r.config.build >= MIXED_BATCH_SINCE
        if not modern:
            cur = g.reshape(cur, cur.ne[0], n, seqs)
        zx = g.mm(g.need(il, "ssm_in"), cur, g.w(il, "ssm_in", "scale"))
        if modern:
            zx = g.reshape(zx, zx.ne[0], n, seqs)
        z = g.view(zx, (head, n_head, n, seqs), (4 * head, zx.nb[1], zx.nb[2]))
        x_bc = g.view(zx, (width, n, seqs), zx.nb[1:3])
        dt = g.view(zx, (n_head, n, seqs), zx.nb[1:3])
        both = g.concat(old, g.transpose(x_bc), 0)
        for _ in range(self.slots):
            self.store("r", il, g.view(both, (kernel - 1, width, seqs), both.nb[1:3]))
        x_bc = self.conv(both, g.need(il, "ssm_conv1d"))
        bias = g.b(il, "ssm_conv1d")
        x_bc = g.unary(x_bc if bias is None else g.add(x_bc, bias))
        x = g.view(x_bc, (head, n_head, n, seqs), (4 * head, x_bc.nb[1], x_bc.nb[2]))
        b = g.view(x_bc, (d_state, groups, n, seqs), (4 * d_state, x_bc.nb[1], x_bc.nb[2]))
        c = g.view(x_bc, (d_state, groups, n, seqs), (4 * d_state, x_bc.nb[1], x_bc.nb[2]))
        dt_bias = g.b(il, "ssm_dt")
        dt = g.cont(dt)
        dt = dt if dt_bias is None else g.add(dt, dt_bias)
        a = self.bare(il, "ssm_a")
        kept = 1 + self.rollback

        def gather(states: Tensor, ids: Tensor) -> Tensor:
            shaped = g.reshape(states, d_state, head, n_head, states.ne[1])
            return self.scan(shaped, x, dt, a, b, c, ids, kept)

        out = self.load("s", il, gather)
        size = d_state * inner
        rows = g.view(out, (size, seqs, self.slots), (4 * size, 4 * size * seqs))
        cache = self.state("s", il)
        g.expand(g.cpy(rows, g.view(cache, (size, seqs, self.slots), (cache.nb[1], cache.nb[1] * self.n_rs))))
        y = g.view(out, (head, n_head, n, seqs), (x.nb[1], n_head * x.nb[1], n * n_head * x.nb[1]))
        y = g.add(y, g.mul(x, self.bare(il, "ssm_d")))
        y = g.glu(g.cont(z), y)
        norm = g.w(il, "ssm_norm")
        if norm is not None:
            y = g.build_norm(g.reshape(y, inner // groups, groups, n, seqs), norm, None, "rms", il)
        if modern:
            return g.mm(g.need(il, "ssm_out"), g.reshape(y, inner, n * seqs), g.w(il, "ssm_out", "scale"))
        cur = g.mm(g.need(il, "ssm_out"), g.reshape(y, inner, n, seqs), g.w(il, "ssm_out", "scale"))
        return g.reshape(cur, cur.ne[0], n * seqs)

    # -- gated delta net -----------------------------------------------------------------------------------------

    def delta_net(self, il: int, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor, state: Tensor) -> Tensor:
        """The fused operation, outputs of all tokens and the new states in one tensor, or the chunks in its stead."""
        g = self.g
        if not self.fuses_delta:
            result, fresh = chunked(g, q, k, v, gate, beta, state)
            cache = self.state("s", il)
            g.expand(g.cpy(fresh, g.view(cache, (cache.ne[0], self.n_seqs), cache.nb[1:2])))
            return result
        kept = 1 + self.rollback
        head, n_head, n, seqs = v.ne
        rows = n * seqs + kept * head * seqs
        out = g.make("GATED_DELTA_NET", F32, (head * n_head, rows), q, k, v, gate, beta, state)
        g.fused_delta.append((out, il))
        step = 4 * head
        result = g.view(out, (head, n_head, n, seqs), (step, step * n_head, step * n_head * n))
        size = head * head * n_head
        cache = self.state("s", il)
        if self.rollback:
            rows_out = g.view(out, (size, seqs, self.slots), (4 * size, 4 * size * seqs))
            target = g.view(cache, (size, seqs, self.slots), (cache.nb[1], cache.nb[1] * self.n_rs))
        else:
            rows_out = g.view(out, (head, head, n_head, seqs), (step, step * head, step * head * n_head))
            target = g.view(cache, (cache.ne[0], seqs), cache.nb[1:2])
        g.expand(g.cpy(rows_out, target))
        return result
