"""Building a compute graph: ggml's operations as far as shapes, views and the order of nodes go."""

from collections.abc import Sequence

from kvstudio.budget.compute.tensor import BLOCKS, F16, F32, I32, Shape, Tensor, row_bytes


class Graph:
    """Nodes in the order ggml would visit them: depth first, sources from left to right."""

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self._seen: set[int] = set()

    def expand(self, *tensors: Tensor) -> None:
        """Append the tensors and all they need that is not in the graph yet."""
        seen = self._seen
        for tensor in tensors:
            if id(tensor) in seen:
                continue
            stack: list[tuple[Tensor, int]] = [(tensor, 0)]
            seen.add(id(tensor))
            while stack:
                node, at = stack.pop()
                src = node.src
                n = len(src)
                while at < n:
                    child = src[at]
                    at += 1
                    if id(child) not in seen:
                        seen.add(id(child))
                        stack.append((node, at))
                        stack.append((child, 0))
                        break
                else:
                    (self.leafs if node.op == "NONE" else self.nodes).append(node)

    # -- leafs ---------------------------------------------------------------------------------------------------

    @staticmethod
    def new(type_id: int, *ne: int) -> Tensor:
        return Tensor("NONE", type_id, _shape(ne))

    @staticmethod
    def input(type_id: int, *ne: int) -> Tensor:
        tensor = Tensor("NONE", type_id, _shape(ne))
        tensor.is_input = True
        return tensor

    # -- views ---------------------------------------------------------------------------------------------------

    @staticmethod
    def view(a: Tensor, ne: Sequence[int], nb: Sequence[int] = ()) -> Tensor:
        """`nb`: strides of dimensions 1.. in bytes, as many as given; the rest follow as ggml_view_* fills them."""
        shape = _shape(ne)
        size = BLOCKS.get(a.type, (1, 4))[1]
        full = [size, *nb]
        if len(full) == 1:
            full.append(row_bytes(a.type, shape[0]))
        while len(full) < 4:
            full.append(full[-1] * shape[len(full) - 1])
        return Tensor("VIEW", a.type, shape, (a,), (full[0], full[1], full[2], full[3]), a)

    @staticmethod
    def reshape(a: Tensor, *ne: int) -> Tensor:
        return Tensor("RESHAPE", a.type, _shape(ne), (a,), None, a)

    @staticmethod
    def permute(a: Tensor, *axis: int) -> Tensor:
        ne, nb = [1] * 4, [0] * 4
        for i, to in enumerate(axis):
            ne[to], nb[to] = a.ne[i], a.nb[i]
        return Tensor("PERMUTE", a.type, (ne[0], ne[1], ne[2], ne[3]), (a,), (nb[0], nb[1], nb[2], nb[3]), a)

    @staticmethod
    def transpose(a: Tensor) -> Tensor:
        ne, nb = a.ne, a.nb
        shape, step = (ne[1], ne[0], ne[2], ne[3]), (nb[1], nb[0], nb[2], nb[3])
        return Tensor("TRANSPOSE", a.type, shape, (a,), step, a)

    # -- operations ----------------------------------------------------------------------------------------------

    @staticmethod
    def op(name: str, like: Tensor, *more: Tensor) -> Tensor:
        """An operation whose result is shaped like its first source (contiguous unless ggml keeps the layout)."""
        return Tensor(name, like.type, like.ne, (like, *more))

    @staticmethod
    def make(name: str, type_id: int, ne: Sequence[int], *src: Tensor) -> Tensor:
        return Tensor(name, type_id, _shape(ne), src)

    def mul_mat(self, w: Tensor, x: Tensor) -> Tensor:
        return Tensor("MUL_MAT", F32, (w.ne[1], x.ne[1], x.ne[2], x.ne[3]), (w, x))

    def mul_mat_id(self, w: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return Tensor("MUL_MAT_ID", F32, (w.ne[1], ids.ne[0], x.ne[2], 1), (w, x, ids))

    def get_rows(self, a: Tensor, ids: Tensor) -> Tensor:
        type_id = I32 if a.type == I32 else F32
        return Tensor("GET_ROWS", type_id, (a.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]), (a, ids))

    def set_rows(self, a: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        return Tensor("SET_ROWS", a.type, a.ne, (rows, ids, a), a.nb, a)

    def cpy(self, a: Tensor, b: Tensor) -> Tensor:
        return Tensor("CPY", b.type, b.ne, (a, b), b.nb, b)

    def cast(self, a: Tensor, type_id: int) -> Tensor:
        result = Tensor("CPY", type_id, a.ne, ())
        result.src = (a, result)
        return result

    def cont(self, a: Tensor, *ne: int) -> Tensor:
        return Tensor("CONT", a.type, _shape(ne) if ne else a.ne, (a,))

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return Tensor("ADD", a.type, a.ne, (a, b))

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        return Tensor("MUL", a.type, a.ne, (a, b))

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        return Tensor("SUB", a.type, a.ne, (a, b))

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        return Tensor("DIV", a.type, a.ne, (a, b))

    def add_id(self, a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
        return Tensor("ADD_ID", a.type, a.ne, (a, b, ids))

    def scale(self, a: Tensor) -> Tensor:
        return Tensor("SCALE", a.type, a.ne, (a,))

    def scale_inplace(self, a: Tensor) -> Tensor:
        return Tensor("SCALE", a.type, a.ne, (a,), a.nb, a)

    def unary(self, a: Tensor) -> Tensor:
        return Tensor("UNARY", a.type, a.ne, (a,))

    def glu(self, a: Tensor, b: Tensor) -> Tensor:
        return Tensor("GLU", a.type, a.ne, (a, b))

    def glu_half(self, a: Tensor) -> Tensor:
        return Tensor("GLU", a.type, (a.ne[0] // 2, *a.ne[1:]), (a,))

    def rms_norm(self, a: Tensor) -> Tensor:
        return Tensor("RMS_NORM", a.type, a.ne, (a,))

    def norm(self, a: Tensor) -> Tensor:
        return Tensor("NORM", a.type, a.ne, (a,))

    def l2_norm(self, a: Tensor) -> Tensor:
        return Tensor("L2_NORM", a.type, a.ne, (a,))

    def rope(self, a: Tensor, pos: Tensor, factors: Tensor | None = None) -> Tensor:
        return Tensor("ROPE", a.type, a.ne, (a, pos) if factors is None else (a, pos, factors))

    def soft_max(self, a: Tensor, mask: Tensor | None = None, sinks: Tensor | None = None) -> Tensor:
        src = [a]
        if mask is not None:
            src.append(mask)
        if sinks is not None:
            src.append(sinks)
        return Tensor("SOFT_MAX", a.type, a.ne, src)

    def sum_rows(self, a: Tensor) -> Tensor:
        return Tensor("SUM_ROWS", a.type, (1, *a.ne[1:]), (a,))

    def argsort_top_k(self, a: Tensor, k: int) -> Tensor:
        order = Tensor("ARGSORT", I32, a.ne, (a,))
        return self.view(order, (k, *a.ne[1:]), order.nb[1:])

    def top_k(self, a: Tensor, k: int) -> Tensor:
        return Tensor("TOP_K", I32, (k, *a.ne[1:]), (a,))

    def repeat(self, a: Tensor, *ne: int) -> Tensor:
        return Tensor("REPEAT", a.type, _shape(ne), (a,))

    def concat(self, a: Tensor, b: Tensor, dim: int) -> Tensor:
        ne = list(a.ne)
        ne[dim] += b.ne[dim]
        return Tensor("CONCAT", a.type, _shape(ne), (a, b))

    def pad(self, a: Tensor, p0: int, p1: int = 0, p2: int = 0) -> Tensor:
        return Tensor("PAD", a.type, (a.ne[0] + p0, a.ne[1] + p1, a.ne[2] + p2, a.ne[3]), (a,))

    def dup(self, a: Tensor) -> Tensor:
        return Tensor("DUP", a.type, a.ne, (a,))

    def fill(self, a: Tensor) -> Tensor:
        return Tensor("FILL", a.type, a.ne, (a,))

    def flash_attn(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None) -> Tensor:
        src = [q, k, v]
        if mask is not None:
            src.append(mask)
        if sinks is not None:
            src.append(sinks)
        return Tensor("FLASH_ATTN_EXT", F32, (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), src)


def _shape(ne: Sequence[int]) -> Shape:
    n = len(ne)
    return (ne[0], ne[1] if n > 1 else 1, ne[2] if n > 2 else 1, ne[3] if n > 3 else 1)


__all__ = ["F16", "F32", "Graph"]
