"""Granite with adapters built in: a layer of one head finds each token's adapter, every matrix adds its share of it.

Source: src/models/granite-switch.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.tensor import F32, I32, Tensor

_STYLE = Style(rope="key", rope_factors=True, branch_scale=True, head_extra=1)


class GraniteSwitch(Decoder):
    """`ids` names the adapter of each row; the layer behind the last one keeps what tells them apart."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, _STYLE)
        self.ids: Tensor | None = None

    def begin(self) -> Tensor:
        g = self.g
        tokens = g.input(I32, g.nt)
        keys, values, queries = (g.input(F32, g.nt) for _ in range(3))
        cur = g.get_rows(g.top("token_embd.weight"), tokens)
        if g.r.number("embedding_scale"):
            cur = g.scale(cur)
        self.pos = g.inp_pos()
        self.base = g.attn_input()
        router = int(g.model.hparams["router_layer"])
        head = g.r.layers[0].n_embd_head_k
        q, k, v = (g.pad(g.reshape(x, 1, 1, g.nt), head - 1) for x in (queries, keys, values))
        out = g.attend(self.base, router, q, k, v)
        slot = g.reshape(g.cont(g.view(out, (1, g.nt), out.nb[1:2])), g.nt)
        self.ids = g.cast(g.unary(g.clamp(slot)), I32)
        self.out_ids = g.inp_out_ids()
        return cur

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        cur = self.attention(il, self.normed(inp, il, "attn_norm"))
        cur, inp = self.select(il, cur, inp)
        if il == g.n_layer - 1 and self.out_ids is not None and self.ids is not None:
            rows = g.get_rows(g.reshape(self.ids, 1, g.nt), self.out_ids)
            self.ids = g.reshape(rows, rows.ne[1])
        mid = g.add(g.scale(cur) if self.scales_branches() else cur, inp)
        cur = self.feed_forward(il, self.normed(mid, il, "ffn_norm"))
        return g.add(g.scale(cur) if self.scales_branches() else cur, mid)

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g, layer = self.g, self.g.r.layers[il]
        head, n_head, n_kv = layer.n_embd_head_k, layer.n_head, layer.n_head_kv
        qkv = g.mul_mat(g.need(il, "attn_qkv"), cur)
        parts = [g.cont(g.view(qkv, (head * n, g.nt), qkv.nb[1:2])) for n in (n_head, n_kv, n_kv)]
        parts = [g.add(part, self.adapted(il, f"attn_{name}", cur)) for part, name in zip(parts, "qkv", strict=True)]
        q, k, v = (g.reshape(x, head, n, g.nt) for x, n in zip(parts, (n_head, n_kv, n_kv), strict=True))
        q, k = self.position(il, q, k)
        return self.switched(il, "attn_output", g.attend(self.cache(il), il, q, k, v))

    def feed_forward(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        gate, up = self.switched(il, "ffn_gate", cur), self.switched(il, "ffn_up", cur)
        return self.switched(il, "ffn_down", g.mul(g.unary(gate), up))

    def switched(self, il: int, name: str, cur: Tensor) -> Tensor:
        """A matrix with the adapter's share."""
        return self.g.add(self.g.mul_mat(self.g.need(il, name), cur), self.adapted(il, name, cur))

    def adapted(self, il: int, name: str, cur: Tensor) -> Tensor:
        g, ids = self.g, self.ids
        a, b = g.w(il, name, "lora_a"), g.w(il, name, "lora_b")
        if a is None or b is None or ids is None:
            raise KeyError(f"blk.{il}.{name}.lora_a")
        rows = cur.ne[1]
        chosen = g.reshape(ids, 1, rows)
        share = g.mul_mat_id(b, g.mul_mat_id(a, g.reshape(cur, cur.ne[0], 1, rows), chosen), chosen)
        return g.reshape(share, share.ne[0], rows)


def build(g: Blocks) -> None:
    GraniteSwitch(g).build()
