"""Every launch setting as the window shows it: caption, flag, kind of control; and values to text and back."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from kvstudio.errors import ConfigError
from kvstudio.launch.config import CACHE_TYPES, SPLIT_MODES


class Kind(Enum):
    """How a value is typed."""

    INT = "int"
    TEXT = "text"
    CHOICE = "choice"
    SWITCH = "switch"
    LAYERS = "layers"
    NUMBERS = "numbers"
    INTS = "ints"
    NAMES = "names"
    PAIRS = "pairs"
    SECRET = "secret"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: `default` is what the control shows while nothing is typed, `choices` what a combo box offers."""

    field: str
    caption: str
    flag: str
    kind: Kind
    default: str = ""
    choices: tuple[Any, ...] = ()
    help: str = ""
    minimum: int | None = None


_SLOTS = (*range(1, 17), 20, 24, 32, 48, 64, 96, 128, 256)
_ON_OFF_AUTO = ("on", "off", "auto")

MAIN = (
    Setting(
        "n_ctx",
        "Context",
        "-c",
        Kind.INT,
        "model",
        help="Tokens the KV cache holds; empty or 0: the trained context",
        minimum=0,
    ),
    Setting("n_parallel", "Slots", "-np", Kind.CHOICE, "auto", _SLOTS, "Requests served at the same time"),
    Setting(
        "cache_type_k", "K type", "-ctk", Kind.CHOICE, "f16", CACHE_TYPES, "Precision of the K half of the KV cache"
    ),
    Setting(
        "cache_type_v",
        "V type",
        "-ctv",
        Kind.CHOICE,
        "f16",
        CACHE_TYPES,
        "Precision of the V half; quantized needs flash attention",
    ),
    Setting(
        "n_gpu_layers",
        "GPU layers",
        "-ngl",
        Kind.LAYERS,
        "auto",
        help="A number, auto or all; the output layer counts as one",
    ),
    Setting(
        "split_mode", "Split mode", "-sm", Kind.CHOICE, "layer", SPLIT_MODES, "How several devices share the model"
    ),
    Setting(
        "tensor_split",
        "Split ratio",
        "-ts",
        Kind.NUMBERS,
        "free",
        help="Share of each device, 3,1; empty: by free memory",
    ),
    Setting(
        "main_gpu", "Main GPU", "-mg", Kind.INT, "0", help="The device that is used with split mode none", minimum=0
    ),
    Setting("n_batch", "Batch", "-b", Kind.INT, "2048", help="Tokens handed over at once", minimum=1),
    Setting(
        "n_ubatch",
        "Micro-batch",
        "-ub",
        Kind.INT,
        "512",
        help="Tokens computed at once; sizes the compute buffer",
        minimum=1,
    ),
    Setting(
        "flash_attn",
        "Flash attention",
        "-fa",
        Kind.CHOICE,
        "auto",
        _ON_OFF_AUTO,
        "Smaller compute buffer; needed for a quantized V cache",
    ),
)

