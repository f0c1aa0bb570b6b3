"""The common transformer decoder, varied by what an architecture does differently around attention and feed-forward.

Source: llama.cpp src/models, read at build 11434. What a file has decides as much as its architecture: a missing norm,
bias or gate is a node less.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.kinds import NO_ROPE_EVERY
from kvstudio.budget.compute.tensor import F32, Tensor


@dataclass(frozen=True, slots=True)
class Style:
    """What one architecture does.

    `norm`: rms or layer. `rope`: which layers rotate: all, none, swa, step (all but each n-th), key (as the file says).
    `pos`: learned positions are added to the embedding. `qk_norm`: before the rotation per head (`head`) or over the
    whole row (`row`; `flat` where the row is rebuilt from heads), behind it (`after`). `q_scale`: Q is scaled after the
    rotation. `residual`: `seq` or one of the parallel orders. `gating` `key:x`: from the header, `x` where it says
    nothing; `norm_w` None: from the header. `shexp`: shared experts, plain or weighted by a gate (`gated`, `silu_div`),
    or a dense feed-forward beside the experts, scaled with them (`halved`).
    `ffn_norm`: weight that normalises the feed-forward input. `attn_post`/`ffn_post`: norms of the branch before it is
    added. `late_rows`: the rows asked for are picked behind all layers, before or after the last norm. `head_extra`:
    scalings behind the logits.
    """

    norm: str = "rms"
    rope: str = "all"
    rope_factors: bool = False
    pos: bool = False
    tok_norm: bool = False
    scale_embd: str = ""
    qk_norm: str = "head"
    qk_norm_kind: str = "rms"
    q_scale: bool = False
    k_scale: bool = False
    residual: str = "seq"
    attn_norm: str | None = "attn_norm"
    ffn_norm: str | None = "ffn_norm"
    attn_post: str | None = None
    ffn_post: str | None = None
    ffn_post_pinned: bool = False
    attn_out_bias: bool = True
    act: str = "silu"
    gating: str = "softmax"
    norm_w: bool | None = True
    sinks: bool = False
    shexp: str | None = None
    attn_temp: bool = False
    head_extra: int = 0
    branch_scale: bool = False
    residual_first: bool = False
    late_rows: str = ""


class Decoder:
    """One graph of the common shape. Subclasses replace the parts in which a family differs."""

    def __init__(self, g: Blocks, style: Style) -> None:
        self.g = g
        self.s = style
        self.pos: Tensor | None = None
        self.base: AttnInput | None = None
        self.swa: AttnInput | None = None
        self.attn_scale: Tensor | None = None
        self.out_ids: Tensor | None = None

    # -- whole graph ---------------------------------------------------------------------------------------------

    def build(self) -> None:
        g = self.g
        cur = self.begin()
        for il in g.kept:
            cur = self.layer(il, cur)
            g.close_layer(il)
        self.finish(cur)

    def begin(self) -> Tensor:
        g, s = self.g, self.s
        cur = g.inp_embd(scale=s.scale_embd == "rows")
        if s.scale_embd == "plain":
            cur = g.scale(cur)
        elif s.scale_embd == "always" or (s.scale_embd == "key" and g.r.number("embedding_scale")):
            cur = g.scale(cur)
            g.expand(cur)
        self.pos = g.inp_pos()
        if s.pos and g.r.weight("position_embd.weight") is not None:
            cur = g.add(cur, g.get_rows(g.top("position_embd.weight"), self.pos))
        if s.tok_norm:
            cur = g.build_norm(cur, g.r.weight("token_embd_norm.weight"), g.r.weight("token_embd_norm.bias"), s.norm, 0)
        if s.attn_temp and (g.r.number("attention.temperature_scale") != 0 or g.r.arch == "llama4"):
            self.attn_scale = g.input(F32, 1, 1, g.nt)
        self.attention_inputs()
        self.out_ids = g.inp_out_ids()
        return cur

    def attention_inputs(self) -> None:
        g = self.g
        if any(layer.is_swa for layer in g.r.layers):
            self.base, self.swa = g.attn_input(), g.attn_input(swa=True)
        else:
            self.base = g.attn_input()

    def cache(self, il: int) -> AttnInput:
        inp = self.swa if self.swa is not None and self.g.r.layers[il].is_swa else self.base
        assert inp is not None
        return inp

    def finish(self, cur: Tensor) -> None:
        g, late = self.g, self.s.late_rows
        if late == "before_norm" and self.out_ids is not None:
            cur.is_output = True
            cur = g.get_rows(cur, self.out_ids)
        if late == "after_norm" and self.out_ids is not None:
            cur = g.build_norm(cur, g.r.weight("output_norm.weight"), None, self.s.norm, -1)
            cur.is_output = True
            g.logits(g.get_rows(cur, self.out_ids), extra=self.s.head_extra)
        else:
            g.head(cur, self.s.norm, extra=self.s.head_extra)

    # -- layers --------------------------------------------------------------------------------------------------

    def normed(self, cur: Tensor, il: int, name: str | None, at: int | None = None) -> Tensor:
        if name is None:
            return cur
        g = self.g
        return g.build_norm(cur, g.w(il, name), g.b(il, name), self.s.norm, il if at is None else at)

    def select(self, il: int, *tensors: Tensor) -> list[Tensor]:
        """On the last layer only the rows that are asked for go on."""
        if il != self.g.n_layer - 1 or self.out_ids is None or self.s.late_rows:
            return list(tensors)
        return [self.g.get_rows(t, self.out_ids) for t in tensors]

    def layer(self, il: int, inp: Tensor) -> Tensor:
        kind = self.s.residual
        if kind != "seq":
            return PARALLEL[kind](self, il, inp)
        g, s = self.g, self.s
        cur = self.attention(il, self.normed(inp, il, s.attn_norm))
        cur, inp = self.select(il, cur, inp)
        if s.attn_post is not None:
            cur = self.normed(cur, il, s.attn_post)
        if self.scales_branches():
            cur = g.scale(cur)
        mid = g.add(cur, inp)
        cur = self.feed_forward(il, self.normed(mid, il, s.ffn_norm))
        if s.ffn_post is not None:
            cur = self.normed(cur, il, s.ffn_post, il if s.ffn_post_pinned else -1)
        if self.scales_branches():
            cur = g.scale(cur)
        return g.add(mid, cur) if s.residual_first else g.add(cur, mid)

    def scales_branches(self) -> bool:
        """MiniCPM scales even where the file does not say so."""
        return self.s.branch_scale and (self.g.r.arch == "minicpm" or bool(self.g.r.number("residual_scale")))

    def rotates(self, il: int) -> bool:
        rope = self.s.rope
        if rope == "swa":
            return self.g.r.layers[il].is_swa
        if rope == "key":
            return self.g.r.key("rope.scaling.finetuned", True) is not False
        if rope == "baichuan":
            return self.g.n_layer != BAICHUAN_13B_LAYERS
        if rope == "step":
            return (il + 1) % NO_ROPE_EVERY[self.g.r.arch] != 0
        if rope == "swa_or_all":
            return self.g.r.layers[il].is_swa or self.swa is None
        return rope == "all"

    def rope_factors(self, il: int) -> Tensor | None:
        """Frequency factors: one tensor of the file, loaded on every device that rotates with it."""
        if not self.s.rope_factors:
            return None
        g = self.g
        for name in ("rope_freqs", "rope_factors_long", "rope_factors_short"):
            home = g.r.device(il)
            factors = g.r.weight(f"{name}.weight@{home}") or g.r.weight(f"blk.{il}.{name}.weight")
            if factors is not None:
                return factors
        return None

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g, s = self.g, self.s
        layer = g.r.layers[il]
        heads = (layer.n_embd_head_k, layer.n_head, layer.n_embd_head_v, layer.n_head_kv)
        rows = s.qk_norm == "row"
        q, k, v = g.qkv(il, cur, *heads, shaped=not rows)
        if rows:
            q = g.reshape(self._normed_row(il, q, "attn_q_norm"), heads[0], heads[1], g.nt)
            k = g.reshape(self._normed_row(il, k, "attn_k_norm"), heads[0], heads[3], g.nt)
            v = g.reshape(v, heads[2], heads[3], g.nt)
        q, k = self.position(il, q, k)
        if self.attn_scale is not None and self.scales_attention(il):
            q = g.mul(q, self.attn_scale)
        return self.attend(il, q, k, v)

    def scales_attention(self, il: int) -> bool:
        return True

    def attend(self, il: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        g, s = self.g, self.s
        return g.attend(
            self.cache(il), il, q, k, v,
            wo=g.need(il, "attn_output"),
            wo_b=g.b(il, "attn_output") if s.attn_out_bias else None,
            wo_s=g.w(il, "attn_output", "scale"),
            sinks=g.w(il, "attn_sinks") if s.sinks else None,
            k_first=self.swa is not None,
        )  # fmt: skip

    def position(self, il: int, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Norms and rotation of Q and K in the architecture's order."""
        g, s = self.g, self.s
        assert self.pos is not None
        q_norm, k_norm = g.w(il, "attn_q_norm"), g.w(il, "attn_k_norm")
        if q_norm is not None and s.qk_norm == "head":
            q = g.build_norm(q, q_norm, g.b(il, "attn_q_norm"), s.qk_norm_kind, il)
        elif q_norm is not None and s.qk_norm == "flat":
            q = self._flat_norm(il, q, "attn_q_norm")
        if k_norm is not None and s.qk_norm == "head":
            k = g.build_norm(k, k_norm, g.b(il, "attn_k_norm"), s.qk_norm_kind, il)
        elif k_norm is not None and s.qk_norm == "flat":
            k = self._flat_norm(il, k, "attn_k_norm")
        if self.rotates(il):
            factors = self.rope_factors(il)
            q, k = g.rope(q, self.pos, factors), g.rope(k, self.pos, factors)
        if s.qk_norm == "after":
            if q_norm is not None:
                q = g.build_norm(q, q_norm, None, s.qk_norm_kind, il)
            if k_norm is not None:
                k = g.build_norm(k, k_norm, None, s.qk_norm_kind, il)
        if s.q_scale:
            q = g.scale(q)
        if s.k_scale:
            k = g.scale(k)
        return q, k

    def _normed_row(self, il: int, x: Tensor, name: str) -> Tensor:
        g = self.g
        w = g.w(il, name)
        return x if w is None else g.build_norm(x, w, g.b(il, name), self.s.qk_norm_kind, il)

    def _flat_norm(self, il: int, x: Tensor, name: str) -> Tensor:
        g = self.g
        head, n, nt = x.ne[:3]
        flat = g.reshape(x, head * n, nt) if x.is_contiguous else g.cont(x, head * n, nt)
        flat = g.build_norm(flat, g.w(il, name), g.b(il, name), self.s.qk_norm_kind, il)
        return g.reshape(flat, head, n, nt)

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g, s = self.g, self.s
        if g.w(il, "ffn_gate_inp") is None or g.w(il, "ffn_down_exps") is None:
            return g.ffn(il, cur, s.act, limit=self.limits("swiglu_clamp_shexp", il))
        out = self.experts(il, cur)
        return self.shared(il, cur, out) if s.shexp is not None else out

    def experts(self, il: int, cur: Tensor) -> Tensor:
        s = self.s
        return self.g.moe(
            il, cur, act=s.act, norm_w=self.normalises_weights(), scale=self.scales_experts(), gating=self.gating(),
            limit=self.limits("swiglu_clamp_exp", il),
        )  # fmt: skip

    def normalises_weights(self) -> bool:
        norm = self.s.norm_w
        return bool(self.g.r.key("expert_weights_norm")) if norm is None else norm

    def scales_experts(self) -> bool:
        return self.g.r.number("expert_weights_scale") not in (0, 1)

    def gating(self) -> str:
        gating = self.s.gating
        if not gating.startswith("key:"):
            return gating
        return GATINGS.get(self.g.r.whole("expert_gating_func"), gating[4:])

    def limits(self, key: str, il: int) -> bool:
        """Whether this layer clamps what its experts compute; only with separate operations it costs memory."""
        value = self.g.r.key(key)
        if value is None or self.g.r.arch in FUSED_CLAMP:
            return False
        limits = value if isinstance(value, tuple | list) else (value,) * (il + 1)
        return il < len(limits) and float(limits[il]) > _NO_LIMIT

    def shared(self, il: int, cur: Tensor, out: Tensor) -> Tensor:
        """The experts every token passes, added to the routed ones."""
        g, s = self.g, self.s
        names = "ffn_{}" if s.shexp == "halved" else "ffn_{}_shexp"
        if g.w(il, names.format("up")) is None:
            return out
        dense = g.ffn(il, cur, s.act, names=names, limit=self.limits("swiglu_clamp_shexp", il))
        if s.shexp == "halved":
            return g.scale(g.add(dense, out))
        if s.shexp == "gated":
            dense = g.mul(dense, g.unary(g.mm(g.need(il, "ffn_gate_inp_shexp"), cur)))
        elif s.shexp == "silu_div":
            logit = g.mm(g.need(il, "ffn_gate_inp_shexp"), cur)
            dense = g.mul(dense, g.div(g.unary(logit), logit))
        return g.add(out, dense)


