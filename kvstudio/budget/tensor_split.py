"""`-sm tensor`: the part of every weight and cache that each device keeps.

Source: llama.cpp b11434, src/llama-model.cpp (llama_meta_device_get_split_state).
"""

import re
from dataclasses import dataclass
from math import lcm

from kvstudio.budget.layer_split import f32
from kvstudio.header.types import TENSOR_TYPES
from kvstudio.header.values import TensorInfo
from kvstudio.model.values import ModelInfo

META = "Meta()"  # how the log names the buffers of all devices together
_PERF_BLOCK = 128
_GATED_QUERY = frozenset({"qwen3next", "qwen35", "qwen35moe", "clef", "qwen4exp"})
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)$")
_ATTN_ROWS = frozenset({"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_qkv.weight", "attn_gate.weight"})
_ATTN_VALUES = frozenset({"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"})
_FFN_ROWS = re.compile(r"ffn_(up|gate|gate_up)(_exps)?\.weight$")
_FFN_VALUES = re.compile(r"ffn_(up|gate)(_exps)?\.bias$")
_FFN_COLUMNS = re.compile(r"ffn_down(_exps)?\.weight$")
_SSM_ROWS = frozenset({"ssm_alpha.weight", "ssm_beta.weight", "ssm_ba.weight", "ssm_conv1d.weight"})
_SSM_VALUES = frozenset({"ssm_dt.bias", "ssm_a"})

Segments = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Cut:
    """How one tensor is cut: along which axis, in which segments (length, repeats), to which granularity."""

    axis: int
    segments: Segments
    granularity: tuple[int, ...]


