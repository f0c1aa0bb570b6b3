"""Attention caches: how many cells of what width, and their bytes per buffer.

Source: llama.cpp b11434, src/llama-model.cpp (create_memory), src/llama-kv-cache*.cpp.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvstudio.budget import builds
from kvstudio.budget.cache_types import cache_type, row_bytes
from kvstudio.budget.placement_values import BackendTraits, Placement
from kvstudio.budget.tensor_groups import CPU, pad, quantized_pad
from kvstudio.budget.tensor_split import META, cache_parts
from kvstudio.budget.traits import CPU_ALIGNMENT
from kvstudio.budget.values import Cache, EffectiveConfig
from kvstudio.header.types import TensorType
from kvstudio.model.architectures import Architecture, CacheClass, Mtp
from kvstudio.model.values import Layer, ModelInfo

_CELL_PAD = 256
_CSA_RATIO, _HCA_RATIO = 4, 128


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """One cache: `widths` are (layer, elements of K, elements of V) per cell; V is 0 where only K is kept."""

    kind: str
    cells: int
    streams: int
    widths: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class CacheBuffer:
    """One cache's part in one buffer type; `device` None for host memory."""

    kind: str
    name: str
    device: str | None
    k_bytes: int
    v_bytes: int
    bytes: int
    layers: int
    cells: int


def cache_specs(model: ModelInfo, effective: EffectiveConfig) -> tuple[CacheSpec, ...]:
    """Every attention cache of the context, in the order llama.cpp creates them."""
    key = (
        effective.n_ctx_seq,
        effective.n_parallel,
        effective.kv_unified,
        effective.swa_full,
        effective.n_ubatch,
        effective.flash_attn == "off",
        effective.build,
        effective.mtp_context,
    )
    kept = model.memo.setdefault("cache_specs", {})
    specs: tuple[CacheSpec, ...] | None = kept.get(key)
    if specs is None:
        if len(kept) >= _KEPT:
            kept.clear()
        specs = kept[key] = tuple(spec for spec in _specs(model, effective) if spec.widths)
    return specs


_KEPT = 64


def _specs(model: ModelInfo, effective: EffectiveConfig) -> tuple[CacheSpec, ...]:
    cache: CacheClass = model.hparams["cache"]
    layers = _layers(model, effective)
    streams = 1 if effective.kv_unified else effective.n_parallel
    cells = effective.n_ctx_seq
    if cache is CacheClass.DSV4 and not effective.mtp_context:
        return _dsv4(model, effective, layers)
    if cache in (CacheClass.DSA, CacheClass.DSA_ISWA) and not effective.mtp_context:
        dense = [layer for layer in layers if not layer.is_swa]
        swa = [layer for layer in layers if layer.is_swa]
        return (
            CacheSpec("kv", cells, streams, _widths(model, effective, dense)),
            CacheSpec("indexer", cells, streams, _indexer(model, effective, model.layers[: model.n_layer])),
            CacheSpec("kv_swa", _swa_cells(model, effective), streams, _widths(model, effective, swa)),
        )
    if model.hparams["swa_type"] != "none":
        return (
            CacheSpec("kv", cells, streams, _widths(model, effective, [x for x in layers if not x.is_swa])),
            CacheSpec(
                "kv_swa",
                _swa_cells(model, effective),
                streams,
                _widths(model, effective, [x for x in layers if x.is_swa]),
            ),
        )
    specs = [CacheSpec("kv", cells, streams, _widths(model, effective, layers))]
    if cache is CacheClass.HYBRID_IDX or (cache is CacheClass.MSA and not effective.mtp_context):
        specs.append(CacheSpec("indexer", cells, streams, _indexer(model, effective, layers)))
    return tuple(specs)


def _layers(model: ModelInfo, effective: EffectiveConfig) -> list[Layer]:
    """Layers with cells of their own in this context."""
    if effective.mtp_context:
        return list(model.layers[model.n_layer :])
    if model.n_layer_nextn and _covers_mtp(model, effective.build):
        return list(model.layers)
    return [layer for layer in model.layers if layer.has_kv]


def _covers_mtp(model: ModelInfo, build: int) -> bool:
    """Earlier builds left MTP blocks out of the caches only where they had a graph for them."""
    if builds.follows(build, builds.MTP_GRAPHS):
        return False
    rule: Architecture = model.hparams["rule"]
    return rule.mtp is Mtp.SKIPPED or not builds.has_mtp_graph(build, model.architecture)


