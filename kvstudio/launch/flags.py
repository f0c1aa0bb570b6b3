"""The options of llama.cpp's programs that fill LaunchConfig: spellings, variables, and how values are written."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kvstudio.launch.config import CACHE_TYPES, SPLIT_MODES

_INT = re.compile(r"\s*[+-]?[0-9]+\s*")
_INT32 = range(-(2**31), 2**31)
INT_MAX = 2**31 - 1

#: Source: `common_arg_utils::is_truthy` and the like in common/arg.cpp, build 11434.
TRUTHY = ("on", "enabled", "true", "1")
FALSEY = ("off", "disabled", "false", "0")
AUTOY = ("auto", "-1")

LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read from a word and written back; `read` raises ValueError, `wants` says what would be right."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    wants: str


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of llama.cpp.

    `names` set it (preferred first), `no` are the negative spellings of a switch. `kind` None is a switch that sets
    `value`, or `no_value`. `join` makes one value of what stood before and the new one; `bare` is the value
    when an optional value is left out, as older builds did.
    """

    field: str
    kind: Kind | None
    names: tuple[str, ...]
    no: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    value: Any = True
    no_value: Any = False
    join: Callable[[Any, Any], Any] | None = None
    bare: str | None = None


def _int(text: str) -> int:
    if _INT.fullmatch(text) is None or int(text) not in _INT32:
        raise ValueError(text)
    return int(text)


