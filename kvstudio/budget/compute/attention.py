"""Attention: Q, K and V, what is stored in the caches and read from them, and the attention itself.

Source: llama-graph.cpp build_qkv, build_attn and build_attn_mha, llama-kv-cache.cpp, read at build 11434.
"""

from kvstudio.budget.compute.foundation import AttnInput, Foundation
from kvstudio.budget.compute.tensor import F16, F32, Tensor, row_bytes


class Attention(Foundation):
    """Over a cache, or over the batch alone."""

    def qkv(
        self, il: int, cur: Tensor, head_k: int, n_head: int, head_v: int, n_head_kv: int, *, shaped: bool = True
    ) -> tuple[Tensor, ...]:
        """Q, K and V of one layer, per head; `shaped` False leaves whole rows."""
        nt, clamp = self.nt, shaped and self.r.number("attention.clamp_kqv") > 0
        fused = self.w(il, "attn_qkv")
        if fused is not None:
            qkv = self.mm(fused, cur, self.w(il, "attn_qkv", "scale"))
            bias = self.b(il, "attn_qkv")
            if bias is not None:
                qkv = self.add(qkv, bias)
            elif self.b(il, "attn_q") is not None:
                parts = [self.b(il, f"attn_{p}") for p in "qkv"]
                if all(p is not None for p in parts):
                    q, k, v = parts
                    qkv = self.add(qkv, self.concat(self.concat(q, k, 0), v, 0))  # type: ignore[arg-type]
            if clamp:
                qkv = self.clamp(qkv)
            if self.r.arch == "openelm":
                qkv = self.reshape(qkv, head_k, n_head + 2 * n_head_kv, nt)
                return tuple(self.view(qkv, (head_k, n, nt), qkv.nb[1:3]) for n in (n_head, n_head_kv, n_head_kv))
            row = qkv.nb[1]
            if not shaped:
                widths = (head_k * n_head, head_k * n_head_kv, head_v * n_head_kv)
                return tuple(self.cont(self.view(qkv, (width, nt), (row,))) for width in widths)
            return (
                self.view(qkv, (head_k, n_head, nt), (4 * head_k, row)),
                self.view(qkv, (head_k, n_head_kv, nt), (4 * head_k, row)),
                self.view(qkv, (head_v, n_head_kv, nt), (4 * head_v, row)),
            )
        parts_out = []
        for part, head, n in (("q", head_k, n_head), ("k", head_k, n_head_kv), ("v", head_v, n_head_kv)):
            x = self.mm(self.need(il, f"attn_{part}"), cur, self.w(il, f"attn_{part}", "scale"))
            bias = self.b(il, f"attn_{part}")
            if bias is not None:
                x = self.add(x, bias)
            if clamp:
                x = self.clamp(x)
            parts_out.append(self.reshape(x, head, n, nt) if shaped else x)
        return tuple(parts_out)

    def k_cache(self, inp: AttnInput, il: int, width: int | None = None, type_id: int | None = None) -> Tensor:
        layer = self.r.layers[il]
        width = layer.n_embd_k_gqa if width is None else width
        kind = self.r.type_k if type_id is None else type_id
        return self.r.cache(f"k_{inp.kind}", il, kind, (width, inp.n_kv, self.r.n_stream))

    def v_cache(self, inp: AttnInput, il: int, width: int | None = None) -> Tensor:
        layer = self.r.layers[il]
        if width is None:
            width = max(la.n_embd_v_gqa for la in self.r.layers) if self.r.v_trans else layer.n_embd_v_gqa
        return self.r.cache(f"v_{inp.kind}", il, self.r.type_v, (width, inp.n_kv, self.r.n_stream))

    def store_k(self, inp: AttnInput, k: Tensor, il: int, cache: Tensor | None = None) -> Tensor:
        cache = self.k_cache(inp, il) if cache is None else cache
        flat = self.view(k, (k.ne[0] * k.ne[1], self.nt), k.nb[2:3])
        if cache.ne[2] > 1:
            cache = self.reshape(cache, cache.ne[0], cache.ne[1] * cache.ne[2])
        assert inp.k_idxs is not None
        return self.set_rows(cache, flat, inp.k_idxs)

    def store_v(self, inp: AttnInput, v: Tensor, il: int, cache: Tensor | None = None) -> Tensor:
        cache = self.v_cache(inp, il) if cache is None else cache
        width = v.ne[0] * v.ne[1]
        assert inp.v_idxs is not None
        if not self.r.v_trans:
            flat = self.view(v, (width, self.nt), v.nb[2:3])
            if cache.ne[2] > 1:
                cache = self.reshape(cache, cache.ne[0], cache.ne[1] * cache.ne[2])
            return self.set_rows(cache, flat, inp.v_idxs)
        same = row_bytes(v.type, width) == v.nb[2]
        flat = self.reshape(v, width, self.nt) if same else self.cont(v, width, self.nt)
        if width < cache.ne[0]:
            flat = self.pad(flat, cache.ne[0] - width)
        column = self.reshape(cache, 1, cache.n_elements)
        return self.set_rows(column, self.reshape(flat, 1, flat.n_elements), inp.v_idxs)

    def cached_k(self, inp: AttnInput, il: int, head: int, n_head: int, cache: Tensor | None = None) -> Tensor:
        k = self.k_cache(inp, il) if cache is None else cache
        width, cells = k.ne[0], k.ne[1]
        steps = (row_bytes(k.type, head), row_bytes(k.type, width), row_bytes(k.type, width * cells))
        return self.view(k, (head, n_head, inp.n_kv, k.ne[2]), steps)

    def cached_v(self, inp: AttnInput, il: int, head: int, n_head: int, cache: Tensor | None = None) -> Tensor:
        v = self.v_cache(inp, il) if cache is None else cache
        width, cells = v.ne[0], v.ne[1]
        if not self.r.v_trans:
            steps = (row_bytes(v.type, head), row_bytes(v.type, width), row_bytes(v.type, width * cells))
            return self.view(v, (head, n_head, inp.n_kv, v.ne[2]), steps)
        steps = (row_bytes(v.type, cells * head), row_bytes(v.type, cells), row_bytes(v.type, cells * width))
        return self.view(v, (inp.n_kv, n_head, head, v.ne[2]), steps)

    def mha(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        kq_b: Tensor | None = None,
        sinks: Tensor | None = None,
        v_mla: Tensor | None = None,
        il: int = -1,
    ) -> Tensor:
        """Attention itself; the result is [n_embd_v, n_tokens]."""
        v_trans = v.nb[1] > v.nb[2]
        n_stream = k.ne[3]
        per = q.ne[2] // n_stream
        q = self.view(q, (q.ne[0], q.ne[1], per, n_stream), (q.nb[1], q.nb[2], q.nb[2] * per))
        q, k, v = (self.permute(x, 0, 2, 1, 3) for x in (q, k, v))
        if self.r.flash_attn and kq_b is None:
            if v_trans:
                v = self.transpose(v)
            if k.type == F32:
                k = self.cast(k, F16)
            if v.type == F32:
                v = self.cast(v, F16)
            cur = self.flash_attn(q, k, v, mask, sinks)
            self.fused_attention.append((cur, il))
            if v_mla is not None:
                cur = self.mul_mat(v_mla, self.permute(cur, 0, 2, 1, 3))
                cur = self.cont(self.permute(cur, 0, 2, 1, 3))
            cur = self.reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
        else:
            kq = self.mul_mat(k, q)
            if self.r.arch == "grok" or self.r.arch in SOFT_CAP:
                kq = self.scale(self.unary(self.scale(kq)))
            if kq_b is not None:
                kq = self.add(kq, kq_b)
            kq = self.soft_max(kq, mask, sinks)
            if not v_trans:
                v = self.cont(self.transpose(v))
            kqv = self.mul_mat(v, kq)
            if v_mla is not None:
                kqv = self.mul_mat(v_mla, kqv)
            cur = self.permute(kqv, 0, 2, 1, 3)
            cur = self.cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
            if not self.r.config.kv_offload:
                cur.pinned = "CPU"
        self.expand(cur)
        return cur

    def attend(
        self,
        inp: AttnInput,
        il: int,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        *,
        wo: Tensor | None = None,
        wo_b: Tensor | None = None,
        wo_s: Tensor | None = None,
        kq_b: Tensor | None = None,
        sinks: Tensor | None = None,
        k_first: bool = False,
        cache_layer: int | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Store K and V, attend over the cache, project. `k_first`: the order of the sliding-window variant; `mask`
        in the stead of the cache's own.
        """
        if inp.kind == "none":
            assert k is not None and v is not None
            self.expand(q, k, v)
            cur = self.mha(q, k, v, inp.mask, kq_b=kq_b, sinks=sinks, il=il)
        else:
            if inp.k_rot is not None:
                q = self.rotate(q, inp.k_rot)
                k = None if k is None else self.rotate(k, inp.k_rot)
            if inp.v_rot is not None and v is not None:
                v = self.rotate(v, inp.v_rot)
            self.expand(q)
            for part in (k, v) if k_first else (v, k):
                if part is not None:
                    self.expand(part)
            at = il if cache_layer is None else cache_layer
            if k is not None:
                self.expand(self.store_k(inp, k, at))
            if v is not None:
                self.expand(self.store_v(inp, v, at))
            layer = self.r.layers[il]
            keys = self.cached_k(inp, at, layer.n_embd_head_k, layer.n_head_kv)
            values = self.cached_v(inp, at, layer.n_embd_head_v, layer.n_head_kv)
            cur = self.mha(q, keys, values, inp.mask if mask is None else mask, kq_b=kq_b, sinks=sinks, il=il)
            if inp.v_rot is not None:
                cur = self.rotate(cur, inp.v_rot)
        return self.project(cur, wo, wo_b, wo_s)

    def project(self, cur: Tensor, wo: Tensor | None, wo_b: Tensor | None = None, wo_s: Tensor | None = None) -> Tensor:
        if wo is not None:
            cur = self.mm(wo, cur, wo_s)
        return cur if wo_b is None else self.add(cur, wo_b)


#: Architectures that soft-cap attention scores inside the attention block.
SOFT_CAP = frozenset({"gemma2"})
