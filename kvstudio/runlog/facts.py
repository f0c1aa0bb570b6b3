"""Lines that state a figure or a setting, to typed events: buffers, caches, devices, parameters, builds, commands."""

# ruff: noqa: E501
# A pattern is easier to check against the line it reads when it is not broken up.
import json
import re
from collections.abc import Callable

from kvstudio.runlog.signatures.row import NUM, Pattern
from kvstudio.runlog.values import (
    BreakdownRow,
    BufferPrinted,
    BuildPrinted,
    CachePrinted,
    CommandSeen,
    ConfigPrinted,
    DevicePrinted,
    FitProjected,
    LogEvent,
    MemoryNoted,
    ModelSeen,
    OffloadPrinted,
)

MIB = 1024**2
_SCALE = {"B": 1, "KIB": 1024, "KB": 1024, "MIB": MIB, "MB": MIB, "GIB": 1024**3, "GB": 1024**3, "TIB": 1024**4}


def mib(text: str) -> int:
    """Bytes of a printed MiB figure; a decimal comma counts as a point."""
    return round(float(text.replace(",", ".")) * MIB)


def size(text: str) -> int | None:
    """Bytes of `23.6 GiB` or `512 MB` as Ollama writes them."""
    match = re.fullmatch(rf"\s*({NUM})\s*([KMGT]?i?B)\s*", text, re.IGNORECASE)
    return round(float(match[1].replace(",", ".")) * _SCALE[match[2].upper()]) if match else None