def _at_least(smallest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = _int(text)
        if value < smallest:
            raise ValueError(text)
        return value

    return read


def _slots(text: str) -> int:
    value = _int(text)
    if value == 0:
        raise ValueError(text)
    return value


def _layers(text: str) -> int:
    if text in ("auto", "all"):
        return -1 if text == "auto" else -2
    return max(-2, _int(text))


def _write_layers(value: int) -> str:
    return {-1: "auto", -2: "all"}.get(value, str(value))


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return read


def _tristate(text: str) -> str:
    for word, spellings in (("on", TRUTHY), ("off", FALSEY), ("auto", AUTOY)):
        if text in spellings:
            return word
    raise ValueError(text)


def _on_off(text: str) -> bool:
    if text not in TRUTHY + FALSEY:
        raise ValueError(text)
    return text in TRUTHY


def _not_on_off(text: str) -> bool:
    return not _on_off(text)


def _some(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def _words(text: str) -> tuple[str, ...]:
    """Comma-separated words; a quoted one may hold commas. Source: `parse_csv_row` in common/arg.cpp."""
    words = re.findall(r'"((?:[^"]|"")*)"(?:,|$)|([^,]*)(?:,|$)', text)
    found = tuple(quoted.replace('""', '"') or plain for quoted, plain in words if quoted or plain)
    if not found:
        raise ValueError(text)
    return found


def _write_words(words: tuple[str, ...]) -> str:
    return ",".join('"' + word.replace('"', '""') + '"' if "," in word or '"' in word else word for word in words)


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _split(text: str, separators: str) -> list[str]:
    return re.split(f"[{re.escape(separators)}]+", text.strip())


def _proportions(separators: str) -> Callable[[str], tuple[float, ...]]:
    def read(text: str) -> tuple[float, ...]:
        values = tuple(float(part) for part in _split(text, separators))
        if not all(0 <= value < float("inf") for value in values):
            raise ValueError(text)
        return values

    return read


def _write_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _targets(text: str) -> tuple[int, ...]:
    return tuple(_at_least(0)(part) for part in _split(text, ",/"))


def _overrides(separator: str) -> Callable[[str], tuple[tuple[str, str], ...]]:
    def read(text: str) -> tuple[tuple[str, str], ...]:
        pairs = []
        for part in filter(None, text.split(separator)):
            pattern, equals, buffer_type = part.partition("=")
            if not equals or not buffer_type:
                raise ValueError(part)
            pairs.append((pattern, buffer_type))
        if not pairs:
            raise ValueError(text)
        return tuple(pairs)

    return read


def _write_overrides(separator: str) -> Callable[[tuple[tuple[str, str], ...]], str]:
    return lambda pairs: separator.join(f"{pattern}={buffer_type}" for pattern, buffer_type in pairs)


def _add(old: tuple[Any, ...] | None, new: tuple[Any, ...]) -> tuple[Any, ...]:
    return (old or ()) + new


def _add_types(old: str | None, new: str) -> str:
    return f"{old},{new}" if old else new


def _join_load(old: str | None, new: str) -> str:
    """What the three switches of builds before `--load-mode` mean together.

    There memory mapping is on unless refused, locking is a second switch, and direct I/O wins over both.
    """
    if new == "dio" or (old == "dio" and new != "-dio"):
        return "dio"
    locked = new == "lock" or old in ("mlock", "mmap+mlock")
    mapped = old not in ("none", "mlock")
    if new in ("mmap", "-mmap"):
        mapped = new == "mmap"
    if new == "-dio" and not locked:
        return "auto" if mapped else "none"
    if locked:
        return "mmap+mlock" if mapped else "mlock"
    return "mmap" if mapped else "none"


INT = Kind(_int, str, "a whole number")
COUNT = Kind(_at_least(0), str, "a whole number, 0 or more")
SLOTS = Kind(_slots, str, "a whole number, -1 (auto) or more, but not 0")
LAYERS = Kind(_layers, _write_layers, "a whole number, auto or all")
CACHE_TYPE = Kind(_one_of(*CACHE_TYPES), str, "one of " + ", ".join(CACHE_TYPES))
SPLIT = Kind(_one_of(*SPLIT_MODES), str, "one of " + ", ".join(SPLIT_MODES))
LOAD = Kind(_one_of(*LOAD_MODES), str, "one of " + ", ".join(LOAD_MODES))
LAZY = Kind(_one_of("on", "auto", "off"), str, "on, auto or off")
TRISTATE = Kind(_tristate, str, "on, off or auto")
ON_OFF = Kind(_on_off, lambda value: "on" if value else "off", "on or off")
BIT = Kind(_on_off, lambda value: "1" if value else "0", "0 or 1")
NOT_BIT = Kind(_not_on_off, lambda value: "0" if value else "1", "0 or 1")
TEXT = Kind(_some, str, "a value")
WORDS = Kind(_words, _write_words, "words with commas between")
PROPORTIONS = Kind(
    _proportions(",/"), lambda values: ",".join(map(_write_number, values)), "numbers with commas between, like 3,1"
)
TARGETS = Kind(_targets, lambda values: ",".join(map(str, values)), "MiB, with commas between devices, like 1024,2048")
OVERRIDES = Kind(_overrides(","), _write_overrides(","), "PATTERN=BUFFER, like exps=CPU, with commas between")
POOLING = Kind(_one_of("none", "mean", "cls", "last", "rank"), str, "none, mean, cls, last or rank")
ROPE = Kind(_one_of("none", "linear", "yarn"), str, "none, linear or yarn")

#: In the order of LaunchConfig, which is also the order in which settings are added to a command line.
#: Source: `common_params_parser_init` in common/arg.cpp, build 11434; spellings it lacks are of older builds.
COMMON: tuple[Flag, ...] = (
    Flag("model_path", TEXT, ("-m", "--model"), env=("LLAMA_ARG_MODEL",)),
    Flag("hf_repo", TEXT, ("-hf", "-hfr", "--hf-repo"), env=("LLAMA_ARG_HF_REPO",)),
    Flag("hf_file", TEXT, ("-hff", "--hf-file"), env=("LLAMA_ARG_HF_FILE",)),
    Flag("n_ctx", INT, ("-c", "--ctx-size"), env=("LLAMA_ARG_CTX_SIZE",)),
    Flag("n_parallel", SLOTS, ("-np", "--parallel"), env=("LLAMA_ARG_N_PARALLEL",)),
    Flag("kv_unified", None, ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified"),
         ("LLAMA_ARG_KV_UNIFIED", "LLAMA_ARG_KV_SPLIT")),
    Flag("kv_unified_per_slot", INT, ("--kv-unified-per-slot",), env=("LLAMA_ARG_KV_UNIFIED_PER_SLOT",)),
    Flag("cache_type_k", CACHE_TYPE, ("-ctk", "--cache-type-k"), env=("LLAMA_ARG_CACHE_TYPE_K",)),
    Flag("cache_type_v", CACHE_TYPE, ("-ctv", "--cache-type-v"), env=("LLAMA_ARG_CACHE_TYPE_V",)),
    Flag("n_gpu_layers", LAYERS, ("-ngl", "--gpu-layers", "--n-gpu-layers"), env=("LLAMA_ARG_N_GPU_LAYERS",)),
    Flag("split_mode", SPLIT, ("-sm", "--split-mode"), env=("LLAMA_ARG_SPLIT_MODE",)),
    Flag("tensor_split", PROPORTIONS, ("-ts", "--tensor-split"), env=("LLAMA_ARG_TENSOR_SPLIT",)),
    Flag("main_gpu", INT, ("-mg", "--main-gpu"), env=("LLAMA_ARG_MAIN_GPU",)),
    Flag("device", WORDS, ("-dev", "--device"), env=("LLAMA_ARG_DEVICE",)),
    Flag("n_batch", INT, ("-b", "--batch-size"), env=("LLAMA_ARG_BATCH",)),
    Flag("n_ubatch", INT, ("-ub", "--ubatch-size"), env=("LLAMA_ARG_UBATCH",)),
    Flag("flash_attn", TRISTATE, ("-fa", "--flash-attn"), env=("LLAMA_ARG_FLASH_ATTN",), bare="on"),
    Flag("kv_offload", None, ("-kvo", "--kv-offload"), ("-nkvo", "--no-kv-offload"), ("LLAMA_ARG_KV_OFFLOAD",)),
    Flag("op_offload", None, ("--op-offload",), ("--no-op-offload", "-nopo")),
    Flag("swa_full", None, ("--swa-full",), env=("LLAMA_ARG_SWA_FULL",)),
    Flag("no_host", None, ("--no-host",), env=("LLAMA_ARG_NO_HOST",)),
    Flag("repack", None, ("--repack",), ("-nr", "--no-repack"), ("LLAMA_ARG_REPACK",)),
    Flag("load_mode", LOAD, ("-lm", "--load-mode"), env=("LLAMA_ARG_LOAD_MODE",)),
    Flag("load_mode", None, ("--mmap",), ("--no-mmap",), ("LLAMA_ARG_MMAP",), "mmap", "-mmap", _join_load),
    Flag("load_mode", None, ("--mlock",), value="lock", join=_join_load, env=("LLAMA_ARG_MLOCK",)),
    Flag("load_mode", None, ("-dio", "--direct-io"), ("-ndio", "--no-direct-io"), ("LLAMA_ARG_DIO",), "dio", "-dio",
         _join_load),
    Flag("lazy_mode", LAZY, ("-lzm", "--lazy-mode"), env=("LLAMA_ARG_LAZY_MODE",)),
    Flag("override_tensor", OVERRIDES, ("-ot", "--override-tensor"), env=("LLAMA_ARG_OVERRIDE_TENSOR",), join=_add),
    Flag("cpu_moe", None, ("-cmoe", "--cpu-moe"), env=("LLAMA_ARG_CPU_MOE",)),
    Flag("n_cpu_moe", COUNT, ("-ncmoe", "--n-cpu-moe"), env=("LLAMA_ARG_N_CPU_MOE",)),
    Flag("n_cpu_ffn", COUNT, ("-ncffn", "--n-cpu-ffn"), env=("LLAMA_ARG_N_CPU_FFN",)),
    Flag("fit", ON_OFF, ("-fit", "--fit"), env=("LLAMA_ARG_FIT",)),
    Flag("fit_target", TARGETS, ("-fitt", "--fit-target"), env=("LLAMA_ARG_FIT_TARGET",)),
    Flag("fit_ctx", INT, ("-fitc", "--fit-ctx"), env=("LLAMA_ARG_FIT_CTX",)),
    Flag("rpc", WORDS, ("--rpc",), env=("LLAMA_ARG_RPC",), join=_add),
    Flag("mmproj", TEXT, ("-mm", "--mmproj"), env=("LLAMA_ARG_MMPROJ",)),
    Flag("mmproj_auto", None, ("--mmproj-auto",), ("--no-mmproj", "--no-mmproj-auto"), ("LLAMA_ARG_MMPROJ_AUTO",)),
    Flag("mmproj_offload", None, ("--mmproj-offload",), ("--no-mmproj-offload",), ("LLAMA_ARG_MMPROJ_OFFLOAD",)),
    Flag("lora", WORDS, ("--lora",), join=_add),
    Flag("lora_scaled", WORDS, ("--lora-scaled",), join=_add),
    Flag("control_vector", WORDS, ("--control-vector",), join=_add),
    Flag("control_vector_scaled", WORDS, ("--control-vector-scaled",), join=_add),
    Flag("spec_type", TEXT, ("--spec-type",), env=("LLAMA_ARG_SPEC_TYPE",), join=_add_types),
    Flag("model_draft", TEXT, ("-md", "--model-draft", "--spec-draft-model"),
         env=("LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MODEL_DRAFT")),
    Flag("n_ctx_draft", INT, ("-cd", "--ctx-size-draft"), env=("LLAMA_ARG_CTX_SIZE_DRAFT",)),
    Flag("draft_n_max", INT, ("--spec-draft-n-max", "--draft-max", "--draft", "--draft-n"),
         env=("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX")),
    Flag("n_gpu_layers_draft", LAYERS, ("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl"),
         env=("LLAMA_ARG_N_GPU_LAYERS_DRAFT",)),
    Flag("cache_type_k_draft", CACHE_TYPE, ("-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"),
         env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "LLAMA_ARG_CACHE_TYPE_K_DRAFT")),
    Flag("cache_type_v_draft", CACHE_TYPE, ("-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"),
         env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", "LLAMA_ARG_CACHE_TYPE_V_DRAFT")),
    Flag("device_draft", WORDS, ("-devd", "--device-draft", "--spec-draft-device")),
    Flag("embeddings", None, ("--embedding", "--embeddings"), env=("LLAMA_ARG_EMBEDDINGS",)),
    Flag("reranking", None, ("--reranking", "--rerank"), env=("LLAMA_ARG_RERANKING",)),
    Flag("pooling", POOLING, ("--pooling",), env=("LLAMA_ARG_POOLING",)),
    Flag("cache_ram", INT, ("-cram", "--cache-ram"), env=("LLAMA_ARG_CACHE_RAM",)),
    Flag("ctx_checkpoints", INT, ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"),
         env=("LLAMA_ARG_CTX_CHECKPOINTS", "LLAMA_ARG_SWA_CHECKPOINTS")),
    Flag("warmup", None, ("--warmup",), ("--no-warmup",)),
    Flag("rope_scaling", ROPE, ("--rope-scaling",), env=("LLAMA_ARG_ROPE_SCALING_TYPE",)),
    Flag("threads", INT, ("-t", "--threads"), env=("LLAMA_ARG_THREADS",)),
    Flag("host", TEXT, ("--host",), env=("LLAMA_ARG_HOST",)),
    Flag("port", INT, ("--port",), env=("LLAMA_ARG_PORT",)),
    Flag("api_key", TEXT, ("--api-key",), env=("LLAMA_API_KEY",)),
    Flag("log_verbosity", INT, ("-lv", "--verbosity", "--log-verbosity"),
         env=("LLAMA_ARG_LOG_VERBOSITY", "LLAMA_LOG_VERBOSITY")),
    Flag("log_verbosity", None, ("-v", "--verbose", "--log-verbose"), value=INT_MAX),
)  # fmt: skip


def _bench(kind: Kind, separator: str = ",") -> Kind:
    """llama-bench takes lists and runs each value; the first one stands for the run we describe."""

    def read(text: str) -> Any:
        return kind.read(text.split(separator)[0])

    return Kind(read, kind.write, kind.wants)


def _bench_largest(kind: Kind) -> Kind:
    """Of several sizes the largest decides whether all runs fit. Ranges are written `first-last+step`."""

    def read(text: str) -> int:
        parts = [re.fullmatch(r"(-?[^-]+?)(?:-([0-9]+)(?:[+*][0-9]+)?)?", part) for part in text.split(",")]
        found = [int(kind.read(match[2] or match[1])) for match in parts if match]
        if len(found) != len(parts):
            raise ValueError(text)
        return max(found)

    return Kind(read, kind.write, kind.wants)


_BENCH_TS = Kind(
    lambda text: _proportions(";/")(text.split(",")[0]),
    lambda values: "/".join(map(_write_number, values)),
    "numbers with slashes between, like 3/1",
)
_BENCH_OT = Kind(
    lambda text: _overrides(";")(text.split(",")[0]), _write_overrides(";"), "PATTERN=BUFFER with semicolons between"
)
_BENCH_DEV = Kind(
    lambda text: tuple(map(str.strip, _some(text.split(",")[0]).split("/"))),
    "/".join,
    "device names with slashes between",
)

#: Source: `parse_cmd_params` in tools/llama-bench/llama-bench.cpp, build 11434.
BENCH: tuple[Flag, ...] = (
    Flag("model_path", _bench(TEXT), ("-m", "--model")),
    Flag("hf_repo", _bench(TEXT), ("-hf", "-hfr", "--hf-repo")),
    Flag("hf_file", _bench(TEXT), ("-hff", "--hf-file")),
    Flag("cache_type_k", _bench(CACHE_TYPE), ("-ctk", "--cache-type-k")),
    Flag("cache_type_v", _bench(CACHE_TYPE), ("-ctv", "--cache-type-v")),
    Flag("n_gpu_layers", _bench_largest(INT), ("-ngl", "--n-gpu-layers")),
    Flag("split_mode", _bench(SPLIT), ("-sm", "--split-mode")),
    Flag("tensor_split", _BENCH_TS, ("-ts", "--tensor-split")),
    Flag("main_gpu", _bench_largest(INT), ("-mg", "--main-gpu")),
    Flag("device", _BENCH_DEV, ("-dev", "--device")),
    Flag("n_batch", _bench_largest(INT), ("-b", "--batch-size")),
    Flag("n_ubatch", _bench_largest(INT), ("-ub", "--ubatch-size")),
    Flag("flash_attn", _bench(TRISTATE), ("-fa", "--flash-attn")),
    Flag("kv_offload", _bench(NOT_BIT), ("-nkvo", "--no-kv-offload")),
    Flag("op_offload", _bench(NOT_BIT), ("-nopo", "--no-op-offload")),
    Flag("no_host", _bench(BIT), ("--no-host",)),
    Flag("repack", _bench(BIT), ("--repack",)),
    Flag("load_mode", _bench(LOAD), ("-lm", "--load-mode")),
    Flag("load_mode", Kind(lambda text: "mmap" if _on_off(text.split(",")[0]) else "none",
                           lambda mode: "1" if mode == "mmap" else "0", "0 or 1"), ("-mmp", "--mmap")),
    Flag("lazy_mode", _bench(LAZY), ("-lzm", "--lazy-mode")),
    Flag("override_tensor", _BENCH_OT, ("-ot", "--override-tensor")),
    Flag("n_cpu_moe", _bench_largest(COUNT), ("-ncmoe", "--n-cpu-moe")),
    Flag("fit_target", Kind(_targets, TARGETS.write, TARGETS.wants), ("-fitt", "--fit-target")),
    Flag("fit_ctx", _bench_largest(INT), ("-fitc", "--fit-ctx")),
    Flag("rpc", WORDS, ("-rpc", "--rpc")),
    Flag("embeddings", _bench(BIT), ("-embd", "--embeddings")),
    Flag("warmup", None, (), ("--no-warmup",)),
    Flag("threads", _bench_largest(INT), ("-t", "--threads")),
)  # fmt: skip

#: Options of one value that are no settings of ours; their value may start with a dash. Source as above.
ONE_VALUE = _words_of(
    """-tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb
    --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch -lcs --lookup-cache-static -lcd
    --lookup-cache-dynamic -n --predict --n-predict --keep -cms --checkpoint-min-step --chunks -sys --system-prompt
    -p --prompt -f --file -sysf --system-prompt-file --in-file -bf --binary-file -ptc --print-token-count
    --prompt-cache -r --reverse-prompt --in-prefix --in-suffix --samplers -s --seed --sampler-seq --sampling-seq
    --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --xtc-probability --xtc-threshold
    --typical --typical-p --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier
    --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay
    --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --grammar --grammar-file
    -j --json-schema -jf --json-schema-file --attention --rope-scale --rope-freq-base --rope-freq-scale
    --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -gan --grp-attn-n -gaw
    --grp-attn-w --hellaswag-tasks --winogrande-tasks --multiple-choice-tasks --save-all-logits --kl-divergence-base
    --ppl-stride --ppl-output-type -dt --defrag-thold -ns --sequences -mmu --mmproj-url -mmdev --mmproj-device
    --image --audio --video --image-min-tokens --image-max-tokens --mtmd-batch-max-tokens --video-fps
    --video-timestamp-interval --video-ffmpeg-dir --numa --override-kv -a --alias --tags -mu --model-url -dr
    --docker-repo -hft --hf-token -hfv -hfrv --hf-repo-v -hffv --hf-file-v -hfd -hfrd --hf-repo-draft
    --spec-draft-hf -mv --model-vocoder --context-file --chunk-size --chunk-separator --junk --pos -o --output
    --output-file --output-format --save-frequency --chunk --from-chunk -npp -ntg -npl --embd-normalize
    --embd-output-format --embd-separator --cls-separator --path --cors-origins --cors-methods --cors-headers
    --api-prefix --ui-config --webui-config --ui-config-file --webui-config-file --tools --tools-runtime
    --mcp-servers-config --mcp-servers-json --api-key-file --ssl-key-file --ssl-cert-file --chat-template-kwargs -to
    --timeout --sse-ping-interval --threads-http --cache-reuse --slot-save-path --media-path --models-dir
    --models-preset --models-max --reasoning-format -rea --reasoning --reasoning-effort --reasoning-budget
    --reasoning-budget-message --chat-template --chat-template-file -sps --slot-prompt-similarity
    --sleep-idle-seconds --log-file --log-colors --log-prompts-dir -td --threads-draft --spec-draft-threads -tbd
    --threads-batch-draft --spec-draft-threads-batch -Cd --cpu-mask-draft --spec-draft-cpu-mask -Crd
    --cpu-range-draft --spec-draft-cpu-range --cpu-strict-draft --spec-draft-cpu-strict --prio-draft
    --spec-draft-prio --poll-draft --spec-draft-poll -Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch -Crbd
    --cpu-range-batch-draft --spec-draft-cpu-range-batch --cpu-strict-batch-draft --spec-draft-cpu-strict-batch
    --prio-batch-draft --spec-draft-prio-batch --poll-batch-draft --spec-draft-poll-batch -otd
    --override-tensor-draft --spec-draft-override-tensor -ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe
    --spec-draft-ncmoe --spec-draft-n-min --draft-min --draft-n-min --spec-synth-len --spec-synth-rates
    --draft-p-split --spec-draft-p-split --draft-p-min --spec-draft-p-min --spec-draft-sampling
    --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match --spec-ngram-simple-size-n
    --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m
    --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m
    --spec-ngram-map-k4v-min-hits --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits --spec-replace
    --tts-lang --tts-speaker-file --server-base -co --color -fitp --fit-print"""
)

#: Options without a value that are no settings of ours. Source as above.
SWITCHES = _words_of(
    """--agent --backend-sampling --cache-idle-slots --cache-list --cache-prompt --check --check-tensors
    --completion-bash --cont-batching --context-shift --conversation --cors-credentials --cpu-moe-draft --dflash
    --display-prompt --eagle3 --embd-gemma-default --escape --fim-qwen-1.5b-default --fim-qwen-14b-spec
    --fim-qwen-30b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --gpt-oss-120b-default
    --gpt-oss-20b-default --hellaswag --help --ids --ignore-eos --in-prefix-bos --interactive --interactive-first
    --jinja --kl-divergence --list-devices --log-disable --log-jsonl --log-prefix --log-timestamps
    --lora-init-without-apply --metrics --models-autoload --mtp --multiline-input --multiple-choice --nextn --no-agent
    --no-bos --no-cache-idle-slots --no-cache-prompt --no-cont-batching --no-context-shift --no-conversation
    --no-cors-credentials --no-display-prompt --no-escape --no-jinja --no-log-jsonl --no-log-prefix
    --no-log-timestamps --no-models-autoload --no-parse-special --no-perf --no-ppl --no-prefill-assistant
    --no-reasoning-preserve --no-show-timings --no-skip-chat-parsing --no-slots --no-spec-draft-backend-sampling
    --no-ui --no-ui-mcp-proxy --no-webui --no-webui-mcp-proxy --offline --parse-special --perf --ppl
    --prefill-assistant --process-output --prompt-cache-all --prompt-cache-ro --props --reasoning-preserve
    --reuse-port --save-logits --show-count --show-statistics --show-timings --simple-io --single-turn
    --skip-chat-parsing --slots --spec-default --spec-draft-backend-sampling --spec-draft-cpu-moe --special
    --spm-infill --stdin --ui --ui-mcp-proxy --usage --verbose-prompt --version --vision-gemma-12b-default
    --vision-gemma-4b-default --webui --webui-mcp-proxy --winogrande -ag -bs -cb -cl -cmoed -cnv -e -h -i -if -mli
    -no-ag -no-cnv -nocb -pps -sp -st -tgs"""
)

#: Options of two values.
TWO_VALUES = frozenset({"--control-vector-layer-range"})

#: Options whose value is a secret, and variables likewise.
SECRET_FLAGS = frozenset({"--api-key", "-hft", "--hf-token"})
SECRET_NAME = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL)", re.IGNORECASE)

#: Names of 2023 and 2024, before the programs were called llama-*.
OLD_PROGRAMS = {"server": "llama-server", "main": "llama-cli", "rpc-server": "ggml-rpc-server"}


def program_name(program: str) -> str:
    """`C:\\llama\\llama-server.exe` as `llama-server`; the names of old builds as today's."""
    name = PurePosixPath(program.replace("\\", "/")).name.removesuffix(".exe")
    return OLD_PROGRAMS.get(name, name)


def flags_of(program: str) -> tuple[Flag, ...]:
    """The options that a program understands."""
    return BENCH if program_name(program) == "llama-bench" else COMMON


def plain(word: str) -> str:
    """An option as llama.cpp compares it: `--ctx_size` is `--ctx-size`. Source: `common_params_parse_ex`."""
    return word.replace("_", "-") if word.startswith("--") else word
