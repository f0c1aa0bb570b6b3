"""Kimi Linear: delta attention with a gate for each channel, and latent attention without rotation.

Source: src/models/kimi-linear.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Style
from kvstudio.budget.compute.delta import chunked
from kvstudio.budget.compute.mla import MlaDecoder
from kvstudio.budget.compute.recurrent import States
from kvstudio.budget.compute.tensor import Tensor


class KimiLinear(MlaDecoder):
    """Delta attention with a gate per channel; every few layers latent attention without rotation."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(norm_w=True, gating="key:sigmoid", shexp="plain", attn_out_bias=False))
        self.states: States | None = None

    def attention_inputs(self) -> None:
        super().attention_inputs()
        self.states = States(self.g)

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = self.normed(inp, il, "attn_norm")
        g.expand(normed)
        cur = self.delta(il, normed) if g.r.layers[il].is_recurrent else self.latent_layer(il, normed)
        cur, inp = self.select(il, cur, inp)
        mid = g.add(cur, inp)
        return g.add(self.feed_forward(il, self.normed(mid, il, "ffn_norm")), mid)

    def query(self, il: int, cur: Tensor) -> Tensor:
        return self.g.mul_mat(self.g.need(il, "attn_q"), cur)

    def apart(self, il: int, q: Tensor) -> Tensor:
        return q if self.absorbed else self.g.reshape(q, self.head_k, self.g.r.layers[il].n_head, self.g.nt)

    def latent_layer(self, il: int, cur: Tensor) -> Tensor:
        if not self.absorbed:
            return self.attend_plain(il, cur)
        return self.attend_latent(il, *self.latent_qkv(il, cur, rotate=False))

    def delta(self, il: int, cur: Tensor) -> Tensor:
        g, states, hp = self.g, self.states, self.g.model.hparams
        assert states is not None
        head, kernel, n_head = int(hp["n_embd_head_kda"]), int(hp["ssm_d_conv"]), g.r.layers[0].n_head
        n, seqs, inner = states.per_seq, states.n_seqs, head * n_head
        old = states.load("r", il)
        q, k, v = (self.short_conv(il, part, old, cur, kernel, inner, head) for part in "qkv")
        decay = g.reshape(self.decay(il, cur, head, n_head), head, n_head, n, seqs)
        beta = g.unary(g.reshape(g.mul_mat(g.need(il, "ssm_beta"), cur), 1, n_head, n, seqs))
        state = g.reshape(states.load("s", il), head, head, n_head, seqs)
        q, k = states.unit(q), states.unit(k)
        rows = self.recurrent(il, q, k, v, decay, beta, state)
        gate = self.output_gate(il, cur, head, n_head)
        normed = g.build_norm(g.reshape(rows, head, n_head, n * seqs), g.w(il, "ssm_norm"), None, "rms", il)
        return g.mul_mat(g.need(il, "attn_output"), g.cont(g.mul(normed, g.unary(gate)), inner, g.nt))

    def recurrent(self, il: int, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
        """The rows of the batch; keeps the new states."""
        g, states = self.g, self.states
        assert states is not None
        head, n_head, n, seqs = v.ne
        if states.fuses_delta:
            out = g.make("GATED_DELTA_NET", 0, (head * n_head, n * seqs + head * seqs), q, k, v, decay, beta, state)
            g.fused_delta.append((out, il))
            step = 4 * head
            rows = g.cont(g.view(out, (head, n_head, n, seqs), (step, step * n_head, step * n_head * n)))
            fresh = g.view(out, (head, head, n_head, seqs), (step, step * head, step * head * n_head))
        else:
            rows, fresh = chunked(g, q, k, v, decay, beta, state)
            rows = g.cont(rows)
        g.expand(g.cpy(fresh, g.view(states.state("s", il), (states.width_s * seqs,))))
        return rows

    def decay(self, il: int, cur: Tensor, head: int, n_head: int) -> Tensor:
        """How much of the state each channel forgets."""
        g, states = self.g, self.states
        assert states is not None
        decay = g.mul_mat(g.need(il, "ssm_f_b"), g.mul_mat(g.need(il, "ssm_f_a"), cur))
        bias = g.b(il, "ssm_dt")
        decay = g.unary(decay if bias is None else g.add(decay, bias))
        return g.mul(g.reshape(decay, head, n_head, g.nt), g.reshape(states.bare(il, "ssm_a"), 1, n_head, 1))

    def output_gate(self, il: int, cur: Tensor, head: int, n_head: int) -> Tensor:
        g, states = self.g, self.states
        assert states is not None
        n, seqs = states.per_seq, states.n_seqs
        gate = g.mul_mat(g.need(il, "ssm_g_a"), g.reshape(g.reshape(cur, cur.ne[0], n, seqs), cur.ne[0], n * seqs))
        return g.reshape(g.mul_mat(g.need(il, "ssm_g_b"), gate), head, n_head, n * seqs)

    def short_conv(self, il: int, part: str, old: Tensor, cur: Tensor, kernel: int, inner: int, head: int) -> Tensor:
        g, states = self.g, self.states
        assert states is not None
        n, seqs = states.per_seq, states.n_seqs
        step = (4 * (kernel - 1), 4 * states.width_r)
        mine = g.view(old, (kernel - 1, inner, seqs), step)
        x = g.reshape(g.mul_mat(g.need(il, f"attn_{part}"), cur), inner, n, seqs)
        both = g.concat(mine, g.transpose(x), 0)
        for _ in range(1 + states.rollback):
            last = g.view(both, (kernel - 1, inner, seqs), both.nb[1:3])
            g.expand(g.cpy(last, g.view(states.state("r", il), (kernel - 1, inner, seqs), step)))
        weight = g.reshape(g.need(il, f"ssm_conv1d_{part}"), kernel, inner)
        x = g.unary(g.reshape(states.conv(both, weight), inner, g.nt))
        return g.reshape(x, head, inner // head, n, seqs)
