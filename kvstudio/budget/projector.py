"""A projector's compute buffers: the tower's graph for the image (or the sound) that llama.cpp warms it up with.

Source: llama.cpp b11434, tools/mtmd/clip.cpp (warmup, reserve_compute_meta, build_vit), tools/mtmd/models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

from kvstudio.budget.compute.allocate import GraphAllocator
from kvstudio.budget.compute.backend import Backend
from kvstudio.budget.compute.graph import F16, F32, Graph
from kvstudio.budget.compute.schedule import schedule
from kvstudio.budget.compute.tensor import I32, Tensor
from kvstudio.header.values import Header, TensorInfo

VISION, AUDIO = "vision", "audio"
_BF16 = 30
_CHANNELS = 3
#: Frames of sound that are warmed up with, and how many of them become one position. Source: clip-model.h, whisper-enc.
_AUDIO_FRAMES, _FRAMES_PER_POSITION = 3000, 2
#: Layers that are built: the second has the neighbours every later one has.
_LAYERS = 3
_QWEN_GROUP = 4  # patches that Qwen's tower keeps together


@dataclass(frozen=True, slots=True)
class Warmup:
    """The warm-up image: `tokens` after merging `n_merge` x `n_merge` patches, or None for the model's own size."""

    tokens: int | None = None
    n_merge: int = 1


#: By projector type. Source: clip.cpp, set_warmup_n_tokens and set_limit_image_tokens.
_WARMUPS: dict[str, Warmup] = {
    "phi4": Warmup(16 * 16),
    "pixtral": Warmup(256),
    "lightonocr": Warmup(256),
    "dots_ocr": Warmup(46 * 46),
    "dots3note_v": Warmup(46 * 46),
    "kimivl": Warmup(256),
    "deepseek4v": Warmup(256),
    "gemma4v": Warmup(256, 3),
    "gemma4uv": Warmup(256, 3),
    "qwen2vl_merger": Warmup(46 * 46, 2),
    "qwen2.5vl_merger": Warmup(46 * 46, 2),
    "qwen3vl_merger": Warmup(46 * 46, 2),
    "ling3vl": Warmup(46 * 46, 2),
    "minimax_m3": Warmup(16 * 16, 2),
    "muse-glimmer": Warmup(32 * 32, 2),
    "mimovl": Warmup(46 * 46, 2),
    "youtuvl": Warmup(16 * 16, 2),
    "glm4v": Warmup(46 * 46, 2),
    "glm5v": Warmup(46 * 46, 2),
    "paddleocr": Warmup(28 * 28, 2),
    "hunyuanvl": Warmup(32 * 32, 2),
    "exaone4_5": Warmup(46 * 46, 2),
}
#: Most tokens of an image where the warm-up takes them all. Source: clip.cpp, set_limit_image_tokens.
_MOST_TOKENS: dict[str, int] = {"kimik25": 4096, "lfm2": 256}
_ROPE = frozenset(
    {"pixtral", "lightonocr", "dots_ocr", "dots3note_v", "kimivl", "kimik25", "gemma4v", "minimax_m3", "llama4",
     "qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "ling3vl", "mimovl", "youtuvl", "glm4v", "glm5v",
     "paddleocr", "exaone4_5", "step3vl", "muse-glimmer", "deepseek4v"}
)  # fmt: skip
#: Towers whose rotation takes one operation per axis; the others take one for all.
_ROPE_TWICE = frozenset({"pixtral", "lightonocr", "kimivl", "kimik25", "gemma4v", "minimax_m3", "llama4", "step3vl"})
#: Types whose graph was met in real runs: to the two decimals that are printed, gemma4v with flash attention 7 % above.
#: The others share their tower, and get room for what is their own.
FOLLOWED = frozenset(
    {"gemma3", "gemma4v", "idefics3", "internvl", "janus_pro", "lfm2", "mlp", "pixtral", "qwen2a", "qwen2vl_merger",
     "qwen2.5vl_merger", "qwen3vl_merger"}
)  # fmt: skip
_MARGIN_PERCENT = 25
#: Towers of LLaVA's kind, which look positions and patches up by number.
_LLAVA = frozenset({"mlp", "ldp", "ldpv2", "adapter"})
#: Towers that are no vision transformer.
_OTHER_TOWERS = frozenset({"gemma3nv", "deepseekocr", "deepseekocr2", "gemma4uv"})


