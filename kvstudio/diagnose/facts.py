"""What a run's log says about its settings and devices, as far as a diagnosis needs it."""

import re
from dataclasses import dataclass

from kvstudio.diagnose.timeline import Timeline
from kvstudio.runlog.values import (
    BreakdownRow,
    BufferPrinted,
    CachePrinted,
    CommandSeen,
    ConfigPrinted,
    DevicePrinted,
    OffloadPrinted,
)

_GPU = re.compile(r"(?:CUDA|ROCm|MUSA|Vulkan|SYCL|MTL|CANN|HTP|RPC|WebGPU)\d+|Metal|OpenCL|GPUOpenCL")


#: Settings a command line states, where no line prints them.
_FLAGS = {
    "n_ctx": r"(?:-c|--ctx-size|--ctx_size|-n_ctx|--contextsize)",
    "n_seq_max": r"(?:-np|--parallel)",
    "n_ubatch": r"(?:-ub|--ubatch-size)",
}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Settings the log states (None where it does not), and the devices it names with their free and total bytes."""

    n_ctx: int | None
    n_ctx_train: int | None
    n_seq_max: int | None
    n_ubatch: int | None
    kv_unified: bool | None
    flash_attn: str | None
    cache_type_k: str | None
    cache_type_v: str | None
    offloaded: tuple[int, int] | None
    n_expert: int | None
    devices: dict[str, tuple[int | None, int | None]]
    commands: tuple[str, ...]
    lines: dict[str, int]


def gather(run: Timeline) -> RunFacts:
    """RunFacts of one run; the last statement of a setting counts."""
    config: dict[str, str] = {}
    lines: dict[str, int] = {}
    devices: dict[str, tuple[int | None, int | None]] = {}
    types: tuple[str | None, str | None] = (None, None)
    offloaded = None
    n_seqs = 0
    commands: list[str] = []
    for event in run.events:
        if isinstance(event, ConfigPrinted):
            config[event.key] = event.value
            lines[event.key] = event.line
        elif isinstance(event, DevicePrinted | BreakdownRow):
            _remember(devices, event)
        elif isinstance(event, BufferPrinted):
            if _GPU.fullmatch(event.name):
                devices.setdefault(event.name, (None, None))
        elif isinstance(event, CachePrinted):
            if event.kind == "kv":
                types = (event.k_type or types[0], event.v_type or types[1])
            n_seqs = event.seqs or n_seqs
        elif isinstance(event, OffloadPrinted):
            offloaded = (event.offloaded, event.total)
        elif isinstance(event, CommandSeen):
            commands.append(event.text)
    for field, flags in _FLAGS.items():
        if field not in config and (value := _flag(commands, flags)):
            config[field] = value
    if n_seqs and not config.keys() & {"n_seq_max", "n_parallel"}:
        config["n_seq_max"] = str(n_seqs)
    return RunFacts(
        _int(config.get("n_ctx")), _int(config.get("n_ctx_train")),
        _int(config.get("n_seq_max") or config.get("n_parallel")), _int(config.get("n_ubatch")),
        {"true": True, "1": True, "false": False, "0": False}.get(config.get("kv_unified", "")),
        config.get("flash_attn"),
        types[0], types[1], offloaded, _int(config.get("n_expert")), devices, tuple(commands), lines,
    )  # fmt: skip


def _remember(devices: dict[str, tuple[int | None, int | None]], event: DevicePrinted | BreakdownRow) -> None:
    if _GPU.fullmatch(event.name.split("[")[0]):
        free, total = devices.get(event.name, (None, None))
        devices[event.name] = (
            event.free_bytes if event.free_bytes is not None else free,
            event.total_bytes if event.total_bytes is not None else total,
        )


def _flag(commands: list[str], flags: str) -> str | None:
    match = re.search(rf"(?:^|\s){flags}[ =](\d{{1,12}})\b", commands[-1]) if commands else None
    return match[1] if match else None


def _int(text: str | None) -> int | None:
    match = re.match(r"\d{1,18}", text) if text else None
    return int(match[0]) if match else None
