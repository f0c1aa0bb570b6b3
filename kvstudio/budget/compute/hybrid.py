"""Models that mix attention with recurrent layers, or have no attention at all.

Source: src/models (mamba, jamba, granite-hybrid, falcon-h1, nemotron-h, qwen3next, qwen35, qwen35moe, lfm2, plamo2),
read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.recurrent import States
from kvstudio.budget.compute.tensor import Tensor


class HybridDecoder(Decoder):
    """A decoder whose recurrent layers replace attention; `mixer` says with what."""

    def __init__(self, g: Blocks, style: Style, mixer: str) -> None:
        super().__init__(g, style)
        self.mixer = mixer
        self.states: States | None = None

    def attention_inputs(self) -> None:
        if any(layer.has_kv for layer in self.g.r.layers[: self.g.n_layer]):
            super().attention_inputs()
        self.states = States(self.g)

    def attention(self, il: int, cur: Tensor) -> Tensor:
        if not self.g.r.layers[il].is_recurrent:
            return super().attention(il, cur)
        assert self.states is not None
        return self.states.mamba1(il, cur) if self.mixer == "mamba1" else self.states.mamba2(il, cur)


class Mamba(HybridDecoder):
    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(rope="none"), "mamba2" if g.r.arch == "mamba2" else "mamba1")

    def layer(self, il: int, inp: Tensor) -> Tensor:
        cur = self.attention(il, self.normed(inp, il, "attn_norm"))
        cur, inp = self.select(il, cur, inp)
        return self.g.add(cur, inp)


class Jamba(HybridDecoder):
    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(rope="none", norm_w=False, attn_out_bias=False), "mamba1")

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur = self.attention(il, self.normed(inp, il, "attn_norm"))
        cur, inp = self.select(il, cur, inp)
        mid = g.add(inp, cur)
        return g.add(mid, self.feed_forward(il, self.normed(mid, il, "ffn_norm")))


class FalconH1(HybridDecoder):
    """Attention and state side by side in every layer."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(attn_out_bias=False), "mamba2")

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        assert self.states is not None
        attn = Decoder.attention(self, il, self.normed(inp, il, "attn_norm"))
        state = self.states.mamba2(il, self.normed(inp, il, "attn_norm"))
        both = g.add(attn, state)
        mid = g.add(both, inp)
        _, mid = self.select(il, both, mid)
        return g.add(self.feed_forward(il, self.normed(mid, il, "ffn_norm")), mid)


class NemotronH(HybridDecoder):
    """One branch per layer: state, attention or feed-forward."""

    def __init__(self, g: Blocks) -> None:
        style = Style(rope="none", act="relu_sqr", gating="sigmoid", norm_w=None, late_rows="after_norm")
        super().__init__(g, style, "mamba2")

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        layer = g.r.layers[il]
        normed = self.normed(inp, il, "attn_norm")
        if layer.is_recurrent or layer.n_ff == 0:
            cur = self.attention(il, normed)
        else:
            cur = self.feed_forward(il, normed)
        cur, inp = self.select(il, cur, inp)
        return g.add(cur, inp)

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        if g.w(il, "ffn_gate_inp") is None:
            return g.ffn(il, cur, "relu_sqr")
        down, up = g.w(il, "ffn_latent_down"), g.w(il, "ffn_latent_up")
        latent = cur if down is None else g.mul_mat(down, cur)
        logits = g.mm(g.need(il, "ffn_gate_inp"), cur)
        out = g.moe(
            il, latent, act="relu_sqr", norm_w=self.normalises_weights(), scale=self.scales_experts(),
            gating="sigmoid", probs_in=logits, biases=False,
        )  # fmt: skip
        out = out if up is None else g.mul_mat(up, out)
        return g.add(out, g.ffn(il, cur, "relu_sqr", names="ffn_{}_shexp"))