@dataclass(frozen=True, slots=True)
class Tower:
    """What a header says of one encoder: `kind` vision or audio, `type` llama.cpp's projector type."""

    kind: str
    type: str
    n_embd: int
    n_head: int
    n_layer: int
    image_size: int
    patch_size: int
    n_merge: int
    n_mel_bins: int


def towers(header: Header) -> tuple[Tower, ...]:
    """The encoders of a projector file; one whose keys are missing or absurd is left out."""
    found = []
    for kind in (VISION, AUDIO):
        if header.metadata.get(f"clip.has_{kind}_encoder") is True and (tower := _tower(header.metadata, kind)):
            found.append(tower)
    return tuple(found)


def _tower(meta: Mapping[str, Any], kind: str) -> Tower | None:
    type_name = str(meta.get(f"clip.{kind}.projector_type") or meta.get("clip.projector_type") or "")
    warmup = _WARMUPS.get(type_name, Warmup())
    merge = meta.get("clip.vision.spatial_merge_size", meta.get("clip.vision.projector.scale_factor"))
    numbers = {
        "n_embd": meta.get(f"clip.{kind}.embedding_length"),
        "n_head": meta.get(f"clip.{kind}.attention.head_count"),
        "n_layer": meta.get(f"clip.{kind}.block_count"),
        "image_size": meta.get("clip.vision.image_size") if kind == VISION else 0,
        "patch_size": meta.get("clip.vision.patch_size") if kind == VISION else 1,
        "n_merge": merge if merge is not None else warmup.n_merge,
        "n_mel_bins": meta.get("clip.audio.num_mel_bins") if kind == AUDIO else 0,
    }
    known = {name: value for name, value in numbers.items() if type(value) is int and 0 <= value < 1 << 20}
    positive = all(known.get(name) for name in ("n_embd", "n_head", "n_layer", "patch_size", "n_merge"))
    return Tower(kind, type_name, **known) if positive and len(known) == len(numbers) else None


def warmup_side(tower: Tower) -> int:
    """Pixels of each side of the image that is warmed up with."""
    warmup = _WARMUPS.get(tower.type, Warmup())
    if tower.type in _MOST_TOKENS:
        area = _MOST_TOKENS[tower.type] * (tower.patch_size * tower.n_merge) ** 2
        return isqrt(area)
    if warmup.tokens is None:
        return tower.image_size
    return isqrt(warmup.tokens) * tower.patch_size * tower.n_merge


