"""Gemma 3n and Gemma 4: per-layer inputs held for the whole graph, AltUp streams, shared caches.

Source: src/models/gemma3n.cpp and gemma4.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder, Style
from kvstudio.budget.compute.tensor import I32, Tensor

_SOFT_CAP_OPS = 3


class _PerLayer(Decoder):
    """What both share: the per-layer embeddings and attention that may reuse an earlier layer's cache."""

    def __init__(self, g: Blocks) -> None:
        super().__init__(g, Style(attn_out_bias=False, act="gelu"))
        self.per_layer: Tensor | None = None

    def per_layer_inputs(self, cur: Tensor, width: int) -> Tensor:
        """[width, n_tokens, n_layer] rows, one slice a layer."""
        g = self.g
        tokens = g.input(I32, g.nt)
        rows = g.get_rows(g.top("per_layer_token_embd.weight"), tokens)
        rows = g.scale(g.reshape(rows, width, g.n_layer, g.nt))
        g.expand(rows)
        proj = g.scale(g.mul_mat(g.top("per_layer_model_proj.weight"), cur))
        proj = g.reshape(proj, width, g.n_layer, g.nt)
        proj = g.build_norm(proj, g.r.weight("per_layer_proj_norm.weight"), None, "rms", -1)
        return g.cont(g.permute(g.scale(g.add(proj, rows)), 0, 2, 1, 3))

    def slice(self, x: Tensor) -> Tensor:
        return self.g.view(x, x.ne[:2], x.nb[1:2])

    def source_layer(self, il: int) -> int:
        """The layer whose cache this one reads. Source: llama-model.cpp create_memory, reuse callback."""
        layers = self.g.r.layers
        if layers[il].has_kv:
            return il
        first = sum(1 for layer in layers[: self.g.n_layer] if layer.has_kv)
        return first - (2 if layers[il].is_swa else 1)

    def attend_shared(self, il: int, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        g = self.g
        return g.attend(
            self.cache(il), il, q, k, v, wo=g.need(il, "attn_output"), wo_s=g.w(il, "attn_output", "scale"),
            k_first=True, cache_layer=self.source_layer(il),
        )  # fmt: skip


class Gemma4(_PerLayer):
    def begin(self) -> Tensor:
        g = self.g
        cur = g.inp_embd(scale=True)
        self.pos = g.inp_pos()
        self.attention_inputs()
        self.out_ids = g.inp_out_ids()
        embd = g.r.weight("per_layer_token_embd.weight")
        if embd is not None:
            self.per_layer = self.per_layer_inputs(cur, embd.ne[0] // g.n_layer)
        return cur

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = self.normed(inp, il, "attn_norm")
        cur = self.normed(self.attention(il, normed), il, "post_attention_norm")
        mid = g.add(cur, inp)
        if g.w(il, "ffn_gate_inp") is not None:
            cur = self.mixed_experts(il, mid)
        else:
            cur = g.ffn(il, self.normed(mid, il, "ffn_norm"), "gelu")
        cur = g.add(self.normed(cur, il, "post_ffw_norm", -1), mid)
        if self.per_layer is not None:
            gate = g.unary(g.mm(g.need(il, "inp_gate"), cur))
            gate = g.mul(gate, self.slice(self.per_layer))
            more = self.normed(g.mm(g.need(il, "proj"), gate), il, "post_norm")
            cur = g.add(cur, more)
        scale = g.w(il, "layer_output_scale")
        return cur if scale is None else g.mul(cur, scale)

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        assert self.pos is not None
        layer = g.r.layers[il]
        head, n_head, n_kv = layer.n_embd_head_k, layer.n_head, layer.n_head_kv
        factors = None if layer.is_swa else g.r.weight(f"rope_freqs.weight@{g.r.device(il)}")
        fused = g.w(il, "attn_qkv")
        both = None if fused is None else g.mm(fused, cur, g.w(il, "attn_qkv", "scale"))

        def part(name: str, width: int) -> Tensor | None:
            if both is not None:
                return g.cont(g.view(both, (width, g.nt), both.nb[1:2]))
            w = g.w(il, name)
            return None if w is None else g.mm(w, cur, g.w(il, name, "scale"))

        q = part("attn_q", head * n_head)
        assert q is not None
        q = g.build_norm(g.reshape(q, head, n_head, g.nt), g.w(il, "attn_q_norm"), None, "rms", il)
        q = g.rope(q, self.pos, factors)
        if not layer.has_kv:
            return self.attend_shared(il, q, None, None)
        k = part("attn_k", head * n_kv)
        v = part("attn_v", head * n_kv)
        assert k is not None
        v = k if v is None else v
        k, v = g.reshape(k, head, n_kv, g.nt), g.reshape(v, head, n_kv, g.nt)
        k = g.build_norm(k, g.w(il, "attn_k_norm"), None, "rms", il)
        v = g.rms_norm(v)
        return self.attend_shared(il, q, g.rope(k, self.pos, factors), v)

    def mixed_experts(self, il: int, mid: Tensor) -> Tensor:
        g = self.g
        dense = g.ffn(il, self.normed(mid, il, "ffn_norm"), "gelu")
        dense = self.normed(dense, il, "post_ffw_norm_1")
        routed = self.normed(mid, il, "pre_ffw_norm_2")
        tmp = g.scale(g.rms_norm(mid))
        scale = g.w(il, "ffn_gate_inp", "scale")
        tmp = tmp if scale is None else g.mul(tmp, scale)
        logits = g.mm(g.need(il, "ffn_gate_inp"), tmp)
        routed = g.moe(il, routed, act="gelu", norm_w=True, probs_in=logits, biases=False)
        return g.add(dense, self.normed(routed, il, "post_ffw_norm_2"))

    def finish(self, cur: Tensor) -> None:
        g = self.g
        cur = g.build_norm(cur, g.r.weight("output_norm.weight"), None, "rms", -1)
        cur.is_output = True
        assert self.out_ids is not None
        caps = _SOFT_CAP_OPS if g.r.number("final_logit_softcapping") else 0
        g.logits(g.get_rows(cur, self.out_ids), extra=caps)


class Gemma3n(_PerLayer):
    def __init__(self, g: Blocks) -> None:
        super().__init__(g)
        self.n_altup = g.r.whole("altup.num_inputs", 4)
        self.sparse = sum(1 for s in (g.r.key("activation_sparsity_scale") or ()) if s) or 10

    def magnitude(self, x: Tensor) -> Tensor:
        g = self.g
        return g.op("SQRT", g.sum_rows(g.op("SQR", x)))

    def rest(self, x: Tensor) -> Tensor:
        return self.g.view(x, (x.ne[0], x.ne[1], self.n_altup - 1), x.nb[1:3])

    def begin(self) -> Tensor:
        g = self.g
        cur = g.inp_embd(scale=True)
        self.pos = g.inp_pos()
        self.attention_inputs()
        embd = g.top("per_layer_token_embd.weight")
        self.per_layer = self.per_layer_inputs(cur, embd.ne[0] // g.n_layer)
        target = self.magnitude(cur)
        copies = g.repeat(cur, g.n_embd, g.nt, self.n_altup - 1, 1)
        more = g.mul_mat(g.top("altup_proj.weight"), copies)
        fresh = self.magnitude(more)
        more = g.div(g.mul(more, target), fresh)
        return g.concat(cur, more, 2)

    def router(self, il: int, x: Tensor) -> Tensor:
        g = self.g
        x = g.scale(self.normed(x, il, "altup_router_norm"))
        return g.unary(g.mul_mat(g.need(il, "altup_router"), x))

    def predict(self, il: int, cur: Tensor) -> Tensor:
        g, n = self.g, self.n_altup
        modes = self.router(il, self.slice(cur))
        coefs = g.reshape(g.mm(g.need(il, "altup_predict_coef"), modes), n, n, g.nt)
        turned = g.cont(g.permute(cur, 1, 2, 0, 3))
        out = g.cont(g.permute(g.mul_mat(turned, coefs), 0, 2, 1, 3))
        return g.add(out, cur)

    def correct(self, il: int, predictions: Tensor, active: Tensor) -> Tensor:
        g, n = self.g, self.n_altup
        modes = self.router(il, active)
        innovation = g.sub(active, self.slice(predictions))
        coefs = g.scale(g.mm(g.need(il, "altup_correct_coef"), modes))
        coefs = g.cont(g.transpose(coefs), 1, g.nt, n)
        innovation = g.repeat(innovation, g.n_embd, g.nt, n, 1)
        return g.add(g.mul(innovation, coefs), predictions)

    def laurel(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        tmp = g.mm(g.need(il, "laurel_r"), g.mm(g.need(il, "laurel_l"), cur))
        return g.add(self.normed(tmp, il, "laurel_post_norm"), cur)

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        predictions = self.predict(il, inp)
        active = self.slice(predictions)
        cur = self.normed(active, il, "attn_norm")
        laurel = self.laurel(il, cur)
        cur = self.normed(self.attention(il, cur), il, "post_attention_norm")
        mid = g.scale(g.add(g.add(cur, active), laurel))
        cur = self.normed(mid, il, "ffn_norm")
        up = g.mm(g.need(il, "ffn_up"), cur)
        gate = g.mm(g.need(il, "ffn_gate"), cur)
        if il < self.sparse:
            gate = self.top_gaussian(gate)
        cur = g.mm(g.need(il, "ffn_down"), g.mul(up, g.unary(gate)))
        cur = g.add(self.normed(cur, il, "post_ffw_norm", -1), mid)
        corrected = self.correct(il, predictions, cur)
        first = g.mul(self.slice(corrected), g.need(il, "altup_correct_scale"))
        first = g.unary(g.mm(g.need(il, "inp_gate"), first))
        assert self.per_layer is not None
        first = g.mul(first, self.slice(self.per_layer))
        first = self.normed(g.mm(g.need(il, "proj"), first), il, "post_norm")
        return g.concat(self.slice(corrected), g.add(self.rest(corrected), first), 2)

    def top_gaussian(self, x: Tensor) -> Tensor:
        g = self.g
        mean = g.make("MEAN", x.type, (1, *x.ne[1:]), x)
        std = g.op("SQRT", g.scale(g.sum_rows(g.op("SQR", g.sub(x, mean)))))
        cutoff = g.add(mean, g.scale(std))
        return g.unary(g.sub(x, cutoff))

    def attention(self, il: int, cur: Tensor) -> Tensor:
        g = self.g
        assert self.pos is not None
        layer = g.r.layers[il]
        if layer.has_kv:
            q, k, v = g.qkv(il, cur, layer.n_embd_head_k, layer.n_head, layer.n_embd_head_v, layer.n_head_kv)
            q = g.build_norm(q, g.w(il, "attn_q_norm"), None, "rms", il)
            k = g.build_norm(k, g.w(il, "attn_k_norm"), None, "rms", il)
            return self.attend_shared(il, g.rope(q, self.pos), g.rope(k, self.pos), g.rms_norm(v))
        q = g.reshape(g.mm(g.need(il, "attn_q"), cur), layer.n_embd_head_k, layer.n_head, g.nt)
        q = g.build_norm(q, g.w(il, "attn_q_norm"), None, "rms", il)
        return self.attend_shared(il, g.rope(q, self.pos), None, None)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        target = self.magnitude(self.slice(cur))
        more = g.mul_mat(g.top("altup_unembd_proj.weight"), self.rest(cur))
        fresh = self.magnitude(more)
        more = g.div(g.mul(more, target), fresh)
        out = self.slice(cur)
        for _ in range(self.n_altup - 1):
            out = g.add(out, self.slice(more))
        g.head(g.get_rows(g.scale(out), g.inp_out_ids()), extra=_SOFT_CAP_OPS)


def gemma3n(g: Blocks) -> None:
    Gemma3n(g).build()


def gemma4(g: Blocks) -> None:
    Gemma4(g).build()