class DeltaNet(HybridDecoder):
    """Qwen3-Next and Qwen3.5: gated delta net with a full attention layer now and then."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(
            g,
            Style(ffn_norm="post_attention_norm", shexp="gated", attn_out_bias=False, late_rows="after_norm"),
            "delta",
        )

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = self.normed(inp, il, "attn_norm")
        g.expand(normed)
        cur = self.linear(il, normed) if g.r.layers[il].is_recurrent else self.gated_attention(il, normed)
        cur, inp = self.select(il, cur, inp)
        mid = g.add(cur, inp)
        return g.add(self.feed_forward(il, self.normed(mid, il, "post_attention_norm")), mid)

    def gated_attention(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        assert self.pos is not None
        layer = g.r.layers[il]
        head, n_head, n_kv, nt = layer.n_embd_head_k, layer.n_head, layer.n_head_kv, g.nt
        full, k, v = g.qkv(il, cur, 2 * head, n_head, head, n_kv, shaped=False)
        if g.r.arch == "qwen3next":
            full = g.reshape(full, 2 * head, n_head, nt, 1)
        step = (8 * head, 8 * head * n_head)
        q = g.view(full, (head, n_head, nt), step)
        gate = g.view(full, (head, n_head, nt), step)
        q = g.build_norm(q, g.w(il, "attn_q_norm"), None, "rms", il)
        k = g.build_norm(g.reshape(k, head, n_kv, nt), g.w(il, "attn_k_norm"), None, "rms", il)
        v = g.reshape(v, head, n_kv, nt)
        cur = self.attend_heads(il, g.rope(q, self.pos), g.rope(k, self.pos), v)
        gate = g.cont(gate, head * n_head, nt)
        cur = g.mul(cur, g.unary(gate))
        return g.mm(g.need(il, "attn_output"), cur, g.w(il, "attn_output", "scale"))

    def attend_heads(self, il: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.g.attend(self.cache(il), il, q, k, v)

    def linear(self, il: int, cur: Tensor) -> Tensor:
        g, states, hp = self.g, self.states, self.g.model.hparams
        assert states is not None
        inner, k_dim, k_heads, v_heads, kernel = (
            int(hp[k]) for k in ("ssm_d_inner", "ssm_d_state", "ssm_n_group", "ssm_dt_rank", "ssm_d_conv")
        )  # fmt: skip
        v_dim, n, seqs = inner // v_heads, states.per_seq, states.n_seqs
        mixed, z = self.qkvz(il, cur, k_dim, k_heads, v_dim, v_heads)
        beta, gate = self.beta_gate(il, cur, k_heads, v_heads)
        channels = inner + 2 * k_heads * k_dim
        both = states.conv_input(il, g.transpose(mixed), kernel, channels)
        state = g.reshape(states.load("s", il), v_dim, v_dim, v_heads, seqs)
        conv = g.unary(states.conv(both, g.need(il, "ssm_conv1d")))
        row = 4 * (2 * k_dim * k_heads + v_dim * v_heads)
        q = states.unit(g.view(conv, (k_dim, k_heads, n, seqs), (4 * k_dim, row, row * n)))
        k = states.unit(g.view(conv, (k_dim, k_heads, n, seqs), (4 * k_dim, row, row * n)))
        v = g.view(conv, (v_dim, v_heads, n, seqs), (4 * v_dim, row, row * n))
        if k_heads != v_heads and g.r.arch == "qwen3next":
            times = v_heads // k_heads
            q, k = (
                g.reshape(g.repeat(g.reshape(x, k_dim, 1, k_heads, n * seqs), k_dim, times, k_heads, n * seqs),
                          k_dim, v_heads, n, seqs)
                for x in (q, k)
            )  # fmt: skip
        elif k_heads != v_heads and not states.fuses_delta:
            q, k = (g.repeat(x, k_dim, v_heads, n, seqs) for x in (q, k))
        out = states.delta_net(il, q, k, v, gate, beta, state)
        z = g.reshape(z, v_dim, v_heads, n, seqs)
        out = g.mul(g.build_norm(out, g.w(il, "ssm_norm"), None, "rms", il), g.unary(z))
        out = g.reshape(out, v_dim * v_heads, n, seqs)
        cur = g.mm(g.need(il, "ssm_out"), out, g.w(il, "ssm_out", "scale"))
        return g.reshape(cur, g.n_embd, n * seqs)

    def qkvz(self, il: int, cur: Tensor, k_dim: int, k_heads: int, v_dim: int, v_heads: int) -> tuple[Tensor, Tensor]:
        g, states = self.g, self.states
        assert states is not None
        n, seqs = states.per_seq, states.n_seqs
        fused = g.w(il, "attn_qkv")
        if fused is not None:
            mixed = g.mm(fused, cur, g.w(il, "attn_qkv", "scale"))
            mixed = g.reshape(mixed, mixed.ne[0], n, seqs)
            return mixed, g.mm(g.need(il, "attn_gate"), cur, g.w(il, "attn_gate", "scale"))
        every = g.mm(g.need(il, "ssm_in"), cur)
        share = v_dim * v_heads // k_heads
        every = g.reshape(every, 2 * k_dim + 2 * share, k_heads, n, seqs)
        q, k = (g.view(every, (k_dim, k_heads, n, seqs), every.nb[1:]) for _ in "qk")
        v, z = (g.view(every, (share, k_heads, n, seqs), every.nb[1:]) for _ in "vz")
        z = g.cont(z)
        flat_q, flat_k = g.cont(q, k_dim * k_heads, n, seqs), g.cont(k, k_dim * k_heads, n, seqs)
        flat_v = g.cont(v, v_dim * v_heads, n, seqs)
        return g.concat(g.concat(flat_q, flat_k, 0), flat_v, 0), z

    def beta_gate(self, il: int, cur: Tensor, k_heads: int, v_heads: int) -> tuple[Tensor, Tensor]:
        g, states = self.g, self.states
        assert states is not None
        n, seqs = states.per_seq, states.n_seqs
        joint = g.w(il, "ssm_ba")
        if joint is not None:
            share = v_heads // k_heads
            ba = g.reshape(g.mm(joint, cur), 2 * share, k_heads, n, seqs)
            b, a = (g.view(ba, (share, k_heads, n, seqs), ba.nb[1:]) for _ in "ba")
            beta = g.unary(g.cont(b))
            alpha = g.cont(a, v_heads, n, seqs)
        else:
            beta = g.mm(g.need(il, "ssm_beta"), cur, g.w(il, "ssm_beta", "scale"))
            beta = g.unary(g.reshape(beta, 1, v_heads, n, seqs))
            alpha = g.mm(g.need(il, "ssm_alpha"), cur, g.w(il, "ssm_alpha", "scale"))
            alpha = g.reshape(alpha, v_heads, n, seqs)
        bias = g.b(il, "ssm_dt")
        alpha = alpha if bias is None else g.add(alpha, bias)
        gate = g.mul(g.unary(alpha), states.bare(il, "ssm_a"))
        if joint is not None:
            beta = g.reshape(beta, 1, v_heads, n, seqs)
        return beta, g.reshape(gate, 1, v_heads, n, seqs)


class Lfm2(HybridDecoder):
    """Short convolutions between attention layers."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(attn_out_bias=False, gating="key:sigmoid"), "conv")

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = self.normed(inp, il, "attn_norm")
        recurrent = g.r.layers[il].is_recurrent
        cur = self.short_conv(il, normed) if recurrent else Decoder.attention(self, il, normed)
        cur, inp = self.select(il, cur, inp)
        mid = g.add(inp, cur)
        return g.add(mid, self.feed_forward(il, self.normed(mid, il, "ffn_norm")))

    def short_conv(self, il: int, cur: Tensor) -> Tensor:
        g, states = self.g, self.states
        assert states is not None
        n, seqs, kept = states.per_seq, states.n_seqs, g.r.whole("shortconv.l_cache") - 1
        cur = g.reshape(cur, cur.ne[0], n, seqs)
        bcx = g.mm(g.need(il, "shortconv.in_proj"), cur)
        width = bcx.ne[0] // 3
        b, c, x = (g.view(bcx, (width, *bcx.ne[1:3]), bcx.nb[1:3]) for _ in "bcx")
        bx = g.transpose(g.mul(b, x))
        old = g.reshape(states.load("r", il), kept, g.n_embd, seqs)
        both = g.concat(old, bx, 0)
        for _ in range(states.slots):
            states.store("r", il, g.view(both, (kept, both.ne[1], both.ne[2]), both.nb[1:3]))
        y = g.mul(c, states.conv(both, g.need(il, "shortconv.conv")))
        y = g.mm(g.need(il, "shortconv.out_proj"), y)
        return g.reshape(y, y.ne[0], n * seqs)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        norm = "output_norm" if g.r.weight("output_norm.weight") is not None else "token_embd_norm"
        if not g.r.embeddings:
            g.head(cur, norm=norm)
            return
        # Its rows are not made into logits as well.
        g.embd = g.build_norm(cur, g.r.weight(f"{norm}.weight"), None, "rms", -1)
        g.expand(g.embd)


