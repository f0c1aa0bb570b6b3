"""Recent models whose linear attention has gates or decays of its own.

Source: src/models (bailingmoe3, kimi-k3, minimax-01), read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Style
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.hybrid import HybridDecoder
from kvstudio.budget.compute.kimi import KimiLinear
from kvstudio.budget.compute.mla import MlaDecoder, latent_attention
from kvstudio.budget.compute.tensor import F32, Tensor


class BailingMoe3(KimiLinear):
    """Delta attention with one gate each way; rotated latent attention whose heads are gated."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        self.s = Style(
            norm_w=None, gating="key:sigmoid", shexp="plain", attn_out_bias=False, late_rows="after_norm"
        )  # fmt: skip

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = self.normed(inp, il, "attn_norm")
        cur = self.delta(il, normed) if g.r.layers[il].is_recurrent else self.latent_layer(il, normed)
        cur, inp = self.select(il, cur, inp)
        mid = g.add(cur, inp)
        return g.add(self.feed_forward(il, self.normed(mid, il, "ffn_norm")), mid)

    def query(self, il: int, cur: Tensor) -> Tensor:
        return MlaDecoder.query(self, il, cur)

    def latent_layer(self, il: int, cur: Tensor) -> Tensor:
        g, n_head = self.g, self.g.r.layers[il].n_head
        assert isinstance(self.base, AttnInput)
        out = latent_attention(g, self.base, il, *self.latent_qkv(il, cur), g.need(il, "attn_v_b"))
        gate = g.unary(g.reshape(g.mul_mat(g.need(il, "attn_gate"), cur), 1, n_head, g.nt))
        out = g.mul(g.reshape(out, self.head_v, n_head, g.nt), gate)
        return g.mul_mat(g.need(il, "attn_output"), g.cont(out, self.head_v * n_head, g.nt))

    def decay(self, il: int, cur: Tensor, head: int, n_head: int) -> Tensor:
        g, states = self.g, self.states
        assert states is not None
        gate = g.mul_mat(g.need(il, "ssm_f_a"), cur)
        bias = g.b(il, "ssm_dt")
        gate = g.reshape(gate if bias is None else g.add(gate, bias), head, n_head, g.nt)
        return g.scale(g.unary(g.mul(gate, g.reshape(states.bare(il, "ssm_a"), 1, n_head, 1))))

    def output_gate(self, il: int, cur: Tensor, head: int, n_head: int) -> Tensor:
        g = self.g
        return g.reshape(g.mul_mat(g.need(il, "ssm_g_a"), cur), head, n_head, g.nt)

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        if g.w(il, "ffn_gate_inp") is None:
            return self.clamped(il, cur, "ffn_{}")
        return g.add(self.experts(il, cur), self.clamped(il, cur, "ffn_{}_shexp"))

    def clamped(self, il: int, cur: Tensor, names: str) -> Tensor:
        g = self.g
        up, gate, down = (g.need(il, names.format(part)) for part in ("up", "gate", "down"))
        limit = self.limits("swiglu_clamp_shexp", il)
        return g.ffn_of(cur, "silu", up, None, None, gate, None, None, down, limit=limit)


