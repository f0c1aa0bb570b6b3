"""How an embedding launch makes one row of a sequence's rows, and where that aborts llama.cpp.

Source: llama.cpp b11434, common/arg.cpp, src/llama-graph.cpp (build_pooling), src/llama-context.cpp (graph_reserve).
"""

from typing import Final

from kvstudio.header.values import ArrayValue
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

#: llama_pooling_type.
_KINDS: Final = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}

#: Decision models whose scores are read as embeddings. Source: common/common.cpp (common_init_result).
_SCORED: Final = frozenset({"laya", "kev", "clef"})


def reads_scores(model: ModelInfo) -> bool:
    """Whether the model is put into embedding mode by itself, every row for itself."""
    return model.header.metadata.get(f"{model.architecture}.decision.type") in _SCORED


def asked_pooling(config: LaunchConfig) -> str | None:
    """The pooling that was asked for: reranking asks for `rank`, and of both the later word holds."""
    if not config.reranking:
        return config.pooling
    typed = [arg.field for arg in config.layout if arg.field in ("pooling", "reranking")]
    return config.pooling if config.pooling and typed[-1:] == ["pooling"] else "rank"


def pooling_kind(model: ModelInfo, asked: str | None) -> str:
    """The pooling in force: what was asked for, else what the file asks for, else none."""
    if reads_scores(model):
        return "none"
    return asked or _KINDS.get(_number(model, "pooling_type"), "none")


def takes_means(model: ModelInfo, kind: str) -> bool:
    """Whether rows are averaged: also what a classifier ranks, for some models."""
    if kind != "rank":
        return kind == "mean"
    before = _KINDS.get(_number(model, "classifier.pooling_type"))
    return before == "mean" or (before is None and model.architecture == "modern-bert")


def refusal(model: ModelInfo, kind: str, n_tokens: int, slots: int) -> str | None:
    """Why averaging over these slots aborts llama.cpp, None where it does not; `n_tokens` of a full micro-batch.

    The batch of the reserve is rounded up to a multiple of the slots, the rows that are kept are not.
    """
    if not takes_means(model, kind) or n_tokens % slots == 0:
        return None
    lower = n_tokens - n_tokens % slots
    fits = f"-ub {lower} or -np 1" if lower else "-np 1"
    return f"pooling by mean aborts llama.cpp where {slots} slots do not divide {n_tokens} tokens: it needs {fits}."


def _number(model: ModelInfo, name: str) -> int:
    value = model.header.metadata.get(f"{model.architecture}.{name}")
    return -1 if value is None or isinstance(value, (str, ArrayValue)) else int(value)
