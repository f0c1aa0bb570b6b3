"""Shapes, strides and the order of nodes."""

from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.tensor import F16, F32, I32, Q8_0, Tensor, row_bytes


def test_contiguous_tensor_takes_its_rows() -> None:
    assert Graph.new(F32, 4096, 512).n_bytes == 4096 * 512 * 4
    assert Graph.new(Q8_0, 64, 3).n_bytes == 2 * 34 * 3
    assert row_bytes(F16, 128) == 256


def test_view_spans_what_its_strides_reach() -> None:
    qkv = Graph.new(F32, 96, 10)
    v = Graph.view(qkv, (32, 1, 10), (128, 96 * 4))
    assert v.n_bytes == 9 * 96 * 4 + 32 * 4
    assert v.view_src is qkv and not v.is_contiguous


def test_view_of_a_view_points_to_the_owner() -> None:
    owner = Graph.new(F32, 8, 8)
    assert Graph.reshape(Graph.view(owner, (8, 4)), 32).view_src is owner


def test_empty_tensor_takes_nothing() -> None:
    assert Graph.view(Graph.new(I32, 4), (0,)).n_bytes == 0


def test_permute_moves_axes() -> None:
    a = Graph.new(F32, 2, 3, 5)
    b = Graph.permute(a, 0, 2, 1, 3)
    assert b.ne == (2, 5, 3, 1) and b.nb[1] == a.nb[2]


def test_nodes_come_depth_first_from_left_to_right() -> None:
    g = Graph()
    x, w1, w2 = g.input(F32, 8, 4), g.new(F32, 8, 8), g.new(F32, 8, 8)
    up, gate = g.mul_mat(w1, x), g.mul_mat(w2, x)
    out = g.glu(gate, up)
    g.expand(out)
    assert g.nodes == [gate, up, out]
    assert g.leafs == [w2, x, w1]


def test_what_was_visited_is_not_visited_again() -> None:
    g = Graph()
    x = g.input(F32, 8)
    y = g.unary(x)
    g.expand(y, y)
    g.expand(g.add(y, x))
    assert [n.op for n in g.nodes] == ["UNARY", "ADD"]


def test_a_cast_reads_itself() -> None:
    cast = Graph().cast(Graph.new(F32, 4), F16)
    assert cast.src[1] is cast and cast.type == F16


def test_products_have_the_rows_of_the_weight() -> None:
    g = Graph()
    w, x = g.new(Q8_0, 64, 100, 1), g.new(F32, 64, 7)
    assert g.mul_mat(w, x).ne == (100, 7, 1, 1)
    experts, ids = g.new(Q8_0, 64, 100, 8), Tensor("VIEW", I32, (2, 7, 1, 1))
    assert g.mul_mat_id(experts, g.reshape(x, 64, 1, 7), ids).ne == (100, 2, 7, 1)
