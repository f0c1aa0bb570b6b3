"""The whole answer: model, settings and devices to a Budget."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from kvstudio.budget import explain, failure, flash
from kvstudio.budget.effective import resolve
from kvstudio.budget.extras import (
    NO_EXTRAS,
    Extras,
    adapter_buffers,
    control_vector_buffers,
    draft_config,
    draft_context,
    draft_effective,
    mtp_buffers,
    projector_buffers,
)
from kvstudio.budget.extras import notes as extra_notes
from kvstudio.budget.graphs import compute_buffers, refusal
from kvstudio.budget.kv import cache_buffers, cache_specs
from kvstudio.budget.largest import largest_allocation
from kvstudio.budget.output import output_buffer_type, output_bytes
from kvstudio.budget.placement import place
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.recurrent import state_buffers, state_specs
from kvstudio.budget.tensor_split import META
from kvstudio.budget.typed_metadata import as_typed
from kvstudio.budget.values import Budget, Buffer, BufferKind, Cache, DeviceBudget, EffectiveConfig, Provenance
from kvstudio.budget.weights import model_buffers
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

HOST = "Host"


def estimate(
    model: ModelInfo,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    host: Device | None = None,
    build: int | None = None,
    overhead: Mapping[str, int] | None = None,
    extras: Extras = NO_EXTRAS,
    after_fit: bool = False,
) -> Budget:
    """What this launch asks of each device and of the host, before `--fit` changes anything.

    `devices` are the ones llama.cpp would see, `host` the machine's memory, `overhead` bytes learned per device name
    that no buffer explains, `extras` the launch's other files. Sums include every context of the launch. `after_fit`:
    the settings are what `--fit` left, so there is nothing more to say of it.
    """
    model, refused_words = as_typed(model, config)
    effective = resolve(model, config, len(devices), build)
    placement = place(model, effective, devices, config, host)
    flash_attn_on, said = flash.after_probe(model, effective, placement)
    effective = replace(
        effective,
        flash_attn_on=flash_attn_on,
        pipeline_copies=placement.pipeline_copies,
        errors=refused_words + effective.errors + placement.errors,
        notes=effective.notes + placement.notes + ((said,) if said else ()),
    )
    refused = refusal(model, effective, placement, config)
    if refused is not None:
        effective = replace(effective, errors=(*effective.errors, refused))
    buffers, caches = all_buffers(model, effective, placement, config)
    buffers += _extra_buffers(model, effective, placement, config, devices, build, extras)
    used = [device for name in placement.devices for device in devices if device.name == name]
    sums = _sums(buffers)
    parts = tuple(_device(device, sums, placement, overhead or {}) for device in used)
    host_part = _host(host, sums, placement)
    fit_said = None if after_fit else explain.fit_note(effective, config, parts)
    return Budget(
        config=effective,
        offloaded_layers=placement.offloaded_layers,
        devices=parts,
        host=host_part,
        buffers=buffers,
        caches=caches,
        first_failure=failure.first(
            buffers, parts, host_part, placement, partial(largest_allocation, model, effective, placement, config)
        ),
        notes=(
            *effective.errors,
            *effective.notes,
            *explain.model_notes(model, effective),
            *filter(None, (explain.mapped_note(buffers, host), fit_said)),
            *extra_notes(config, extras),
        ),
        idle=tuple(_idle(device) for device in devices if device.name not in placement.devices),
    )


def all_buffers(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None = None
) -> tuple[tuple[Buffer, ...], tuple[Cache, ...]]:
    """Every buffer in the order llama.cpp allocates them, and the caches over all devices."""
    exact = Provenance.EXACT if model.known_architecture else Provenance.ESTIMATED
    output = Buffer(
        output_buffer_type(placement),
        None,
        BufferKind.OUTPUT,
        output_bytes(model, effective, placement),
        exact,
        explain.output(model, effective),
    )
    cells, caches = cache_buffers(model, cache_specs(model, effective), effective, placement)
    states, state_caches = state_buffers(model, state_specs(model, effective), effective, placement)
    buffers = [*_weights(model, effective, placement, exact), output]
    buffers += [
        Buffer(part.name, part.device, BufferKind.KV, part.bytes, exact, explain.cache(model, effective, part))
        for part in cells
    ]
    buffers += [
        Buffer(part.name, part.device, BufferKind.RS, part.bytes, exact, explain.state(model, effective, part))
        for part in states
    ]
    device_of = dict(zip(placement.buffer_types, placement.devices, strict=True))
    buffers += [
        Buffer(_log_name(name, placement), device_of.get(name), BufferKind.COMPUTE, n_bytes, provenance, why)
        for name, (n_bytes, provenance, why) in compute_buffers(model, effective, placement, config).items()
    ]
    return tuple(buffers), caches + state_caches


def _log_name(buffer_type: str, placement: Placement) -> str:
    """With `-sm tensor` the log names the devices' buffers together."""
    return META if placement.shares and buffer_type in placement.buffer_types else buffer_type


