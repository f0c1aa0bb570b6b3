"""Every layer to a device and every tensor to a buffer type, before anything is summed.

Source: llama.cpp b11434, src/llama-model.cpp (load_tensors), src/llama-model-loader.cpp (create_tensor).
"""

from dataclasses import dataclass

from kvstudio.budget import builds, device_list, layer_split, limits
from kvstudio.budget.placement_values import BackendTraits, Placement, TensorGroup
from kvstudio.budget.tensor_groups import Grouper, Lists
from kvstudio.budget.tensor_table import TensorTable, table_of
from kvstudio.budget.traits import ROW_SPLIT, cpu_traits, is_known, traits_of
from kvstudio.budget.values import EffectiveConfig
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

PIPELINE_COPIES = 4  # GGML_SCHED_MAX_COPIES
_KEPT = 16  # placements remembered per model
_NO_MMAP_MODES = ("none", "mlock", "dio")
_MMAP_MODES = ("mmap", "mmap+mlock")
_INTEGRATED_WITHOUT_MMAP = ("CUDA", "ROCm", "MUSA", "Vulkan")


@dataclass(frozen=True, slots=True)
class _Key:
    """Everything a placement depends on besides the model."""

    devices: tuple[Device, ...]
    host: Device | None
    n_gpu_layers: int
    split_mode: str
    tensor_split: tuple[float, ...] | None
    main_gpu: int | None
    device: tuple[str, ...] | None
    rpc: tuple[str, ...] | None
    kv_offload: bool
    load_mode: str
    lazy_mode: str
    repack: bool
    no_host: bool
    overrides: tuple[tuple[str, str], ...]
    load_mtp: bool
    build: int
    env: tuple[tuple[str, str], ...]


def place(
    model: ModelInfo,
    effective: EffectiveConfig,
    devices: tuple[Device, ...],
    config: LaunchConfig,
    host: Device | None = None,
) -> Placement:
    """Where llama.cpp puts the model; remembered per model, since most changes of a setting do not move anything."""
    key = _Key(
        devices,
        host,
        effective.n_gpu_layers,
        effective.split_mode,
        config.tensor_split,
        config.main_gpu,
        config.device,
        config.rpc,
        effective.kv_offload,
        effective.load_mode,
        effective.lazy_mode,
        effective.repack,
        effective.no_host,
        effective.overrides,
        effective.load_mtp,
        effective.build,
        tuple(pair for pair in config.env if pair[0] in limits.VARIABLES),
    )
    kept: dict[_Key, Placement] = model.memo.setdefault("placements", {})
    placement = kept.get(key)
    if placement is None:
        if len(kept) >= _KEPT:
            kept.pop(next(iter(kept)))
        placement = kept[key] = _place(model, key, config)
    return placement


def _place(model: ModelInfo, key: _Key, config: LaunchConfig) -> Placement:
    devices, errors = device_list.choose(key.devices, config)
    variables = dict(key.env)
    traits = tuple(traits_of(device, variables) for device in devices)
    names = tuple(device.name for device in devices)
    types = _buffer_types(devices, key.rpc)
    indices, notes = _layers(model, key, devices)
    layer_device = tuple(None if index is None else names[index] for index in indices)
    mapped = _uses_mmap(key, devices)
    lists = _lists(key, devices, traits, types, mapped)
    table = table_of(model, key.load_mtp, key.build)
    groups = _groups(model, table, lists, indices)
    return Placement(
        devices=names,
        traits=traits,
        layer_device=layer_device,
        tensors=tuple(tensor for group in groups for tensor in group.tensors),
        offloaded_layers=layer_split.offloaded(model.n_layer_all, key.n_gpu_layers),
        pipeline_copies=_copies(model, key, traits),
        buffer_types=types,
        host_type=next((trait.host_buffer_type for trait in traits if trait.host_buffer_type), None),
        mapped=mapped,
        groups=groups,
        shares=_shares(key, devices),
        errors=errors + _split_errors(key, traits) + _override_errors(key),
        notes=notes + tuple(_notes(key, traits, lists)),
    )


def _buffer_types(devices: tuple[Device, ...], rpc: tuple[str, ...] | None) -> tuple[str, ...]:
    """Log names of the default buffer types; an RPC device is named by its server, counted per server."""
    endpoints = list(rpc or ())
    types = []
    for device in devices:
        if device.backend == "RPC" and "[" not in device.name and endpoints:
            types.append(f"RPC0[{endpoints.pop(0)}]")
        else:
            types.append(device.name)
    return tuple(types)


def _layers(model: ModelInfo, key: _Key, devices: tuple[Device, ...]) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Device index per layer, the output layer last."""
    if key.split_mode == "tensor":
        indices = layer_split.assign(model.n_layer_all, key.n_gpu_layers, (1.0,) if devices else ())
        return indices, ()
    shares, notes = _split_shares(key, devices)
    return layer_split.assign(model.n_layer_all, key.n_gpu_layers, layer_split.split_points(shares)), notes


def _split_shares(key: _Key, devices: tuple[Device, ...]) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Typed proportions, else the memory that is free now."""
    typed = (*(key.tensor_split or ()), *(0.0 for _ in devices))[: len(devices)]
    if any(typed):
        return typed, ()
    if len(devices) > 1 and any(device.free_bytes is None for device in devices):
        guess = tuple(float(device.free_bytes or device.total_bytes or 1) for device in devices)
        return guess, ("free memory of a device is not known: the split between devices is a guess.",)
    return tuple(_free(device, key.host) for device in devices), ()