class KimiK3(KimiLinear):
    """Latent experts, and residual streams banked every few layers that each block chooses among."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        self.s = Style(norm_w=None, gating="key:sigmoid", attn_out_bias=False, late_rows="before_norm")
        self.every = g.r.whole("attn_res.block_size")
        self.bank: Tensor | None = None

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur = self.chosen(inp, g.w(il, "attn_res_score"))
        banked = self.every > 0 and il % self.every == 0
        if banked:
            kept = g.reshape(inp, g.n_embd, 1, g.nt)
            self.bank = kept if self.bank is None else g.concat(self.bank, kept, 1)
        cur = self.normed(cur, il, "attn_norm")
        g.expand(cur)
        cur = self.delta(il, cur) if g.r.layers[il].is_recurrent else self.latent_layer(il, cur)
        mid = cur if banked else g.add(inp, cur)
        cur = self.normed(self.chosen(mid, g.w(il, "ffn_res_score")), il, "ffn_norm")
        return g.add(mid, self.feed_forward(il, cur))

    def finish(self, cur: Tensor) -> None:
        super().finish(self.chosen(cur, self.g.r.weight("output_res_score.weight")))

    def chosen(self, cur: Tensor, weight: Tensor | None) -> Tensor:
        """A mix of the banked streams and the current one."""
        g, bank, nt = self.g, self.bank, self.g.nt
        if bank is None or weight is None:
            return cur
        n = bank.ne[1]
        old = g.reshape(g.sum_rows(g.mul(g.rms_norm(bank), weight)), n, nt)
        new = g.sum_rows(g.mul(g.rms_norm(cur), weight))
        share = g.soft_max(g.concat(old, new, 0))
        old_share = g.cont(g.view(share, (n, nt), share.nb[1:2]))
        new_share = g.cont(g.view(share, (1, nt), share.nb[1:2]))
        mixed = g.make("DSV4_HC_PRE", F32, (g.n_embd, nt), bank, old_share)
        return g.add(mixed, g.mul(cur, new_share))

    def query(self, il: int, cur: Tensor) -> Tensor:
        return MlaDecoder.query(self, il, cur)

    def latent_layer(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        if not self.absorbed:
            raise LookupError("latent attention without its split projections")
        assert self.base is not None
        out = latent_attention(
            g, self.base, il, *self.latent_qkv(il, cur, rotate=False), g.need(il, "attn_v_b")
        )  # fmt: skip
        weight = g.w(il, "attn_gate")
        if weight is not None:
            out = g.mul(out, g.unary(g.mul_mat(weight, cur)))
        return g.mul_mat(g.need(il, "attn_output"), out)

    def recurrent(self, il: int, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
        assert self.states is not None
        return self.g.cont(self.states.delta_net(il, q, k, v, decay, beta, state))

    def decay(self, il: int, cur: Tensor, head: int, n_head: int) -> Tensor:
        g, states = self.g, self.states
        if g.r.key("kda.gate_lower_bound") is None:
            return super().decay(il, cur, head, n_head)
        assert states is not None
        decay = g.mul_mat(g.need(il, "ssm_f_b"), g.mul_mat(g.need(il, "ssm_f_a"), cur))
        bias = g.b(il, "ssm_dt")
        decay = g.reshape(decay if bias is None else g.add(decay, bias), head, n_head, g.nt)
        decay = g.mul(decay, g.reshape(states.bare(il, "ssm_a"), 1, n_head, 1))
        return g.scale(g.unary(g.scale(decay)))

    def output_gate(self, il: int, cur: Tensor, head: int, n_head: int) -> Tensor:
        g, states = self.g, self.states
        assert states is not None
        n, seqs = states.per_seq, states.n_seqs
        flat = g.reshape(g.reshape(cur, cur.ne[0], n, seqs), cur.ne[0], n * seqs)
        return g.reshape(g.mul_mat(g.need(il, "ssm_g"), flat), head, n_head, n * seqs)

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        if g.w(il, "ffn_gate_inp") is None:
            return g.ffn(il, cur, "situ")
        down, norm, up = (g.w(il, f"ffn_routed_{part}") for part in ("down", "norm", "up"))
        latent = cur if down is None else g.mul_mat(down, cur)
        logits = g.mul_mat(g.need(il, "ffn_gate_inp"), cur)
        out = g.moe(
            il, latent, act="situ", norm_w=self.normalises_weights(), scale=self.scales_experts(),
            gating=self.gating(), probs_in=logits, biases=False,
        )  # fmt: skip
        out = out if norm is None else g.build_norm(out, norm, None, "rms", il)
        out = out if up is None else g.mul_mat(up, out)
        if g.w(il, "ffn_gate_shexp") is None:
            return out
        return g.add(out, g.ffn(il, cur, "situ", names="ffn_{}_shexp"))


class MiniMax01(HybridDecoder):
    """Lightning attention: scores inside the batch with a decay, and a running product of keys and values."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(attn_out_bias=False), "lightning")
        self.slopes: Tensor | None = None

    def attention_inputs(self) -> None:
        super().attention_inputs()
        g, states = self.g, self.states
        assert states is not None
        n_head, n, seqs = g.r.layers[0].n_head, states.per_seq, states.n_seqs
        self.slopes = g.input(F32, n_head)
        self.q_decay, self.k_decay = g.input(F32, 1, n_head, n, seqs), g.input(F32, 1, n_head, n, seqs)
        self.decay = g.input(F32, n, n, n_head, seqs)

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = self.normed(inp, il, "attn_norm")
        cur = self.lightning(il, normed) if g.r.layers[il].is_recurrent else self.attention(il, normed)
        cur, _, normed = self.select(il, cur, inp, normed)
        cur = self.normed(g.add(cur, g.scale(normed)), il, "ffn_norm")
        return g.add(g.moe(il, cur, norm_w=True, scale=self.scales_experts()), g.scale(cur))

    def lightning(self, il: int, cur: Tensor) -> Tensor:
        g, states, slopes = self.g, self.states, self.slopes
        assert states is not None and slopes is not None
        layer = g.r.layers[il]
        head, n_head, n, seqs = layer.n_embd_head_v, g.r.layers[0].n_head, states.per_seq, states.n_seqs
        g.expand(states.load("r", il))
        rate = g.scale(slopes)
        cur = g.reshape(cur, cur.ne[0], n, 1, seqs)
        qkv = g.unary(g.mm(g.need(il, "attn_qkv"), cur, g.w(il, "attn_qkv", "scale")))
        qkv = g.reshape(qkv, 3 * head, n_head, n, seqs)
        q, k, v = (g.view(qkv, (head, n_head, n, seqs), qkv.nb[1:]) for _ in range(3))
        old = g.reshape(states.load("s", il), head, head, n_head, seqs)
        q_decay, k_decay, decay = (g.unary(g.scale(x)) for x in (self.q_decay, self.k_decay, self.decay))
        before = g.mul_mat(old, g.permute(g.mul(q, q_decay), 0, 2, 1, 3))
        scores = g.mul(g.mul_mat(g.permute(k, 0, 2, 1, 3), g.permute(q, 0, 2, 1, 3)), decay)
        turned = g.cont(_to(g, v))
        out = g.add(before, g.mul_mat(turned, scores))
        g.expand(out)
        faded = g.mul(old, g.reshape(g.unary(g.scale(rate)), 1, 1, n_head))
        keys = g.cont(_to(g, g.mul(k, k_decay)))
        fresh = g.add(faded, g.mul_mat(keys, turned))
        g.expand(g.cpy(fresh, g.view(states.state("s", il), (states.width_s * seqs,))))
        out = g.cont(g.permute(out, 0, 2, 1, 3))
        out = g.reshape(out, out.ne[0] * out.ne[1], out.ne[2], 1, out.ne[3])
        out = g.build_norm(out, g.w(il, "attn_norm_2"), None, "rms", il)
        gate = g.unary(g.mm(g.need(il, "attn_gate"), cur, g.w(il, "attn_gate", "scale")))
        cur = g.mm(g.need(il, "attn_output"), g.mul(gate, out), g.w(il, "attn_output", "scale"))
        return g.reshape(cur, cur.ne[0], n * seqs)


def _to(g: Blocks, x: Tensor) -> Tensor:
    """Heads outermost, tokens innermost."""
    return g.permute(x, 1, 2, 0, 3)


BUILDERS: dict[str, Callable[[Blocks], None]] = {
    "bailingmoe3": lambda g: BailingMoe3(g).build(),
    "kimi-linear": lambda g: KimiLinear(g).build(),
    "kimi-k3": lambda g: KimiK3(g).build(),
    "minimax-01": lambda g: MiniMax01(g).build(),
}
