"""Values by hand for views: a 64-layer model on two 24 GB cards, one of which another process half fills."""

from dataclasses import replace

from kvstudio.advise.values import Fix
from kvstudio.budget.values import (
    Budget,
    Buffer,
    BufferKind,
    Cache,
    DeviceBudget,
    EffectiveConfig,
    FirstFailure,
    Provenance,
)
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB

CARD = 24564 * MIB
HOST_TOTAL = round(62.6 * GIB)
HOST_OTHER = round(11.4 * GIB)
CUDA0_OTHER = 412 * MIB
CUDA1_OTHER = 7782 * MIB
OVERHEAD = 468 * MIB
COMPUTE = 482 * MIB

CONFIG = LaunchConfig(
    model_path="~/models/Qwen3-32B-Q4_K_M.gguf",
    n_ctx=65536,
    n_gpu_layers=99,
    tensor_split=(1.0, 1.0),
    host="192.168.1.20",
    port=8080,
    api_key="secret-key",
)

EFFECTIVE = EffectiveConfig(
    program="llama-server",
    build=11434,
    n_ctx=65536,
    n_ctx_seq=65536,
    n_parallel=4,
    kv_unified=True,
    n_batch=2048,
    n_ubatch=512,
    n_outputs_max=4,
    cache_type_k="f16",
    cache_type_v="f16",
    n_gpu_layers=99,
    flash_attn="auto",
    flash_attn_on=True,
    split_mode="layer",
    kv_offload=True,
    op_offload=True,
    swa_full=False,
    fit=True,
)


def mib(value: float) -> int:
    return round(value * MIB)


def card(name: str, weights: float, kv: float, other: int, layers: int, output: bool = False) -> DeviceBudget:
    return DeviceBudget(
        name=name,
        description="RTX 4090",
        total_bytes=CARD,
        free_bytes=CARD - other,
        model_bytes=mib(weights),
        kv_bytes=mib(kv),
        rs_bytes=0,
        compute_bytes=COMPUTE,
        output_bytes=0,
        overhead_bytes=OVERHEAD,
        other_bytes=other,
        n_layers=layers,
        has_output_layer=output,
    )


HOST = DeviceBudget(
    name="Host",
    description="RAM",
    total_bytes=HOST_TOTAL,
    free_bytes=HOST_TOTAL - HOST_OTHER,
    model_bytes=mib(417.3),
    kv_bytes=0,
    rs_bytes=0,
    compute_bytes=mib(363.7),
    output_bytes=mib(2.32),
    overhead_bytes=None,
    other_bytes=HOST_OTHER,
)


def buffers(devices: tuple[DeviceBudget, ...]) -> tuple[Buffer, ...]:
    made = [Buffer("CPU_Mapped", None, BufferKind.MODEL, HOST.model_bytes, Provenance.EXACT, "the token embedding")]
    made.append(
        Buffer("CUDA_Host", None, BufferKind.COMPUTE, HOST.compute_bytes, Provenance.ESTIMATED, "inputs of the graph")
    )
    made.append(
        Buffer("CUDA_Host", None, BufferKind.OUTPUT, HOST.output_bytes, Provenance.EXACT, "logits of 4 outputs")
    )
    for device in devices:
        n = device.n_layers
        made.append(
            Buffer(device.name, device.name, BufferKind.MODEL, device.model_bytes, Provenance.EXACT, f"{n} layers")
        )
        why = f"{n} layers x 65536 cells x 2 x 8 KV heads x 128 x 2 bytes (f16)"
        made.append(Buffer(device.name, device.name, BufferKind.KV, device.kv_bytes, Provenance.EXACT, why))
        made.append(
            Buffer(
                device.name,
                device.name,
                BufferKind.COMPUTE,
                device.compute_bytes,
                Provenance.ESTIMATED,
                "the largest step of the graph for 512 tokens",
            )
        )
    return tuple(made)


def budget(devices: tuple[DeviceBudget, ...], failure: FirstFailure | None = None, **config: object) -> Budget:
    cache = Cache("kv", 65536, 64, 1, 8 * GIB, 8 * GIB)
    return Budget(
        config=replace(EFFECTIVE, **config),
        offloaded_layers=(65, 65),
        devices=devices,
        host=HOST,
        buffers=buffers(devices),
        caches=(cache,),
        first_failure=failure,
    )


_FREE_FOR_KV = CARD - CUDA1_OTHER - OVERHEAD - mib(9254.52)
FAILURE = FirstFailure("CUDA1", BufferKind.KV, mib(7936), mib(7936) - _FREE_FOR_KV, _FREE_FOR_KV)

#: As typed: split in halves, the second card is too full.
FAILS = budget(
    (card("CUDA0", 9169.13, 8448, CUDA0_OTHER, 33), card("CUDA1", 9254.52, 7936, CUDA1_OTHER, 31, True)), FAILURE
)
#: Split by free memory.
FITS = budget(
    (card("CUDA0", 10805.8, 9984, CUDA0_OTHER, 39), card("CUDA1", 7617.9, 6400, CUDA1_OTHER, 25, True)),
)
HOLDERS = {"CUDA1": "python3 (4182) holds 7.6 GiB", "CUDA0": "Xorg holds 0.3 GiB"}


def fix(variable: str, before: object, after: object, title: str, cost: str, room: float) -> Fix:
    return Fix(
        variable=variable,
        before=before,
        after=after,
        title=title,
        why="",
        cost=cost,
        config=CONFIG.evolve(**{variable: after}),
        budget=FITS,
        room_bytes=round(room * GIB),
    )


FIXES = (
    fix("tensor_split", (1.0, 1.0), None, "Split by free memory", "no cost", 1.8),
    fix("n_ctx", 65536, 49152, "Context 49152", "shorter context", 0.7),
    fix("cache_type_k", "f16", "q8_0", "K and V type q8_0", "slightly less precise cache", 2.2),
)

#: Bytes of a cached number against f16.
TYPE_SIZE = {"f16": 1.0, "q8_0": 34 / 64, "q5_1": 24 / 64, "q4_0": 18 / 64}


def estimate(config: LaunchConfig) -> Budget:
    """The story's budget at another n_ctx and K/V type; placement as typed."""
    share = (config.n_ctx or 40960) / 65536 * TYPE_SIZE[config.cache_type_k or "f16"]
    scaled = tuple(replace(d, kv_bytes=round(d.kv_bytes * share)) for d in FAILS.devices)
    effective = replace(EFFECTIVE, n_ctx=config.n_ctx or 40960, cache_type_k=config.cache_type_k or "f16")
    return replace(FAILS, devices=scaled, config=effective, first_failure=None)


def largest(config: LaunchConfig, devices: tuple[Device, ...] | None) -> int | None:
    """The largest n_ctx on one card of a size, or on both cards together."""
    spare = (devices[0].total_bytes or 0) - 19 * GIB if devices else 37 * GIB - 18 * GIB
    cells = spare / (256 * 1024 * TYPE_SIZE[config.cache_type_k or "f16"]) // 256 * 256
    return min(int(cells), 131072) if cells > 0 else None
