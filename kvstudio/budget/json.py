"""A Budget as the command line's JSON."""

from typing import Any

from kvstudio.budget.values import Budget, Buffer, Cache, DeviceBudget, EffectiveConfig, FirstFailure
from kvstudio.model.values import ModelInfo

SCHEMA = "kvstudio.budget/1"
_MAIN = "main"
_KINDS = ("model_bytes", "kv_bytes", "rs_bytes", "compute_bytes", "output_bytes")


def to_json(model: ModelInfo, budget: Budget) -> dict[str, Any]:
    """Plain values for `json.dumps`: bytes are integers, unknown is None."""
    failure = budget.first_failure
    return {
        "schema": SCHEMA,
        "model": _model(model),
        "config": _config(budget.config),
        "offloaded_layers": list(budget.offloaded_layers),
        "devices": [_device(device, budget) for device in budget.all_devices],
        "host": {**_kinds(None, budget), "extra_bytes": _extra(None, budget)},
        "buffers": [_buffer(buffer) for buffer in budget.buffers],
        "caches": [_cache(cache) for cache in budget.caches],
        "fits": budget.fits,
        "first_failure": None if failure is None else _failure(failure),
        "notes": list(budget.notes),
    }


def _model(model: ModelInfo) -> dict[str, Any]:
    return {
        "architecture": model.architecture,
        "name": model.name,
        "n_layer": model.n_layer,
        "n_ctx_train": model.n_ctx_train,
        "size_bytes": model.size_bytes,
        "shards": len(model.header.shards),
        "known_architecture": model.known_architecture,
        "missing_keys": list(model.missing_keys),
    }


def _config(config: EffectiveConfig) -> dict[str, Any]:
    names = (
        "program build n_ctx n_ctx_seq n_parallel kv_unified n_batch n_ubatch cache_type_k cache_type_v n_gpu_layers"
        " flash_attn split_mode fit pipeline_copies"
    )
    return {name: getattr(config, name) for name in names.split()}


def _kinds(device: str | None, budget: Budget) -> dict[str, int]:
    """Bytes of the main context by kind."""
    sums = dict.fromkeys(_KINDS, 0)
    for buffer in budget.buffers:
        if buffer.device == device and buffer.context == _MAIN:
            sums[f"{buffer.kind.value}_bytes"] += buffer.bytes or 0
    return sums


def _extra(device: str | None, budget: Budget) -> int:
    """Bytes of what a launch has besides the main context."""
    parts = (buffer.bytes or 0 for buffer in budget.buffers if buffer.device == device and buffer.context != _MAIN)
    return sum(parts)


def _device(device: DeviceBudget, budget: Budget) -> dict[str, Any]:
    return {
        "name": device.name,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        **_kinds(device.name, budget),
        "extra_bytes": _extra(device.name, budget),
        "overhead_bytes": device.overhead_bytes,
        "other_bytes": device.other_bytes,
        "need_bytes": device.need_bytes,
        "fits": device.fits,
    }


def _buffer(buffer: Buffer) -> dict[str, Any]:
    return {
        "name": buffer.name,
        "device": buffer.device,
        "kind": buffer.kind.value,
        "bytes": buffer.bytes,
        "provenance": buffer.provenance.value,
        "why": buffer.why,
        "context": buffer.context,
    }


def _cache(cache: Cache) -> dict[str, Any]:
    return {
        "kind": cache.kind,
        "cells": cache.cells,
        "layers": cache.layers,
        "streams": cache.streams,
        "k_bytes": cache.k_bytes,
        "v_bytes": cache.v_bytes,
    }


def _failure(failure: FirstFailure) -> dict[str, Any]:
    return {
        "device": failure.device,
        "kind": failure.kind.value,
        "bytes": failure.bytes,
        "short_bytes": failure.short_bytes,
        "free_bytes": failure.free_bytes,
        "limit_bytes": failure.limit_bytes,
    }
