"""What a launch allocates besides the main context: MTP or draft context, projector, adapters.

Source: llama.cpp b11434, common/speculative.cpp (common_base_params_to_speculative), tools/mtmd/clip.cpp,
src/llama-adapter.cpp. llama.cpp's own memory breakdown counts none of this.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvstudio.budget import explain, graphs, projector
from kvstudio.budget.compute.backend import Backend
from kvstudio.budget.compute.simulate import backends_of
from kvstudio.budget.kv import cache_buffers, cache_specs
from kvstudio.budget.output import output_buffer_type, output_bytes
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.tensor_groups import CPU, pad
from kvstudio.budget.traits import CPU_ALIGNMENT
from kvstudio.budget.values import Buffer, BufferKind, EffectiveConfig, Provenance
from kvstudio.header.values import Header
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

MTP, DRAFT, PROJECTOR, ADAPTER = "mtp", "draft", "mmproj", "lora"
_FLOAT = 4
_NO_OFFLOAD_TYPES = frozenset({"CPU_REPACK", "AMX"})


@dataclass(frozen=True, slots=True)
class Extras:
    """Files of a launch besides the model, already read; None or empty where there are none or they were not read."""

    draft: ModelInfo | None = None
    projector: Header | None = None
    adapters: tuple[Header, ...] = ()


NO_EXTRAS = Extras()


def mtp_buffers(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig
) -> list[Buffer]:
    """The context that drafts with the model's own MTP blocks; its weights are the model's."""
    if not effective.load_mtp or model.n_layer_nextn == 0 or model.hparams["router_layer"] >= 0:
        return []
    own = draft_effective(effective, config, mtp=True)
    exact = Provenance.EXACT if model.known_architecture else Provenance.ESTIMATED
    cells, _ = cache_buffers(model, cache_specs(model, own), own, placement)
    buffers = [
        Buffer(part.name, part.device, BufferKind.KV, part.bytes, exact, _why("MTP", explain.cache(model, own, part)))
        for part in cells
    ]
    why = _why("MTP", explain.output(model, own))
    n_bytes = output_bytes(model, own, placement)
    buffers.append(Buffer(output_buffer_type(placement), None, BufferKind.OUTPUT, n_bytes, exact, why))
    holders = {placement.layer_device[il] for il in range(model.n_layer, model.n_layer_all)}
    device_of = dict(zip(placement.buffer_types, placement.devices, strict=True))
    for name, (size, provenance, why) in graphs.compute_buffers(model, own, placement, config).items():
        device = device_of.get(name)
        if device is None or device in holders:
            buffers.append(Buffer(name, device, BufferKind.COMPUTE, size, provenance, _why("MTP", why)))
    return [replace(buffer, context=MTP) for buffer in buffers]


def draft_effective(effective: EffectiveConfig, config: LaunchConfig, *, mtp: bool) -> EffectiveConfig:
    """The draft context's settings: the main context's pool, its own cache types, one row of logits per slot."""
    return replace(
        effective,
        cache_type_k=config.cache_type_k_draft or "f16",
        cache_type_v=config.cache_type_v_draft or "f16",
        n_outputs_max=effective.n_parallel,
        n_rs_seq=0,
        n_draft=0,
        mtp_context=mtp,
        embeddings=False,
    )


def draft_config(config: LaunchConfig, effective: EffectiveConfig) -> LaunchConfig:
    """The draft model's launch: the main one's devices and pool, its own layers and cache types."""
    return config.evolve(
        n_ctx=config.n_ctx_draft or effective.n_ctx,
        n_parallel=effective.n_parallel,
        kv_unified=effective.kv_unified,
        cache_type_k=config.cache_type_k_draft,
        cache_type_v=config.cache_type_v_draft,
        n_gpu_layers=config.n_gpu_layers_draft,
        device=config.device_draft or config.device,
        override_tensor=None,
        cpu_moe=None,
        n_cpu_moe=None,
        n_cpu_ffn=None,
        spec_type=None,
        model_draft=None,
        embeddings=None,
        reranking=None,
        pooling=None,
        fit=False,
    )


def draft_context(buffers: Iterable[Buffer]) -> list[Buffer]:
    """A draft model's buffers as part of the main launch."""
    return [replace(buffer, context=DRAFT, why=_why("Draft model", buffer.why)) for buffer in buffers]


