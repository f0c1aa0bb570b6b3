"""One sentence per number: where it comes from for this model, and why the popular formula is off."""

from collections.abc import Iterable

from kvstudio.budget.cache_types import cache_type, row_bytes
from kvstudio.budget.kv import CacheBuffer
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.recurrent import StateBuffer
from kvstudio.budget.values import Buffer, DeviceBudget, EffectiveConfig
from kvstudio.budget.weights import WeightBuffer
from kvstudio.devices.values import Device
from kvstudio.header.values import Shard
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.architectures import CacheClass
from kvstudio.model.values import ModelInfo
from kvstudio.units import MIB, format_bytes

FIT_TARGET_MIB = 1024  # what --fit leaves free on every device unless told otherwise
_OFF_BY = 0.1  # the popular formula is worth a word from 10 % on


def weights(model: ModelInfo, placement: Placement, part: WeightBuffer) -> str:
    """Why a model buffer has its size."""
    many = "1 tensor" if part.n_tensors == 1 else f"{part.n_tensors} tensors"
    if part.shard is not None:
        where = f" of file {part.shard + 1} of {len(model.header.shards)}" if len(model.header.shards) > 1 else ""
        return f"Mapped from the file{where}: the range from the first to the last of the {many} kept there."
    if part.device is not None:
        slots = [il for il, device in enumerate(placement.layer_device) if device == part.device]
        return f"{many}: {_layers(slots, len(placement.layer_device) - 1)}."
    if part.name in ("CPU_REPACK", "AMX"):
        return f"{many} rearranged for the CPU's matrix kernels, a copy besides the file."
    return f"{many} kept in host memory."


def _layers(slots: list[int], output: int) -> str:
    """`layers 0-16 and the output layer`."""
    layers = [il for il in slots if il != output]
    if not layers:
        return "the output layer"
    span = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]}-{layers[-1]}"
    return f"{span} and the output layer" if output in slots else span


def output(model: ModelInfo, effective: EffectiveConfig) -> str:
    """Why the output buffer has its size."""
    rows = effective.n_parallel
    many = "1 row" if rows == 1 else f"{rows} rows, one per slot,"
    more = " and the embedding" if effective.embeddings or model.architecture == "t5" else ""
    return f"{many} of {model.n_vocab} logits{more} as 32-bit floats; it grows with what a request asks for."


_CACHE_WORDS = {
    "kv": "attention",
    "kv_swa": "sliding-window attention",
    "indexer": "sparse attention's indexer",
    "csa": "4-fold compressed attention",
    "hca": "128-fold compressed attention",
}


def cache(model: ModelInfo, effective: EffectiveConfig, part: CacheBuffer) -> str:
    """Why one cache's buffer has its size, and why the popular formula does not give it."""
    layers = "1 layer" if part.layers == 1 else f"{part.layers} layers"
    words = _CACHE_WORDS.get(part.kind, part.kind)
    types = effective.cache_type_k if not part.v_bytes else f"{effective.cache_type_k}/{effective.cache_type_v}"
    streams = "" if effective.kv_unified or effective.n_parallel == 1 else f" in each of {effective.n_parallel} slots"
    reason = popular_formula(model, effective) if part.kind in ("kv", "kv_swa") else ""
    return f"{part.cells} cells{streams} of {words} for {layers} in {types}{reason}."


def popular_formula(model: ModelInfo, effective: EffectiveConfig) -> str:
    """Why 2 x layers x hidden size x context x bytes is off for this model; empty when it is about right."""
    kept: dict[bool, str] = model.memo.setdefault("popular formula", {})
    if effective.swa_full not in kept:
        kept[effective.swa_full] = _popular_formula(model, effective)
    return kept[effective.swa_full]


def _popular_formula(model: ModelInfo, effective: EffectiveConfig) -> str:
    reasons = []
    layers = [layer for layer in model.layers if layer.has_kv]
    if not layers:
        return ""
    if model.hparams["is_mla"]:
        reasons.append(f"only a latent of {layers[0].n_embd_k_gqa} values per cell is kept, no V")
    else:
        widest = max(layer.n_embd_k_gqa for layer in layers)
        if abs(widest - model.n_embd) > _OFF_BY * model.n_embd:
            heads, kv_heads = max(x.n_head for x in layers), max(x.n_head_kv for x in layers)
            if kv_heads < heads:
                reasons.append(f"{heads} heads share {kv_heads} K/V heads")
            else:
                reasons.append(f"K is {widest} wide, not {model.n_embd}")
    if any(layer.is_swa for layer in layers) and not effective.swa_full:
        many = sum(layer.is_swa for layer in layers)
        reasons.append(f"{many} of {len(layers)} layers look back only {model.n_swa} tokens")
    without = model.n_layer - sum(layer.has_kv for layer in model.layers[: model.n_layer])
    if without:
        what = "keep recurrent state instead" if any(x.is_recurrent for x in model.layers) else "reuse others' cells"
        reasons.append(f"{without} layers {what}")
    return ", since " + ", ".join(reasons) if reasons else ""


