"""Header to ModelInfo: what a model is, as far as memory goes."""

from collections import Counter
from math import isfinite, prod
from pathlib import PurePath
from typing import Any

from kvstudio.errors import HeaderError
from kvstudio.header.types import type_name
from kvstudio.header.values import ArrayValue, Header
from kvstudio.model.architectures import ARCHITECTURES, Architecture, CacheClass
from kvstudio.model.file_types import FILE_TYPES
from kvstudio.model.hparams import HParams, read
from kvstudio.model.keys import Keys
from kvstudio.model.values import Layer, ModelInfo

_UNKNOWN = Architecture()
_SPLIT_SUFFIX_PARTS = 4


def describe(header: Header) -> ModelInfo:
    """The model of a header, as llama.cpp would load it.

    An architecture outside the table, or one whose required keys are missing, is described from the keys every
    architecture has: `known_architecture` is False then and `missing_keys` names what would have been needed.
    Raises: HeaderError when layers or widths are missing or absurd.
    """
    architecture = _architecture(header)
    rule = ARCHITECTURES.get(architecture)
    keys = Keys(header.metadata, architecture)
    hp = read(header, architecture, rule or _UNKNOWN, keys)
    _check_heads(rule or _UNKNOWN, hp, keys)
    missing = tuple(dict.fromkeys(keys.missing))
    if rule is not None and missing and rule is not _UNKNOWN:
        hp = _generic(header, architecture, hp, missing, keys)
    known = rule is not None and not missing
    return _model(header, architecture, rule or _UNKNOWN, hp, known, missing, tuple(keys.odd))


def _architecture(header: Header) -> str:
    value = header.metadata.get("general.architecture")
    if not isinstance(value, str) or not value:
        shown = "missing" if value is None else repr(value)
        raise HeaderError(f"general.architecture is {shown}", "The file does not say which kind of model it is.")
    return value


def _check_heads(rule: Architecture, hp: HParams, keys: Keys) -> None:
    """A model with attention cells needs head counts."""
    needs_heads = any(hp.has_kv) or rule.cache is CacheClass.NONE
    if needs_heads and not any(hp.n_head) and not keys.has("attention.head_count"):
        keys.missing.append(keys.name("attention.head_count"))


def _generic(header: Header, architecture: str, hp: HParams, missing: tuple[str, ...], keys: Keys) -> HParams:
    """Plain attention on every layer, for a known name whose own keys cannot be used."""
    if all(key.endswith("context_length") for key in missing):
        return hp
    plain = read(header, architecture, _UNKNOWN, Keys(header.metadata, architecture))
    keys.odd.append(f"read as plain attention because {', '.join(missing)} cannot be used")
    return plain


def _model(
    header: Header,
    architecture: str,
    rule: Architecture,
    hp: HParams,
    known: bool,
    missing: tuple[str, ...],
    odd: tuple[str, ...],
) -> ModelInfo:
    n_params = sum(prod(tensor.shape) for tensor in header.tensors)
    return ModelInfo(
        header=header,
        architecture=architecture,
        name=_name(header),
        size_label=_size_label(header, n_params),
        file_type=_file_type(header),
        n_layer=hp.n_layer,
        n_layer_all=hp.n_layer_all,
        n_embd=hp.n_embd,
        n_vocab=_n_vocab(header, architecture),
        n_ctx_train=hp.n_ctx_train,
        n_expert=hp.n_expert,
        n_expert_used=hp.n_expert_used,
        n_swa=hp.n_swa,
        layers=_layers(hp),
        n_params=n_params,
        tensor_bytes=sum(tensor.n_bytes for tensor in header.tensors),
        known_architecture=known,
        missing_keys=missing,
        notes=_notes(header, architecture, rule, known, odd),
        hparams=_hparams(hp, rule),
    )


def _layers(hp: HParams) -> tuple[Layer, ...]:
    return tuple(
        Layer(
            index=il,
            n_head=hp.n_head[il],
            n_head_kv=hp.n_head_kv[il],
            n_embd_head_k=hp.head_k_swa if hp.is_swa[il] else hp.head_k,
            n_embd_head_v=hp.head_v_swa if hp.is_swa[il] else hp.head_v,
            n_ff=hp.n_ff[il],
            is_swa=hp.is_swa[il],
            is_recurrent=hp.is_recurrent[il],
            has_kv=hp.has_kv[il],
        )
        for il in range(hp.n_layer_all)
    )


def _hparams(hp: HParams, rule: Architecture) -> dict[str, Any]:
    return {
        **hp.extra,
        "cache": hp.cache,
        "swa_type": hp.swa_kind,
        "rule": rule,
        "n_embd_head_k_full": hp.head_k,
        "n_embd_head_v_full": hp.head_v,
        "n_embd_head_k_swa": hp.head_k_swa,
        "n_embd_head_v_swa": hp.head_v_swa,
    }


def _notes(header: Header, architecture: str, rule: Architecture, known: bool, odd: tuple[str, ...]) -> tuple[str, ...]:
    notes = [*header.warnings, *odd]
    notes += [
        f"{key} is {value}, ignored"
        for key, value in header.metadata.items()
        if isinstance(value, float) and not isfinite(value)
    ]
    if rule.cache is CacheClass.UNSUPPORTED:
        what = "use it with --mmproj" if architecture == "clip" else "llama.cpp has no model of that name"
        notes.append(f"{architecture} cannot be loaded as a main model: {what}.")
    elif not known and architecture not in ARCHITECTURES:
        notes.append(f"architecture {architecture} is not known: every number is estimated from generic keys.")
    return tuple(notes)


def _name(header: Header) -> str:
    for key in ("general.name", "general.basename"):
        value = header.metadata.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    stem = PurePath(header.path).stem
    parts = stem.rsplit("-", _SPLIT_SUFFIX_PARTS - 1)
    is_shard = len(parts) == _SPLIT_SUFFIX_PARTS and parts[2] == "of" and parts[1].isdigit() and parts[3].isdigit()
    return parts[0] if is_shard else stem


def _size_label(header: Header, n_params: int) -> str | None:
    value = header.metadata.get("general.size_label")
    if isinstance(value, str) and value:
        return value
    if not n_params:
        return None
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if n_params >= size:
            return f"{n_params / size:.1f}{unit}"
    return f"{n_params / 1000:.0f}K"


def _file_type(header: Header) -> str | None:
    """The named mix, else the type most of the weights have."""
    value = header.metadata.get("general.file_type")
    if isinstance(value, int) and not isinstance(value, bool) and value in FILE_TYPES:
        return FILE_TYPES[value]
    weight: Counter[int] = Counter()
    for tensor in header.tensors:
        weight[tensor.type_id] += prod(tensor.shape)
    return type_name(weight.most_common(1)[0][0]).upper() if weight else None


def _n_vocab(header: Header, architecture: str) -> int:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, ArrayValue) and tokens.count:
        return tokens.count
    size = header.metadata.get(f"{architecture}.vocab_size")
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    for tensor in header.tensors:
        if tensor.name in ("token_embd.weight", "output.weight") and len(tensor.shape) > 1:
            return tensor.shape[1]
    return 0
