"""Decoders that pass the same weights several times, with cells of their own each time.

Source: src/models (nanbeige, hrm-text), read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.tensor import Tensor


class Looped(Decoder):
    """The whole stack again and again, the last norm between the passes."""

    def __init__(self, g: Blocks, style: Style) -> None:
        super().__init__(g, style)
        self.loops = max(1, g.r.whole("num_loops", 1))
        self.physical = max(1, g.n_layer // self.loops)
        for il in range(self.physical, g.n_layer):
            _repeat(g, il, il % self.physical)

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        out = super().layer(il, inp)
        between = self.loops > 1 and (il + 1) % self.physical == 0 and il + 1 < g.n_layer
        if between and not g.r.key("skip_loop_final_norm"):
            out = g.build_norm(out, g.r.weight("output_norm.weight"), None, "rms", il)
        return out


class Hierarchical(Decoder):
    """A low stack that runs several times for each run of the high one; each starts from the sum of both states."""

    def build(self) -> None:
        g, r = self.g, self.g.r
        size, high, low = (r.whole(f"hrm.{key}") for key in ("layers_per_stack", "h_cycles", "l_cycles"))
        for il in range(g.n_layer):
            turn = il // size % (low + 1)
            _repeat(g, il, il % size + (size if turn == low else 0))
        cur = self.begin()
        state = g.top("hrm.z_l_init")
        at = 0
        for _ in range(high):
            for turn in range(low + 1):
                mixed = g.add(cur, state)
                if turn == low:
                    cur = self.stack(at, size, mixed)
                else:
                    state = self.stack(at, size, mixed)
                at += size
        assert self.out_ids is not None
        g.logits(g.get_rows(cur, self.out_ids))

    def stack(self, first: int, size: int, cur: Tensor) -> Tensor:
        g = self.g
        for il in range(first, first + size):
            mid = g.add(self.attention(il, g.rms_norm(cur)), cur)
            cur = g.add(g.ffn(il, g.rms_norm(mid), "silu"), mid)
            g.close_layer(il)
        return g.rms_norm(cur)

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g, layer = self.g, self.g.r.layers[il]
        gate = g.mm(g.need(il, "attn_gate"), cur, g.w(il, "attn_gate", "scale"))
        q, k, v = g.qkv(il, cur, layer.n_embd_head_k, layer.n_head, layer.n_embd_head_v, layer.n_head_kv)
        out = g.attend(self.cache(il), il, *self.position(il, q, k), v)
        return g.mm(g.need(il, "attn_output"), g.mul(out, g.unary(gate)), g.w(il, "attn_output", "scale"))


def _repeat(g: Blocks, il: int, source: int) -> None:
    """Let a layer find the weights of another under its own name."""
    if il != source:
        g.twins[il] = source


BUILDERS: dict[str, Callable[[Blocks], None]] = {
    "nanbeige": lambda g: Looped(g, Style(rope_factors=True)).build(),
    "hrm_text": lambda g: Hierarchical(g, Style()).build(),
}