def compute_bytes(
    header: Header, tower: Tower, backends: Sequence[Backend], flash_attn: bool, build: int
) -> list[int] | None:
    """Bytes of each backend's compute buffer, the CPU's last; None where the tower is not followed.

    Flash attention is given up as llama.cpp does, when an attention would not stay on the first backend.
    """
    if tower.type in _OTHER_TOWERS:
        return None
    graph = _Graph(header, tower, backends[0].buffer_type, flash_attn)
    if not graph.is_transformer or not graph.build():
        return None
    plan = schedule(graph, backends, copies=1, op_offload=True, build=build, reorder=None)
    if flash_attn and any(node.op == "FLASH_ATTN_EXT" and at != 0 for node, at in plan.nodes):
        return compute_bytes(header, tower, backends, False, build)
    allocator = GraphAllocator(backends)
    allocator.run(plan.nodes, plan.leafs)
    sizes = allocator.sizes
    return sizes if tower.type in FOLLOWED else [size * (100 + _MARGIN_PERCENT) // 100 for size in sizes]


class _Graph(Graph):
    """The operations of one encoder; weights are leafs that have a home."""

    def __init__(self, header: Header, tower: Tower, home: str, flash_attn: bool) -> None:
        super().__init__()
        self._tower, self._home, self._flash = tower, home, flash_attn
        self._infos = {tensor.name: tensor for tensor in header.tensors}
        self._positions: tuple[Tensor, ...] | None = None
        self._letter = "v" if tower.kind == VISION else "a"

    @property
    def is_transformer(self) -> bool:
        return self._named("blk.0.ffn_down.weight") is not None

    def build(self) -> bool:
        """Add all nodes; False when a weight that every such tower has is missing."""
        try:
            cur = self._image() if self._tower.kind == VISION else self._sound()
            cur = self._project(self._blocks(cur))
        except LookupError:
            return False
        self.expand(cur)
        return True

    # weights

    def _named(self, name: str) -> TensorInfo | None:
        return self._infos.get(f"{self._letter}.{name}")

    def _weight(self, info: TensorInfo) -> Tensor:
        shape = (*info.shape, 1, 1, 1)[:4]
        tensor = Tensor("NONE", info.type_id, (shape[0], shape[1], shape[2], shape[3]))
        tensor.home, tensor.weight = self._home, True
        return tensor

    def _need(self, name: str) -> Tensor:
        info = self._named(name)
        if info is None:
            raise LookupError(name)
        return self._weight(info)

    def _added(self, cur: Tensor, name: str) -> Tensor:
        """With a bias where there is one."""
        info = self._named(name)
        return cur if info is None else self.add(cur, self._weight(info))

    def _linear(self, cur: Tensor, name: str) -> Tensor:
        return self._added(self.mul_mat(self._need(f"{name}.weight"), cur), f"{name}.bias")

    def _normed(self, cur: Tensor, name: str) -> Tensor:
        info = self._named(f"{name}.weight")
        cur = self.rms_norm(cur) if self._is_rms else self.norm(cur)
        return self._added(self.mul(cur, self._weight(info)) if info else cur, f"{name}.bias")

    @property
    def _is_rms(self) -> bool:
        return self._named("blk.0.ln1.bias") is None

    @property
    def _is_llava(self) -> bool:
        return self._tower.type in _LLAVA

    # stages

    def _image(self) -> Tensor:
        """Patches of the warm-up image as vectors."""
        tower = self._tower
        side = warmup_side(tower)
        raw = self.input(F32, side, side, _CHANNELS)
        if tower.type == "gemma4v":
            raw = self.scale(raw)
        if self._named("patch_embd.weight.1") is not None:
            cur = self.add(self._conv(raw, "patch_embd.weight"), self._conv(raw, "patch_embd.weight.1"))
            return self._grouped(cur)
        cur = self._conv(raw, "patch_embd.weight")
        cur = self.reshape(cur, prod(cur.ne[:2]), cur.ne[2])
        cur = self._added(self.cont(self.transpose(cur), cur.ne[1], cur.ne[0]), "patch_embd.bias")
        class_embd = self._infos.get("v.class_embd")
        if class_embd is not None:
            first = self._weight(class_embd)
            cur = self.concat(cur, first if self._is_llava else self.repeat(first, first.ne[0], 1), 1)
        embd = self._named("position_embd.weight")
        return cur if embd is None else self._placed(cur, embd)

    def _placed(self, cur: Tensor, embd: TensorInfo) -> Tensor:
        """With learned positions: looked up by number in the towers of LLaVA's kind, added whole in the others."""
        weight = self._weight(embd)
        if self._is_llava:
            return self.add(cur, self.get_rows(weight, self.input(I32, cur.ne[1])))
        if self._tower.type == "gemma4v":
            for position in self._axes(cur.ne[1]):
                cur = self.add(cur, self.get_rows(self.view(weight, weight.ne[:2]), position))
            return cur
        return self.add(cur, weight)

    def _conv(self, raw: Tensor, name: str) -> Tensor:
        """A convolution without overlap: columns of pixels times the kernel, then turned."""
        kernel = self._need(name)
        if kernel.ne[3] == 1:
            raise LookupError(name)
        side, n_embd = self._tower.patch_size, kernel.ne[3]
        nx = raw.ne[0] // side
        columns = self.make(
            "IM2COL", F32 if kernel.type == _BF16 else F16, (side * side * _CHANNELS, nx, nx), kernel, raw
        )
        flat = self.reshape(columns, columns.ne[0], nx * nx)
        result = self.mul_mat(flat, self.reshape(kernel, columns.ne[0], n_embd))
        result = self.reshape(result, nx, nx, 1, n_embd)
        return self.cont(self.permute(result, 0, 1, 3, 2))

    def _grouped(self, cur: Tensor) -> Tensor:
        """Qwen's order: two by two neighbouring patches follow each other."""
        nx, ny, n_embd, _ = cur.ne
        cur = self.permute(cur, 1, 2, 0, 3)
        cur = self.cont(cur, n_embd * 2, nx // 2, ny, 1)
        cur = self.permute(self.reshape(cur, n_embd * 2, nx // 2, 2, ny // 2), 0, 2, 1, 3)
        return self.cont(cur, n_embd, nx * ny)

    def _sound(self) -> Tensor:
        """Frames of the warm-up sound after two convolutions over time."""
        raw = self.input(F32, _AUDIO_FRAMES, self._tower.n_mel_bins)
        cur = raw
        for index, length in ((1, _AUDIO_FRAMES), (2, _AUDIO_FRAMES // _FRAMES_PER_POSITION)):
            kernel = self._need(f"conv1d.{index}.weight")
            columns = self.make("IM2COL", F16, (kernel.ne[0] * kernel.ne[1], length), kernel, cur)
            flat = self.reshape(kernel, kernel.ne[0] * kernel.ne[1], kernel.ne[2])
            cur = self.reshape(self.mul_mat(self.reshape(columns, columns.ne[0], length), flat), length, kernel.ne[2])
            cur = self.unary(self._added(cur, f"conv1d.{index}.bias"))
        cur = self.cont(self.transpose(cur), cur.ne[1], cur.ne[0])
        return self._added(cur, "position_embd.weight")

    def _blocks(self, cur: Tensor) -> Tensor:
        tower = self._tower
        positions = self._axes(cur.ne[1])
        window = self._window(cur.ne[1])
        if window is not None:
            rows = self.reshape(cur, cur.ne[0] * _QWEN_GROUP, cur.ne[1] // _QWEN_GROUP)
            rows = self.get_rows(rows, self.input(I32, cur.ne[1] // _QWEN_GROUP))
            cur = self.reshape(rows, cur.ne[0], cur.ne[1])
        if self._named("pre_ln.weight") is not None:
            cur = self._normed(cur, "pre_ln")
        for il in range(min(_LAYERS, tower.n_layer)):
            cur = self._block(cur, f"blk.{il}", positions, window if il + 1 < _LAYERS else None)
        return self._normed(cur, "post_ln") if self._named("post_ln.weight") is not None else cur

    def _axes(self, n_pos: int) -> tuple[Tensor, ...]:
        """Where each patch lies: a number per axis, or all of them in one tensor."""
        if self._positions is None:
            kind = self._tower.type
            if kind.startswith(("qwen", "glm")):
                self._positions = (self.input(I32, n_pos * _QWEN_GROUP),)
            else:
                self._positions = tuple(self.input(I32, n_pos) for _ in range(2 if kind in _ROPE_TWICE else 1))
        return self._positions

    def _window(self, n_pos: int) -> Tensor | None:
        """The mask of attention within windows, where some layers have it."""
        if self._tower.type not in ("qwen2.5vl_merger", "exaone4_5"):
            return None
        mask = self.input(F32, n_pos, n_pos)
        return self.cast(mask, F16) if self._flash else mask

    def _block(self, residual: Tensor, name: str, positions: tuple[Tensor, ...], mask: Tensor | None) -> Tensor:
        cur = self._attention(self._normed(residual, f"{name}.ln1"), name, positions, mask)
        cur = self._linear(cur, f"{name}.attn_out")
        cur = self._after(self._scaled(cur, f"{name}.ls1.weight"), f"{name}.attn_post_norm")
        residual = self.add(cur, residual)
        cur = self._feed_forward(self._normed(residual, f"{name}.ln2"), name)
        cur = self._scaled(self._after(cur, f"{name}.ffn_post_norm"), f"{name}.ls2.weight")
        return self.add(residual, cur)

    def _after(self, cur: Tensor, name: str) -> Tensor:
        """With a second norm where there is one."""
        return self._normed(cur, name) if self._named(f"{name}.weight") is not None else cur

    def _scaled(self, cur: Tensor, name: str) -> Tensor:
        info = self._named(name)
        return cur if info is None else self.mul(cur, self._weight(info))

    def _attention(self, cur: Tensor, name: str, positions: tuple[Tensor, ...], mask: Tensor | None) -> Tensor:
        n_pos, n_head = cur.ne[1], self._tower.n_head
        parts = self._fused(cur, name) if self._named(f"{name}.attn_qkv.weight") else self._separate(cur, name)
        q, k, v = parts
        if self._tower.type in _ROPE:
            q, k = self._turned(q, positions), self._turned(k, positions)
        if self._tower.type == "gemma4v":
            v = self.rms_norm(v)
        self.expand(q, k, v)
        q, k = self.permute(q, 0, 2, 1, 3), self.permute(k, 0, 2, 1, 3)
        if self._flash:
            k, v = self.cast(k, F16), self.cast(self.permute(v, 0, 2, 1, 3), F16)
            found = self.flash_attn(q, k, v, mask, None)
            return self.reshape(found, found.ne[0] * n_head, n_pos)
        v = self.cont(self.permute(v, 1, 2, 0, 3))
        scores = self.soft_max(self.mul_mat(k, q), mask)
        found = self.permute(self.mul_mat(v, scores), 0, 2, 1, 3)
        return self.cont(found, found.ne[0] * n_head, n_pos)

    def _separate(self, cur: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
        def part(letter: str) -> Tensor:
            made = self._linear(cur, f"{name}.attn_{letter}")
            n_head = self._tower.n_head
            per_head = self._named(f"{name}.attn_{letter}_norm.weight")
            made = self.reshape(made, made.ne[0] // n_head, n_head, cur.ne[1])
            return made if per_head is None else self.mul(self.rms_norm(made), self._weight(per_head))

        return part("q"), part("k"), part("v")

    def _fused(self, cur: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
        whole = self._linear(cur, f"{name}.attn_qkv")
        n_head = self._tower.n_head
        width = whole.ne[0] // 3 // n_head
        steps = (width * 4, whole.nb[1])
        q, k, v = (self.view(whole, (width, n_head, cur.ne[1]), steps) for _ in range(3))
        return q, k, v

    def _turned(self, cur: Tensor, positions: tuple[Tensor, ...]) -> Tensor:
        for position in positions:
            cur = self.rope(cur, position)
        return cur

    def _feed_forward(self, cur: Tensor, name: str) -> Tensor:
        up = self._linear(cur, f"{name}.ffn_up")
        if self._named(f"{name}.ffn_gate.weight") is None:
            return self._linear(self.unary(up), f"{name}.ffn_down")
        return self._linear(self.glu(self._linear(cur, f"{name}.ffn_gate"), up), f"{name}.ffn_down")

    def _project(self, cur: Tensor) -> Tensor:
        """To the text model: merged or pooled patches through the projector's matrices, in their order."""
        tower = self._tower
        matrices = [t for t in self._infos.values() if t.name.startswith("mm.") and len(t.shape) > 1]
        if tower.type == "gemma3":
            return self._gemma3(cur)
        if self._is_llava:
            cur = self.get_rows(cur, self.input(I32, (tower.image_size // tower.patch_size) ** 2))
        elif self._infos.get("v.class_embd") is not None:
            cur = self.cont(self.view(cur, (cur.ne[0], cur.ne[1] - 1), cur.nb[1:2]))
        group = tower.n_merge**2
        if tower.kind == VISION and tower.n_merge > 1 and cur.ne[1] % group == 0:
            if not tower.type.startswith("qwen"):
                cur = self.cont(cur, cur.ne[0] * group, cur.ne[1] // group)
                cur = self.cont(self.permute(cur, 0, 2, 1, 3), cur.ne[0], cur.ne[1])
            else:
                cur = self.reshape(cur, cur.ne[0] * group, cur.ne[1] // group)
        for index, info in enumerate(matrices):
            if info.shape[0] == cur.ne[0]:
                cur = self.mul_mat(self._weight(info), cur)
                bias = self._infos.get(info.name.removesuffix("weight") + "bias")
                cur = self.add(cur, self._weight(bias)) if bias else cur
                cur = self.unary(cur) if index + 1 < len(matrices) else cur
        return cur

    def _gemma3(self, cur: Tensor) -> Tensor:
        side, n_embd, merge = isqrt(cur.ne[1]), cur.ne[0], self._tower.n_merge
        cur = self.cont(self.transpose(cur), side, side, n_embd)
        cur = self.make("POOL_2D", F32, (side // merge, side // merge, n_embd), cur)
        cur = self.reshape(cur, cur.ne[0] * cur.ne[0], n_embd)
        cur = self.rms_norm(self.cont(self.transpose(cur), n_embd, cur.ne[0]))
        norm, matrix = self._infos.get("mm.soft_emb_norm.weight"), self._infos.get("mm.input_projection.weight")
        if norm is None or matrix is None:
            raise LookupError("mm.input_projection.weight")
        cur = self.mul(cur, self._weight(norm))
        weight = self._weight(matrix)
        return self.mul_mat(self.cont(self.transpose(weight), weight.ne[1], weight.ne[0]), cur)