_BUFFER = Pattern(
    rf"(?P<func>[~\w]*)(?::|\s)\s*(?P<name>[A-Za-z][\w.\-]*(?:\[[^\]\s]*\])?)\s+(?:(?P<kind>model|KV|RS|LoRA|output|compute)|DSV4 \w+ state)?"
    rf"\s*buffer(?: total)? size\s*=\s*(?P<mib>{NUM}) Mi?B"
)
_BUFFER_2023 = Pattern(
    rf"(?P<func>\w+): (?:(?P<what>mem required|VRAM used|kv self size|KV self size|compute buffer total size|total VRAM used|"
    rf"VRAM scratch buffer|VRAM kv self))\s*[=:]\s*(?P<mib>{NUM}) Mi?B"
)
_KINDS_2023 = {
    "mem required": ("CPU", "model"), "VRAM used": ("GPU", "model"), "kv self size": ("", "kv"),
    "compute buffer total size": ("CPU", "compute"), "VRAM kv self": ("GPU", "kv"), "VRAM scratch buffer": ("GPU", "compute"),
}  # fmt: skip
_CACHE = Pattern(
    rf"size =\s*(?P<mib>{NUM}) MiB \(\s*(?P<cells>\d+) cells,\s*(?P<layers>\d+) layers,\s*(?P<seqs>\d+)(?:/\s*(?P<streams>\d+))? seqs"
    rf"[^)]*\)(?:, (?P<k>[KR]) \((?P<kt>\w+)\):\s*(?P<kb>{NUM}) MiB, (?P<v>[VS]) \((?P<vt>\w+)\):\s*(?P<vb>{NUM}) MiB)?"
)
_CACHE_2024 = Pattern(
    rf"KV self size\s*=\s*{NUM} MiB, (?:K|c\^KV) \((?P<kt>\w+)\):\s*(?P<kb>{NUM}) MiB, (?:V|kv\^T) \((?P<vt>\w+)\):\s*(?P<vb>{NUM}) MiB"
)
_OFFLOAD = Pattern(r"offloaded (\d+)/(\d+) layers to GPU")
_LISTED = Pattern(
    rf"^(?:\w+ +\w+: )?\s*-?\s*(?P<name>[A-Za-z]+\d*(?:\[[^\]]*\])?)\s*: (?P<desc>.+?) \((?P<total>{NUM}) MiB, (?P<free>{NUM}) MiB free\)"
)
_USING = Pattern(r"using device (?P<name>\S+) \((?P<desc>.*?)\)(?: \([^)]*\))? - (?P<free>\d+) MiB free")
_CUDA = Pattern(
    r"^\s*Device (?P<id>\d+): (?P<desc>.+?), (?:compute capability [\d.]+|gfx\w+[^,]*).*?(?:VRAM: (?P<total>\d+) MiB)?\s*$"
)
_CUDA_FOUND = Pattern(r"ggml_(?:cuda_init|init_cublas): found (\d+) (CUDA|ROCm|MUSA) devices")
_VULKAN = Pattern(r"ggml_vulkan: (?P<id>\d+) = (?P<desc>.+?)(?: \((?P<driver>[^()]*)\))? \| uma")
_SYCL = Pattern(
    r"\|\s*(?P<id>\d+)\|\s*\[(?:ext_oneapi_)?level_zero:gpu:\d+\]\|\s*(?P<desc>[^|]+?)\s*\|(?:[^|]*\|){4}\s*(?P<mb>\d+)M\|"
)
_METAL = Pattern(rf"(?:recommendedMaxWorkingSetSize|recommended max working set size)\s*=\s*(?P<mb>{NUM}) MB")
_OLLAMA_GPU = Pattern(
    r'msg="inference compute".*?(?:library=(?P<lib>\w+)).*?(?:(?:name|description|variant)="?(?P<desc>[^"=]*)"?).*?total="(?P<total>[^"]*)"'
    r'(?:.*?available="(?P<free>[^"]*)")?'
)
_OLLAMA_BUFFER = Pattern(
    r'msg="(?P<what>model weights|kv cache|compute graph|output layer)"\s+(?:device|buffer)=(?P<name>\S+) size="(?P<size>[^"]*)"'
)
_OLLAMA_KINDS = {"model weights": "model", "kv cache": "kv", "compute graph": "compute", "output layer": "output"}
_FIT_DEVICE = Pattern(
    r"-\s+(?P<name>\w+)(?: \([^|]*\))?\s*:\s*(?P<total>\d+) total,\s*(?P<used>\d+) used,\s*(?P<free>-?\d+) (?:free|surplus|deficit)"
)
_PROJECTED = Pattern(
    rf"projected to use (?P<need>{NUM}) MiB of (?P<where>device|host) memory vs\. (?P<have>{NUM}) MiB of (?P<what>free|total)"
)
_TABLE_HEAD = Pattern(r"memory breakdown \[MiB\]")
_TABLE_DEVICE = Pattern(
    r"\|\s+- (?P<label>.+?)\s*\|\s*(?P<total>\d+) =\s*(?P<free>-?\d+) \+ \(\s*(?P<self>\d+) =\s*(?P<model>\d+) \+\s*(?P<ctx>\d+) \+"
    r"\s*(?P<comp>\d+)\) \+\s*(?P<un>-?\d+) \|"
)
_TABLE_HOST = Pattern(
    r"\|\s+- (?P<label>.+?)\s*\|\s*(?P<self>\d+) =\s*(?P<model>\d+) \+\s*(?P<ctx>\d+) \+\s*(?P<comp>\d+)\s*\|"
)
_CONFIG = Pattern(
    r"^(?:llama_context|llama_new_context_with_model|llama_init_from_model|llama_model_load_internal): (?P<key>[a-z_]+)\s*=\s*(?P<value>\S.*)$"
)
_INFO = Pattern(
    r"^(?:print_info|llm_load_print_meta|llama_model_load_internal): (?P<key>arch|n_ctx_train|n_layer|n_expert|n_embd|n_head|n_head_kv|n_swa|file type"
    r"|file size|model type|model params|general\.name|model size|ssm_d_state|n_layer_all)\s*=\s*(?P<value>\S.*)$"
)
_SLOTS = Pattern(r"n_slots = (?P<slots>\d+)(?:, n_ctx_slot = (?P<ctx>\d+))?(?:, kv_unified = '(?P<unified>\w+)')?")
_AUTO_SLOTS = Pattern(
    r"n_parallel is set to auto, using n_parallel = (?P<slots>\d+)(?: and kv_unified = (?P<unified>\w+))?"
)
_BUILD = Pattern(
    r"(?:^|\s|\()(?:main: )?(?:build(?:_info)?|version)\s*[:=]?\s*(?:b(?P<b>\d+)-(?P<bc>[0-9a-f]{6,})|b?(?P<n>\d+)(?: \(|, commit )(?P<c>[0-9a-f]{6,}))"
    r"|vendor\s+: llama\.cpp (?P<lc>[0-9a-f]{6,}) \((?P<ln>\d+)\)"
)
_COMMAND = Pattern(
    r"(?P<cmd>(?:[A-Z_][A-Z0-9_]*=\S+ +)*(?:[^\s'\"=|;()]*[/\\])?"
    r"(?:llama-(?:server|cli|bench|completion|mtmd-cli|run|perplexity|simple|imatrix|batched-bench|fit-params|finetune)"
    r"|ollama_llama_server|ollama(?:\.exe)?[\"']? runner|(?<=[/\\])(?:server|main|finetune|perplexity))(?:\.exe)?[\"']? +-{1,2}[a-zA-Z].*)$"
)
_NAMESPACE = Pattern(r"^Namespace\(.*\bcontextsize=.*\)$")
_LOADED_FROM = Pattern(
    r"loaded meta data with \d+ key-value pairs and \d+ tensors from (?P<path>.+?)(?: \(version .*)?$"
)
_LOADING = Pattern(
    r"loading (?P<role>model|draft model|multimodal model) (?:from )?'(?P<path>[^']+)'"
    r"|failed to load (?P<role2>draft model|multimodal model|model),? '(?P<path2>[^']+)'|create[ _]context with model '(?P<path3>[^']+)'"
    r"|llama\.cpp: loading model from (?P<path4>.+)$|unable to load model: (?P<path5>/\S+)"
)