def _free(device: Device, host: Device | None) -> float:
    """A device that reports nothing counts with the host's memory."""
    if not device.free_bytes and not device.total_bytes:
        return float((host.free_bytes if host else None) or 1)
    return float(device.free_bytes or 0)


def _uses_mmap(key: _Key, devices: tuple[Device, ...]) -> bool:
    """Whether the file is mapped; integrated CUDA and Vulkan devices turn the automatic choice off."""
    if key.load_mode in _NO_MMAP_MODES:
        return False
    if key.load_mode in _MMAP_MODES:
        return True
    return not any(device.integrated and device.backend in _INTEGRATED_WITHOUT_MMAP for device in devices)


def _lists(
    key: _Key,
    devices: tuple[Device, ...],
    traits: tuple[BackendTraits, ...],
    types: tuple[str, ...],
    mapped: bool,
) -> Lists:
    with_host = next((trait for trait in traits if trait.host_buffer_type), None)
    host = None if key.no_host else with_host
    return Lists(
        devices=tuple(device.name for device in devices),
        types=types,
        traits=traits,
        host=host,
        repack=key.repack,
        cpu=cpu_traits(key.build),
        mapped=mapped,
        lazy_mode=key.lazy_mode if key.build >= builds.LOAD_MODE else "off",
        overrides=key.overrides,
        build=key.build,
    )


def _groups(
    model: ModelInfo, table: TensorTable, lists: Lists, indices: tuple[int | None, ...]
) -> tuple[TensorGroup, ...]:
    """One group of tensors per layer, then what depends on several layers."""
    output = indices[-1]
    grouper = Grouper(model, table, lists)
    groups = [grouper.group("input", None), grouper.group("output", output)]
    groups += [grouper.group(il, index) for il, index in enumerate(indices[:-1]) if il in table.blocks]
    groups.append(grouper.group("tied", output))
    groups += [
        grouper.group(f"rope:{tensor.name}", frozenset(indices[il] for il in layers)) for tensor, layers in table.rope
    ]
    return tuple(group for group in groups if group.tensors)


def _copies(model: ModelInfo, key: _Key, traits: tuple[BackendTraits, ...]) -> int:
    """Pipeline parallelism keeps 4 copies of what crosses between devices.

    Source: llama.cpp b11434, src/llama-context.cpp (constructor).
    """
    all_layers = key.n_gpu_layers < 0 or key.n_gpu_layers > model.n_layer_all
    on = len(traits) > 1 and all_layers and key.split_mode == "layer" and key.kv_offload and not key.overrides
    return PIPELINE_COPIES if on and all(trait.async_events for trait in traits) else 1


def _shares(key: _Key, devices: tuple[Device, ...]) -> tuple[float, ...]:
    """Parts of a `-sm tensor` split."""
    if key.split_mode != "tensor" or not devices:
        return ()
    typed = (*(key.tensor_split or ()), *(0.0 for _ in devices))[: len(devices)]
    return typed if any(typed) else tuple(1.0 for _ in devices)


def _split_errors(key: _Key, traits: tuple[BackendTraits, ...]) -> tuple[str, ...]:
    if key.split_mode == "tensor" and not traits:
        return ("-sm tensor needs at least one device.",)
    if key.split_mode != "row":
        return ()
    without = [trait.backend for trait in traits if trait.backend not in ROW_SPLIT]
    return (f"-sm row is refused: {without[0]} has no split buffers in this llama.cpp.",) if without else ()


def _notes(key: _Key, traits: tuple[BackendTraits, ...], lists: Lists) -> list[str]:
    notes = [f"backend {trait.backend} is not known: alignments are guessed." for trait in traits]
    notes = [note for note, trait in zip(notes, traits, strict=True) if not is_known(trait.backend)]
    if lists.host is None and key.repack:
        notes.append(
            "which matrices the CPU backend repacks depends on how it was compiled: taken as "
            + ("AVX-512 with AMX." if lists.cpu.amx else "AVX2.")
        )
    known = _named_types(key)
    notes += [f"-ot: there is no buffer type {name}." for name in _override_names(key) if name not in known]
    return notes


def _override_errors(key: _Key) -> tuple[str, ...]:
    """Buffer types that exist and that `-ot` does not take, and devices that are one too many.

    Only the default type of each device has a name there. A backend that nothing is known of may be on the machine.
    Source: llama.cpp b11434, common/arg.cpp (parse_tensor_buffer_overrides).
    """
    known = _named_types(key)
    backends = tuple(device.backend for device in key.devices)
    return tuple(
        f"-ot ...={name} is refused: {', '.join(sorted(known))} can be named there."
        for name in _override_names(key)
        if name not in known and (name.endswith(_UNNAMED_TYPES) or name.rstrip("0123456789") in backends)
    )


_UNNAMED_TYPES = ("_Host", "_REPACK", "_Mapped", "AMX")


def _override_names(key: _Key) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, name in key.overrides))


def _named_types(key: _Key) -> frozenset[str]:
    return frozenset({"CPU", *_buffer_types(key.devices, key.rpc), *(device.name for device in key.devices)})
