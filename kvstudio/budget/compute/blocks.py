"""The building blocks llama.cpp's model graphs share: inputs, norms, attention, feed-forward, experts.

Source: llama-graph.cpp llm_graph_context, read at build 11434. Operation order decides the result, so it is kept.
"""

from collections.abc import Callable, Iterable, Sequence

from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE, Reserve
from kvstudio.budget.compute.tensor import F16, F32, I32, I64, Tensor, row_bytes

#: Quantized cache types get a rotation before they are stored; plain ones do not.
PLAIN_TYPES = frozenset({0, 1, 30})


class AttnInput:
    """Indices, mask and rotations of one KV cache. `n_kv` cells per stream."""

    __slots__ = ("k_idxs", "k_rot", "kind", "mask", "n_kv", "v_idxs", "v_rot")

    def __init__(self, kind: str, n_kv: int) -> None:
        self.kind = kind
        self.n_kv = n_kv
        self.k_idxs: Tensor | None = None
        self.v_idxs: Tensor | None = None
        self.mask: Tensor | None = None
        self.k_rot: Tensor | None = None
        self.v_rot: Tensor | None = None


class Blocks(Graph):
    """A graph under construction for one reserve."""

    def __init__(self, reserve: Reserve, layers: Sequence[int] | None = None) -> None:
        super().__init__()
        self.r = reserve
        self.nt = reserve.n_tokens
        self.model = reserve.model
        self.n_embd = reserve.model.n_embd
        self.n_layer = reserve.model.n_layer
        self.kept = range(self.n_layer) if layers is None else layers
        self.embd: Tensor | None = None
        self.tokens: Tensor | None = None
        self.prefix = ""
        #: Layers that use the weights of another.
        self.twins: dict[int, int] = {}
        self._closed = 0
        self.fused_attention: list[tuple[Tensor, int]] = []
        self.fused_delta: list[tuple[Tensor, int]] = []
        self._pins = reserve.n_tokens < 32 or reserve.full_offload

    def close_layer(self, il: int) -> None:
        """Note which nodes a layer made; those not yet visited are visited with the next one."""
        for node in self.nodes[self._closed :]:
            node.layer = il
        self._closed = len(self.nodes)

    # -- names ---------------------------------------------------------------------------------------------------

    def w(self, il: int, name: str, suffix: str = "weight") -> Tensor | None:
        """A weight of a layer; a few are stored without their suffix."""
        il = self.twins.get(il, il)
        found = self.r.weight(f"{self.prefix}blk.{il}.{name}.{suffix}")
        return self.r.weight(f"blk.{il}.{name}") if found is None and suffix == "weight" else found

    def b(self, il: int, name: str) -> Tensor | None:
        return self.r.weight(f"{self.prefix}blk.{self.twins.get(il, il)}.{name}.bias")

    def need(self, il: int, name: str) -> Tensor:
        """A weight the graph cannot do without; a missing one is a file we do not understand."""
        tensor = self.w(il, name)
        if tensor is None:
            raise KeyError(f"blk.{il}.{name}.weight")
        return tensor

    def top(self, name: str) -> Tensor:
        tensor = self.r.weight(name)
        if tensor is None:
            raise KeyError(name)
        return tensor

    def pin(self, node: Tensor, il: int) -> None:
        """Fully offloaded models force norms and last nodes onto their layer's device."""
        if self._pins and il >= 0:
            node.pinned = self.r.device(il)

    # -- inputs --------------------------------------------------------------------------------------------------

    def inp_embd(
        self, *, scale: bool = False, n_embd_inp: int | None = None, name: str = "token_embd.weight"
    ) -> Tensor:
        """Rows of the embedding for the batch; `scale`: multiplied by a model constant."""
        nt, wide = self.nt, n_embd_inp or self.n_embd
        embd = self.top(name)
        tokens = self.tokens = self.input(I32, nt)
        given = self.input(F32, wide, nt)

        def rows(ids: Tensor) -> Tensor:
            got = self.get_rows(embd, ids)
            return self.pad(got, wide - self.n_embd) if wide != self.n_embd else got

        cur = rows(tokens)
        choices = [cur, given]
        if self.r.mixed:
            ids, slots = self.input(I32, nt), self.input(I64, nt)
            mixed = self.input(F32, wide, nt)
            choices.append(self.set_rows(self.dup(mixed), rows(ids), slots))
        self.expand(*choices)
        if wide != self.n_embd:
            cur = self.view(cur, (self.n_embd, nt), cur.nb[1:2])
        if scale and self.r.mixed:
            cur = self.cont(cur) if not cur.is_contiguous else cur
            cur = self.mul(cur, self.input(F32, 1, nt))
        self.expand(cur)
        return self.scale(cur) if scale and not self.r.mixed else cur

    def inp_pos(self) -> Tensor:
        return self.input(I32, self.nt * self.n_pos_per_embd())

    def n_pos_per_embd(self) -> int:
        return 4 if self.r.arch in M_ROPE and self.uses_mrope() else 1

    def uses_mrope(self) -> bool:
        if self.r.arch in ALWAYS_M_ROPE:
            return True
        sections = self.r.key("rope.dimension_sections")
        return isinstance(sections, tuple | list) and len(sections) > 1 and sections[0] > 0 and sections[1] > 0

    def inp_out_ids(self) -> Tensor:
        return self.input(I32, self.r.n_outputs)

    def _mask(self, n_kv: int, *, flash: bool | None = None) -> Tensor:
        n_stream = 1 if self.r.config.kv_unified else self.r.n_seqs
        use_f16 = self.r.flash_attn if flash is None else flash
        return self.input(F16 if use_f16 else F32, n_kv, self.nt // n_stream, 1, n_stream)

    def attn_input(self, *, swa: bool = False, k_only: bool = False, rot: bool = True) -> AttnInput:
        r = self.r
        inp = AttnInput("swa" if swa else "base", r.n_kv_swa if swa else r.n_ctx_seq)
        inp.k_idxs = self.input(I64, self.nt)
        if not k_only:
            widest = max(layer.n_embd_v_gqa for layer in r.layers)
            inp.v_idxs = self.input(I64, self.nt * (widest if r.v_trans else 1))
        inp.mask = self._mask(inp.n_kv)
        if rot:
            inp.k_rot = self._rot(self._rot_k(swa))
            inp.v_rot = None if k_only else self._rot(self._rot_v(swa))
        return inp

    def _rot(self, n: int) -> Tensor | None:
        return self.input(F32, n, n) if n else None

    def _uniform(self, swa: bool, which: Callable[[int], int]) -> int:
        """The head size all layers of a cache share, 0 if they differ. Source: llama_kv_cache constructor."""
        sizes = {which(il) for il in self._cache_layers(swa)}
        return sizes.pop() if len(sizes) == 1 else 0

    def _cache_layers(self, swa: bool) -> Iterable[int]:
        has_swa = any(layer.is_swa for layer in self.r.layers)
        for layer in self.r.layers:
            if layer.has_kv and (not has_swa or layer.is_swa == swa):
                yield layer.index

    def _rot_k(self, swa: bool) -> int:
        layers = self.r.layers
        size = self._uniform(swa, lambda il: layers[il].n_embd_head_k)
        if self.r.type_k in PLAIN_TYPES or not size or layers[0].n_embd_head_k % 64:
            return 0
        n = 64
        while size % (2 * n) == 0:
            n *= 2
        return n

    def _rot_v(self, swa: bool) -> int:
        layers = self.r.layers
        size = self._uniform(swa, lambda il: layers[il].n_embd_head_v)
        return 0 if self.r.type_v in PLAIN_TYPES or not size or layers[0].n_embd_head_v % 64 else 64

    def attn_input_no_cache(self, *, swa: bool = False) -> AttnInput:
        inp = AttnInput("none", self.nt)
        inp.mask = self.input(F16 if self.r.flash_attn else F32, self.nt, self.nt)
        return inp

    def clamp(self, x: Tensor) -> Tensor:
        """Earlier builds write over what they clamp."""
        later = self.r.config.build >= MIXED_BATCH_SINCE
        return self.op("CLAMP", x) if later else Tensor("CLAMP", x.type, x.ne, (x,), x.nb, x)

    # -- linear algebra ------------------------------------------------------------------------------------------

    def mm(self, w: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
        res = self.mul_mat(w, x)
        return res if scale is None else self.mul(res, scale)

    def mm_id(self, w: Tensor, x: Tensor, ids: Tensor, scale: Tensor | None = None) -> Tensor:
        res = self.mul_mat_id(w, x, ids)
        if scale is None:
            return res
        n = scale.ne[0]
        s = self.repeat(self.reshape(scale, 1, n, 1), 1, n, x.ne[2], 1)
        return self.mul(res, self.get_rows(s, ids))

    def build_norm(self, cur: Tensor, w: Tensor | None, b: Tensor | None, kind: str, il: int) -> Tensor:
        cur = self.rms_norm(cur) if kind == "rms" else self.norm(cur)
        if w is not None or b is not None:
            self.pin(cur, il)
        if w is not None:
            cur = self.mul(cur, w)
        if b is not None:
            cur = self.add(cur, b)
        return cur

    def rotate(self, cur: Tensor, rot: Tensor) -> Tensor:
        n = rot.ne[0]
        rows = cur.n_elements // n
        flat = self.reshape(cur, n, rows) if cur.is_contiguous else self.cont(cur, n, rows)
        return self.reshape(self.mul_mat(rot, flat), *cur.ne)

    # -- attention -----------------------------------------------------------------------------------------------

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

    # -- feed-forward --------------------------------------------------------------------------------------------

    def ffn(
        self,
        il: int,
        cur: Tensor,
        act: str,
        *,
        names: str = "ffn_{}",
        gated: bool | None = None,
        limit: bool = False,
    ) -> Tensor:
        """The dense feed-forward block. `act`: silu, gelu, relu, relu_sqr, or swiglu/geglu over one fused up weight;
        `limit`: what passes the gate is clamped.
        """

        def part(which: str) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
            name = names.format(which)
            return self.w(il, name), self.b(il, name), self.w(il, name, "scale")

        up, up_b, up_s = part("up")
        gate, gate_b, gate_s = part("gate")
        down, down_b, down_s = part("down")
        if gated is False:
            gate = None
        return self.ffn_of(cur, act, up, up_b, up_s, gate, gate_b, gate_s, down, down_b, down_s, limit=limit)

    def ffn_of(
        self,
        cur: Tensor,
        act: str,
        up: Tensor | None,
        up_b: Tensor | None,
        up_s: Tensor | None,
        gate: Tensor | None,
        gate_b: Tensor | None,
        gate_s: Tensor | None,
        down: Tensor | None,
        down_b: Tensor | None = None,
        down_s: Tensor | None = None,
        *,
        limit: bool = False,
    ) -> Tensor:
        tmp = self.biased(self.mm(up, cur) if up is not None else cur, up_b, up_s)
        if gate is not None:
            cur = self.biased(self.mm(gate, cur), gate_b, gate_s)
            cur = self.gated(cur, tmp, act, limit)
        else:
            cur = self.activated(tmp, act)
        if down is not None:
            cur = self.mm(down, cur)
        return self.biased(cur, down_b, down_s)

    def biased(self, cur: Tensor, bias: Tensor | None, scale: Tensor | None) -> Tensor:
        if bias is not None:
            cur = self.add(cur, bias)
        return cur if scale is None else self.mul(cur, scale)

    def gated(self, gate: Tensor, up: Tensor, act: str, limit: bool = False) -> Tensor:
        if act == "relu_sqr":
            return self.mul(self.op("SQR", self.unary(gate)), up)
        if act == "situ":
            gate = self.mul(self.scale(self.unary(self.scale(gate))), self.unary(gate))
            return self.mul(gate, self.scale(self.unary(self.scale(up))))
        if limit and self.r.arch == "deepseek4":
            return self.glu(self.clamp(gate), self.clamp(up))
        if limit:
            up = self.clamp(up)
            return self.mul(self.clamp(self.unary(gate)), up)
        return self.glu(gate, up)

    def activated(self, cur: Tensor, act: str) -> Tensor:
        if act in ("swiglu", "geglu", "reglu"):
            return self.glu_half(cur)
        cur = self.unary(cur)
        return self.op("SQR", cur) if act == "relu_sqr" else cur

    def moe(
        self,
        il: int,
        cur: Tensor,
        *,
        act: str = "silu",
        norm_w: bool = False,
        scale: bool = False,
        gating: str = "softmax",
        probs_b: bool = True,
        limit: bool = False,
        n_expert: int | None = None,
        n_used: int | None = None,
        names: str = "ffn_{}_exps",
        probs_in: Tensor | None = None,
        biases: bool = True,
        selected: Tensor | None = None,
        n_groups: int | None = None,
        gate_name: str = "ffn_gate_inp",
    ) -> Tensor:
        """Router, selected experts, their weighted sum."""
        n_embd, nt = cur.ne[0], cur.ne[1]
        n_expert = self.model.n_expert if n_expert is None else n_expert
        n_used = self.model.n_expert_used if n_used is None else n_used
        arch = self.r.arch
        logits = self.mm(self.need(il, gate_name), cur) if probs_in is None else probs_in
        gate_inp_b = self.b(il, gate_name) if biases else None
        if gate_inp_b is not None:
            logits = self.add(logits, gate_inp_b)
        if gating == "softmax":
            probs = self.soft_max(logits)
        elif gating == "sigmoid":
            probs = self.unary(logits)
        elif gating == "sqrt_softplus":
            probs = self.op("SQRT", self.unary(logits))
        else:
            probs = logits
        selection = probs
        bias = self.b(il, "exp_probs_b") or self.r.weight(f"blk.{il}.exp_probs_b") if probs_b else None
        if bias is not None:
            selection = self.add(probs, bias)
        if arch == "llama4":
            selection = logits
        elif arch == "grovemoe":
            selection = self.unary(logits)
        groups = int(self.r.number("expert_group_count")) if n_groups is None else n_groups
        if groups > 1:
            selection = self._grouped(selection, n_expert, groups, nt)
        chosen = self.argsort_top_k(selection, n_used) if selected is None else selected
        if arch == "grovemoe" and n_expert != self.model.n_expert:
            chosen = self.cast(self.scale(self.cast(chosen, F32)), I32)
            probs = self.reshape(probs, 1, self.model.n_expert, nt)
        else:
            probs = self.reshape(probs, 1, n_expert, nt)
        weights = self.get_rows(probs, chosen)
        if gating == "softmax_weight":
            weights = self.reshape(weights, n_used, nt)
            weights = self.reshape(self.soft_max(weights), 1, n_used, nt)
        if norm_w:
            weights = self.reshape(weights, n_used, nt)
            total = self.clamp(self.sum_rows(weights))
            weights = self.reshape(self.div(weights, total), 1, n_used, nt)
        if scale:
            weights = self.scale(weights)
        self.expand(weights)
        cur = self.reshape(cur, n_embd, 1, nt)
        before = arch == "llama4"
        if before:
            cur = self.mul(self.repeat(cur, n_embd, n_used, nt, 1), weights)
        cur = self._experts(il, cur, chosen, act, limit, names, biases)
        down = names.format("down")
        experts = self.mm_id(self.need(il, down), cur, chosen, self.w(il, down, "scale"))
        down_b = self.b(il, down) if biases else None
        if down_b is not None:
            experts = self.add_id(experts, down_b, chosen)
        if not before:
            experts = self.mul(experts, weights)
        self.expand(experts)
        return self.sum_experts(experts, n_embd, nt, n_used)

    def sum_experts(self, experts: Tensor, n_embd: int, nt: int, n_used: int) -> Tensor:
        views = [self.view(experts, (n_embd, nt), experts.nb[2:3]) for _ in range(n_used)]
        for view in views:
            self.expand(view)
        out = views[0]
        for view in views[1:]:
            out = self.add(out, view)
            self.expand(out)
        return self.cont(out) if n_used == 1 else out

    def _grouped(self, selection: Tensor, n_expert: int, groups: int, nt: int) -> Tensor:
        used_groups = int(self.r.number("expert_group_used_count", 1))
        per = n_expert // groups
        grouped = self.reshape(selection, per, groups, nt)
        scores = self.argsort_top_k(grouped, 2)
        scores = self.get_rows(self.reshape(grouped, 1, per, groups, nt), scores)
        scores = self.sum_rows(self.reshape(scores, 2, groups, nt))
        scores = self.reshape(scores, groups, nt)
        best = self.argsort_top_k(scores, used_groups)
        picked = self.get_rows(grouped, best)
        return self.reshape(self.set_rows(self.fill(grouped), picked, best), n_expert, nt)

    def _experts(self, il: int, cur: Tensor, chosen: Tensor, act: str, limit: bool, names: str, biases: bool) -> Tensor:
        up_name, gate_name, both_name = names.format("up"), names.format("gate"), names.format("gate_up")
        both = self.w(il, both_name)
        if both is not None:
            merged = self.mm_id(both, cur, chosen, self.w(il, both_name, "scale"))
            bias = self.b(il, both_name) if biases else None
            if bias is not None:
                merged = self.add_id(merged, bias, chosen)
            half = merged.ne[0] // 2
            gate = self.view(merged, (half, *merged.ne[1:3]), merged.nb[1:3])
            up = self.view(merged, (half, *merged.ne[1:3]), merged.nb[1:3])
            return self.gated(gate, up, act)
        up = self.mm_id(self.need(il, up_name), cur, chosen, self.w(il, up_name, "scale"))
        bias = self.b(il, up_name) if biases else None
        if bias is not None:
            up = self.add_id(up, bias, chosen)
        gate_w = self.w(il, gate_name)
        if gate_w is None:
            return self.activated(up, act)
        gate = self.mm_id(gate_w, cur, chosen, self.w(il, gate_name, "scale"))
        bias = self.b(il, gate_name) if biases else None
        if bias is not None:
            gate = self.add_id(gate, bias, chosen)
        return self.gated(gate, up, act, limit)

    # -- tail ----------------------------------------------------------------------------------------------------

    def head(self, cur: Tensor, kind: str = "rms", *, extra: int = 0, norm: str = "output_norm") -> Tensor:
        """Final norm and logits; `extra` counts scalings and soft caps behind them."""
        w = self.r.weight(f"{norm}.weight")
        cur = self.build_norm(cur, w, self.r.weight(f"{norm}.bias"), kind, -1)
        return self.logits(cur, extra=extra)

    def logits(self, cur: Tensor, *, extra: int = 0) -> Tensor:
        if self.embd is None:
            self.embd = cur
            cur.is_output = True
        out = self.r.weight("output.weight")
        if out is not None:
            cur = self.mm(out, cur, self.r.weight("output.scale"))
            bias = self.r.weight("output.bias")
            if bias is not None:
                cur = self.add(cur, bias)
            for _ in range(extra):
                cur = self.scale(cur)
            cur.is_output = True
        self.expand(cur)
        return cur

    def pool(self) -> None:
        """In embedding mode the rows are pooled per sequence behind the rest of the graph."""
        r, embd = self.r, self.embd
        if not r.embeddings or embd is None:
            return
        kind = r.pooling_kind
        embd.is_output = True
        if kind == "none":
            return
        if kind == "mean" or (kind == "rank" and r.arch == "modern-bert"):
            mean = self.input(F32, self.nt, r.n_seqs)
            cur = self.mul_mat(self.cont(self.transpose(embd)), mean)
        else:
            cur = self.get_rows(embd, self.input(I32, r.n_seqs))
        if kind == "rank":
            cur = self._classify(cur)
        cur.is_output = True
        self.expand(cur)

    def _classify(self, cur: Tensor) -> Tensor:
        r = self.r
        cls = r.weight("cls.weight")
        if cls is not None:
            cur = self.mm(cls, cur)
            bias = r.weight("cls.bias")
            cur = self.unary(cur if bias is None else self.add(cur, bias))
            norm = r.weight("cls.norm.weight")
            if norm is not None:
                cur = self.mul(self.norm(cur), norm)
        out = r.weight("cls.output.weight")
        if out is not None:
            cur = self.mm(out, cur)
            bias = r.weight("cls.output.bias")
            cur = cur if bias is None else self.add(cur, bias)
        return self.soft_max(cur) if r.arch in ("qwen3", "qwen3vl") else cur


#: Architectures that rotate positions in sections (four position ids per token).
M_ROPE = frozenset(
    {"qwen2vl", "qwen3vl", "qwen3vlmoe", "paddleocr", "glm4", "glm4moe", "qwen35", "qwen35moe", "hunyuan_vl",
     "hunyuan-vl", "qwen3tts", "bailingmoe3", "qwen4exp", "clef"}
)  # fmt: skip
ALWAYS_M_ROPE = frozenset(
    {"qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen3tts", "paddleocr", "qwen35", "qwen35moe", "qwen4exp", "clef"}
)
#: Architectures that soft-cap attention scores inside the attention block.
SOFT_CAP = frozenset({"gemma2"})