def _buffer(line: int, m: re.Match[str], message: str) -> LogEvent | None:
    kind = (m["kind"] or ("model" if "load_tensors" in m["func"] else "kv" if "DSV4" in m[0] else "")).lower()
    if m["func"].startswith("~") or not kind:
        return None
    if kind == "compute" and m["func"] in (
        "alloc_compute_meta",
        "reserve_compute_meta",
        "load_hparams",
        "clip_model_loader",
    ):
        kind = "mmproj"
    return BufferPrinted(line, m["name"], kind, mib(m["mib"]))


def _buffer_2023(line: int, m: re.Match[str], message: str) -> LogEvent | None:
    known = _KINDS_2023.get(m["what"])
    return BufferPrinted(line, known[0] or "CPU", known[1], mib(m["mib"])) if known else None


def _cache(line: int, m: re.Match[str], message: str) -> LogEvent:
    kind = "rs" if m["k"] == "R" or "recurrent" in message else "kv"
    k, v = (mib(m["kb"]), mib(m["vb"])) if m["kb"] else (0, 0)
    return CachePrinted(
        line, kind, int(m["cells"]), int(m["layers"]), int(m["seqs"]), int(m["streams"] or 1), m["kt"], m["vt"], k, v
    )


def _cache_2024(line: int, m: re.Match[str], message: str) -> LogEvent:
    return CachePrinted(line, "kv", 0, 0, 0, 1, m["kt"], m["vt"], mib(m["kb"]), mib(m["vb"]))


def _listed(line: int, m: re.Match[str], message: str) -> LogEvent:
    return DevicePrinted(line, m["name"], m["desc"].strip(), mib(m["total"]), mib(m["free"]))


def _metal(line: int, m: re.Match[str], message: str) -> LogEvent:
    # Metal prints decimal megabytes: the figure is divided by 1e6 there.
    return DevicePrinted(line, "Metal", "", round(float(m["mb"].replace(",", ".")) * 1e6), None)


def _sycl(line: int, m: re.Match[str], message: str) -> LogEvent:
    # Decimal megabytes as well.
    return DevicePrinted(line, f"SYCL{m['id']}", m["desc"], int(m["mb"]) * 1_000_000, None)


def _ollama_gpu(line: int, m: re.Match[str], message: str) -> LogEvent:
    return DevicePrinted(line, m["lib"], (m["desc"] or "").strip(), size(m["total"]), size(m["free"] or ""))


def _ollama_buffer(line: int, m: re.Match[str], message: str) -> LogEvent | None:
    n_bytes = size(m["size"])
    return None if n_bytes is None else BufferPrinted(line, m["name"], _OLLAMA_KINDS[m["what"]], n_bytes)


def _projected(line: int, m: re.Match[str], message: str) -> LogEvent:
    return FitProjected(line, mib(m["need"]), mib(m["have"]), m["where"] == "host", m["what"] == "free")


