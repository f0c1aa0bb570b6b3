"""Whether llama.cpp can plan a graph: its table of tensors has room for all, and some backend takes each operation.

Source: llama-context.cpp graph_max_nodes, ggml-backend.cpp ggml_backend_sched_new and ggml_backend_sched_split_graph,
ggml.c ggml_hash_size, ggml-cpu/amx/amx.cpp supports_op, read at build 11434.
"""

from dataclasses import replace
from typing import Any

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.foundation import PLAIN_TYPES
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE, Reserve
from kvstudio.budget.compute.kinds import kinds_of
from kvstudio.budget.compute.layers import kept_layers
from kvstudio.budget.compute.simulate import graph_of, placed_by_name, reserve_for
from kvstudio.budget.placement_values import PlacedTensor, Placement
from kvstudio.budget.values import EffectiveConfig
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

_PER_WEIGHT = 8
_LEAST = 1024
#: Sizes a table may have.
_PRIMES = (1031, 2053, 4099, 8209, 16411, 32771, 65537)
#: Architectures that count on so much more per weight or per token that their graphs never come near it.
_ROOMY = frozenset(
    {"kimi-k3", "glm5-next", "hrm_text", "qwen3next", "kimi-linear", "bailingmoe3", "qwen35", "qwen35moe", "clef",
     "qwen4exp", "deepseek4", "dflash", "nanbeige", "minimax-01", "minimax-m3", "hy_v4"}
)  # fmt: skip


def overflow(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None
) -> tuple[int, int] | None:
    """(tensors of the graph, places in the table) where there are too many, which aborts llama.cpp; else None.

    Raises: LookupError when the file lacks what its architecture's graph is made of.
    """
    if model.architecture in _ROOMY:
        return None
    asked = max(_LEAST, _PER_WEIGHT * len(placement.tensors))
    room = next((prime for prime in _PRIMES if prime >= asked), None)
    if room is None:
        return None
    reserve = reserve_for(model, effective, placement, config, {})
    memo: dict[Any, int] = model.memo.setdefault("graph_tensors", {})
    key = _key(reserve)
    if key not in memo:
        memo[key] = _count(replace(reserve, placed=placed_by_name(placement)))
    return (memo[key], room) if memo[key] > room else None


def stranded(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None
) -> str | None:
    """A weight in an AMX buffer that meets a transposed tensor where no device can step in, which aborts llama.cpp.

    AMX multiplies with contiguous tensors only. What the buffer takes was tried with one, so the weight lies there all
    the same.
    Raises: LookupError when the file lacks what its architecture's graph is made of.
    """
    stacks = tuple(placed.tensor.name for placed in placement.tensors if _is_stack(placed))
    if placement.devices or not stacks:
        return None
    reserve = replace(
        reserve_for(model, effective, placement, config, {}),
        placed=placed_by_name(placement),
    )
    memo: dict[Any, str | None] = model.memo.setdefault("stranded", {})
    key = (stacks, *_key(reserve))
    if key not in memo:
        memo[key] = _stranded(reserve)
    return memo[key]


def _is_stack(placed: PlacedTensor) -> bool:
    return placed.buffer_type == "AMX" and len(placed.tensor.shape) > _MATRIX


_MATRIX = 2


def _stranded(reserve: Reserve) -> str | None:
    graph, _ = graph_of(reserve, kept_layers(reserve).layers)
    for node in graph.nodes:
        if node.op != "MUL_MAT" or node.src[0].home != "AMX" or node.src[1].is_contiguous:
            continue
        return next(name for name, leaf in reserve.weights.items() if leaf is node.src[0])
    return None


def _key(reserve: Reserve) -> Any:
    """All that adds or takes away a tensor, wherever the layers are."""
    config = reserve.config
    return (
        config.build >= MIXED_BATCH_SINCE, reserve.type_k in PLAIN_TYPES, reserve.type_v in PLAIN_TYPES,
        reserve.flash_attn, reserve.v_trans, config.kv_unified, min(config.n_parallel, 2), config.n_rs_seq,
        config.load_mtp, config.mtp_context, reserve.embeddings, reserve.pooling_kind,
    )  # fmt: skip


def _count(reserve: Reserve) -> int:
    """Nodes and leafs of all layers, from a few that stand for the others."""
    kept = kept_layers(reserve)
    graph, _ = graph_of(reserve, kept.layers)
    made = _by_layer(graph)
    row = kinds_of(reserve.model, reserve.placement).row
    like = {row[il]: made.get(il, 0) for il in kept.layers[:-1]}
    missing = set(range(reserve.model.n_layer)).difference(kept.layers)
    return len(graph.nodes) + len(graph.leafs) + sum(like.get(row[il], 0) for il in missing)


def _by_layer(graph: Blocks) -> dict[int, int]:
    """Nodes, and leafs by the layer that reads them first."""
    made: dict[int, int] = {}
    seen: set[int] = set()
    for node in graph.nodes:
        leafs = {id(src) for src in node.src if src.op == "NONE"} - seen
        seen |= leafs
        made[node.layer] = made.get(node.layer, 0) + 1 + len(leafs)
    return made
