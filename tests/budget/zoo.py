"""Shapes of real models and what llama.cpp reserved for them, as headers and rows for tests and benchmarks."""

import json
import lzma
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from kvstudio.budget.estimate import estimate
from kvstudio.budget.values import Budget, Buffer, BufferKind
from kvstudio.devices.values import Device
from kvstudio.header.types import TENSOR_TYPES
from kvstudio.header.values import ArrayValue, Header, MetadataValue, Shard, TensorInfo
from kvstudio.launch.argv import parse_argv
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.describe import describe
from kvstudio.model.values import ModelInfo
from kvstudio.units import MIB

DATA = Path(__file__).parent.parent / "data" / "zoo"
#: Memory the remote devices of the measurement reported.
RPC_MIB = 24105
_ALIGN = 32
_KEPT = 4096
_VALUE_TYPES = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7}


@cache
def shapes() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(lzma.decompress((DATA / "shapes.json.xz").read_bytes()))
    return loaded


@cache
def rows() -> tuple[dict[str, Any], ...]:
    """Measured runs; see `Row` for the fields that are compared."""
    text = lzma.decompress((DATA / "truth.jsonl.xz").read_bytes()).decode()
    return tuple(json.loads(line) for line in text.splitlines())


@cache
def small_models() -> dict[str, Any]:
    """Small models of rare architectures: `shapes` like those of the real ones, `rows` of settings and host bytes."""
    loaded: dict[str, Any] = json.loads(lzma.decompress((DATA / "small.json.xz").read_bytes()))
    return loaded


def header(name: str, known: dict[str, Any] | None = None) -> Header:
    """A model's header, made from its shape without a file; `known`: other shapes than those of the real models."""
    known = shapes() if known is None else known
    tensors: list[TensorInfo] = []
    shards: list[Shard] = []
    for index, (file_name, file) in enumerate(known[name]["files"].items()):
        offset = end = 0
        for tensor, shape, type_id in file["tensors"]:
            kind = TENSOR_TYPES[type_id]
            n_bytes = prod(shape) // kind.block * kind.block_bytes
            tensors.append(TensorInfo(tensor, tuple(shape), type_id, offset, n_bytes, index))
            end = offset + n_bytes
            offset += -(-n_bytes // _ALIGN) * _ALIGN
        shards.append(Shard(file_name, offset, 0, _ALIGN, len(file["tensors"]), end))
    first = next(iter(known[name]["files"].values()))
    metadata = {key: _value(kind, value) for key, (kind, value) in first["metadata"].items()}
    return Header(shards[0].path, 3, metadata, tuple(tensors), tuple(shards))


def _value(kind: str, value: Any) -> MetadataValue:
    if kind == "tokens":
        return ArrayValue(8, value["count"], None)
    if kind == "strs":
        return ArrayValue(8, len(value), None)
    if kind == "runs":
        count = sum(repeat for _, repeat in value["runs"])
        flat = tuple(item for item, repeat in value["runs"] for _ in range(repeat)) if count <= _KEPT else None
        return ArrayValue(_VALUE_TYPES.get(value["of"], 5), count, flat)
    plain: MetadataValue = value
    return plain


@cache
def model(name: str) -> ModelInfo:
    return describe(header(name))


def config(row: dict[str, Any]) -> LaunchConfig:
    """The row's settings as measured: a dry run, which maps nothing."""
    args = [arg for arg in row["args"] if arg != "--no-mmap"]
    parsed = parse_argv(("llama-server", "-m", row["file"], *args))
    return parsed.evolve(load_mode="none", build=int(row["build"][1:]))


def devices(row: dict[str, Any]) -> tuple[Device, ...]:
    found = []
    for name in row["devices"]:
        backend = name.rstrip("0123456789")
        n_bytes = (RPC_MIB if backend == "RPC" else row["device_mib"]) * MIB
        found.append(Device(name, backend, total_bytes=n_bytes, free_bytes=n_bytes))
    return tuple(found)


def budget(row: dict[str, Any]) -> Budget:
    return estimate(model(row["model"]), config(row), devices(row))


@dataclass(frozen=True, slots=True)
class Field:
    """One compared number: `where` is a device, `host` or empty."""

    name: str
    where: str
    want: Any
    got: Any


def compare(row: dict[str, Any], budget: Budget) -> list[Field]:
    """Every number of a measured run beside ours, compute buffers last."""
    fields = [Field("config", key, value, _config(budget, key)) for key, value in row["config"].items()]
    fields.append(Field("offloaded", "", tuple(row["offloaded"]), budget.offloaded_layers))
    fields.append(Field("copies", "", row["copies"], budget.config.pipeline_copies))
    for where, want in row["want"].items():
        fields.append(Field("model", where, want["model"], _main(budget, where, BufferKind.MODEL)))
        context = _main(budget, where, BufferKind.KV) + _main(budget, where, BufferKind.RS)
        fields.append(Field("context", where, want["context"], context))
    fields.append(Field("host buffers", "", _measured_host(row), _host_buffers(budget)))
    output = [(b.name, round(b.bytes / MIB, 2)) for b in _of(budget, BufferKind.OUTPUT) if b.bytes]
    fields.append(Field("output", "", [tuple(pair) for pair in row["output"]], output))
    for where, want in row["want"].items():
        fields.append(Field("compute", where, want["compute"], _main(budget, where, BufferKind.COMPUTE)))
    return fields


def _of(budget: Budget, kind: BufferKind) -> list[Buffer]:
    """Buffers of one kind that belong to the main context."""
    return [buffer for buffer in budget.buffers if buffer.kind is kind and buffer.context == "main"]


def _main(budget: Budget, where: str, kind: BufferKind) -> int:
    device = None if where == "host" else where
    return sum(buffer.bytes or 0 for buffer in _of(budget, kind) if buffer.device == device)


def _config(budget: Budget, key: str) -> Any:
    return getattr(budget.config, {"n_seq_max": "n_parallel"}.get(key, key))


def _measured_host(row: dict[str, Any]) -> dict[str, int]:
    """Weights in host memory by buffer type."""
    devices = set(row["want"])
    return {
        name: n_bytes
        for name, n_bytes, _, _ in row["buffers"]
        if n_bytes and name not in devices and not name.startswith("RPC")
    }


def _host_buffers(budget: Budget) -> dict[str, int]:
    return {
        buffer.name: buffer.bytes for buffer in _of(budget, BufferKind.MODEL) if buffer.device is None and buffer.bytes
    }


def is_first_context(row: dict[str, Any]) -> bool:
    """False for the rows that recorded the draft context of a run instead of the main one."""
    return row["cfg"] not in ("x-mtp", "cpux-mtp-2nd")