def _config(line: int, m: re.Match[str], message: str) -> LogEvent:
    return ConfigPrinted(line, m["key"].strip(), m["value"].strip())


def _build(line: int, m: re.Match[str], message: str) -> LogEvent:
    number = int(m["b"] or m["n"] or m["ln"])
    # Distributors that build from an archive have no history to count; their number is 0 or 1.
    return BuildPrinted(line, number if number > 1 else None, m["bc"] or m["c"] or m["lc"], m[0].strip())


def _loading(line: int, m: re.Match[str], message: str) -> LogEvent:
    role = (m["role"] or m["role2"] or "model").split()[0]
    path = m["path"] or m["path2"] or m["path3"] or m["path4"] or m["path5"]
    return ModelSeen(line, path.strip(), {"multimodal": "mmproj"}.get(role, role))


Builder = Callable[[int, re.Match[str], str], LogEvent | None]

#: Cheap word, pattern, builder.
FACTS: tuple[tuple[str, Pattern, Builder], ...] = (
    ("buffer size", _BUFFER, _buffer),
    ("Mi", _BUFFER_2023, _buffer_2023),
    ("MB", _BUFFER_2023, _buffer_2023),
    (" cells,", _CACHE, _cache),
    ("KV self size", _CACHE_2024, _cache_2024),
    ("offloaded ", _OFFLOAD, lambda line, m, _: OffloadPrinted(line, int(m[1]), int(m[2]))),
    ("MiB free)", _LISTED, _listed),
    ("using device ", _USING, lambda line, m, _: DevicePrinted(line, m["name"], m["desc"], None, mib(m["free"]))),
    ("level_zero:gpu:", _SYCL, _sycl),
    ("orking", _METAL, _metal),
    ("inference compute", _OLLAMA_GPU, _ollama_gpu),
    ('msg="', _OLLAMA_BUFFER, _ollama_buffer),
    (" total, ", _FIT_DEVICE, lambda line, m, _: MemoryNoted(line, m["name"], mib(m["total"]), None, mib(m["used"]))),
    ("projected to use", _PROJECTED, _projected),
    ("n_", _CONFIG, _config),
    ("flash_attn", _CONFIG, _config),
    ("kv_unified", _CONFIG, _config),
    ("causal_attn", _CONFIG, _config),
    ("print_", _INFO, _config),
    ("llama_model_load_internal", _INFO, _config),
    ("build", _BUILD, _build),
    ("version", _BUILD, _build),
    ("vendor ", _BUILD, _build),
    ("llama-", _COMMAND, lambda line, m, _: CommandSeen(line, m["cmd"].strip())),
    ("ollama runner", _COMMAND, lambda line, m, _: CommandSeen(line, m["cmd"].strip())),
    ("Namespace(", _NAMESPACE, lambda line, m, _: CommandSeen(line, m[0])),
    ("ollama_llama_server", _COMMAND, lambda line, m, _: CommandSeen(line, m["cmd"].strip())),
    ("/main", _COMMAND, lambda line, m, _: CommandSeen(line, m["cmd"].strip())),
    ("/server", _COMMAND, lambda line, m, _: CommandSeen(line, m["cmd"].strip())),
    ("/finetune", _COMMAND, lambda line, m, _: CommandSeen(line, m["cmd"].strip())),
    ("loaded meta data", _LOADED_FROM, lambda line, m, _: ModelSeen(line, m["path"], "model")),
    ("model '", _LOADING, _loading),
    ("model, '", _LOADING, _loading),
    ("llama.cpp: loading", _LOADING, _loading),
    ("unable to load model: /", _LOADING, _loading),
)
#: Words of lines that state facts; the shortest ones of the table are spelled out here.
FACT_WORDS: tuple[str, ...] = (
    *dict.fromkeys(word for word, _, _ in FACTS if len(word) > 4 and word not in ("orking", "print_")),
    "VRAM used", "mem required", "kv self size", "VRAM kv self", "VRAM scratch", "buffer total", "MaxWorkingSet", "max working set",
    "llama_context: n_", "llama_new_context_with_model: n_", "llama_init_from_model: n_", "print_info: ", "llm_load_print_meta: ",
    "llama_model_load_internal: ", 'msg="model weights', 'msg="kv cache', 'msg="compute graph', "n_parallel is set",
)  # fmt: skip


