"""Scheduled nodes to bytes per backend: ggml's graph allocator on paper.

Source: ggml-alloc.c ggml_gallocr_alloc_graph_impl and ggml_dyn_tallocr, read at build 11434.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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

    def holes(self) -> list[list[tuple[int, int]]]:
        """(address, bytes) of the free blocks of each chunk."""
        return [[(block[0], block[1]) for block in chunk.free] for chunk in self.chunks]

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


@dataclass(frozen=True, slots=True)
class Stream:
    """What a graph asks of one backend's buffer, in order: which is the same wherever the blocks end up.

    `events`: (-1, bytes, 0) takes a block; (index of the event that took it, bytes, offset) gives it back, or with an
    offset its end. `tensors` has what a block was first taken for, None for the others.
    """

    events: list[tuple[int, int, int]] = field(default_factory=list)
    tensors: list[Tensor | None] = field(default_factory=list)


class GraphAllocator:
    """Replays one graph: `streams` of the backends' buffers, `marks` their lengths when a layer was first reached."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._alignment = [b.alignment for b in backends]
        self._alloc_bytes = [b.alloc_bytes for b in backends]
        self.streams = tuple(Stream() for _ in backends)
        self.marks: dict[int, tuple[int, ...]] = {}

    @property
    def sizes(self) -> list[int]:
        """Bytes of each backend's compute buffer."""
        found = []
        for backend, stream in zip(self._backends, self.streams, strict=True):
            arena = Arena(backend.alignment, backend.max_bytes)
            Player(arena, stream.events).play(0, len(stream.events))
            found.append(arena.size)
        return found

    def run(self, nodes: list[tuple[Tensor, int]], leafs: list[tuple[Tensor, int]]) -> None:
        allocate, release = self._allocate, self._release
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
        reached = -1
        for node, at in nodes:
            if node.layer > reached:
                reached = node.layer
                self.marks[reached] = tuple([len(stream.events) for stream in self.streams])
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
                            release(root)
                    elif src.own:
                        release(src)

    def _padded(self, tensor: Tensor, at: int) -> int:
        more = self._alloc_bytes[at]
        size = tensor.n_bytes if more is None else more(tensor)
        alignment = self._alignment[at]
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
                    node.buffer, node.taken = parent.buffer, parent.taken
                    parent.own = False
                    if self._alloc_bytes[parent.buffer] is not None:
                        self._trim(node, parent)
                    return
        node.buffer = at
        stream = self.streams[at]
        node.taken = len(stream.events)
        stream.events.append((-1, self._padded(node, at), 0))
        stream.tensors.append(node)

    def _trim(self, node: Tensor, parent: Tensor) -> None:
        at = parent.buffer
        had, need = self._padded(parent, at), self._padded(node, at)
        if had > need:
            self._give(at, parent.taken, had - need, need)

    def _release(self, tensor: Tensor) -> None:
        if tensor.is_output:
            return
        self._give(tensor.buffer, tensor.taken, self._padded(tensor, tensor.buffer), 0)
        tensor.own = False

    def _give(self, at: int, taken: int, size: int, offset: int) -> None:
        stream = self.streams[at]
        stream.events.append((taken, size, offset))
        stream.tensors.append(None)


class Player:
    """Plays events on an arena; `places` has where each block was last taken, `peak` what was alive when it grew last.

    Both are by the index of the event that took the block.
    """

    __slots__ = ("_events", "_live", "arena", "peak", "places")

    def __init__(self, arena: Arena, events: list[tuple[int, int, int]]) -> None:
        self.arena = arena
        self._events = events
        self._live: dict[tuple[int, int], int] = {}
        self.places: list[tuple[int, int]] = [(0, 0)] * len(events)
        self.peak: list[int] = []

    def play(self, first: int, last: int) -> None:
        """The events from `first` up to `last`."""
        places, live, arena, events = self.places, self._live, self.arena, self._events
        take, give = arena.take, arena.give
        for i in range(first, last):
            taken, size, offset = events[i]
            if taken < 0:
                grown = arena.grown
                places[i] = place = take(size)
                live[place] = i
                if arena.grown != grown:
                    self.peak = list(live.values())
                continue
            place = places[taken]
            if not offset:
                live.pop(place, None)
            give(place[0], place[1] + offset, size)

    def hold(self, events: Sequence[int]) -> list[tuple[int, int]]:
        """Take blocks as some events did, once more; where they are."""
        arena = self.arena
        held = []
        for i in events:
            grown = arena.grown
            place = arena.take(self._events[i][1])
            self._live[place] = i
            held.append(place)
            if arena.grown != grown:
                self.peak = list(self._live.values())
        return held