_NO_LIMIT = 1e-6
#: llama_expert_gating_func_type.
GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_weight", 4: "sqrt_softplus"}
#: Architectures whose clamped activation is one operation.
FUSED_CLAMP = frozenset({"maple", "deepseek4", "glm5-next", "hy_v4"})
#: Baichuan 13B uses ALiBi where 7B rotates; llama.cpp tells them apart by depth.
BAICHUAN_13B_LAYERS = 40


# -- parallel residuals ------------------------------------------------------------------------------------------


def _falcon(d: Decoder, il: int, inp: Tensor) -> Tensor:
    g = d.g
    normed = d.normed(inp, il, "attn_norm")
    second = g.w(il, "attn_norm_2")
    attn_in = normed if second is None else d.normed(inp, il, "attn_norm_2")
    cur = d.attention(il, attn_in)
    cur, inp, normed = d.select(il, cur, inp, normed)
    out = d.feed_forward(il, normed)
    return g.add(g.add(out, cur), inp)


def _phi2(d: Decoder, il: int, inp: Tensor) -> Tensor:
    g = d.g
    normed = d.normed(inp, il, "attn_norm")
    cur = d.attention(il, normed)
    cur, inp, normed = d.select(il, cur, inp, normed)
    return g.add(g.add(cur, d.feed_forward(il, normed)), inp)


