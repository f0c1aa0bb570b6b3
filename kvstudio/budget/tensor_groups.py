"""Choosing a buffer type per tensor and summing what goes together, remembered per model.

Source: llama.cpp b11434, src/llama-model-loader.cpp (create_tensor, select_weight_buft).
"""

import re
from dataclasses import dataclass, replace
from functools import cache

from kvstudio.budget import builds, support
from kvstudio.budget.placement_values import BackendTraits, MappedRange, PlacedTensor, TensorGroup
from kvstudio.budget.tensor_ops import Place
from kvstudio.budget.tensor_table import Row, TensorTable
from kvstudio.budget.traits import CPU_ALIGNMENT, MAPS_WEIGHTS, CpuTraits
from kvstudio.header.types import TENSOR_TYPES, TensorType
from kvstudio.header.values import TensorInfo
from kvstudio.model.values import ModelInfo
from kvstudio.units import GIB

CPU, CPU_MAPPED, REPACK, AMX = "CPU", "CPU_Mapped", "CPU_REPACK", "AMX"
LAZY = "CPU lazy"  # its own context, mapped whatever the load mode
_QUANTIZED_COLUMNS = 512  # MATRIX_ROW_PADDING of CUDA, SYCL and CANN
_LAZY_BYTES = 4 * GIB
_LAZY_NAMES = frozenset({"per_layer_token_embd.weight"})
_EMPTY = TensorGroup((), (), ())


@dataclass(frozen=True, slots=True)
class Lists:
    """The buffer types there are: devices with their types, the pinned host type, what the CPU repacks."""

    devices: tuple[str, ...]
    types: tuple[str, ...]
    traits: tuple[BackendTraits, ...]
    host: BackendTraits | None
    repack: bool
    cpu: CpuTraits
    mapped: bool
    lazy_mode: str
    build: int
    overrides: tuple[tuple[str, str], ...] = ()


Part = str | int
Where = int | None | frozenset[int | None]
Overrides = tuple[tuple[str, str], ...]
_MAX_KEPT = 20_000


class Grouper:
    """Gives the groups of one model under one set of lists, remembering what it gave before.

    Only the overrides that match a tensor of a part are part of what it remembers, so moving one more layer's experts
    to the CPU works out that layer alone.
    """

    def __init__(self, model: ModelInfo, table: TensorTable, lists: Lists) -> None:
        self._model, self._table = model, table
        self._plain = replace(lists, overrides=())
        memo = model.memo
        self._kept: dict[tuple[Overrides, Part, Where], TensorGroup] = memo.setdefault(
            ("groups", id(table), self._plain), {}
        )
        self._hits: dict[str, tuple[Part, ...]] = memo.setdefault(("override hits", id(table)), {})
        self._overrides: dict[Part, Overrides] = {}
        for pair in lists.overrides:
            for part in self._matched(pair[0]):
                self._overrides[part] = (*self._overrides.get(part, ()), pair)

    def group(self, part: Part, where: Where) -> TensorGroup:
        """The placed tensors of a layer (by number), of the inputs, the outputs, the tied copy or rope factors.

        `where` is the device index of the layer, None for the CPU; for rope factors every device that uses them.
        """
        overrides = self._overrides.get(part, ())
        key = (overrides, part, where)
        group = self._kept.get(key)
        if group is None:
            if len(self._kept) > _MAX_KEPT:
                self._kept.clear()
            lists = replace(self._plain, overrides=overrides) if overrides else self._plain
            group = self._kept[key] = _make(self._model, self._table, lists, part, where)
        return group

    def _matched(self, pattern: str) -> tuple[Part, ...]:
        """The parts that have a tensor the pattern finds."""
        hit = self._hits.get(pattern)
        if hit is None:
            compiled = _compiled(pattern)
            named = _part_names(self._table) if compiled is not None else ()
            hit = tuple(part for part, names in named if compiled and any(compiled.search(name) for name in names))
            self._hits[pattern] = hit
        return hit