def tensor_parts(model: ModelInfo, tensor: TensorInfo, weights: tuple[float, ...]) -> tuple[int, ...]:
    """Bytes of a weight on each device, before padding; a mirrored one counts whole everywhere.

    `weights` are the typed proportions, all equal when none were.
    """
    match = _BLOCK.match(tensor.name)
    il = int(match.group(1)) if match else None
    cut = _cut(model, tensor, il, match.group(2) if match else tensor.name, len(weights))
    if cut is None:
        return (tensor.n_bytes,) * len(weights)
    kept = _divide(cut.segments, cut.granularity, weights, _rotation(model, il, len(weights)))
    whole = tensor.shape[cut.axis]
    return tuple(tensor.n_bytes * part // whole for part in kept)


def cache_parts(model: ModelInfo, il: int, width: int, weights: tuple[float, ...], *, values: bool) -> tuple[int, ...]:
    """Elements of one layer's K or V row on each device: whole heads."""
    layer = model.layers[il]
    if width == 0 or model.architecture in ("hrm_text", "deepseek4"):
        return (width,) * len(weights)
    heads = _head_granularity(model, il, _block_of(model, il, "attn_output.weight"), len(weights))
    per_kv = heads // max(1, layer.n_head // max(1, layer.n_head_kv))
    step = max(1, per_kv) * (layer.n_embd_head_v if values else layer.n_embd_head_k)
    return _divide(((width, 1),), (step,), weights, _rotation(model, il, len(weights)))


def state_parts(
    model: ModelInfo, il: int, widths: tuple[int, ...], weights: tuple[float, ...]
) -> list[tuple[int, ...]]:
    """Floats of a layer's recurrent state (convolution, state, rest) on each device."""
    n = len(weights)
    if model.architecture in ("lfm2", "lfm2moe") or not model.hparams["ssm_d_state"]:
        return [(width,) * n for width in widths]
    hp = model.hparams
    head = int(hp["ssm_d_state"])
    step = lcm(lcm(_block_of(model, il, "ssm_out.weight"), _PERF_BLOCK), head)
    conv = max(1, hp["ssm_d_conv"] - 1)
    rotation = _rotation(model, il, n)
    parts = [
        _divide(_conv_segments(model, widths[0], conv), (step * conv,) * 2, weights, rotation),
        _divide(_state_segments(model, widths[1]), (step * head,), weights, rotation),
    ]
    return parts + [(width,) * n for width in widths[2:]]


def _conv_segments(model: ModelInfo, width: int, conv: int) -> Segments:
    hp = model.hparams
    key = hp["ssm_d_state"] * hp["ssm_n_group"]
    value = hp["ssm_d_state"] * hp["ssm_dt_rank"]
    if model.architecture == "qwen3next":
        return ((key * conv, 2), (value * conv, 1))
    if model.architecture in _GATED_QUERY:
        return ((key * conv, 2 + hp["ssm_dt_rank"] // max(1, hp["ssm_n_group"])),)
    return ((width, 1),)


def _state_segments(model: ModelInfo, width: int) -> Segments:
    hp = model.hparams
    if model.architecture in _GATED_QUERY and model.architecture != "qwen3next":
        return ((hp["ssm_n_group"] * hp["ssm_d_state"] ** 2, hp["ssm_dt_rank"] // max(1, hp["ssm_n_group"])),)
    return ((width, 1),)


def _cut(model: ModelInfo, tensor: TensorInfo, il: int | None, name: str, n_devices: int) -> _Cut | None:
    """The cut of a weight by its name; None for what every device keeps whole."""
    if model.architecture == "hrm_text":
        return None
    if il is None:
        if tensor.name != "output.weight" or model.architecture == "deepseek4":
            return None
        return _Cut(1, ((tensor.shape[1], 1),), (1,))
    if il >= model.n_layer_all:
        return None
    if model.layers[il].is_recurrent and model.hparams["ssm_d_state"]:
        return _recurrent_cut(model, tensor, il, name)
    return _attention_cut(model, tensor, il, name, n_devices) or _ffn_cut(model, tensor, il, name)


def _attention_cut(model: ModelInfo, tensor: TensorInfo, il: int, name: str, n_devices: int) -> _Cut | None:
    layer = model.layers[il]
    heads = max(1, _head_granularity(model, il, _block_of(model, il, "attn_output.weight"), n_devices))
    gqa = max(1, layer.n_head // max(1, layer.n_head_kv))
    query, key = heads * layer.n_embd_head_k, max(1, heads // gqa) * layer.n_embd_head_k
    value = max(1, heads // gqa) * layer.n_embd_head_v
    gated = 2 if model.architecture in _GATED_QUERY else 1
    if name == "attn_output.weight":
        return _Cut(0, ((tensor.shape[0], 1),), (heads * layer.n_embd_head_v,))
    if name == "attn_sinks.weight":
        return _Cut(0, ((tensor.shape[0], 1),), (heads,))
    if name in ("attn_q_norm.weight", "attn_k_norm.weight") and len(tensor.shape) > 1 and tensor.shape[1] > 1:
        return _Cut(1, ((tensor.shape[1], 1),), (1,))
    if name not in _ATTN_ROWS and name not in _ATTN_VALUES:
        return None
    axis = 1 if name in _ATTN_ROWS else 0
    length = tensor.shape[axis]
    if name.startswith("attn_qkv"):
        widths = layer.n_head * layer.n_embd_head_k * gated, layer.n_embd_k_gqa, layer.n_embd_v_gqa
        if widths[1] == widths[2]:
            return _Cut(axis, ((widths[0], 1), (widths[1], 2)), (query * gated, key))
        return _Cut(axis, tuple((width, 1) for width in widths), (query, key, value))
    if name.startswith("attn_gate"):
        return _Cut(axis, ((length, 1),), (heads if length == layer.n_head else query,))
    step = query * gated if name.startswith("attn_q") else value if name.startswith("attn_v") else key
    return _Cut(axis, ((length, 1),), (step,))


def _ffn_cut(model: ModelInfo, tensor: TensorInfo, il: int, name: str) -> _Cut | None:
    down = "ffn_down.weight" if _has(model, il, "ffn_down.weight") else "ffn_down_exps.weight"
    step = lcm(_block_of(model, il, down), _PERF_BLOCK)
    if _FFN_COLUMNS.match(name):
        return _Cut(0, ((tensor.shape[0], 1),), (step,))
    rows = _FFN_ROWS.match(name)
    if not rows and not _FFN_VALUES.match(name):
        return None
    axis = 1 if rows else 0
    length = tensor.shape[axis]
    fused = "gate_up" in name or ("ffn_up" in name and length == 2 * model.layers[il].n_ff)
    return _Cut(axis, ((length // 2, 2) if fused else (length, 1),), (step,))


def _recurrent_cut(model: ModelInfo, tensor: TensorInfo, il: int, name: str) -> _Cut | None:
    """Linear attention: whole heads of the state."""
    if model.architecture in ("lfm2", "lfm2moe") or not _has(model, il, "ssm_out.weight"):
        return _ffn_cut(model, tensor, il, name)
    hp = model.hparams
    head = int(hp["ssm_d_state"])
    step = lcm(lcm(_block_of(model, il, "ssm_out.weight"), _PERF_BLOCK), head)
    ratio = hp["ssm_dt_rank"] // max(1, hp["ssm_n_group"])
    key, value = head * hp["ssm_n_group"], head * hp["ssm_dt_rank"]
    newer = model.architecture in _GATED_QUERY and model.architecture != "qwen3next"
    if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
        if newer:
            return _Cut(1, ((key, 2 + ratio),), (step,))
        plain = model.architecture != "qwen3next"
        return _Cut(1, ((tensor.shape[1], 1),) if plain else ((key, 2), (value, 1)), (step, step))
    if name in ("attn_gate.weight", "ssm_out.weight"):
        axis = 1 if name.startswith("attn_gate") else 0
        return _Cut(axis, ((key, ratio),) if newer else ((tensor.shape[axis], 1),), (step,))
    if name in _SSM_ROWS or name in _SSM_VALUES:
        axis = 1 if name in _SSM_ROWS else 0
        few = step // head * (2 if name == "ssm_ba.weight" else 1)
        groups = ((hp["ssm_n_group"], ratio),) if newer and name != "ssm_ba.weight" else ((tensor.shape[axis], 1),)
        return _Cut(axis, groups, (few,))
    return _ffn_cut(model, tensor, il, name)


def _head_granularity(model: ModelInfo, il: int, block: int, n_devices: int) -> int:
    """Query heads that stay together: those of one K/V head, in whole blocks of the output matrix."""
    layer = model.layers[il]
    width = (layer.n_head // max(1, layer.n_head_kv)) * layer.n_embd_head_k
    if width == 0:
        return 1
    perf = block
    while perf < _PERF_BLOCK and perf * n_devices < width:
        perf *= 2
    return lcm(width, perf) // layer.n_embd_head_k


def _divide(
    segments: Segments, granularity: tuple[int, ...], weights: tuple[float, ...], rotation: int
) -> tuple[int, ...]:
    """Elements per device over all segments; borders are rounded down, the rest goes to the last in turn."""
    n = len(weights)
    typed = len(set(weights)) > 1
    scan: list[float] = []
    for j in range(n):
        share = f32(weights[(j + rotation) % n])
        scan.append(f32(scan[-1] + share) if scan else share)
    parts = [0] * n
    for (length, repeats), step in zip(segments, granularity, strict=False):
        low = 0
        for j in range(n - 1):
            high = int(f32(f32(length * scan[j]) / scan[-1])) if typed else length * (j + 1) // n
            high -= high % max(1, step)
            parts[(j + rotation) % n] += (high - low) * repeats
            low = high
        parts[(n - 1 + rotation) % n] += (length - low) * repeats
    return tuple(parts)


def _rotation(model: ModelInfo, il: int | None, n_devices: int) -> int:
    """Layers of one kind take turns in who gets the remainder."""
    if il is None:
        return model.n_layer % n_devices
    kind = model.layers[il].is_recurrent, model.layers[il].is_swa
    return sum((layer.is_recurrent, layer.is_swa) == kind for layer in model.layers[:il]) % n_devices


def _types(model: ModelInfo) -> dict[str, int]:
    kept: dict[str, int] | None = model.memo.get("tensor types")
    if kept is None:
        kept = model.memo["tensor types"] = {tensor.name: tensor.type_id for tensor in model.header.tensors}
    return kept


def _has(model: ModelInfo, il: int, name: str) -> bool:
    return f"blk.{il}.{name}" in _types(model)


def _block_of(model: ModelInfo, il: int, name: str) -> int:
    type_id = _types(model).get(f"blk.{il}.{name}")
    return TENSOR_TYPES[type_id].block if type_id is not None else 1
