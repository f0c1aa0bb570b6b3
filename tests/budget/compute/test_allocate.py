"""The best-fit arena and the replay of a graph."""

from hypothesis import given
from hypothesis import strategies as st

from kvstudio.budget.compute.allocate import Arena, GraphAllocator
from kvstudio.budget.compute.backend import Backend
from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.tensor import F32, Tensor

CPU = Backend("CPU", "CPU", 32, None, offloads=False, reorders=False)


def _run(graph: Graph, backend: Backend = CPU) -> int:
    allocator = GraphAllocator([backend])
    allocator.run([(n, 0) for n in graph.nodes], [(leaf, 0) for leaf in graph.leafs])
    return allocator.sizes[0]


def _input(n: int) -> Tensor:
    return Graph.input(F32, n)


def test_smallest_hole_that_fits_is_taken() -> None:
    arena = Arena(32, None)
    blocks = [arena.take(size) for size in (64, 32, 96, 32)]
    arena.give(*blocks[0], 64)
    arena.give(*blocks[2], 96)
    assert arena.take(64) == blocks[0]
    assert arena.size == 224


def test_neighbouring_holes_merge() -> None:
    arena = Arena(32, None)
    first, second, _ = arena.take(32), arena.take(32), arena.take(32)
    arena.give(*first, 32)
    arena.give(*second, 32)
    assert arena.take(64) == first


def test_full_chunk_opens_the_next() -> None:
    arena = Arena(32, 128)
    arena.take(96)
    assert arena.take(64) == (1, 0)
    assert arena.take(32) == (0, 96)
    assert arena.size == 192


def test_tensor_larger_than_a_chunk_gets_its_own() -> None:
    arena = Arena(32, 128)
    arena.take(64)
    assert arena.take(512) == (1, 0)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.randoms())
def test_blocks_never_overlap(sizes: list[int], random: object) -> None:
    arena = Arena(32, 1024)
    held: list[tuple[int, int, int]] = []
    for i, n in enumerate(sizes):
        size = n * 32
        chunk, address = arena.take(size)
        assert all(c != chunk or address >= a + s or address + size <= a for c, a, s in held)
        held.append((chunk, address, size))
        if i % 3 == 2:
            arena.give(*held.pop(0))
    assert arena.size <= sum(sizes) * 32


def test_operations_in_place_take_no_memory() -> None:
    g = Graph()
    a, b = g.unary(g.make("CONT", F32, (256,), _input(256))), _input(256)
    g.expand(g.add(g.scale(a), b))
    assert _run(g) == 3 * 1024  # two inputs and one result


def test_a_second_reader_keeps_the_parent() -> None:
    g, x = Graph(), _input(256)
    a = g.make("CONT", F32, (256,), x)
    g.expand(g.add(g.add(g.unary(a), a), x))
    assert _run(g) == 3 * 1024


def test_a_viewed_parent_is_not_overwritten() -> None:
    g, x = Graph(), _input(256)
    viewed = g.reshape(g.make("CONT", F32, (256,), x), 256)
    g.expand(g.add(g.unary(viewed), x))
    assert _run(g) == 3 * 1024


def test_outputs_are_never_freed() -> None:
    def chain(kept: bool) -> int:
        g = Graph()
        a = g.make("CONT", F32, (256,), _input(256))
        a.is_output = kept
        g.expand(g.make("CONT", F32, (256,), g.make("CONT", F32, (256,), a)))
        return _run(g)

    assert chain(True) == chain(False) + 1024


def test_placed_tensors_cost_nothing() -> None:
    g = Graph()
    w = g.new(F32, 64, 64)
    w.home, w.weight = "CPU", True
    g.expand(g.mul_mat(w, g.input(F32, 64, 4)))
    assert _run(g) == 2 * 64 * 4 * 4