def _widths(model: ModelInfo, effective: EffectiveConfig, layers: Iterable[Layer]) -> tuple[tuple[int, int, int], ...]:
    """K and V elements per cell. Without flash attention every V row is as wide as the widest layer's."""
    if model.hparams["is_mla"]:
        return tuple((layer.index, layer.n_embd_k_gqa, 0) for layer in layers)
    if effective.flash_attn == "off":
        widest = max((layer.n_embd_v_gqa for layer in model.layers), default=0)
        return tuple((layer.index, layer.n_embd_k_gqa, widest) for layer in layers)
    return tuple((layer.index, layer.n_embd_k_gqa, layer.n_embd_v_gqa) for layer in layers)


def _swa_cells(model: ModelInfo, effective: EffectiveConfig, unified: bool | None = None) -> int:
    """Cells of a sliding-window cache: the windows of the sequences in it and one batch, rounded up to 256."""
    if effective.swa_full:
        return effective.n_ctx_seq
    shared = effective.kv_unified if unified is None else unified
    wanted = model.n_swa * (effective.n_parallel if shared else 1) + effective.n_ubatch
    return pad(min(effective.n_ctx_seq, wanted), _CELL_PAD)


def _indexer(model: ModelInfo, effective: EffectiveConfig, layers: Iterable[Layer]) -> tuple[tuple[int, int, int], ...]:
    """The sparse attention's own keys: one head per layer that owns an indexer.

    The cache is made by pretending there is one key head; V is dropped only where the main cache drops it.
    """
    hp = model.hparams
    width = hp["indexer_head_size"]
    cache: CacheClass = hp["cache"]
    full = hp["indexer_full"]
    if cache is CacheClass.MSA:
        lead = hp["n_layer_dense_lead"]
        return tuple((x.index, width, x.n_embd_head_v) for x in layers if x.index >= lead)
    if cache is CacheClass.HYBRID_IDX:
        rows = hp["indexer_kpool_row"] if hp["indexer_kpool"] else 1
        all_layers = model.architecture == "qwen4exp" or effective.mtp_context
        return tuple((x.index, width * rows, 0) for x in layers if width and (all_layers or full[x.index]))
    if effective.mtp_context or cache is CacheClass.UNIFIED:
        return ()
    return tuple((x.index, width, 0 if hp["is_mla"] else x.n_embd_head_v) for x in layers if full[x.index])


def _dsv4(model: ModelInfo, effective: EffectiveConfig, layers: list[Layer]) -> tuple[CacheSpec, ...]:
    """DeepSeek V4: keys only, a stream per sequence even in a unified pool, compressed caches beside the window."""
    streams, kv = effective.n_parallel, effective.n_ctx_seq
    ratios = model.hparams["compress_ratios"]
    csa = [layer for layer in layers if ratios[layer.index] == _CSA_RATIO]
    hca = [layer for layer in layers if ratios[layer.index] == _HCA_RATIO]
    lid = model.hparams["indexer_head_size"]
    few, fewer = _compressed(kv, _CSA_RATIO), _compressed(kv, _HCA_RATIO)
    return (
        CacheSpec("kv_swa", _swa_cells(model, effective, unified=False), streams, _keys(layers)),
        CacheSpec("csa", few, streams, _keys(csa)),
        CacheSpec("hca", fewer, streams, _keys(hca)),
        CacheSpec("indexer", few, streams, tuple((layer.index, lid, 0) for layer in csa)),
    )


