"""One node of a compute graph: only what decides where it lives and how many bytes it takes."""

from typing import Final

#: ggml type id -> (values in a block, bytes of a block). Source: ggml.c type_traits, read at build 11434.
BLOCKS: Final[dict[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54),
    35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18), 42: (64, 18),
}  # fmt: skip
F32, F16, Q8_0, I32, I64, BF16 = 0, 1, 8, 26, 27, 30
CACHE_TYPE_IDS: Final[dict[str, int]] = {
    "f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "iq4_nl": 20,
}  # fmt: skip

#: Operations that only reinterpret memory.
VIEW_OPS: Final = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
#: Operations that may write over their source.
#: Source: ggml-alloc.c ggml_op_can_inplace.
INPLACE_OPS: Final = frozenset(
    {"FILL", "SCALE", "ADD", "ADD_ID", "ADD1", "SUB", "MUL", "DIV", "SQR", "SQRT", "LOG", "UNARY", "ROPE",
     "ROPE_BACK", "RMS_NORM", "CLAMP", "SOFT_MAX", "DIAG_MASK_INF"}
)  # fmt: skip

Shape = tuple[int, int, int, int]


def row_bytes(type_id: int, n: int) -> int:
    """Bytes of `n` consecutive values."""
    per, size = BLOCKS.get(type_id, (1, 4))
    return n // per * size


def strides(type_id: int, ne: Shape) -> Shape:
    """Byte strides of a contiguous tensor."""
    per, size = BLOCKS.get(type_id, (1, 4))
    nb1 = ne[0] // per * size
    nb2 = nb1 * ne[1]
    return (size, nb1, nb2, nb2 * ne[2])


class Tensor:
    """A tensor of the graph.

    `home`: buffer type the tensor already has memory in (weights, caches), None when the allocator must find some.
    `weight`: the home is a weights buffer. `origin`: what a copy was made of. `layer`: the
    layer that made the node, -1 outside. `pinned`: device that the model code forces the node onto.
    The fields after `n_bytes` belong to the scheduler and the allocator.
    """

    __slots__ = (
        "backend",
        "buffer",
        "children",
        "copies",
        "home",
        "is_input",
        "is_output",
        "is_view",
        "layer",
        "n_bytes",
        "nb",
        "ne",
        "op",
        "origin",
        "own",
        "pinned",
        "src",
        "taken",
        "type",
        "view_src",
        "views",
        "weight",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        type_id: int,
        ne: Shape,
        src: tuple["Tensor", ...] | list["Tensor"] = (),
        nb: Shape | None = None,
        view_src: "Tensor | None" = None,
    ) -> None:
        self.op = op
        self.type = type_id
        self.ne = ne
        self.src = src
        owner = None if view_src is None else view_src.view_src
        self.view_src: Tensor | None = view_src if owner is None else owner
        self.is_view = op in VIEW_OPS
        self.home: str | None = None
        self.weight = False
        self.is_input = False
        self.is_output = False
        self.pinned: str | None = None
        self.origin: Tensor | None = None
        self.layer = -1
        self.backend = -1
        self.copies: dict[int, list[Tensor]] | None = None
        self.children = 0
        self.views = 0
        self.own = False
        self.buffer = 0
        self.taken = 0
        per, size = BLOCKS.get(type_id, (1, 4))
        if nb is None:
            nb1 = ne[0] // per * size
            nb2 = nb1 * ne[1]
            nb3 = nb2 * ne[2]
            self.nb = (size, nb1, nb2, nb3)
            self.n_bytes = nb3 * ne[3]
        else:
            self.nb = nb
            if 0 in ne:
                self.n_bytes = 0
            elif per == 1:
                self.n_bytes = size + sum((n - 1) * b for n, b in zip(ne, nb, strict=True))
            else:
                self.n_bytes = ne[0] * nb[0] // per + sum((n - 1) * b for n, b in zip(ne[1:], nb[1:], strict=True))

    @property
    def is_contiguous(self) -> bool:
        per, size = BLOCKS.get(self.type, (1, 4))
        ne, nb = self.ne, self.nb
        if ne[0] != per and nb[0] != size:
            return False
        expected = ne[0] // per * size
        for n, b in zip(ne[1:], nb[1:], strict=True):
            if n != 1:
                if b != expected:
                    return False
                expected *= n
        return True

    @property
    def n_elements(self) -> int:
        a, b, c, d = self.ne
        return a * b * c * d

    def __repr__(self) -> str:
        return f"{self.op}{list(self.ne)}:{self.type}"
