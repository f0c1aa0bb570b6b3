"""A graph under construction for one reserve: weights by name, inputs of the batch and of the caches, products, norms.

Source: llama-graph.cpp llm_graph_context, read at build 11434. Operation order decides the result, so it is kept.
"""

from collections.abc import Callable, Iterable, Sequence

from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE, Reserve
from kvstudio.budget.compute.tensor import F16, F32, I32, I64, Tensor

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


class Foundation(Graph):
    """What every part of a model's graph is built with."""

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

    def attn_input(self, *, swa: bool = False, k_only: bool = False) -> AttnInput:
        """What attention to a cache is given; keys that are the values too are not rotated."""
        r = self.r
        inp = AttnInput("swa" if swa else "base", r.n_kv_swa if swa else r.n_ctx_seq)
        inp.k_idxs = self.input(I64, self.nt)
        if not k_only:
            widest = max(layer.n_embd_v_gqa for layer in r.layers)
            inp.v_idxs = self.input(I64, self.nt * (widest if r.v_trans else 1))
        inp.mask = self._mask(inp.n_kv)
        if not k_only:
            inp.k_rot = self._rot(self._rot_k(swa))
            inp.v_rot = self._rot(self._rot_v(swa))
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

    # -- linear algebra ------------------------------------------------------------------------------------------

    def clamp(self, x: Tensor) -> Tensor:
        """Earlier builds write over what they clamp."""
        later = self.r.config.build >= MIXED_BATCH_SINCE
        return self.op("CLAMP", x) if later else Tensor("CLAMP", x.type, x.ne, (x,), x.nb, x)

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


#: Architectures that rotate positions in sections (four position ids per token).
M_ROPE = frozenset(
    {"qwen2vl", "qwen3vl", "qwen3vlmoe", "paddleocr", "glm4", "glm4moe", "qwen35", "qwen35moe", "hunyuan_vl",
     "hunyuan-vl", "qwen3tts", "bailingmoe3", "qwen4exp", "clef"}
)  # fmt: skip
ALWAYS_M_ROPE = frozenset(
    {"qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen3tts", "paddleocr", "qwen35", "qwen35moe", "qwen4exp", "clef"}
)
