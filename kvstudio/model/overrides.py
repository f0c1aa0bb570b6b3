"""Metadata that a command line replaces (`--override-kv`) before the model is read.

Source: llama.cpp b11434, common/common.cpp (string_parse_kv_override), src/llama-model-loader.cpp (GGUFMeta).
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import replace

from kvstudio.header.values import ArrayValue, Scalar
from kvstudio.model.describe import describe
from kvstudio.model.values import ModelInfo

_WHOLE = re.compile(r"\s*[+-]?\d+")
_REAL = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def parse_overrides(texts: Iterable[str]) -> tuple[dict[str, Scalar], tuple[str, ...]]:
    """Values by key from `KEY=TYPE:VALUE,...` words, the first of a key holding, and what llama.cpp refuses."""
    found: dict[str, Scalar] = {}
    errors = []
    for item in (item for text in texts for row in csv.reader([text]) for item in row):
        key, is_there, typed = item.partition("=")
        kind, _, value = typed.partition(":")
        scalar = _value(kind, value)
        if not is_there or scalar is None:
            errors.append(f"--override-kv {item} is refused: it is no KEY=TYPE:VALUE of type int, float, bool or str.")
            continue
        found.setdefault(key, scalar)
    return found, tuple(errors)


def overridden(model: ModelInfo, values: dict[str, Scalar]) -> ModelInfo:
    """The model as it is read with those values; remembered, so that what is derived of it is derived once.

    A value of another type than the file's is ignored, and so is one for a list.
    Raises: HeaderError when layers or widths become absurd.
    """
    metadata = model.header.metadata
    changes = {
        key: value for key, value in values.items() if metadata.get(key) != value and _takes(metadata.get(key), value)
    }
    if not changes:
        return model
    at = ("overridden", tuple(changes.items()))
    known = model.memo.get(at)
    if not isinstance(known, ModelInfo):
        known = describe(replace(model.header, metadata={**metadata, **changes}))
        model.memo[at] = known
    return known


def _value(kind: str, value: str) -> Scalar | None:
    """None where the type or a truth is not one; a number is what the text begins with, else 0."""
    if kind == "int":
        whole = _WHOLE.match(value)
        return int(whole[0]) if whole else 0
    if kind == "float":
        real = _REAL.match(value)
        return float(real[0]) if real else 0.0
    if kind == "bool":
        return {"true": True, "false": False}.get(value)
    return value if kind == "str" else None


def _takes(old: object, new: Scalar) -> bool:
    if isinstance(old, ArrayValue):
        return False
    return old is None or type(old) is type(new)