def _extra_buffers(
    model: ModelInfo,
    effective: EffectiveConfig,
    placement: Placement,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    build: int | None,
    extras: Extras,
) -> tuple[Buffer, ...]:
    """Everything besides the main context, in the order llama.cpp makes it."""
    found = [*adapter_buffers(extras.adapters, placement), *control_vector_buffers(model, placement, config)]
    if extras.draft is not None:
        own = draft_config(config, effective)
        resolved = draft_effective(resolve(extras.draft, own, len(devices), build), config, mtp=False)
        where = place(extras.draft, resolved, devices, own)
        found += draft_context(all_buffers(extras.draft, resolved, where, own)[0])
    found += mtp_buffers(model, effective, placement, config)
    found += projector_buffers(extras.projector, placement, config, effective)
    return tuple(found)


def _weights(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, exact: Provenance
) -> tuple[Buffer, ...]:
    """Model buffers, remembered per placement: they do not depend on the context."""
    kept: dict[int, tuple[Placement, tuple[Buffer, ...]]] = model.memo.setdefault("weight_buffers", {})
    known = kept.get(id(placement))
    if known is not None and known[0] is placement:
        return known[1]
    buffers = tuple(
        Buffer(part.name, part.device, BufferKind.MODEL, part.bytes, exact, explain.weights(model, placement, part))
        for part in model_buffers(model, placement)
    )
    if len(kept) > _KEPT:
        kept.clear()
    kept[id(placement)] = placement, buffers
    return buffers


_KEPT = 32


@dataclass(frozen=True, slots=True)
class _Sums:
    """Bytes per device (None the host) and kind."""

    of: dict[tuple[str | None, BufferKind], int]
    mapped: int

    def get(self, device: str | None, kind: BufferKind) -> int:
        return self.of.get((device, kind), 0)


def _sums(buffers: tuple[Buffer, ...]) -> _Sums:
    sums: dict[tuple[str | None, BufferKind], int] = {}
    for buffer in buffers:
        key = buffer.device, buffer.kind
        sums[key] = sums.get(key, 0) + (buffer.bytes or 0)
    mapped = (buffer.bytes or 0 for buffer in buffers if buffer.device is None and buffer.name.endswith("_Mapped"))
    return _Sums(sums, sum(mapped))


def _device(device: Device, sums: _Sums, placement: Placement, overhead: Mapping[str, int]) -> DeviceBudget:
    layers = placement.layer_device
    return DeviceBudget(
        name=device.name,
        description=device.description,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        model_bytes=sums.get(device.name, BufferKind.MODEL),
        kv_bytes=sums.get(device.name, BufferKind.KV),
        rs_bytes=sums.get(device.name, BufferKind.RS),
        compute_bytes=sums.get(device.name, BufferKind.COMPUTE),
        output_bytes=sums.get(device.name, BufferKind.OUTPUT),
        overhead_bytes=overhead.get(device.name),
        other_bytes=device.used_bytes,
        n_layers=layers[:-1].count(placement.devices[0] if placement.shares else device.name),
        has_output_layer=layers[-1] == (placement.devices[0] if placement.shares else device.name),
    )


def _idle(device: Device) -> DeviceBudget:
    """A device that this launch asks nothing of."""
    return DeviceBudget(
        name=device.name,
        description=device.description,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        model_bytes=0,
        kv_bytes=0,
        rs_bytes=0,
        compute_bytes=0,
        output_bytes=0,
        overhead_bytes=None,
        other_bytes=device.used_bytes,
    )


def _host(host: Device | None, sums: _Sums, placement: Placement) -> DeviceBudget:
    layers = placement.layer_device
    return DeviceBudget(
        name=HOST,
        description=host.description if host else "",
        total_bytes=host.total_bytes if host else None,
        free_bytes=host.free_bytes if host else None,
        model_bytes=sums.get(None, BufferKind.MODEL),
        kv_bytes=sums.get(None, BufferKind.KV),
        rs_bytes=sums.get(None, BufferKind.RS),
        compute_bytes=sums.get(None, BufferKind.COMPUTE),
        output_bytes=sums.get(None, BufferKind.OUTPUT),
        overhead_bytes=None,
        other_bytes=host.used_bytes if host else None,
        n_layers=layers[:-1].count(None),
        has_output_layer=layers[-1] is None,
        mapped_bytes=sums.mapped,
    )