def facts(line: int, message: str) -> list[LogEvent]:
    """Typed events one message states; a line that prints a slot count gives one event per parameter."""
    found: list[LogEvent] = []
    tried: set[int] = set()
    for word, pattern, build in FACTS:
        if word in message and id(pattern) not in tried:
            tried.add(id(pattern))
            match = pattern.search(message)
            event = build(line, match, message) if match else None
            if event is not None:
                found.append(event)
    if "n_slots = " in message or "n_parallel is set to auto" in message:
        found.extend(_slots(line, message))
    return found


def _slots(line: int, message: str) -> list[LogEvent]:
    match = _AUTO_SLOTS.search(message) or _SLOTS.search(message)
    if match is None:
        return []
    names = {"slots": "n_parallel", "ctx": "n_ctx_slot", "unified": "kv_unified"}
    return [ConfigPrinted(line, names[k], v) for k, v in match.groupdict().items() if v is not None]


class DeviceNames:
    """Numbers of a backend's device list to names: `Device 0` after `found 2 ROCm devices` is `ROCm0`."""

    def __init__(self) -> None:
        self._backend: str | None = None

    def read(self, line: int, message: str) -> DevicePrinted | None:
        if "devices" in message and (found := _CUDA_FOUND.search(message)):
            self._backend = found[2]
            return None
        if "Device " in message and self._backend and (match := _CUDA.search(message)):
            total = mib(match["total"]) if match["total"] else None
            return DevicePrinted(line, f"{self._backend}{match['id']}", match["desc"], total, None)
        if "ggml_vulkan: " in message and (match := _VULKAN.search(message)):
            return DevicePrinted(line, f"Vulkan{match['id']}", match["desc"], None, None)
        return None


class Tables:
    """Memory breakdown tables, drawn ones and those of JSON logs, numbered from 1."""

    def __init__(self) -> None:
        self._table = 0

    def read(self, line: int, message: str) -> list[LogEvent]:
        if _TABLE_HEAD.search(message):
            self._table += 1
            return []
        if '"fit_memory_breakdown"' in message:
            return self._json(line, message)
        if "|" not in message:
            return []
        match = _TABLE_DEVICE.search(message)
        if match:
            total, free, own, model, context, compute, rest = (
                int(match[k]) * MIB for k in ("total", "free", "self", "model", "ctx", "comp", "un")
            )
            return [self._row(line, match["label"], total, free, own, model, context, compute, rest)]
        match = _TABLE_HOST.search(message)
        if match:
            own, model, context, compute = (int(match[k]) * MIB for k in ("self", "model", "ctx", "comp"))
            return [self._row(line, match["label"], None, None, own, model, context, compute, None)]
        return []

    def _row(
        self, line: int, label: str, total: int | None, free: int | None,
        own: int, model: int, context: int, compute: int, unaccounted: int | None,
    ) -> BreakdownRow:  # fmt: skip
        name, _, rest = label.partition(" (")
        return BreakdownRow(
            line,
            max(1, self._table),
            name,
            rest.removesuffix(")"),
            total,
            free,
            own,
            model,
            context,
            compute,
            unaccounted,
        )

    def _json(self, line: int, message: str) -> list[LogEvent]:
        try:
            rows = json.loads(message)["data"]["rows"]
            self._table += 1
            return [self._json_row(line, r) for r in rows if isinstance(r, dict)]
        except (ValueError, KeyError, TypeError, RecursionError):
            return []

    def _json_row(self, line: int, r: dict[str, object]) -> BreakdownRow:
        def figure(key: str) -> int | None:
            value = r.get(key)
            return int(value) * MIB if isinstance(value, int | float) and abs(value) < 1e12 else None

        own, model, context, compute = (figure(k) or 0 for k in ("self", "model", "context", "compute"))
        name = str(r.get("name") or ("Host" if r.get("kind") == "host" else ""))
        return BreakdownRow(
            line,
            self._table,
            name,
            str(r.get("description") or ""),
            figure("total"),
            figure("free"),
            own,
            model,
            context,
            compute,
            figure("unaccounted"),
        )