def popular_bytes(model: ModelInfo, effective: EffectiveConfig) -> int:
    """What 2 x layers x hidden size x context x bytes gives, for comparison."""
    kinds = cache_type(effective.cache_type_k), cache_type(effective.cache_type_v)
    return model.n_layer * effective.n_ctx * sum(row_bytes(kind, model.n_embd) for kind in kinds)


def state(model: ModelInfo, effective: EffectiveConfig, part: StateBuffer) -> str:
    """Why a recurrent state has its size."""
    slots = "1 slot" if effective.n_parallel == 1 else f"{effective.n_parallel} slots"
    layers = "1 layer" if part.layers == 1 else f"{part.layers} layers"
    more = f" with {effective.n_rs_seq} snapshots each to roll back to" if effective.n_rs_seq else ""
    return f"Recurrent state of {layers} for {slots}{more}; the context length does not matter."


def incomplete(shard: Shard) -> str:
    """What to say of a file that is shorter than its tensors."""
    return f"incomplete download: {shard.size_bytes:,} of {shard.need_bytes:,} bytes of {shard.path}; it will not load."


def mapped_note(buffers: Iterable[Buffer], host: Device | None) -> str | None:
    """A word on mapped weights that the memory cannot hold: they start, and are read from the disk for ever."""
    if host is None or host.total_bytes is None:
        return None
    mapped = sum(b.bytes or 0 for b in buffers if b.device is None and b.name.endswith("_Mapped"))
    if mapped <= host.total_bytes:
        return None
    return (
        f"{format_bytes(mapped)} of weights are mapped into {format_bytes(host.total_bytes)} of RAM: "
        "they will be read from the disk again for every token."
    )


def fit_note(effective: EffectiveConfig, config: LaunchConfig, devices: tuple[DeviceBudget, ...]) -> str | None:
    """Whether `--fit`, on by default, will change this launch, and what keeps it from doing so."""
    if not effective.fit or effective.split_mode == "tensor" or any(d.free_bytes is None for d in devices):
        return None
    targets = config.fit_target or (FIT_TARGET_MIB,)
    short = [
        (device.name, target)
        for device, target in zip(devices, targets * len(devices) if len(targets) == 1 else targets, strict=False)
        if (device.free_bytes or 0) - _measured(device) < target * MIB
    ]
    if not short:
        return None
    name, target = short[0]
    says = f"--fit is on and less than {target} MiB would stay free on {name}: "
    if effective.n_gpu_layers != -1 or effective.overrides or any(config.tensor_split or ()):
        return (
            says
            + ("it changes nothing, since " if config.n_ctx else "it can only shorten the context, since ")
            + ("layers were placed by hand.")
        )
    return says + ("llama.cpp will move layers to the CPU." if config.n_ctx else "llama.cpp will shorten the context.")


def _measured(device: DeviceBudget) -> int:
    return device.model_bytes + device.kv_bytes + device.rs_bytes + device.compute_bytes


def model_notes(model: ModelInfo, effective: EffectiveConfig) -> tuple[str, ...]:
    """What to know about this model besides its numbers."""
    notes = list(model.notes)
    if not model.known_architecture and model.missing_keys:
        notes.append(f"estimated: the file lacks {', '.join(model.missing_keys)}.")
    if model.header.missing_shards:
        notes.append(f"missing files of the split model: {', '.join(model.header.missing_shards)}.")
    notes += [incomplete(shard) for shard in model.header.shards if not shard.complete]
    if effective.flash_attn_on is None:
        notes.append("whether flash attention stays on here only the log can tell.")
    if model.hparams["cache"] is CacheClass.DSV4 and effective.n_parallel > 1:
        notes.append(f"every slot has a cache of the whole context: {effective.n_parallel} times what one would need.")
    return tuple(notes)