def _compressed(cells: int, ratio: int) -> int:
    return pad(max(1, -(-cells // ratio)), _CELL_PAD)


def _keys(layers: Iterable[Layer]) -> tuple[tuple[int, int, int], ...]:
    return tuple((layer.index, layer.n_embd_k_gqa, 0) for layer in layers)


def cache_buffers(
    model: ModelInfo, specs: tuple[CacheSpec, ...], effective: EffectiveConfig, placement: Placement
) -> tuple[tuple[CacheBuffer, ...], tuple[Cache, ...]]:
    """Each cache's buffers (devices in order, host last) and its totals over all of them."""
    kind_k, kind_v = cache_type(effective.cache_type_k), cache_type(effective.cache_type_v)
    buffers: list[CacheBuffer] = []
    caches: list[Cache] = []
    for spec in specs:
        if placement.shares and effective.kv_offload:
            parts = _split_parts(model, spec, placement, kind_k, kind_v)
        else:
            parts = _parts(spec, effective.kv_offload, placement, kind_k, kind_v)
        buffers += parts
        k_bytes, v_bytes = sum(part.k_bytes for part in parts), sum(part.v_bytes for part in parts)
        caches.append(Cache(spec.kind, spec.cells, len(spec.widths), spec.streams, k_bytes, v_bytes))
    return tuple(buffers), tuple(caches)


def _parts(
    spec: CacheSpec, offload: bool, placement: Placement, kind_k: TensorType, kind_v: TensorType
) -> list[CacheBuffer]:
    """One buffer per device that holds layers of the cache; equal layers are computed once."""
    sums: dict[str | None, list[int]] = {}
    rows = spec.cells * spec.streams
    known: dict[tuple[str | None, int, int], tuple[int, int, int]] = {}
    traits = dict(zip(placement.devices, placement.traits, strict=True))
    for il, k_width, v_width in spec.widths:
        device = placement.layer_device[il] if offload else None
        sizes = known.get((device, k_width, v_width))
        if sizes is None:
            trait = traits.get(device) if device is not None else None
            k_bytes, k_padded = _tensor(kind_k, k_width, rows, trait)
            v_bytes, v_padded = _tensor(kind_v, v_width, rows, trait) if v_width else (0, 0)
            sizes = known[device, k_width, v_width] = (k_bytes, v_bytes, k_padded + v_padded)
        total = sums.setdefault(device, [0, 0, 0, 0])
        total[0] += sizes[0]
        total[1] += sizes[1]
        total[2] += sizes[2]
        total[3] += 1
    names = dict(zip(placement.devices, placement.buffer_types, strict=True))
    return [
        _buffer(spec, CPU if device is None else names[device], device, sums[device])
        for device in (*placement.devices, None)
        if device in sums
    ]


def _split_parts(
    model: ModelInfo, spec: CacheSpec, placement: Placement, kind_k: TensorType, kind_v: TensorType
) -> list[CacheBuffer]:
    """With `-sm tensor`: whole heads of every layer on each device; layers on the CPU stay whole there."""
    rows = spec.cells * spec.streams
    sums: dict[str | None, list[int]] = {}
    for il, k_width, v_width in spec.widths:
        if placement.layer_device[il] is None:
            places: list[tuple[str | None, int, int]] = [(None, k_width, v_width)]
        elif spec.kind in ("kv", "kv_swa"):
            k_parts = cache_parts(model, il, k_width, placement.shares, values=False)
            v_parts = cache_parts(model, il, v_width, placement.shares, values=True)
            places = list(zip(placement.devices, k_parts, v_parts, strict=True))
        else:
            places = [(device, k_width, v_width) for device in placement.devices]
        for device, k_part, v_part in places:
            trait = None if device is None else placement.traits[placement.devices.index(device)]
            k_bytes, k_padded = _tensor(kind_k, k_part, rows, trait) if k_part else (0, 0)
            v_bytes, v_padded = _tensor(kind_v, v_part, rows, trait) if v_part else (0, 0)
            total = sums.setdefault(device, [0, 0, 0, 0])
            for index, more in enumerate((k_bytes, v_bytes, k_padded + v_padded, 1)):
                total[index] += more
    return [
        _buffer(spec, CPU if device is None else META, device, sums[device])
        for device in (*placement.devices, None)
        if device in sums
    ]


def _buffer(spec: CacheSpec, name: str, device: str | None, sums: list[int]) -> CacheBuffer:
    k_bytes, v_bytes, n_bytes, layers = sums
    return CacheBuffer(spec.kind, name, device, k_bytes, v_bytes, n_bytes, layers, spec.cells)


def _tensor(kind: TensorType, width: int, rows: int, trait: BackendTraits | None) -> tuple[int, int]:
    """(bytes, bytes with padding) of one layer's K or V."""
    n_bytes = row_bytes(kind, width) * rows
    if trait is None:
        return n_bytes, pad(n_bytes, CPU_ALIGNMENT)
    return n_bytes, pad(n_bytes + quantized_pad(trait, kind, width), trait.alignment)