def _part_names(table: TensorTable) -> tuple[tuple[Part, tuple[str, ...]], ...]:
    """Names of the tensors of every part; the tied copy goes by the name of the original."""
    ends = tuple(row.tensor.name for row in (*table.inputs, *table.outputs))
    parts: list[tuple[Part, tuple[str, ...]]] = [("input", ends), ("output", ends), ("tied", ends)]
    parts += [(il, tuple(row.tensor.name for row in rows)) for il, rows in table.blocks.items()]
    parts += [(f"rope:{tensor.name}", (tensor.name,)) for tensor, _ in table.rope]
    return tuple(parts)


def _make(model: ModelInfo, table: TensorTable, lists: Lists, part: Part, where: Where) -> TensorGroup:
    if isinstance(part, int):
        return _rows(model, lists, table.blocks[part], where, part)
    if part == "input":
        return _rows(model, lists, table.inputs, None, None)
    if part == "output":
        return _rows(model, lists, table.outputs, where, None)
    if part == "tied":
        return _tied(model, table, lists, where)
    return _rope(model, table, lists, part.removeprefix("rope:"), where)


def _rows(model: ModelInfo, lists: Lists, rows: tuple[Row, ...], where: Where, layer: int | None) -> TensorGroup:
    return _sum(lists, [_place(model, lists, row, where, layer, duplicate=False) for row in rows])


def _tied(model: ModelInfo, table: TensorTable, lists: Lists, where: Where) -> TensorGroup:
    """The second copy of the embedding, if it does not end where the first one is."""
    row = table.tied
    if row is None:
        return _EMPTY
    copy = _place(model, lists, row, None if row.role.place is Place.INPUT else where, None, duplicate=True)
    rows = table.outputs if row.role.place is Place.INPUT else table.inputs
    first = next((r for r in rows if r.tensor is row.tensor), None)
    if first is not None and not table.always_two:
        original = _place(model, lists, first, where if row.role.place is Place.INPUT else None, None, duplicate=False)
        if original.buffer_type == copy.buffer_type:
            return _EMPTY
    return _sum(lists, [copy])


def _rope(model: ModelInfo, table: TensorTable, lists: Lists, name: str, where: Where) -> TensorGroup:
    """Rope factors once per buffer type that hosts a layer using them."""
    tensor = next(t for t, _ in table.rope if t.name == name)
    found: dict[str, PlacedTensor] = {}
    spots = where if isinstance(where, frozenset) else frozenset({where})
    for index in sorted(spots, key=lambda spot: -1 if spot is None else spot):
        spot = _choose(model, lists, tensor, "ROPE", index)
        found.setdefault(spot, _named(lists, tensor, spot, None, duplicate=bool(found)))
    return _sum(lists, list(found.values()))


def _place(
    model: ModelInfo, lists: Lists, row: Row, where: Where, layer: int | None, *, duplicate: bool
) -> PlacedTensor:
    index = where if isinstance(where, int) else None
    if _is_lazy(lists, row.tensor):
        return PlacedTensor(row.tensor, CPU, None, layer, duplicate, lazy=True)
    op = row.role.op or "NONE"
    if op == "SSM_SCAN" and model.architecture == "kimi-linear" and builds.follows(lists.build, builds.NEWEST):
        op = "MUL"
    return _named(lists, row.tensor, _choose(model, lists, row.tensor, op, index), layer, duplicate=duplicate)


def _named(lists: Lists, tensor: TensorInfo, spot: str, layer: int | None, *, duplicate: bool) -> PlacedTensor:
    device = lists.devices[lists.types.index(spot)] if spot in lists.types else None
    return PlacedTensor(tensor, spot, device, layer, duplicate)


def _is_lazy(lists: Lists, tensor: TensorInfo) -> bool:
    """Huge lookup tables that are read row by row stay in the file."""
    if tensor.name not in _LAZY_NAMES and not tensor.name.endswith("ple_embd.weight"):
        return False
    return lists.lazy_mode == "on" or (lists.lazy_mode == "auto" and tensor.n_bytes > _LAZY_BYTES)


def _choose(model: ModelInfo, lists: Lists, tensor: TensorInfo, op: str, index: int | None) -> str:
    """The buffer type of one tensor: an override's, else the first of its layer's list that supports it."""
    forced = _override(lists, tensor.name)
    if forced is not None and forced != CPU:
        return _unmapped_host(lists, _type_name(lists, forced))
    if (
        forced is None
        and index is not None
        and support.device_takes(lists.traits[index], op, tensor, model, lists.build)
    ):
        return lists.types[index]
    return _host_choice(model, lists, tensor, op)


