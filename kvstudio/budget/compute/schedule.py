"""Graph and backends to an ordered list of allocations: which node runs where, what is copied across.

Source: ggml-backend.cpp ggml_backend_sched_split_graph, read at build 11434 and compared with runs of build 10434.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvstudio.budget.compute.backend import Backend, wants_offload
from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.tensor import Tensor

#: Buffer types the host owns but that are not plain memory a device could copy from.
REPACKED = frozenset({"CPU_REPACK", "AMX", "CPU_AMX", "CPU_KLEIDIAI", "CPU_RISCV64_SPACEMIT"})
#: Builds from which every input leaf gets pipeline copies, not only those that a split reads.
COPIES_ALL_INPUTS_SINCE = 11000

#: Inputs one split could take in earlier builds. Source: GGML_SCHED_MAX_SPLIT_INPUTS.
MAX_SPLIT_INPUTS = 30

Reorder = Callable[[list[Tensor]], list[Tensor]]


@dataclass(frozen=True, slots=True)
class Split:
    """A run of nodes on one backend and the tensors it copies in first."""

    backend: int
    nodes: list[Tensor]
    inputs: list[Tensor]


@dataclass(frozen=True, slots=True)
class Schedule:
    """`nodes` with the backend each is allocated on, `leafs` likewise, in the allocator's order."""

    nodes: list[tuple[Tensor, int]]
    leafs: list[tuple[Tensor, int]]
    splits: list[Split]


