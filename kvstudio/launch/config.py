"""LaunchConfig: what was typed, by llama.cpp's own names. None means not typed, so the program's default holds."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

CACHE_TYPES = ("f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
SPLIT_MODES = ("none", "layer", "row", "tensor")

#: Fields that are not settings but where they come from.
NOT_SETTINGS = ("program", "model_path", "hf_repo", "hf_file", "env", "layout", "build")


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument as typed, so that editing a setting keeps the rest of the line as it was.

    `field` is the LaunchConfig field it set, or None for a flag we do not know; `tokens` its words.
    """

    field: str | None
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """A llama.cpp command line as values.

    `n_gpu_layers`: -1 auto, -2 all. `tensor_split`: proportions. `n_ctx`: 0 from the model. `fit_target`: MiB per
    device. `build`: the llama.cpp build whose defaults apply, None for the newest known. `env`: variables for the
    child, part of the settings (`LLAMA_ARG_*` counts as typed). `program`: as typed, a name or a path. `lora_scaled`,
    `control_vector_scaled`: `FILE:SCALE`. `hf_repo`: the model when there is no `model_path`.
    """

    program: str = "llama-server"
    model_path: str = ""
    hf_repo: str | None = None
    hf_file: str | None = None

    n_ctx: int | None = None
    n_parallel: int | None = None
    kv_unified: bool | None = None
    kv_unified_per_slot: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    n_gpu_layers: int | None = None
    split_mode: str | None = None
    tensor_split: tuple[float, ...] | None = None
    main_gpu: int | None = None
    device: tuple[str, ...] | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    flash_attn: str | None = None

    kv_offload: bool | None = None
    op_offload: bool | None = None
    swa_full: bool | None = None
    no_host: bool | None = None
    repack: bool | None = None
    load_mode: str | None = None
    lazy_mode: str | None = None
    override_tensor: tuple[tuple[str, str], ...] | None = None
    cpu_moe: bool | None = None
    n_cpu_moe: int | None = None
    n_cpu_ffn: int | None = None
    fit: bool | None = None
    fit_target: tuple[int, ...] | None = None
    fit_ctx: int | None = None
    rpc: tuple[str, ...] | None = None

    mmproj: str | None = None
    mmproj_auto: bool | None = None
    mmproj_offload: bool | None = None
    lora: tuple[str, ...] | None = None
    lora_scaled: tuple[str, ...] | None = None
    control_vector: tuple[str, ...] | None = None
    control_vector_scaled: tuple[str, ...] | None = None
    spec_type: str | None = None
    model_draft: str | None = None
    n_ctx_draft: int | None = None
    draft_n_max: int | None = None
    n_gpu_layers_draft: int | None = None
    cache_type_k_draft: str | None = None
    cache_type_v_draft: str | None = None
    device_draft: tuple[str, ...] | None = None

    embeddings: bool | None = None
    reranking: bool | None = None
    pooling: str | None = None
    cache_ram: int | None = None
    ctx_checkpoints: int | None = None
    warmup: bool | None = None
    rope_scaling: str | None = None
    threads: int | None = None
    host: str | None = None
    port: int | None = None
    api_key: str | None = None
    log_verbosity: int | None = None

    env: tuple[tuple[str, str], ...] = ()
    layout: tuple[Arg, ...] = field(default=(), compare=False)
    build: int | None = None

    def evolve(self, **changes: Any) -> Self:
        """The same settings with some replaced; the layout of the typed line is kept."""
        return replace(self, **changes)

    @property
    def lora_paths(self) -> tuple[str, ...]:
        """Files of all LoRA adapters, scaled or not."""
        return (self.lora or ()) + tuple(item.rpartition(":")[0] or item for item in self.lora_scaled or ())

    def typed(self) -> dict[str, Any]:
        """Settings that were typed, by field name."""
        named = ((f.name, getattr(self, f.name)) for f in fields(self) if f.name not in NOT_SETTINGS)
        return {name: value for name, value in named if value is not None}
