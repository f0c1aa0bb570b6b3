"""The order Vulkan runs nodes in."""

from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.tensor import F32, Tensor
from kvstudio.budget.compute.vulkan_order import reorder_new, reorder_old


def _w(*ne: int) -> Tensor:
    w = Graph.new(F32, *ne)
    w.home, w.weight = "Vulkan0", True
    return w


def _attention_like() -> Graph:
    g = Graph()
    x = g.input(F32, 64, 8)
    q = g.rope(g.reshape(g.mul_mat(_w(64, 64), x), 16, 4, 8), g.input(26, 8))
    k = g.rope(g.reshape(g.mul_mat(_w(64, 64), x), 16, 4, 8), g.input(26, 8))
    g.expand(q, k, g.mul_mat(_w(64, 64), x))
    return g


def test_independent_products_come_forward() -> None:
    for reorder in (reorder_old, reorder_new):
        nodes = _attention_like().nodes
        ordered = reorder(nodes)
        assert [n.op for n in ordered][:3] == ["MUL_MAT"] * 3
        assert sorted(map(id, ordered)) == sorted(map(id, nodes))


def test_no_node_runs_before_its_sources() -> None:
    for reorder in (reorder_old, reorder_new):
        done: set[int] = set()
        nodes = _attention_like().nodes
        inside = set(map(id, nodes))
        for node in reorder(nodes):
            assert all(id(s) in done for s in node.src if id(s) in inside)
            done.add(id(node))


def test_the_router_stays_whole() -> None:
    g = Graph()
    logits = g.mul_mat(_w(64, 8), g.input(F32, 64, 4))
    probs = g.soft_max(logits)
    weights = g.get_rows(g.reshape(probs, 1, 8, 4), g.argsort_top_k(probs, 2))
    g.expand(weights)
    g.expand(g.mul_mat(_w(64, 64), g.input(F32, 64, 4)))
    assert [n.op for n in reorder_old(g.nodes)][-5:] == ["SOFT_MAX", "RESHAPE", "ARGSORT", "VIEW", "GET_ROWS"]