def schedule(
    graph: Graph, backends: Sequence[Backend], *, copies: int, op_offload: bool, build: int, reorder: Reorder | None
) -> Schedule:
    """Assign, split and order; `copies` is 4 with pipeline parallelism."""
    return ordered(graph, split(graph, backends, copies=copies, op_offload=op_offload, build=build), backends, reorder)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A graph cut in splits, and the inputs of which the pipeline has `copies`."""

    splits: list[Split]
    graph_inputs: list[Tensor]
    copies: int


def split(graph: Graph, backends: Sequence[Backend], *, copies: int, op_offload: bool, build: int) -> Assigned:
    """Assign every node to a backend and cut where it changes."""
    assign(graph, backends, op_offload=op_offload)
    splits, graph_inputs = _split(graph.nodes, copies, build)
    if copies > 1 and build >= COPIES_ALL_INPUTS_SINCE:
        graph_inputs = _copy_inputs(graph.leafs, copies)
    return Assigned(splits, graph_inputs, copies)


def assign(graph: Graph, backends: Sequence[Backend], *, op_offload: bool) -> None:
    """Set the backend of every node and leaf."""
    owner = {b.buffer_type: i for i, b in enumerate(backends[:-1])}
    _assign_fixed(graph, backends, owner, op_offload)
    _expand(graph.nodes, backends)
    _assign_rest(graph.nodes, backends)


def _supports(backend: Backend, node: Tensor) -> bool:
    return backend.supports is None or backend.supports(node)


def _assign_fixed(graph: Graph, backends: Sequence[Backend], owner: dict[str, int], op_offload: bool) -> None:
    cpu = len(backends) - 1
    names = {b.name: i for i, b in enumerate(backends)}
    for leaf in graph.leafs:
        if leaf.home is not None:
            leaf.backend = owner.get(leaf.home, cpu)
        elif leaf.is_input:
            leaf.backend = cpu
    for node in graph.nodes:
        if node.pinned is not None:
            at = names[node.pinned]
            if _supports(backends[at], node):
                node.backend = at
                continue
        root = node.view_src
        if root is not None and root.home is not None:
            at = owner.get(root.home, cpu)
            node.backend = at if _supports(backends[at], node) else cpu
            continue
        if node.op in ("ROPE", "FLASH_ATTN_EXT"):
            continue
        for src in node.src:
            if src.weight:
                node.backend = _beside_weight(node, src, backends, owner, op_offload)
                break


def _beside_weight(
    node: Tensor, weight: Tensor, backends: Sequence[Backend], owner: dict[str, int], op_offload: bool
) -> int:
    cpu = len(backends) - 1
    home = weight.home or ""
    at = owner.get(home, cpu)
    if not _supports(backends[at], node):
        return -1
    if at == cpu and op_offload and home not in REPACKED and wants_offload(node):
        for i, backend in enumerate(backends[:-1]):
            if backend.offloads and _supports(backend, node):
                return i
    return at


def _expand(nodes: list[Tensor], backends: Sequence[Backend]) -> None:
    cpu = len(backends) - 1
    real = [n for n in nodes if not n.is_view]
    for order, skip_cpu in ((real, True), (real[::-1], True), (real, False), (real[::-1], False)):
        current = -1
        for node in order:
            at = node.backend
            if at != -1:
                current = -1 if skip_cpu and at == cpu else at
            elif current != -1 and _supports(backends[current], node):
                node.backend = current


def _where(tensor: Tensor) -> int:
    root = tensor.view_src
    if root is not None and root.home is not None:
        return root.backend
    if tensor.backend != -1 or root is None:
        return tensor.backend
    return root.backend


def _assign_rest(nodes: list[Tensor], backends: Sequence[Backend]) -> None:
    for node in nodes:
        if node.backend == -1 and not node.is_view:
            best = -1
            for i, backend in enumerate(backends):
                if _supports(backend, node):
                    found = sum(1 for src in node.src if _where(src) == i)
                    if found > best:
                        best, node.backend = found, i
    for node in nodes:
        if node.backend == -1 and node.view_src is not None:
            node.backend = node.view_src.backend
        for src in node.src:
            if src.backend == -1:
                src.backend = node.backend if src.view_src is None else src.view_src.backend
        if node.backend == -1:
            node.backend = next(i for i, b in enumerate(backends) if _supports(b, node))


def _duplicate(tensor: Tensor, pinned_copy: bool) -> Tensor:
    copy = Tensor("NONE", tensor.type, tensor.ne, (), tensor.nb)
    copy.is_input = copy.is_output = pinned_copy
    copy.origin = tensor
    return copy


def _split(nodes: list[Tensor], copies: int, build: int) -> tuple[list[Split], list[Tensor]]:
    splits: list[Split] = []
    graph_inputs: list[Tensor] = []
    old_inputs = copies > 1 and build < COPIES_ALL_INPUTS_SINCE
    limit = MAX_SPLIT_INPUTS if build < COPIES_ALL_INPUTS_SINCE else -1
    current = next((n.backend for n in nodes if not n.is_view), 0)
    split = Split(current, [], [])
    splits.append(split)
    for node in nodes:
        if node.is_view:
            split.nodes.append(node)
            continue
        at = node.backend
        if at != current or (split.inputs and _starts_split(node, current, len(split.inputs) == limit)):
            current = at
            split = Split(at, [], [])
            splits.append(split)
        for j, src in enumerate(node.src):
            if old_inputs and src.is_input:
                _add_pipeline_input(src, copies, graph_inputs)
            if src.backend != current and _where(src) != current:
                made = src.copies
                if made is None:
                    made = src.copies = {}
                if current not in made:
                    made[current] = [_duplicate(src, copies > 1) for _ in range(copies)]
                    split.inputs.append(src)
                if not isinstance(node.src, list):
                    node.src = list(node.src)
                node.src[j] = made[current][0]
        split.nodes.append(node)
    return splits, graph_inputs


def _starts_split(node: Tensor, current: int, full: bool) -> bool:
    """A weight from elsewhere gets a split of its own, so that its copy can be freed; so does one input too many."""
    for src in node.src:
        if src.weight and _where(src) != current:
            return True
        if full and src.backend != current and _where(src) != current and current not in (src.copies or ()):
            return True
    return False


def _add_pipeline_input(leaf: Tensor, copies: int, graph_inputs: list[Tensor]) -> None:
    made = leaf.copies
    if made is None:
        made = leaf.copies = {}
    if leaf.backend in made:
        return
    leaf.is_output = True
    made[leaf.backend] = [leaf, *(_duplicate(leaf, True) for _ in range(copies - 1))]
    graph_inputs.append(leaf)


def _copy_inputs(leafs: list[Tensor], copies: int) -> list[Tensor]:
    graph_inputs: list[Tensor] = []
    for leaf in leafs:
        if leaf.is_input:
            _add_pipeline_input(leaf, copies, graph_inputs)
    return graph_inputs


def ordered(graph: Graph, assigned: Assigned, backends: Sequence[Backend], reorder: Reorder | None) -> Schedule:
    """What is allocated in which order; within a split the backend may have one of its own."""
    splits, graph_inputs, copies = assigned.splits, assigned.graph_inputs, assigned.copies
    cpu = len(backends) - 1
    nodes: list[tuple[Tensor, int]] = []
    leafs: list[tuple[Tensor, int]] = []
    for split in splits:
        at = split.backend
        for source in split.inputs:
            held = Tensor("NONE", source.type, source.ne, (source,), source.nb, source)
            nodes.append((held, source.backend))
            assert source.copies is not None
            nodes.append((source.copies[at][0], at))
        own = reorder(split.nodes) if reorder is not None and backends[at].reorders else split.nodes
        nodes.extend((node, node.backend) for node in own)
    if copies > 1:
        for leaf in graph_inputs:
            assert leaf.copies is not None
            leafs.extend((copy, leaf.backend) for copy in leaf.copies[leaf.backend])
        for split in splits:
            for source in split.inputs:
                assert source.copies is not None
                leafs.extend((copy, split.backend) for copy in source.copies[split.backend])
    leafs.extend((leaf, leaf.backend if leaf.backend != -1 else cpu) for leaf in graph.leafs)
    return Schedule(nodes, leafs, splits)