def projector_buffers(
    header: Header | None, placement: Placement, config: LaunchConfig, effective: EffectiveConfig
) -> list[Buffer]:
    """A vision or audio projector's weights, and the compute buffers of the image or sound it is warmed up with."""
    if header is None:
        return []
    n_bytes = sum(tensor.n_bytes for tensor in header.tensors)
    device = placement.devices[0] if placement.devices and config.mmproj_offload is not False else None
    name = CPU if device is None else placement.buffer_types[0]
    why = f"Projector: {len(header.tensors)} tensors, not padded."
    weights = Buffer(name, device, BufferKind.MODEL, n_bytes, Provenance.EXACT, why, PROJECTOR)
    if config.warmup is False:
        return [weights]
    backends = [_CPU_BACKEND] if device is None else [backends_of(placement, effective.build)[0], _CPU_BACKEND]
    homes = ((name, device), (CPU, None))[-len(backends) :]
    found = [weights]
    for tower in projector.towers(header):
        sizes = projector.compute_bytes(header, tower, backends, config.flash_attn != "off", effective.build)
        found += _tower_buffers(tower, homes, sizes)
    return found


_CPU_BACKEND = Backend(CPU, CPU, CPU_ALIGNMENT, None, offloads=False, reorders=False)


def _tower_buffers(
    tower: projector.Tower, homes: tuple[tuple[str, str | None], ...], sizes: list[int] | None
) -> list[Buffer]:
    """Compute buffers of one encoder; a single one of unknown size where its graph is not followed."""
    if sizes is None:
        name, device = homes[0]
        why = f"Projector: the graph of a {tower.type or tower.kind} tower is not followed."
        return [Buffer(name, device, BufferKind.COMPUTE, None, Provenance.UNKNOWN, why, PROJECTOR)]
    if tower.kind == projector.VISION:
        side = projector.warmup_side(tower)
        what = f"an image of {side} x {side} pixels, which the start reserves for; a larger one asks for more"
    else:
        what = "30 seconds of sound, which the start reserves for"
    why = f"Projector: the graph of {what}."
    return [
        Buffer(name, device, BufferKind.COMPUTE, size, Provenance.ESTIMATED, why, PROJECTOR)
        for (name, device), size in zip(homes, sizes, strict=True)
        if size
    ]


def adapter_buffers(headers: tuple[Header, ...], placement: Placement) -> list[Buffer]:
    """LoRA matrices, each beside the weight it changes; beside a repacked weight they go to plain memory."""
    if not headers:
        return []
    home = {placed.tensor.name: placed for placed in placement.tensors}
    traits = dict(zip(placement.devices, placement.traits, strict=True))
    buffers = []
    for header in headers:
        sizes: dict[tuple[str, str | None], int] = {}
        for tensor in header.tensors:
            placed = home.get(tensor.name.removesuffix(".lora_a").removesuffix(".lora_b"))
            spot, device = (CPU, None) if placed is None else (placed.buffer_type, placed.device)
            spot = CPU if spot in _NO_OFFLOAD_TYPES else spot
            alignment = traits[device].alignment if device in traits else CPU_ALIGNMENT
            sizes[spot, device] = sizes.get((spot, device), 0) + pad(tensor.n_bytes, alignment)
        buffers += [
            Buffer(spot, device, BufferKind.MODEL, n_bytes, Provenance.EXACT, "LoRA adapter.", ADAPTER)
            for (spot, device), n_bytes in sizes.items()
        ]
    return buffers


def control_vector_buffers(model: ModelInfo, placement: Placement, config: LaunchConfig) -> list[Buffer]:
    """One row of floats per layer from the second on, on the layer's device."""
    if not config.control_vector:
        return []
    traits = dict(zip(placement.devices, placement.traits, strict=True))
    names = dict(zip(placement.devices, placement.buffer_types, strict=True))
    sizes: dict[str | None, int] = {}
    for device in placement.layer_device[1 : model.n_layer]:
        alignment = traits[device].alignment if device is not None else CPU_ALIGNMENT
        sizes[device] = sizes.get(device, 0) + pad(_FLOAT * model.n_embd, alignment)
    return [
        Buffer(
            CPU if device is None else names[device],
            device,
            BufferKind.MODEL,
            n_bytes,
            Provenance.EXACT,
            "Control vector: one row of floats per layer.",
            ADAPTER,
        )
        for device, n_bytes in sizes.items()
    ]


def notes(config: LaunchConfig, extras: Extras) -> list[str]:
    """Files and buffers that are part of the launch and were not counted."""
    uncounted = []
    if config.model_draft and extras.draft is None:
        uncounted.append(f"the draft model {config.model_draft} is not counted: it was not read.")
    if config.mmproj and extras.projector is None:
        uncounted.append(f"the projector {config.mmproj} is not counted: it was not read.")
    if config.lora_paths and not extras.adapters:
        uncounted.append("the LoRA adapters are not counted: they were not read.")
    if config.mmproj and extras.projector is not None and config.warmup is False:
        uncounted.append("the projector's compute buffers come with the first image, since there is no warm-up.")
    return uncounted


def _why(what: str, sentence: str) -> str:
    return f"{what}: {sentence[:1].lower()}{sentence[1:]}"
