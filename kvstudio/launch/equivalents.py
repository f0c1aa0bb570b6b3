"""The same settings for Ollama, LM Studio and vLLM: text to copy, and what has no equivalent there."""

import json
import shlex
from dataclasses import dataclass
from pathlib import PurePath

from kvstudio.launch.config import LaunchConfig


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`text` to copy, in a file or terminal as `where` says; `notes` on each setting that is lost or only similar."""

    program: str
    where: str
    text: str
    notes: tuple[str, ...] = ()


#: Ollama knows these types for both K and V. Source: Ollama's FAQ, OLLAMA_KV_CACHE_TYPE.
_OLLAMA_TYPES = ("f16", "q8_0", "q4_0")


def equivalents(config: LaunchConfig, model_name: str = "", n_ctx: int | None = None) -> tuple[Equivalent, ...]:
    """Ollama, LM Studio and vLLM, in that order.

    `n_ctx` is the effective context of one slot, used where `config` leaves it to the model; `model_name` names the
    model to create.
    """
    context = config.n_ctx or n_ctx
    return (*ollama(config, model_name, context), lm_studio(config, context), vllm(config, context))


def ollama(config: LaunchConfig, model_name: str = "", n_ctx: int | None = None) -> tuple[Equivalent, Equivalent]:
    """A Modelfile, and the variables of the server."""
    per_slot, slots = _per_slot(config, n_ctx)
    lines = [f"FROM {config.model_path or model_name or 'MODEL'}"]
    if per_slot:
        lines.append(f"PARAMETER num_ctx {per_slot}")
    layers = config.n_gpu_layers
    if layers is not None and layers != -1:
        lines.append(f"PARAMETER num_gpu {999 if layers == -2 else layers}")
    if config.n_batch is not None:
        lines.append(f"PARAMETER num_batch {config.n_batch}")
    if config.threads is not None and config.threads > 0:
        lines.append(f"PARAMETER num_thread {config.threads}")
    if config.main_gpu is not None:
        lines.append(f"PARAMETER main_gpu {config.main_gpu}")
    if config.load_mode is not None:
        lines.append(
            f"PARAMETER use_mmap {'true' if 'mmap' in config.load_mode or config.load_mode == 'auto' else 'false'}"
        )
    notes = []
    if slots > 1 and per_slot:
        notes.append(f"num_ctx is the context of one request: {slots} x {per_slot} here is what llama.cpp gets in all.")
    name = (model_name or PurePath(config.model_path).stem or "model").lower().replace(" ", "-")
    notes.append(f"Save as Modelfile, then: ollama create {shlex.quote(name)} -f Modelfile")
    notes += _missing(config, "Ollama", _OLLAMA_MISSING)
    modelfile = Equivalent("Ollama", "Modelfile", "\n".join(lines) + "\n", tuple(notes))
    return modelfile, _ollama_server(config, slots, per_slot)


def lm_studio(config: LaunchConfig, n_ctx: int | None = None) -> Equivalent:
    """The load settings of one model, as its settings file and its SDKs name them."""
    per_slot, slots = _per_slot(config, n_ctx)
    settings: dict[str, object] = {}
    if n_ctx:
        settings["contextLength"] = per_slot
    layers = config.n_gpu_layers
    if layers in (0, -2):
        settings["gpu"] = {"ratio": "max" if layers else "off"}
    if config.n_batch is not None:
        settings["evalBatchSize"] = config.n_batch
    if config.flash_attn is not None:
        settings["flashAttention"] = config.flash_attn != "off"
    if config.cache_type_k is not None:
        settings["llamaKCacheQuantizationType"] = config.cache_type_k
    if config.cache_type_v is not None:
        settings["llamaVCacheQuantizationType"] = config.cache_type_v
    if config.kv_offload is not None:
        settings["offloadKVCacheToGpu"] = config.kv_offload
    if config.load_mode is not None:
        settings["tryMmap"] = "mmap" in config.load_mode or config.load_mode == "auto"
        settings["keepModelInMemory"] = "mlock" in config.load_mode
    notes = []
    if layers is not None and layers > 0:
        notes.append(f"The slider GPU Offload counts layers: set it to {layers}; the SDKs take a ratio from 0 to 1.")
    if slots > 1:
        notes.append(f"Set Max Concurrent Predictions to {slots}.")
    notes += _missing(config, "LM Studio", _LM_STUDIO_MISSING)
    text = json.dumps(settings, indent=2) + "\n"
    return Equivalent("LM Studio", "load settings of the model", text, tuple(notes))


def vllm(config: LaunchConfig, n_ctx: int | None = None) -> Equivalent:
    """A `vllm serve` command; vLLM plans memory by a share of each card, not by buffers."""
    per_slot, slots = _per_slot(config, n_ctx)
    words = ["vllm", "serve", config.model_path or config.hf_repo or "MODEL"]
    notes = ["vLLM takes --gpu-memory-utilization of each card and gives what the weights leave to the KV cache."]
    if per_slot:
        words += ["--max-model-len", str(per_slot)]
    if config.n_parallel is not None and slots > 0:
        words += ["--max-num-seqs", str(slots)]
    words += ["--gpu-memory-utilization", "0.90"]
    if config.n_batch is not None:
        words += ["--max-num-batched-tokens", str(config.n_batch)]
    words += _vllm_cards(config, notes)
    words += _vllm_cache(config, notes)
    if config.host is not None:
        words += ["--host", config.host]
    if config.port is not None:
        words += ["--port", str(config.port)]
    if config.n_gpu_layers is not None and config.n_gpu_layers >= 0:
        notes.append("-ngl: vLLM keeps every layer on the GPUs; --cpu-offload-gb GiB moves weights to RAM instead.")
    if config.model_path.endswith(".gguf"):
        notes.append(
            "vLLM reads GGUF files of some architectures only, one file, with --tokenizer of the original model."
        )
    notes += _missing(config, "vLLM", _VLLM_MISSING)
    return Equivalent("vLLM", "command", shlex.join(words) + "\n", tuple(notes))


def _per_slot(config: LaunchConfig, n_ctx: int | None) -> tuple[int | None, int]:
    """Context that one request can use, and slots: a unified cache gives each slot all of it."""
    slots = config.n_parallel if config.n_parallel and config.n_parallel > 0 else 1
    if not n_ctx:
        return None, slots
    shared = config.kv_unified or slots == 1
    return (n_ctx if shared else n_ctx // slots), slots


def _ollama_server(config: LaunchConfig, slots: int, per_slot: int | None) -> Equivalent:
    lines: list[str] = []
    notes: list[str] = []
    if config.n_parallel is not None:
        lines.append(f"OLLAMA_NUM_PARALLEL={slots}")
    if per_slot:
        lines.append(f"OLLAMA_CONTEXT_LENGTH={per_slot}")
    if config.flash_attn is not None and config.flash_attn != "auto":
        lines.append(f"OLLAMA_FLASH_ATTENTION={1 if config.flash_attn == 'on' else 0}")
    cache = config.cache_type_k or config.cache_type_v
    if cache is not None:
        if cache in _OLLAMA_TYPES:
            lines.append(f"OLLAMA_KV_CACHE_TYPE={cache}")
            if cache != "f16" and "OLLAMA_FLASH_ATTENTION=1" not in lines:
                lines.append("OLLAMA_FLASH_ATTENTION=1")
                notes.append("A quantized cache needs flash attention in Ollama.")
        else:
            notes.append(f"-ctk/-ctv {cache}: Ollama knows {', '.join(_OLLAMA_TYPES)} only.")
        if (config.cache_type_k or "f16") != (config.cache_type_v or "f16"):
            notes.append("Ollama has one type for K and V together.")
    if config.split_mode == "layer" or config.tensor_split is not None:
        lines.append("OLLAMA_SCHED_SPREAD=1")
    if config.host is not None or config.port is not None:
        lines.append(f"OLLAMA_HOST={config.host or '127.0.0.1'}:{config.port or 11434}")
    lines += [f"{name}={value}" for name, value in config.env if "VISIBLE_DEVICES" in name]
    return Equivalent("Ollama", "variables of ollama serve", "\n".join(lines) + "\n" if lines else "", tuple(notes))


def _vllm_cards(config: LaunchConfig, notes: list[str]) -> list[str]:
    n_cards = len(config.device or ()) or len(config.tensor_split or ())
    if config.split_mode in ("row", "tensor"):
        notes.append("-sm row/tensor splits each layer over the cards, like --tensor-parallel-size.")
        return ["--tensor-parallel-size", str(max(n_cards, 2))]
    if n_cards > 1:
        if config.tensor_split and len(set(config.tensor_split)) > 1:
            notes.append("-ts: vLLM splits evenly, the smallest card decides.")
        return ["--pipeline-parallel-size", str(n_cards)]
    return []


def _vllm_cache(config: LaunchConfig, notes: list[str]) -> list[str]:
    types = {config.cache_type_k, config.cache_type_v} - {None, "f16", "bf16"}
    if not types:
        return []
    notes.append(f"-ctk/-ctv {'/'.join(sorted(map(str, types)))}: vLLM has fp8 instead, on newer cards.")
    return ["--kv-cache-dtype", "fp8"]


def _missing(config: LaunchConfig, program: str, fields: dict[str, str]) -> list[str]:
    set_fields = config.typed()
    return [f"{flag}: {program} has no equivalent." for name, flag in fields.items() if name in set_fields]


_EVERYWHERE_MISSING = {
    "override_tensor": "-ot",
    "n_cpu_ffn": "-ncffn",
    "swa_full": "--swa-full",
    "fit_target": "-fitt",
    "rpc": "--rpc",
    "repack": "--repack",
    "no_host": "--no-host",
    "op_offload": "--op-offload",
    "cache_ram": "-cram",
    "ctx_checkpoints": "-ctxcp",
}
_OLLAMA_MISSING = {
    "n_ubatch": "-ub",
    "kv_offload": "-nkvo",
    "split_mode": "-sm",
    "tensor_split": "-ts",
    "device": "-dev",
    "cpu_moe": "-cmoe",
    "n_cpu_moe": "-ncmoe",
    "fit": "-fit",
    "model_draft": "-md",
    **_EVERYWHERE_MISSING,
}
_LM_STUDIO_MISSING = {"n_ubatch": "-ub", "split_mode": "-sm", "tensor_split": "-ts", "main_gpu": "-mg", "fit": "-fit",
                      **_EVERYWHERE_MISSING}  # fmt: skip
_VLLM_MISSING = {"n_ubatch": "-ub", "kv_offload": "-nkvo", "main_gpu": "-mg", "cpu_moe": "-cmoe", "n_cpu_moe": "-ncmoe",
                 "flash_attn": "-fa", "load_mode": "-lm", "fit": "-fit", **_EVERYWHERE_MISSING}  # fmt: skip
