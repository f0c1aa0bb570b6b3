"""Scheduled nodes to bytes per backend: ggml's graph allocator on paper.

Source: ggml-alloc.c ggml_gallocr_alloc_graph_impl and ggml_dyn_tallocr, read at build 11434.
"""

from collections.abc import Sequence

from kvstudio.budget.compute.backend import Backend
from kvstudio.budget.compute.tensor import INPLACE_OPS, Tensor

_ENDLESS = 1 << 62
_MAX_CHUNKS = 16


class _Chunk:
    __slots__ = ("free", "peak")

    def __init__(self, size: int) -> None:
        self.free: list[list[int]] = [[0, size]]
        self.peak = 0


class Arena:
    """A best-fit allocator over chunks of at most `max_bytes`; remembers the highest address of each."""

    __slots__ = ("alignment", "chunks", "grown", "max_bytes")

    def __init__(self, alignment: int, max_bytes: int | None) -> None:
        self.alignment = alignment
        self.max_bytes = _ENDLESS if max_bytes is None else max_bytes
        self.chunks: list[_Chunk] = []
        self.grown = 0

    @property
    def size(self) -> int:
        return sum(chunk.peak for chunk in self.chunks)

    def take(self, size: int) -> tuple[int, int]:
        """(chunk, address) of a new block; `size` is already aligned."""
        chunks = self.chunks
        best_chunk, best_block = -1, -1
        for c, chunk in enumerate(chunks):
            best_size = _ENDLESS * 2
            free = chunk.free
            for i in range(len(free) - 1):
                have = free[i][1]
                if size <= have <= best_size:
                    best_chunk, best_block, best_size = c, i, have
        if best_block == -1:
            best_reuse = -_ENDLESS * 2
            for c, chunk in enumerate(chunks):
                if not chunk.free:
                    continue
                offset, have = chunk.free[-1]
                reuse = chunk.peak - offset - size
                better = (best_reuse < 0 and reuse > best_reuse) or 0 <= reuse < best_reuse
                if have >= size and better:
                    best_chunk, best_block, best_reuse = c, len(chunk.free) - 1, reuse
        if best_block == -1:
            last = len(chunks) == _MAX_CHUNKS - 1
            chunks.append(_Chunk(_ENDLESS if last else max(size, self.max_bytes)))
            best_chunk, best_block = len(chunks) - 1, 0
        chunk = chunks[best_chunk]
        block = chunk.free[best_block]
        address = block[0]
        block[0] += size
        block[1] -= size
        if block[1] == 0:
            del chunk.free[best_block]
        if address + size > chunk.peak:
            chunk.peak = address + size
            self.grown += 1
        return best_chunk, address

    def give(self, chunk_index: int, address: int, size: int) -> None:
        free = self.chunks[chunk_index].free
        for i, block in enumerate(free):
            if block[0] + block[1] == address:
                block[1] += size
                if i < len(free) - 1 and address + size == free[i + 1][0]:
                    block[1] += free[i + 1][1]
                    del free[i + 1]
                return
            if address + size == block[0]:
                block[0] = address
                block[1] += size
                if i > 0 and free[i - 1][0] + free[i - 1][1] == address:
                    free[i - 1][1] += block[1]
                    del free[i]
                return
        at = 0
        while at < len(free) and free[at][0] < address:
            at += 1
        free.insert(at, [address, size])


class GraphAllocator:
    """Replays one graph; `sizes` has the bytes of each backend's compute buffer afterwards."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._arenas = [Arena(b.alignment, b.max_bytes) for b in backends]
        self._alloc_bytes = [b.alloc_bytes for b in backends]
        self._live: list[dict[tuple[int, int], Tensor]] = [{} for _ in backends]
        self.grown_in: set[int] = set()
        self.at_peak: list[list[Tensor]] = [[] for _ in backends]

    @property
    def sizes(self) -> list[int]:
        return [arena.size for arena in self._arenas]

    def run(self, nodes: list[tuple[Tensor, int]], leafs: list[tuple[Tensor, int]]) -> None:
        allocate = self._allocate
        for leaf, at in leafs:
            if not leaf.own and leaf.home is None:
                allocate(leaf, at)
        for node, at in nodes:
            if node.view_src is not None and node.op != "NONE":
                node.view_src.views += 1
            if node.is_input and not node.own:
                allocate(node, at)
            for src in node.src:
                src.children += 1
                if src.is_input and not src.own and src.view_src is None:
                    allocate(src, at)
        for node, at in nodes:
            for src in node.src:
                if not src.own and src.home is None and src.view_src is None:
                    allocate(src, at)
            if not node.own and node.home is None and node.view_src is None:
                allocate(node, at)
            for src in node.src:
                src.children -= 1
                if src.children == 0 and src.views == 0:
                    root = src.view_src
                    if root is not None:
                        root.views -= 1
                        if root.views == 0 and root.children == 0 and root.own:
                            self._release(root)
                    elif src.own:
                        self._release(src)

    def _padded(self, tensor: Tensor, at: int) -> int:
        more = self._alloc_bytes[at]
        size = tensor.n_bytes if more is None else more(tensor)
        alignment = self._arenas[at].alignment
        return (size + alignment - 1) // alignment * alignment

    def _allocate(self, node: Tensor, at: int) -> None:
        node.own = True
        if node.op in INPLACE_OPS:
            for parent in node.src:
                if (
                    parent.own
                    and not parent.is_output
                    and parent.view_src is None
                    and parent.children == 1
                    and parent.views == 0
                    and parent.type == node.type
                    and parent.ne == node.ne
                    and parent.nb == node.nb
                ):
                    node.buffer, node.chunk, node.addr = parent.buffer, parent.chunk, parent.addr
                    parent.own = False
                    self._trim(node, parent)
                    return
        node.buffer = at
        arena = self._arenas[at]
        grown = arena.grown
        node.chunk, node.addr = arena.take(self._padded(node, at))
        live = self._live[at]
        live[node.chunk, node.addr] = node
        if arena.grown != grown:
            self.grown_in.add(node.layer)
            self.at_peak[at] = list(live.values())

    def _trim(self, node: Tensor, parent: Tensor) -> None:
        at = parent.buffer
        if self._alloc_bytes[at] is None:
            return
        had, need = self._padded(parent, at), self._padded(node, at)
        if had > need:
            self._arenas[at].give(parent.chunk, parent.addr + need, had - need)

    def _release(self, tensor: Tensor) -> None:
        if tensor.is_output:
            return
        self._live[tensor.buffer].pop((tensor.chunk, tensor.addr), None)
        self._arenas[tensor.buffer].give(tensor.chunk, tensor.addr, self._padded(tensor, tensor.buffer))
        tensor.own = False