def _command_r(d: Decoder, il: int, inp: Tensor) -> Tensor:
    g = d.g
    normed = d.normed(inp, il, "attn_norm")
    cur = d.attention(il, normed)
    cur, inp, normed = d.select(il, cur, inp, normed)
    return g.add(g.add(d.feed_forward(il, normed), inp), cur)


def _plamo(d: Decoder, il: int, inp: Tensor) -> Tensor:
    g = d.g
    normed = d.normed(inp, il, "attn_norm")
    cur = d.attention(il, normed)
    cur, normed, inp = d.select(il, cur, normed, inp)
    return g.add(g.add(d.feed_forward(il, normed), cur), inp)


def _arctic(d: Decoder, il: int, inp: Tensor) -> Tensor:
    g = d.g
    cur = d.attention(il, d.normed(inp, il, "attn_norm"))
    cur, inp = d.select(il, cur, inp)
    mid = g.add(cur, inp)
    dense = g.add(g.ffn(il, d.normed(mid, il, "ffn_norm"), "silu"), mid)
    return g.add(d.experts(il, d.normed(inp, il, "ffn_norm_exps")), dense)


def _gptneox(d: Decoder, il: int, inp: Tensor) -> Tensor:
    g = d.g
    cur = d.attention(il, d.normed(inp, il, "attn_norm"))
    cur, inp = d.select(il, cur, inp)
    if not g.r.key("use_parallel_residual", True):
        mid = g.add(cur, inp)
        return g.add(d.feed_forward(il, d.normed(mid, il, "ffn_norm")), mid)
    out = d.feed_forward(il, d.normed(inp, il, "ffn_norm"))
    return g.add(g.add(out, inp), cur)


def _stablelm(d: Decoder, il: int, inp: Tensor) -> Tensor:
    g = d.g
    normed = d.normed(inp, il, "attn_norm")
    cur = d.attention(il, normed)
    cur, inp, normed = d.select(il, cur, inp, normed)
    mid = g.add(cur, inp)
    out = d.feed_forward(il, normed if g.w(il, "ffn_norm") is None else d.normed(mid, il, "ffn_norm"))
    return g.add(out, mid)


PARALLEL: dict[str, Callable[[Decoder, int, Tensor], Tensor]] = {
    "falcon": _falcon,
    "phi2": _phi2,
    "command-r": _command_r,
    "gptneox": _gptneox,
    "plamo": _plamo,
    "arctic": _arctic,
    "stablelm": _stablelm,
}
