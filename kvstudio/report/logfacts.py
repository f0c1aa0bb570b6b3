"""Log lines -> facts about binary, machine and model that a launch prints about itself."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvstudio.runlog.values import LogLine

_VERSION = (
    re.compile(
        r"\bbuild:? (?P<build>\d+) \((?:(?P<commit>[0-9a-f]{6,40})|unknown)\)"
        r"(?: with (?P<compiler>.+?))?(?: for (?P<target>.+?))?\s*$"
    ),
    re.compile(r"\bversion: (?P<build>\d+) \((?P<commit>[0-9a-f]{6,40})\)"),
    re.compile(r"\bbuild(?:_info)?\s*[:=]\s*b?(?P<build>\d{3,6})-(?P<commit>[0-9a-f]{6,40})"),
    re.compile(r"\bbuild=(?P<build>\d{3,6}) commit=\"?(?P<commit>[0-9a-f]{6,40})"),
    re.compile(r"\bbuild = (?P<build>\d{3,6}) \((?P<commit>[0-9a-f]{6,40})\)"),
)
_BUILT_WITH = re.compile(r"\bbuilt with (?P<compiler>.+?) for (?P<target>[\w. -]+?)\s*$")
_SYSTEM_INFO = re.compile(r"\bsystem_info: (?P<text>.*)$")
_CUDA_DEVICE = re.compile(r"^\s*Device (?P<i>\d+): (?P<name>.+?), (?:compute capability|gfx\w+|VMM)", re.ASCII)
_VULKAN_DEVICE = re.compile(r"\bggml_vulkan: (?P<i>\d+) = (?P<name>[^|]+?) \((?P<driver>[^()|]+)\) \|")
_METAL_DEVICE = re.compile(r"\bGPU name:\s+(?P<name>.+?)\s*$")
_USING_DEVICE = re.compile(
    r"\busing device (?P<id>\w+) \((?P<name>.+?)\)(?: \((?P<pci>[\w:.]+|unknown id)\))? - (?P<free>\d+) MiB free"
)
_LISTED_DEVICE = re.compile(
    r"(?:^|\s)(?P<id>CPU|[A-Z][A-Za-z]*\d+(?:\[\S+\])?)\s*: (?P<name>.+?) \(\d+ MiB, (?P<free>\d+) MiB free\)"
)
_MODEL_FILE = re.compile(
    r"(?:tensors from |loading model '|load model,? '|with model '|model file:? '?)(?P<path>[^']*?\.gguf)"
)
_ANY_GGUF = re.compile(r"(?P<path>[^\s'\"=|]+\.gguf)")
_META = re.compile(r"- kv\s+\d+:\s+(?P<key>general\.[\w.]+)\s+\w+(?:\[[^\]]*\])?\s+= (?P<value>.*)$")
_DRIVER = re.compile(r"(?:Driver Version: |driver version[:=]? )(?P<v>\d+\.\d+(?:\.\d+)?)")
_OS_BY_TARGET = (
    ("linux", "Linux"),
    ("darwin", "macOS"),
    ("apple", "macOS"),
    ("mingw", "Windows"),
    ("windows", "Windows"),
    ("freebsd", "BSD"),
)


@dataclass(slots=True)
class LogFacts:
    """What was read; empty where the log does not say. `free_mib`: device name to MiB, as printed before loading."""

    build: str = ""
    commit: str = ""
    compiler: str = ""
    target: str = ""
    system_info: str = ""
    cpu: str = ""
    driver: str = ""
    gpus: dict[str, str] = field(default_factory=dict)
    free_mib: dict[str, int] = field(default_factory=dict)
    model_files: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    backends: list[str] = field(default_factory=list)

    @property
    def os(self) -> str:
        """The system the binary was built for, which is the one it runs on."""
        lowered = f"{self.target} {self.compiler}".lower()
        return next((name for word, name in _OS_BY_TARGET if word in lowered), "Windows" if "msvc" in lowered else "")


_SETTING = re.compile(
    r"\b(?:llama_context|llama_new_context_with_model|llama_init_from_model):\s+"
    r"(?P<key>n_ctx|n_seq_max|n_ubatch|n_batch|kv_unified|flash_attn)\s*= (?P<value>\S+)"
)
_OFFLOADED = re.compile(r"\boffloaded (?P<value>\d+/\d+) layers to GPU")
_CACHE_TYPE = re.compile(r"\b(?P<key>[KV]) \((?P<value>[a-z]\w*)\):")
_BUFFER = re.compile(
    r"\b(?P<name>(?P<backend>CUDA|ROCm|MUSA|Vulkan|MTL|Metal|SYCL|CANN|RPC|OpenCL|OPENVINO|WebGPU|HTP)\d*)"
    r"\w*(?:\[\S*\])? (?:(?:model |KV |RS |compute |output )?buffer)"
)
_FOUND = re.compile(r"\bfound \d+ (?P<backend>CUDA|ROCm|MUSA|Vulkan|SYCL|CANN|OpenCL)\b")


def read_facts(lines: Iterable[LogLine]) -> LogFacts:
    """Facts of the first run in a log: the first statement of each kind wins."""
    facts = LogFacts()
    for line in lines:
        text = line.message
        if len(text) > 4000:
            continue
        _read_version(text, facts)
        _read_devices(text, facts)
        _read_model(text, facts)
        _read_settings(text, facts)
    return facts


def _read_version(text: str, facts: LogFacts) -> None:
    if not facts.build and ("build" in text or "version" in text):
        for pattern in _VERSION:
            if not facts.build and (match := pattern.search(text)):
                named = match.groupdict()
                facts.build, facts.commit = named["build"], named["commit"] or ""  # none without git
                facts.compiler = facts.compiler or (named.get("compiler") or "")
                facts.target = facts.target or (named.get("target") or "")
    if not facts.compiler and (match := _BUILT_WITH.search(text)):
        facts.compiler, facts.target = match["compiler"], match["target"]
    if not facts.system_info and (match := _SYSTEM_INFO.search(text)):
        facts.system_info = match["text"].strip()
    if not facts.driver and (match := _DRIVER.search(text)):
        facts.driver = match["v"]


def _read_devices(text: str, facts: LogFacts) -> None:
    if match := _USING_DEVICE.search(text):
        facts.gpus.setdefault(match["id"], match["name"])
        facts.free_mib.setdefault(match["id"], int(match["free"]))
    elif match := _VULKAN_DEVICE.search(text):
        facts.gpus.setdefault(f"Vulkan{match['i']}", match["name"].strip())
        facts.driver = facts.driver or match["driver"]
    elif match := _CUDA_DEVICE.match(text):
        facts.gpus.setdefault(f"{_cuda_family(facts)}{match['i']}", match["name"])
    elif match := _METAL_DEVICE.search(text):
        facts.gpus.setdefault("MTL0", match["name"])
    elif match := _LISTED_DEVICE.search(text):
        if match["id"] == "CPU":
            facts.cpu = facts.cpu or match["name"]
        else:
            facts.gpus.setdefault(match["id"], match["name"])
            facts.free_mib.setdefault(match["id"], int(match["free"]))
    for pattern in (_FOUND, _BUFFER):
        if (match := pattern.search(text)) and match["backend"] not in facts.backends:
            facts.backends.append(match["backend"])


def _cuda_family(facts: LogFacts) -> str:
    """CUDA, HIP and MUSA builds print the same device lines; the line before names the family."""
    return next((b for b in facts.backends if b in ("CUDA", "ROCm", "MUSA")), "CUDA")


def _read_model(text: str, facts: LogFacts) -> None:
    if ".gguf" in text and (match := _MODEL_FILE.search(text) or _ANY_GGUF.search(text)):
        path = match["path"].strip()
        if path not in facts.model_files and len(facts.model_files) < 8:
            facts.model_files.append(path)
    if match := _META.search(text):
        facts.metadata.setdefault(match["key"], match["value"].strip())


def _read_settings(text: str, facts: LogFacts) -> None:
    if match := _SETTING.search(text):
        facts.settings.setdefault(match["key"], match["value"])
    elif match := _OFFLOADED.search(text):
        facts.settings.setdefault("offloaded", match["value"])
    elif "MiB" in text:
        for match in _CACHE_TYPE.finditer(text):
            facts.settings.setdefault(match["key"], match["value"])
