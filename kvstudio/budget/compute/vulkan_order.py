"""Nodes of one split in the order the Vulkan backend runs them: independent work pulled forward, fusions kept whole.

Source: ggml-vulkan.cpp ggml_vk_graph_optimize, read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.tensor import Tensor

_WINDOW = 20
_PULL = 15
_EMPTY = frozenset({"NONE", "RESHAPE", "TRANSPOSE", "VIEW", "PERMUTE"})

_TOPK = (
    ("SOFT_MAX", "RESHAPE", "ARGSORT", "VIEW", "GET_ROWS", "RESHAPE", "SUM_ROWS", "CLAMP", "DIV", "RESHAPE"),
    ("UNARY", "RESHAPE", "ADD", "ARGSORT", "VIEW", "GET_ROWS", "RESHAPE", "SUM_ROWS", "CLAMP", "DIV", "RESHAPE"),
    (
        "UNARY",
        "SQRT",
        "RESHAPE",
        "ADD",
        "ARGSORT",
        "VIEW",
        "GET_ROWS",
        "RESHAPE",
        "SUM_ROWS",
        "CLAMP",
        "DIV",
        "RESHAPE",
    ),
    ("SOFT_MAX", "RESHAPE", "ARGSORT", "VIEW", "GET_ROWS"),
    ("ARGSORT", "VIEW", "GET_ROWS", "RESHAPE", "SOFT_MAX", "RESHAPE"),
)
_SNAKE = (("MUL", "SIN", "SQR", "MUL", "ADD"),)
_NORM_ROPE = (
    ("RMS_NORM", "MUL", "ADD", "MUL"),
    ("RMS_NORM", "MUL", "ADD"),
    ("RMS_NORM", "MUL", "ROPE", "VIEW", "SET_ROWS"),
    ("RMS_NORM", "VIEW", "SET_ROWS"),
    ("ROPE", "VIEW", "SET_ROWS"),
    ("SCALE", "UNARY", "SCALE", "DSV4_HC_POST"),
)
OLD_PATTERNS = (_TOPK[0], _TOPK[1], _TOPK[3], _TOPK[4], *_SNAKE)
NEW_PATTERNS = _TOPK + _SNAKE + _NORM_ROPE

#: (first, second) operations that may follow each other at once although one reads the other.
_PAIRS_NEXT = frozenset(
    {("RMS_NORM", "MUL"), ("MUL_MAT", "ADD"), ("MUL_MAT_ID", "ADD_ID"), ("MUL_MAT_ID", "MUL"), ("ADD", "ADD"),
     ("SSM_CONV", "ADD"), ("SSM_CONV", "UNARY")}
)  # fmt: skip
_PAIRS_GAP = frozenset({("RMS_NORM", "MUL"), ("UNARY", "MUL")})


def reorder_new(nodes: list[Tensor]) -> list[Tensor]:
    """The order of builds near 11434."""
    return _Reorder(nodes, NEW_PATTERNS, modern=True).run()


def reorder_old(nodes: list[Tensor]) -> list[Tensor]:
    """The order of builds near 10434."""
    return _Reorder(nodes, OLD_PATTERNS, modern=False).run()


class _Reorder:
    def __init__(self, nodes: list[Tensor], patterns: tuple[tuple[str, ...], ...], *, modern: bool) -> None:
        self.nodes = nodes
        self.ops = [n.op for n in nodes]
        self.base = [n if n.view_src is None else n.view_src for n in nodes]
        self.empty = [op in _EMPTY for op in self.ops]
        self.used = [False] * len(nodes)
        self.done: set[int] = set()
        self.order: list[Tensor] = []
        self.first = 0
        self.modern = modern
        self.by_op: dict[str, list[tuple[str, ...]]] = {}
        for pattern in patterns:
            self.by_op.setdefault(pattern[0], []).append(pattern)
        self.behind = self._dependencies()

    def run(self) -> list[Tensor]:
        n = len(self.nodes)
        while self.first < n:
            kept = self._matches(self.first)
            if kept:
                for j in range(self.first, self.first + kept):
                    self._emit(j)
                self._advance()
                continue
            current = self._pick_real()
            if self.ops[current[-1]] != "ADD":
                self._pick_views(current)
            for c in current:
                self._emit(c)
            self._advance()
        return self.order

    def _emit(self, j: int) -> None:
        self.order.append(self.nodes[j])
        self.done.add(id(self.nodes[j]))
        self.used[j] = True

    def _advance(self) -> None:
        n = len(self.nodes)
        while self.first < n and self.used[self.first]:
            self.first += 1

    def _matches(self, start: int) -> int:
        for pattern in self.by_op.get(self.ops[start], ()):
            end = start + len(pattern)
            if end <= len(self.ops) and tuple(self.ops[start:end]) == pattern and not any(self.used[start:end]):
                return len(pattern)
        return 0

    def _dependencies(self) -> list[tuple[int, ...]]:
        """For each node those before it, as far as a window reaches, that it must stay behind."""
        sharing: dict[int, list[int]] = {}
        readers: dict[int, list[int]] = {}
        place: dict[int, int] = {}
        found: list[tuple[int, ...]] = []
        for d, node in enumerate(self.nodes):
            base, real = id(self.base[d]), self.modern and not self.empty[d]
            reach = d - _WINDOW
            before = {place.get(id(src), -1) for src in node.src}
            before.update(_since(sharing.get(base), reach))
            if real:
                read = {id(src if src.view_src is None else src.view_src) for src in node.src}
                for other in read:
                    before.update(s for s in _since(sharing.get(other), reach) if not self.empty[s])
                before.update(_since(readers.get(base), reach))
                for other in read:
                    readers.setdefault(other, []).append(d)
            found.append(tuple([s for s in before if s > reach]) if reach >= 0 else tuple(before - {-1}))
            sharing.setdefault(base, []).append(d)
            place[id(node)] = d
        return found

    def _quiet_between(self, lo: int, hi: int) -> bool:
        return all(self.used[v] or self.empty[v] for v in range(lo, hi))

    def _may_follow(self, c: int, j: int, last: int) -> bool:
        if c != last:
            return False
        pair = (self.ops[c], self.ops[j])
        if j == c + 1 and pair in _PAIRS_NEXT:
            return True
        return self.modern and pair in _PAIRS_GAP and self._quiet_between(c + 1, j)

    def _pick_real(self) -> list[int]:
        first, used, behind = self.first, self.used, self.behind
        current = [first]
        for j in range(first + 1, min(first + _WINDOW, len(self.nodes))):
            if used[j] or self.empty[j] or self._matches(j):
                continue
            last = current[-1]
            if any(c >= first and not used[c] and not self._may_follow(c, j, last) for c in behind[j]):
                continue
            current.append(j)
            self._pull_consumers(j, current)
        return current

    def _find(self, j: int, span: int, wanted: Callable[[int], bool]) -> int:
        for k in range(j + 1, min(j + span, len(self.nodes))):
            if wanted(k):
                return k
        return -1

    def _pull(self, k: int, current: list[int]) -> None:
        if k != -1:
            current.append(k)
            self.used[k] = True

    def _ready(self, tensor: Tensor) -> bool:
        return tensor.op == "NONE" or id(tensor) in self.done

    def _pull_consumers(self, j: int, current: list[int]) -> None:
        nodes, ops = self.nodes, self.ops
        op, before = ops[j], ops[j - 1]
        rope = j
        if op == "MUL" and before == "RMS_NORM":
            k = self._find(
                j, _PULL,
                lambda k: (
                    ops[k] == "ROPE"
                    and nodes[k].src[0] is nodes[j]
                    and all(s.op == "NONE" for s in nodes[k].src[1:])
                ),
            )  # fmt: skip
            if k != -1:
                rope = k
                self._pull(k, current)
        if ops[rope] == "ROPE" or (self.modern and ops[rope] == "RMS_NORM"):
            self._pull_store(rope, current)
        if op == "ADD_ID" and before == "MUL_MAT_ID":
            self._pull(self._next_reader(j, "MUL"), current)
        if op == "ADD" and before == "MUL_MAT":
            self._pull(self._next_reader(j, "ADD"), current)
        if op == "ADD" and before == "SSM_CONV":
            self._pull(self._find(j, _PULL, lambda k: ops[k] == "UNARY" and nodes[k].src[0] is nodes[j]), current)
        if self.modern and op == "UNARY":
            self._pull(self._find(j, _PULL, lambda k: ops[k] == "MUL" and self._fuses(j, k)), current)

    def _next_reader(self, j: int, op: str) -> int:
        nodes, ops = self.nodes, self.ops
        return self._find(
            j, _PULL, lambda k: ops[k] == op and nodes[k].src[0] is nodes[j] and self._ready(nodes[k].src[1])
        )

    def _fuses(self, j: int, k: int) -> bool:
        unary, mul = self.nodes[j], self.nodes[k]
        if unary not in mul.src:
            return False
        other = mul.src[1] if mul.src[0] is unary else mul.src[0]
        return self._ready(other)

    def _pull_store(self, rope: int, current: list[int]) -> None:
        """Rope, the view of it and the row store into the cache, side by side."""
        nodes, ops = self.nodes, self.ops
        view = store = -1
        for k in range(rope + 1, min(rope + (_PULL if self.modern else 10), len(nodes))):
            if self.modern and self.used[k]:
                continue
            if view == -1 and ops[k] == "VIEW" and nodes[k].src[0] is nodes[rope]:
                view = k
            elif view != -1 and ops[k] == "SET_ROWS" and nodes[k].src[0] is nodes[view]:
                store = k
                break
        if store == -1:
            return
        if self.modern:
            for c in range(rope + 1, store):
                if not self.used[c] and c != view and not self.empty[c] and c in self.behind[store]:
                    return
        self._pull(view, current)
        self._pull(store, current)

    def _pick_views(self, current: list[int]) -> None:
        first, used = self.first, self.used
        for j in range(first + 1, min(first + _WINDOW, len(self.nodes))):
            if used[j] or not self.empty[j]:
                continue
            if all(c < first or used[c] or c in current for c in self.behind[j]):
                current.append(j)


def _since(places: list[int] | None, reach: int) -> list[int]:
    """The last of some ascending places, those behind `reach`."""
    if not places or places[-1] <= reach:
        return []
    at = len(places) - 1
    while at and places[at - 1] > reach:
        at -= 1
    return places[at:]
