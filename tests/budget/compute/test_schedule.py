"""Which backend gets a node, where the graph is cut, what is copied."""

from kvstudio.budget.compute.backend import Backend, wants_offload
from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.schedule import Schedule, schedule
from kvstudio.budget.compute.tensor import F32, I32, Tensor

GPU0 = Backend("CUDA0", "CUDA0", 128, None, offloads=True, reorders=False)
GPU1 = Backend("CUDA1", "CUDA1", 128, None, offloads=True, reorders=False)
CPU = Backend("CPU", "CUDA_Host", 32, None, offloads=False, reorders=False)
NEW, OLD = 11434, 10434


def _weight(home: str, *ne: int) -> Tensor:
    w = Graph.new(F32, *ne)
    w.home, w.weight = home, True
    return w


def _plan(g: Graph, *backends: Backend, copies: int = 1, build: int = NEW, op_offload: bool = True) -> Schedule:
    return schedule(g, backends, copies=copies, op_offload=op_offload, build=build, reorder=None)


def _chain(*homes: str, n_tokens: int = 64) -> Graph:
    g = Graph()
    cur = g.get_rows(_weight("CPU", 32, 1000), g.input(I32, n_tokens))
    for home in homes:
        cur = g.mul_mat(_weight(home, 32, 32), cur)
    g.expand(cur)
    return g


def test_nodes_run_beside_their_weights() -> None:
    g = _chain("CUDA0", "CUDA1")
    plan = _plan(g, GPU0, GPU1, CPU)
    assert [n.backend for n in g.nodes] == [2, 0, 1]
    assert [len(s.inputs) for s in plan.splits] == [0, 1, 1]


def test_big_batches_take_host_weights_to_the_device() -> None:
    g = _chain("CPU", "CUDA0")
    plan = _plan(g, GPU0, CPU)
    assert [n.backend for n in g.nodes] == [1, 0, 0]
    assert any(source.weight for split in plan.splits for source in split.inputs)


def test_small_batches_and_repacked_weights_stay() -> None:
    for g in (_chain("CPU", "CUDA0", n_tokens=8), _chain("CPU_REPACK", "CUDA0")):
        _plan(g, GPU0, CPU)
        assert [n.backend for n in g.nodes] == [1, 1, 0]


def test_without_op_offload_host_weights_stay() -> None:
    g = _chain("CPU", "CUDA0")
    _plan(g, GPU0, CPU, op_offload=False)
    assert [n.backend for n in g.nodes] == [1, 1, 0]


def test_embedding_rows_are_never_offloaded() -> None:
    g = Graph()
    rows = g.get_rows(_weight("CPU", 32, 100), g.input(I32, 512))
    assert not wants_offload(rows)
    assert wants_offload(g.add(rows, rows))


def test_each_host_weight_gets_a_split_of_its_own() -> None:
    plan = _plan(_chain("CPU", "CPU", "CPU"), GPU0, CPU)
    weights = [sum(source.weight for source in split.inputs) for split in plan.splits]
    assert weights == [0, 1, 1, 1]


def test_nodes_without_weights_follow_the_device() -> None:
    g = Graph()
    x = g.mul_mat(_weight("CUDA0", 32, 32), g.input(F32, 32, 64))
    y = g.mul_mat(_weight("CUDA0", 32, 32), g.unary(x))
    g.expand(y)
    _plan(g, GPU0, CPU)
    assert {n.backend for n in g.nodes} == {0}


def test_unsupported_operations_fall_to_the_cpu() -> None:
    picky = Backend("CUDA0", "CUDA0", 128, None, offloads=True, reorders=False, supports=lambda n: n.op != "SSM_SCAN")
    g = Graph()
    x = g.mul_mat(_weight("CUDA0", 32, 32), g.input(F32, 32, 64))
    g.expand(g.mul_mat(_weight("CUDA0", 32, 32), g.make("SSM_SCAN", F32, (32, 64), x)))
    _plan(g, picky, CPU)
    assert [n.backend for n in g.nodes] == [0, 1, 0]


def test_pipeline_keeps_four_copies_of_what_crosses() -> None:
    plan = _plan(_chain("CUDA0", "CUDA1"), GPU0, GPU1, CPU, copies=4)
    crossing = [source for split in plan.splits for source in split.inputs]
    assert crossing and all(len(s.copies[b]) == 4 for s in crossing for b in (s.copies or {}))
    assert all(copy.is_output for s in crossing for b in (s.copies or {}) for copy in s.copies[b])


def test_newer_builds_copy_unread_inputs_too() -> None:
    def leafs(build: int) -> int:
        g = _chain("CUDA0")
        g.expand(g.input(F32, 32, 64))
        return sum(1 for leaf, _ in _plan(g, GPU0, CPU, copies=4, build=build).leafs if leaf.is_input)

    assert leafs(NEW) == leafs(OLD) + 4


def test_older_builds_limit_the_inputs_of_a_split() -> None:
    def splits(build: int) -> int:
        g = Graph()
        cur = g.mul_mat(_weight("CUDA0", 32, 32), g.input(F32, 32, 64))
        for _ in range(40):
            cur = g.add(cur, g.input(F32, 32, 64))
        g.expand(cur)
        return len(_plan(g, GPU0, CPU, build=build).splits)

    assert splits(NEW) == 1 and splits(OLD) == 2