class Plamo2(HybridDecoder):
    """Mamba with heads, its own projections and norms around both branches."""

    def __init__(self, g: Blocks) -> None:
        style = Style(
            attn_post="post_attention_norm",
            ffn_post="post_ffw_norm",
            ffn_post_pinned=True,
            act="swiglu",
            attn_out_bias=False,
        )
        super().__init__(g, style, "plamo2")

    def attention(self, il: int, cur: Tensor) -> Tensor:
        if not self.g.r.layers[il].is_recurrent:
            return Decoder.attention(self, il, cur)
        return self.mamba(il, cur)

    def mamba(self, il: int, cur: Tensor) -> Tensor:
        g, states, hp = self.g, self.states, self.g.model.hparams
        assert states is not None
        kernel, inner, d_state, n_head, groups = (
            int(hp[k]) for k in ("ssm_d_conv", "ssm_d_inner", "ssm_d_state", "ssm_dt_rank", "ssm_n_group")
        )  # fmt: skip
        n, seqs, head = states.per_seq, states.n_seqs, inner // n_head
        width = inner + 2 * groups * d_state
        old = g.reshape(states.load("r", il), kernel - 1, width, seqs)
        zx = g.permute(g.mm(g.need(il, "ssm_in"), g.reshape(cur, cur.ne[0], n, seqs)), 0, 2, 1, 3)
        zx = g.cont(zx, 2 * head, n_head, n, seqs)
        x, z = (g.view(zx, (head, n_head, n, seqs), zx.nb[1:]) for _ in "xz")
        x = g.cont(x, inner, n, seqs)
        both = g.concat(old, g.transpose(x), 0)
        last = g.view(both, (kernel - 1, inner, seqs), both.nb[1:3])
        cache = states.state("r", il)
        g.expand(g.cpy(last, g.view(cache, ((kernel - 1) * width * seqs,))))
        x = g.unary(states.conv(both, g.need(il, "ssm_conv1d")))
        mixed = g.mm(g.need(il, "ssm_x"), x)
        b, c = (g.view(mixed, (d_state, n, seqs), mixed.nb[1:3]) for _ in "bc")
        dt = g.view(mixed, (max(64, g.n_embd // 16), n, seqs), mixed.nb[1:3])
        b = g.build_norm(b, g.w(il, "ssm_b_norm"), None, "rms", il)
        c = g.build_norm(c, g.w(il, "ssm_c_norm"), None, "rms", il)
        dt = g.mm(g.need(il, "ssm_dt"), g.build_norm(dt, g.w(il, "ssm_dt_norm"), None, "rms", il))
        bias = g.b(il, "ssm_dt")
        dt = dt if bias is None else g.add(dt, bias)
        a = g.reshape(states.bare(il, "ssm_a"), 1, n_head)
        step = (4 * head, 4 * inner, 4 * inner * n)
        x = g.view(x, (head, n_head, n, seqs), step)
        b, c = (g.view(v, (d_state, 1, n, seqs), (4 * d_state, *v.nb[1:3])) for v in (b, c))

        def gather(rows: Tensor, ids: Tensor) -> Tensor:
            return states.scan(g.reshape(rows, d_state, head, n_head, rows.ne[1]), x, dt, a, b, c, ids, 1)

        out = states.load("s", il, gather)
        size = inner * d_state * seqs
        g.expand(g.cpy(g.view(out, (size,)), g.view(states.state("s", il), (size,))))
        y = g.view(out, (head, n_head, n, seqs), step)
        y = g.add(y, g.mul(x, g.reshape(states.bare(il, "ssm_d"), 1, n_head)))
        y = g.glu(g.cont(z), y)
        cur = g.mm(g.need(il, "ssm_out"), g.view(y, (inner, n, seqs), y.nb[2:4]))
        return g.reshape(cur, cur.ne[0], n * seqs)


def _granite_hybrid(g: Blocks) -> None:
    style = Style(scale_embd="key", rope="key", rope_factors=True, branch_scale=True, shexp="plain",
                  head_extra=1 if g.r.number("logit_scale") else 0)  # fmt: skip
    HybridDecoder(g, style, "mamba2").build()


BUILDERS = {
    "mamba": lambda g: Mamba(g).build(),
    "mamba2": lambda g: Mamba(g).build(),
    "jamba": lambda g: Jamba(g).build(),
    "granitehybrid": _granite_hybrid,
    "falcon-h1": lambda g: FalconH1(g).build(),
    "nemotron_h": lambda g: NemotronH(g).build(),
    "nemotron_h_moe": lambda g: NemotronH(g).build(),
    "qwen3next": lambda g: DeltaNet(g).build(),
    "qwen35": lambda g: DeltaNet(g).build(),
    "qwen35moe": lambda g: DeltaNet(g).build(),
    "plamo2": lambda g: Plamo2(g).build(),
    "lfm2": lambda g: Lfm2(g).build(),
    "lfm2moe": lambda g: Lfm2(g).build(),
}
