"""Multi-head latent attention: the K cache holds one compressed row that also serves as V."""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE
from kvstudio.budget.compute.tensor import Tensor

STYLE = Style(norm_w=None, gating="key:softmax", shexp="plain", attn_out_bias=False, attn_temp=True)


class MlaDecoder(Decoder):
    """DeepSeek 2 and what descends from it: absorbed projections with a latent cache, plain ones without.

    Source: src/models/deepseek2.cpp, read at build 11434.
    """

    def __init__(self, g: Blocks, style: Style = STYLE) -> None:
        super().__init__(g, style)
        r = g.r
        self.rope_dim = r.whole("rope.dimension_count")
        self.latent = r.whole("attention.kv_lora_rank")
        self.absorbed = r.whole("attention.key_length_mla") > 0 and r.whole("attention.value_length_mla") > 0
        self.head_k = r.whole("attention.key_length_mla") or r.whole("attention.key_length")
        self.head_v = r.whole("attention.value_length_mla") or r.whole("attention.value_length")

    def attention_inputs(self) -> None:
        self.base = self.g.attn_input(k_only=self.absorbed)

    def query(self, il: int, cur: Tensor) -> Tensor:
        """Q of all heads, one row per token, through the low-rank pair where the model has one."""
        g = self.g
        plain = g.w(il, "attn_q")
        if plain is not None:
            q = g.mul_mat(plain, cur)
        else:
            q = g.mul_mat(g.need(il, "attn_q_a"), cur)
            q = g.build_norm(q, g.w(il, "attn_q_a_norm"), None, "rms", il)
            q = g.mul_mat(g.need(il, "attn_q_b"), q)
        return q

    def apart(self, il: int, q: Tensor) -> Tensor:
        """Q by heads, as later builds shape it before they take it apart."""
        g = self.g
        later = g.r.config.build >= MIXED_BATCH_SINCE
        return g.reshape(q, self.head_k, g.r.layers[il].n_head, g.nt) if later else q

    def compressed(self, il: int, cur: Tensor, *, rotate: bool = True) -> tuple[Tensor, Tensor]:
        """The normalised latent row and the rotated shared key."""
        g = self.g
        both = g.mul_mat(g.need(il, "attn_kv_a_mqa"), cur)
        row = both.nb[1]
        latent = g.view(both, (self.latent, g.nt), (row,))
        k_pe = g.view(both, (self.rope_dim, 1, g.nt), (row, row))
        if rotate:
            assert self.pos is not None
            k_pe = g.rope(k_pe, self.pos, self.rope_factors(il))
        return g.build_norm(latent, g.w(il, "attn_kv_a_norm"), None, "rms", il), k_pe

    def attention(self, il: int, cur: Tensor) -> Tensor:
        if self.absorbed:
            return self.attend_latent(il, *self.latent_qkv(il, cur))
        return self.attend_plain(il, cur)

    def latent_qkv(self, il: int, cur: Tensor, *, rotate: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        g = self.g
        q = self.apart(il, self.query(il, cur))
        latent, k_pe = self.compressed(il, cur, rotate=rotate)
        nope = self.head_k - self.rope_dim
        n_head = g.r.layers[il].n_head
        step = (4 * self.head_k, 4 * self.head_k * n_head)
        q_nope = g.view(q, (nope, n_head, g.nt), step)
        q_pe = g.view(q, (self.rope_dim, n_head, g.nt), step)
        if rotate:
            assert self.pos is not None
            q_pe = g.rope(q_pe, self.pos, self.rope_factors(il))
        q_nope = g.mul_mat(g.need(il, "attn_k_b"), g.permute(q_nope, 0, 2, 1, 3))
        q = g.concat(g.permute(q_nope, 0, 2, 1, 3), q_pe, 0)
        v = g.reshape(latent, self.latent, 1, g.nt)
        k = g.concat(v, k_pe, 0)
        if self.attn_scale is not None:
            q = g.mul(q, self.attn_scale)
        return q, k, v

    def attend_latent(self, il: int, q: Tensor, k: Tensor, v: Tensor, inp: AttnInput | None = None) -> Tensor:
        g = self.g
        inp = inp or self.base
        assert inp is not None
        cur = latent_attention(g, inp, il, q, k, v, g.need(il, "attn_v_b"))
        return g.project(cur, g.need(il, "attn_output"), None, g.w(il, "attn_output", "scale"))

    def attend_plain(self, il: int, cur: Tensor) -> Tensor:
        """Old files without the split projections: K and V are decompressed per token."""
        g = self.g
        assert self.pos is not None
        n_head = g.r.layers[il].n_head
        nope = self.head_k - self.rope_dim
        q = self.apart(il, self.query(il, cur))
        latent, k_pe = self.compressed(il, cur)
        kv = g.mul_mat(g.need(il, "attn_kv_b"), latent)
        step = 4 * (nope + self.head_v)
        k_nope = g.view(kv, (nope, n_head, g.nt), (step, step * n_head))
        v = g.cont(g.view(kv, (self.head_v, n_head, g.nt), (step, step * n_head)))
        if g.r.config.build >= MIXED_BATCH_SINCE:
            q = g.rope(q, self.pos, self.rope_factors(il))
        else:
            of_q = (4 * self.head_k, 4 * self.head_k * n_head)
            q_nope = g.view(q, (nope, n_head, g.nt), of_q)
            q_pe = g.view(q, (self.rope_dim, n_head, g.nt), of_q)
            q_pe = g.rope(q_pe, self.pos, self.rope_factors(il))
            q = g.concat(q_nope, q_pe, 0)
        k = g.concat(k_nope, g.repeat(k_pe, self.rope_dim, n_head, g.nt, 1), 0)
        if self.attn_scale is not None:
            q = g.mul(q, self.attn_scale)
        return self.attend(il, q, k, v)


def latent_attention(
    g: Blocks,
    inp: AttnInput,
    il: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    v_mla: Tensor | None,
    *,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention over a K-only cache: V is a view of the cached rows."""
    if inp.k_rot is not None:
        q, k = g.rotate(q, inp.k_rot), g.rotate(k, inp.k_rot)
    g.expand(q, v, k)
    width = k.ne[0] * k.ne[1]
    cache = g.k_cache(inp, il, width)
    g.expand(g.store_k(inp, k, il, cache))
    keys = g.cached_k(inp, il, k.ne[0], k.ne[1], cache)
    values = g.view(keys, (v.ne[0], *keys.ne[1:]), keys.nb[1:])
    return g.mha(q, keys, values, inp.mask if mask is None else mask, sinks=sinks, v_mla=v_mla, il=il)


def build(g: Blocks) -> None:
    MlaDecoder(g).build()