ADVANCED: tuple[tuple[str, tuple[Setting, ...]], ...] = (
    (
        "KV cache",
        (
            Setting(
                "kv_unified",
                "Unified cache",
                "-kvu",
                Kind.SWITCH,
                "auto",
                help="One cache for all slots instead of one each",
            ),
            Setting(
                "kv_unified_per_slot",
                "Per slot",
                "--kv-unified-per-slot",
                Kind.INT,
                "off",
                help="Context limit of each slot",
                minimum=0,
            ),
            Setting(
                "kv_offload", "Cache on GPU", "-kvo", Kind.SWITCH, "on", help="Off (-nkvo): the KV cache stays in RAM"
            ),
            Setting(
                "swa_full",
                "Full SWA cache",
                "--swa-full",
                Kind.SWITCH,
                "off",
                help="Sliding-window layers keep the whole context",
            ),
            Setting(
                "ctx_checkpoints",
                "Checkpoints",
                "-ctxcp",
                Kind.INT,
                "auto",
                help="Context checkpoints kept per slot",
                minimum=0,
            ),
            Setting(
                "cache_ram",
                "Prompt cache",
                "-cram",
                Kind.INT,
                "auto",
                help="MiB of RAM for the prompt cache; -1: no limit, 0: none",
                minimum=-1,
            ),
        ),
    ),
    (
        "Placement",
        (
            Setting(
                "device",
                "Devices",
                "-dev",
                Kind.NAMES,
                "all",
                help="Names as llama.cpp lists them, none for the CPU alone",
            ),
            Setting(
                "override_tensor",
                "Tensors",
                "-ot",
                Kind.PAIRS,
                "none",
                help="pattern=buffer type, for example exps=CPU",
            ),
            Setting("cpu_moe", "Experts on CPU", "-cmoe", Kind.SWITCH, "off", help="Keep all expert weights in RAM"),
            Setting(
                "n_cpu_moe",
                "CPU experts of",
                "-ncmoe",
                Kind.INT,
                "0",
                help="Keep the expert weights of the first N layers in RAM",
                minimum=0,
            ),
            Setting(
                "n_cpu_ffn",
                "CPU FFN of",
                "-ncffn",
                Kind.INT,
                "0",
                help="Keep the feed-forward weights of the first N layers in RAM",
                minimum=0,
            ),
            Setting(
                "op_offload",
                "Offload ops",
                "-opo",
                Kind.SWITCH,
                "on",
                help="Off (--no-op-offload): host tensors are computed on the CPU",
            ),
            Setting("no_host", "No host buffer", "--no-host", Kind.SWITCH, "off", help="Bypass pinned host memory"),
            Setting("repack", "Repack", "--repack", Kind.SWITCH, "on", help="Rearrange CPU weights for speed"),
            Setting(
                "load_mode",
                "Load mode",
                "-lm",
                Kind.CHOICE,
                "auto",
                ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"),
                "How the file is read",
            ),
            Setting(
                "lazy_mode",
                "Lazy tensors",
                "-lzm",
                Kind.CHOICE,
                "auto",
                _ON_OFF_AUTO,
                "Read rows of very large tables on demand",
            ),
            Setting("rpc", "RPC servers", "--rpc", Kind.NAMES, "none", help="host:port, several with commas"),
        ),
    ),
    (
        "Fit to memory",
        (
            Setting(
                "fit", "Adjust", "-fit", Kind.SWITCH, "on", help="Let llama.cpp lower what was not typed until it fits"
            ),
            Setting("fit_target", "Keep free", "-fitt", Kind.INTS, "1024", help="MiB to leave free on each device"),
            Setting(
                "fit_ctx",
                "Least context",
                "-fitc",
                Kind.INT,
                "4096",
                help="The context -fit does not go below",
                minimum=0,
            ),
        ),
    ),
    (
        "Projector and adapters",
        (
            Setting("mmproj", "Projector", "-mm", Kind.TEXT, "none", help="Multimodal projector file (mmproj)"),
            Setting("mmproj_offload", "Projector on GPU", "", Kind.SWITCH, "on", help="Off: --no-mmproj-offload"),
            Setting("mmproj_auto", "Find projector", "", Kind.SWITCH, "on", help="Off: --no-mmproj-auto"),
            Setting("lora", "LoRA", "--lora", Kind.NAMES, "none", help="Adapter files, several with commas"),
            Setting("lora_scaled", "Scaled LoRA", "", Kind.NAMES, "none", help="--lora-scaled FILE:SCALE"),
            Setting(
                "control_vector",
                "Control vector",
                "",
                Kind.NAMES,
                "none",
                help="--control-vector files, several with commas",
            ),
            Setting("control_vector_scaled", "Scaled vector", "", Kind.NAMES, "none", help="FILE:SCALE"),
        ),
    ),
    (
        "Speculative decoding",
        (
            Setting(
                "spec_type", "Type", "--spec-type", Kind.TEXT, "none", help="draft-simple, draft-mtp, ngram-mod..."
            ),
            Setting("model_draft", "Draft model", "-md", Kind.TEXT, "none", help="File of the small model"),
            Setting("n_ctx_draft", "Draft context", "-cd", Kind.INT, "same", minimum=0),
            Setting("draft_n_max", "Draft tokens", "--draft-max", Kind.INT, "auto", minimum=0),
            Setting("n_gpu_layers_draft", "Draft layers", "-ngld", Kind.LAYERS, "auto"),
            Setting("cache_type_k_draft", "Draft K type", "-ctkd", Kind.CHOICE, "f16", CACHE_TYPES),
            Setting("cache_type_v_draft", "Draft V type", "-ctvd", Kind.CHOICE, "f16", CACHE_TYPES),
            Setting("device_draft", "Draft devices", "-devd", Kind.NAMES, "all"),
        ),
    ),
    (
        "Server",
        (
            Setting("embeddings", "Embeddings", "", Kind.SWITCH, "off", help="--embedding: only embeddings are served"),
            Setting("reranking", "Reranking", "", Kind.SWITCH, "off", help="--reranking: only reranking is served"),
            Setting("pooling", "Pooling", "--pooling", Kind.CHOICE, "model", ("none", "mean", "cls", "last", "rank")),
            Setting("warmup", "Warm-up", "--warmup", Kind.SWITCH, "on", help="One empty run after loading"),
            Setting(
                "rope_scaling",
                "RoPE scaling",
                "",
                Kind.CHOICE,
                "model",
                ("none", "linear", "yarn"),
                "--rope-scaling, for a context above the trained one",
            ),
            Setting("threads", "Threads", "-t", Kind.INT, "auto", minimum=-1),
            Setting("host", "Address", "--host", Kind.TEXT, "127.0.0.1"),
            Setting("port", "Port", "--port", Kind.INT, "8080", minimum=0),
            Setting("api_key", "API key", "--api-key", Kind.SECRET, "none"),
            Setting("log_verbosity", "Verbosity", "-lv", Kind.INT, "auto", minimum=0),
        ),
    ),
)

