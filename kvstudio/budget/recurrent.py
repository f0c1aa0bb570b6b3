"""Recurrent state: what each sequence keeps whatever the context length.

Source: llama.cpp b11434, src/llama-memory-recurrent.cpp, src/llama-kv-cache-dsv4.cpp (compressor state).
"""

from dataclasses import dataclass

from kvstudio.budget.placement_values import Placement
from kvstudio.budget.tensor_groups import CPU, pad
from kvstudio.budget.tensor_split import META, state_parts
from kvstudio.budget.traits import CPU_ALIGNMENT
from kvstudio.budget.values import Cache, EffectiveConfig
from kvstudio.model.architectures import CacheClass
from kvstudio.model.values import ModelInfo

_FLOAT = 4
_CSA_RATIO, _HCA_RATIO = 4, 128
_STATEFUL = (CacheClass.RECURRENT, CacheClass.HYBRID, CacheClass.HYBRID_IDX)


@dataclass(frozen=True, slots=True)
class StateBuffer:
    """One state's part in one buffer type."""

    kind: str
    name: str
    device: str | None
    bytes: int
    layers: int


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One state: floats of every tensor a layer keeps, per row; `rows` sequences times their snapshots."""

    kind: str
    rows: int
    widths: tuple[tuple[int, tuple[int, ...]], ...]


def state_specs(model: ModelInfo, effective: EffectiveConfig) -> tuple[StateSpec, ...]:
    """Every recurrent state of the context."""
    if effective.mtp_context:
        return ()
    rows = max(1, effective.n_parallel) * (1 + effective.n_rs_seq)
    cache: CacheClass = model.hparams["cache"]
    if cache is CacheClass.DSV4:
        return tuple(spec for spec in _compressors(model, rows) if spec.widths)
    if cache not in _STATEFUL:
        return ()
    hp = model.hparams
    ple, ple_width = frozenset(hp.get("ple_layers", ())), hp.get("ple_conv_state", 0)
    r_width, s_width = hp["n_embd_r"], hp["n_embd_s"]
    widths = tuple(
        (layer.index, (r_width, s_width, ple_width) if layer.index in ple and ple_width else (r_width, s_width))
        for layer in model.layers[: model.n_layer]
        if layer.is_recurrent
    )
    return (StateSpec("rs", rows, widths),) if widths else ()


def _compressors(model: ModelInfo, rows: int) -> tuple[StateSpec, ...]:
    """DeepSeek V4 keeps the last tokens of every compressed block uncompressed."""
    hp = model.hparams
    ratios, head = hp["compress_ratios"], model.layers[0].n_embd_head_k
    layers = [layer.index for layer in model.layers]
    csa = [il for il in layers if ratios[il] == _CSA_RATIO]
    hca = [il for il in layers if ratios[il] == _HCA_RATIO]
    wide, lid = 2 * _CSA_RATIO * 2 * head, 2 * _CSA_RATIO * 2 * hp["indexer_head_size"]
    return (
        StateSpec("csa_state", rows, tuple((il, (wide, wide)) for il in csa)),
        StateSpec("hca_state", rows, tuple((il, (_HCA_RATIO * head, _HCA_RATIO * head)) for il in hca)),
        StateSpec("indexer_state", rows, tuple((il, (lid, lid)) for il in csa)),
    )


def state_buffers(
    model: ModelInfo, specs: tuple[StateSpec, ...], effective: EffectiveConfig, placement: Placement
) -> tuple[tuple[StateBuffer, ...], tuple[Cache, ...]]:
    """Each state's buffers (devices in order, host last) and its totals."""
    alignments = {name: trait.alignment for name, trait in zip(placement.devices, placement.traits, strict=True)}
    types = (META,) * len(placement.devices) if placement.shares else placement.buffer_types
    names = dict(zip(placement.devices, types, strict=True))
    buffers: list[StateBuffer] = []
    caches: list[Cache] = []
    for spec in specs:
        sums: dict[str | None, list[int]] = {}
        first = second = 0
        for il, widths in spec.widths:
            for device, kept in _homes(model, il, widths, effective, placement):
                alignment = CPU_ALIGNMENT if device is None else alignments[device]
                total = sums.setdefault(device, [0, 0])
                total[0] += sum(pad(_FLOAT * width * spec.rows, alignment) for width in kept)
                total[1] += 1
            first += _FLOAT * (widths[0] + sum(widths[2:])) * spec.rows
            second += _FLOAT * widths[1] * spec.rows
        buffers += [
            StateBuffer(spec.kind, CPU if device is None else names[device], device, sums[device][0], sums[device][1])
            for device in (*placement.devices, None)
            if device in sums
        ]
        caches.append(Cache(spec.kind, spec.rows, len(spec.widths), effective.n_parallel, first, second))
    return tuple(buffers), tuple(caches)


def _homes(
    model: ModelInfo, il: int, widths: tuple[int, ...], effective: EffectiveConfig, placement: Placement
) -> list[tuple[str | None, tuple[int, ...]]]:
    """Where one layer's state is kept: on its device, or cut over all of them with `-sm tensor`."""
    device = placement.layer_device[il] if effective.kv_offload else None
    if device is None or not placement.shares:
        return [(device, widths)]
    cut = state_parts(model, il, widths, placement.shares)
    return [(name, tuple(part[index] for part in cut)) for index, name in enumerate(placement.devices)]