def _host_choice(model: ModelInfo, lists: Lists, tensor: TensorInfo, op: str) -> str:
    """First fitting of: pinned host memory, AMX, CPU_REPACK, plain CPU."""
    host = lists.host
    if host is not None and support.device_takes(host, op, tensor, model, lists.build):
        return CPU if lists.mapped else host.host_buffer_type or CPU
    if lists.repack and support.amx_takes(lists.cpu, op, tensor):
        return AMX
    if lists.repack and support.repacks(lists.cpu, op, tensor) and not _reshaped(model, tensor):
        return REPACK
    return CPU


def _reshaped(model: ModelInfo, tensor: TensorInfo) -> bool:
    """Matrices the loader turns into three dimensions, which the repacking of plain ones does not take."""
    return model.architecture in ("deepseek4", "dflash") and tensor.name.endswith("attn_output_a.weight")


def _unmapped_host(lists: Lists, name: str) -> str:
    """A pinned host type becomes plain CPU when the file is mapped."""
    hosts = {trait.host_buffer_type for trait in lists.traits if trait.host_buffer_type}
    return CPU if lists.mapped and name in hosts else name


def _type_name(lists: Lists, name: str) -> str:
    """An override's buffer type, which may be given by the device's name."""
    return lists.types[lists.devices.index(name)] if name in lists.devices else name


def _override(lists: Lists, name: str) -> str | None:
    for pattern, buffer_type in lists.overrides:
        compiled = _compiled(pattern)
        if compiled is not None and compiled.search(name):
            return buffer_type
    return None


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:
        return None


def _sum(lists: Lists, tensors: list[PlacedTensor]) -> TensorGroup:
    """Bytes by buffer type and, where the file is mapped, the range each file contributes."""
    sizes: dict[str, int] = {}
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    counts: dict[str, int] = {}
    for placed in tensors:
        spot, info = LAZY if placed.lazy else placed.buffer_type, placed.tensor
        counts[spot] = counts.get(spot, 0) + 1
        if _is_mapped(lists, spot):
            first, last = ranges.get((spot, info.shard), (info.offset, 0))
            ranges[spot, info.shard] = min(first, info.offset), max(last, info.offset + info.n_bytes)
        else:
            sizes[spot] = sizes.get(spot, 0) + alloc_bytes(lists, spot, info)
    return TensorGroup(
        tuple(tensors),
        tuple(sizes.items()),
        tuple((spot, MappedRange(shard, *span)) for (spot, shard), span in ranges.items()),
        tuple(counts.items()),
    )


def _is_mapped(lists: Lists, spot: str) -> bool:
    if spot == LAZY:
        return lists.mapped
    if not lists.mapped:
        return False
    return spot == CPU or (spot in lists.types and lists.traits[lists.types.index(spot)].backend in MAPS_WEIGHTS)


def alloc_bytes(lists: Lists, spot: str, tensor: TensorInfo) -> int:
    """Bytes a tensor takes in a buffer of that type, padded to its alignment."""
    if spot in lists.types:
        trait = lists.traits[lists.types.index(spot)]
        return pad(
            tensor.n_bytes + quantized_pad(trait, TENSOR_TYPES[tensor.type_id], tensor.shape[0]), trait.alignment
        )
    for trait in lists.traits:
        if trait.host_buffer_type == spot:
            return pad(tensor.n_bytes, trait.host_alignment)
    return pad(support.amx_bytes(tensor) if spot == AMX else tensor.n_bytes, CPU_ALIGNMENT)


def quantized_pad(trait: BackendTraits, kind: TensorType, n_columns: int) -> int:
    """Bytes CUDA, SYCL and CANN add so that the last row of a quantized tensor can be read to 512 columns."""
    if not trait.pads_quantized_rows or kind.block == 1 or n_columns % _QUANTIZED_COLUMNS == 0:
        return 0
    return (_QUANTIZED_COLUMNS - n_columns % _QUANTIZED_COLUMNS) // kind.block * kind.block_bytes


def pad(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment
