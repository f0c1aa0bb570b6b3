"""RWKV 6 and 7: token shift, time mix and channel mix instead of attention.

Source: src/models (rwkv6-base, rwkv6, rwkv6qwen2, rwkv7-base, rwkv7, arwkv7), read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.recurrent import States
from kvstudio.budget.compute.tensor import F32, Tensor


class Rwkv:
    """One RWKV graph; `qwen` marks the variants with an ordinary feed-forward block."""

    def __init__(self, g: Blocks, version: int, *, qwen: bool) -> None:
        self.g = g
        self.version = version
        self.qwen = qwen
        self.head = g.r.whole("wkv.head_size", 64)
        self.first_value: Tensor | None = None

    def build(self) -> None:
        g = self.g
        cur = g.inp_embd()
        if not self.qwen:
            norm, bias = g.r.weight("token_embd_norm.weight"), g.r.weight("token_embd_norm.bias")
            cur = g.build_norm(cur, norm, bias, "layer", 0)
        self.states = States(g)
        self.out_ids = g.inp_out_ids()
        for il in g.kept:
            cur = self.qwen_layer(il, cur) if self.qwen else self.layer(il, cur)
            g.close_layer(il)
        g.head(cur, "rms" if self.qwen else "layer")

    def norm(self, cur: Tensor, il: int, name: str) -> Tensor:
        g = self.g
        return g.build_norm(cur, g.w(il, name), g.b(il, name), "rms" if self.qwen else "layer", il)

    def shifted(self, shift: Tensor, normed: Tensor) -> Tensor:
        """The rows one token earlier: the stored row, then all but the last of the batch."""
        g, n = self.g, self.states.per_seq
        return g.concat(shift, g.view(normed, (g.n_embd, n - 1, normed.ne[2]), normed.nb[1:3]), 1)

    def last_row(self, normed: Tensor) -> Tensor:
        return self.g.view(normed, (self.g.n_embd, 1, normed.ne[2]), normed.nb[1:3])

    def store_shift(self, il: int, shift: Tensor, count: int) -> None:
        g = self.g
        size = g.n_embd * self.states.n_seqs * count
        cache = self.states.state("r", il)
        g.expand(g.cpy(g.view(shift, (size,)), g.view(cache, (size,))))

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g, states = self.g, self.states
        n, seqs = states.per_seq, states.n_seqs
        inp = g.reshape(inp, g.n_embd, n, seqs)
        shift = g.reshape(states.load("r", il), g.n_embd, 2, seqs)
        att, ffn = (g.view(shift, (g.n_embd, 1, seqs), shift.nb[1:3]) for _ in range(2))
        att_norm = self.norm(inp, il, "attn_norm")
        cur = self.time_mix(il, att_norm, self.shifted(att, att_norm))
        mid = g.add(cur, inp)
        ffn_norm = self.norm(mid, il, "attn_norm_2")
        previous = self.shifted(ffn, ffn_norm)
        self.store_shift(il, g.concat(self.last_row(att_norm), self.last_row(ffn_norm), 1), 2)
        rows = [g.reshape(x, g.n_embd, g.nt) for x in (mid, ffn_norm, previous)]
        if self.version == 6:
            g.reshape(cur, g.n_embd, g.nt)
        if il == g.n_layer - 1:
            rows = [g.get_rows(x, self.out_ids) for x in rows]
        mid, ffn_norm, previous = rows
        cur = g.add(self.channel_mix(il, ffn_norm, previous), mid)
        every = g.r.whole("rescale_every_n_layers")
        return g.scale(cur) if self.version == 6 and every and (il + 1) % every == 0 else cur

    def qwen_layer(self, il: int, inp: Tensor) -> Tensor:
        g, states = self.g, self.states
        n, seqs = states.per_seq, states.n_seqs
        inp = g.reshape(inp, g.n_embd, n, seqs)
        shift = g.reshape(states.load("r", il), g.n_embd, 1, seqs)
        att_norm = self.norm(inp, il, "attn_norm")
        previous = self.shifted(shift, att_norm)
        cur = self.time_mix(il, att_norm, previous)
        self.store_shift(il, self.last_row(att_norm), 1)
        mid = g.add(cur, inp)
        cur, mid = g.reshape(cur, g.n_embd, g.nt), g.reshape(mid, g.n_embd, g.nt)
        if il == g.n_layer - 1:
            mid = g.get_rows(mid, self.out_ids)
        return g.add(g.ffn(il, self.norm(mid, il, "ffn_norm"), "silu"), mid)

    def channel_mix(self, il: int, cur: Tensor, previous: Tensor) -> Tensor:
        g = self.g
        delta = g.sub(previous, cur)
        key = g.add(g.mul(delta, g.need(il, "channel_mix_lerp_k")), cur)
        if self.version == 7:
            hidden = g.op("SQR", g.unary(g.mm(g.need(il, "channel_mix_key"), key)))
            return g.mm(g.need(il, "channel_mix_value"), hidden)
        receive = g.add(g.mul(delta, g.need(il, "channel_mix_lerp_r")), cur)
        receive = g.unary(g.mm(g.need(il, "channel_mix_receptance"), receive))
        hidden = g.op("SQR", g.unary(g.mm(g.need(il, "channel_mix_key"), key)))
        return g.mul(receive, g.mm(g.need(il, "channel_mix_value"), hidden))

    def time_mix(self, il: int, cur: Tensor, previous: Tensor) -> Tensor:
        return self.time_mix6(il, cur, previous) if self.version == 6 else self.time_mix7(il, cur, previous)

    def wkv(self, il: int, *src: Tensor, op: str) -> Tensor:
        """The state operation; stores the new state and returns the rows of the batch."""
        g, states = self.g, self.states
        out = g.make(op, F32, (g.n_embd, g.nt + self.head * states.n_seqs), *src)
        rows = g.view(out, (g.n_embd * g.nt,))
        size = g.n_embd * self.head * states.n_seqs
        g.expand(g.cpy(g.view(out, (size,)), g.view(states.state("s", il), (size,))))
        return rows

    def grouped_norm(self, il: int, cur: Tensor, n_head: int) -> Tensor:
        g = self.g
        cur = g.norm(g.reshape(cur, self.head, n_head, g.nt))
        cur = g.reshape(cur, g.n_embd, g.nt)
        return g.add(g.mul(cur, g.need(il, "time_mix_ln")), self.bias(il, "time_mix_ln"))

    def bias(self, il: int, name: str) -> Tensor:
        found = self.g.b(il, name)
        if found is None:
            raise KeyError(f"blk.{il}.{name}.bias")
        return found

    def time_mix6(self, il: int, cur: Tensor, previous: Tensor) -> Tensor:
        g, states, nt = self.g, self.states, self.g.nt
        n_head = g.n_embd // self.head
        n_kv = g.r.layers[il].n_head_kv
        first = g.w(il, "time_mix_first")
        delta = g.reshape(g.sub(previous, cur), g.n_embd, nt)
        cur = g.reshape(cur, g.n_embd, nt)
        mix = g.add(g.mul(delta, g.need(il, "time_mix_lerp_x")), cur)
        w1, w2 = g.need(il, "time_mix_w1"), g.need(il, "time_mix_w2")
        mix = g.reshape(g.unary(g.mul_mat(w1, mix)), w1.ne[1] // 5, 1, 5, nt)
        mix = g.cont(g.permute(mix, 0, 1, 3, 2))
        mix = g.mul_mat(g.reshape(w2, w2.ne[0], w2.ne[1], 1, 5), mix)
        fused = g.w(il, "time_mix_lerp_fused")
        if fused is not None:
            delta, cur = g.reshape(delta, g.n_embd, 1, nt), g.reshape(cur, g.n_embd, 1, nt)
            mix = g.add(g.mul(g.add(mix, fused), delta), cur)
        views = [g.view(mix, (g.n_embd, nt), mix.nb[1:2]) for _ in range(5)]
        if fused is None:
            views = [
                g.add(g.mul(g.add(x, g.need(il, f"time_mix_lerp_{name}")), delta), cur)
                for x, name in zip(views, "wkvrg", strict=True)
            ]
        xw, xk, xv, xr, xg = views
        r, k, v = (
            g.biased(g.mm(g.need(il, f"time_mix_{name}"), x), g.b(il, f"time_mix_{name}"), None)
            for name, x in (("receptance", xr), ("key", xk), ("value", xv))
        )
        gate = g.unary(g.mm(g.need(il, "time_mix_gate"), xg))
        if n_kv not in (0, n_head):
            k = g.repeat(g.reshape(k, self.head, 1, n_kv, nt), self.head, n_head // n_kv, n_kv, nt)
            v = g.repeat(g.reshape(v, self.head, 1, n_kv, nt), self.head, n_head // n_kv, n_kv, nt)
        k, v, r = (g.reshape(x, self.head, n_head, nt) for x in (k, v, r))
        w = g.mul_mat(g.need(il, "time_mix_decay_w2"), g.unary(g.mul_mat(g.need(il, "time_mix_decay_w1"), xw)))
        w = g.add(w, g.need(il, "time_mix_decay"))
        w = g.reshape(g.unary(g.unary(g.unary(w))), self.head, n_head, nt)
        if first is None:
            k = g.sub(k, g.mul(k, w))
        state = states.load("s", il)
        if first is None:
            cur = self.wkv(il, k, v, r, w, state, op="GATED_LINEAR_ATTN")
            cur = g.reshape(cur, g.n_embd, nt)
        else:
            cur = self.wkv(il, k, v, r, first, w, state, op="RWKV_WKV6")
            cur = self.grouped_norm(il, cur, n_head)
        cur = g.mm(g.need(il, "time_mix_output"), g.mul(cur, gate))
        return g.reshape(cur, g.n_embd, states.per_seq, states.n_seqs)

    def low_rank(self, il: int, name: str, x: Tensor, *, active: bool = False) -> Tensor:
        g = self.g
        inner = g.mul_mat(g.need(il, f"time_mix_{name}1"), x)
        return g.mul_mat(g.need(il, f"time_mix_{name}2"), g.unary(inner) if active else inner)

    def time_mix7(self, il: int, cur: Tensor, previous: Tensor) -> Tensor:
        g, states, nt = self.g, self.states, self.g.nt
        n_head = g.n_embd // self.head
        gated = g.w(il, "time_mix_g1") is not None
        parts = 6 if gated else 5
        delta = g.sub(previous, cur)
        delta = g.repeat(delta, g.n_embd, states.per_seq, states.n_seqs, parts)
        mix = g.add(g.mul(delta, g.need(il, "time_mix_lerp_fused")), cur)
        xr, xw, xk, xv, xa, *rest = (g.view(mix, (g.n_embd, nt), mix.nb[1:2]) for _ in range(parts))
        r = g.mm(g.need(il, "time_mix_receptance"), xr)
        w = g.add(self.low_rank(il, "w", xw, active=True), g.need(il, "time_mix_w0"))
        w = g.unary(g.scale(g.unary(w)))
        k = g.mm(g.need(il, "time_mix_key"), xk)
        v = g.mm(g.need(il, "time_mix_value"), xv)
        if self.first_value is None:
            self.first_value = v
        else:
            share = g.unary(g.add(self.low_rank(il, "v", xv), g.need(il, "time_mix_v0")))
            v = g.add(v, g.mul(g.sub(self.first_value, v), share))
        gate = self.low_rank_gate(il, rest[0]) if gated else None
        a = g.unary(g.add(self.low_rank(il, "a", xa), g.need(il, "time_mix_a0")))
        kk = g.l2_norm(g.reshape(g.mul(k, g.need(il, "time_mix_k_k")), self.head, n_head, nt))
        ka = g.mul(k, g.need(il, "time_mix_k_a"))
        k = g.add(k, g.sub(g.mul(a, ka), ka))
        r, w, k, v, a = (g.reshape(x, self.head, n_head, nt) for x in (r, w, k, v, a))
        state = states.load("s", il)
        cur = self.wkv(il, r, w, k, v, g.unary(kk), g.mul(kk, a), state, op="RWKV_WKV7")
        if g.w(il, "time_mix_ln") is not None:
            cur = self.grouped_norm(il, cur, n_head)
        else:
            cur = g.reshape(cur, g.n_embd, nt)
        r_k = g.reshape(g.need(il, "time_mix_r_k"), self.head, n_head)
        rk = g.sum_rows(g.mul(g.mul(k, r), r_k))
        cur = g.add(cur, g.reshape(g.mul(v, rk), g.n_embd, nt))
        if gate is not None:
            cur = g.mul(cur, gate)
        cur = g.mm(g.need(il, "time_mix_output"), cur)
        return g.reshape(cur, g.n_embd, states.per_seq, states.n_seqs)

    def low_rank_gate(self, il: int, x: Tensor) -> Tensor:
        return self.low_rank(il, "g", x, active=True)


BUILDERS: dict[str, Callable[[Blocks], None]] = {
    "rwkv6": lambda g: Rwkv(g, 6, qwen=False).build(),
    "rwkv6qwen2": lambda g: Rwkv(g, 6, qwen=True).build(),
    "rwkv7": lambda g: Rwkv(g, 7, qwen=False).build(),
    "arwkv7": lambda g: Rwkv(g, 7, qwen=True).build(),
}