ALL = MAIN + tuple(setting for _, group in ADVANCED for setting in group)
BY_FIELD = {setting.field: setting for setting in ALL}

#: Typed, but not a change of what memory is asked for: they are not marked as changed.
NOT_MARKED = frozenset({"host", "port", "api_key", "log_verbosity", "threads"})


def format_value(setting: Setting, value: Any) -> str:
    """What the field shows for a typed value; empty for None."""
    if value is None:
        return ""
    match setting.kind:
        case Kind.LAYERS:
            return {-1: "auto", -2: "all"}.get(value, str(value) if value > -2 else "all")
        case Kind.NUMBERS:
            return ",".join(f"{part:g}" for part in value)
        case Kind.INTS | Kind.NAMES:
            return ",".join(str(part) for part in value)
        case Kind.PAIRS:
            return ",".join(f"{pattern}={buffer}" for pattern, buffer in value)
        case Kind.SWITCH:
            return "on" if value else "off"
        case _:
            if setting.field == "n_parallel" and value == -1:
                return "auto"
            return str(value)


def parse_value(setting: Setting, text: str) -> Any:
    """The value a text means; None for an empty one, which means not typed.

    Raises: ConfigError with what was expected.
    """
    text = text.strip()
    if not text:
        return None
    match setting.kind:
        case Kind.INT:
            return _whole(text, setting.minimum)
        case Kind.LAYERS:
            named = {"auto": -1, "all": -2}.get(text.lower())
            return named if named is not None else _whole(text, 0, "a number, auto or all")
        case Kind.NUMBERS:
            return _numbers(text)
        case Kind.INTS:
            return tuple(_whole(part, 0) for part in text.split(","))
        case Kind.NAMES:
            return tuple(part.strip() for part in text.split(",") if part.strip()) or None
        case Kind.PAIRS:
            return _pairs(text)
        case _:
            return text


def _whole(text: str, minimum: int | None, expected: str = "a whole number") -> int:
    try:
        value = int(text.strip())
    except ValueError as error:
        raise ConfigError(f"{expected} is expected") from error
    if minimum is not None and value < minimum:
        raise ConfigError(f"{minimum} or more is expected")
    if value >= 2**31:
        raise ConfigError("llama.cpp reads at most 2147483647")
    return value


def _numbers(text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.replace("/", ",").split(","))
    except ValueError as error:
        raise ConfigError("numbers with commas are expected, 3,1") from error
    if any(v < 0 or v != v or v == float("inf") for v in values) or not any(values):
        raise ConfigError("shares of 0 or more are expected, not all 0")
    return values


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in text.split(","):
        pattern, equals, buffer = part.rpartition("=")
        if not equals or not pattern or not buffer:
            raise ConfigError("pattern=buffer type is expected, exps=CPU")
        pairs.append((pattern.strip(), buffer.strip()))
    return tuple(pairs)
