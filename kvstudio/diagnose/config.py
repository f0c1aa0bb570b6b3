"""Settings and devices read back out of somebody's log."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvstudio.devices.values import Device, DeviceSource
from kvstudio.diagnose import facts as run_facts
from kvstudio.diagnose.timeline import last_run
from kvstudio.diagnose.where import backend_of
from kvstudio.errors import KvStudioError
from kvstudio.launch.argv import parse_argv, split_command
from kvstudio.launch.config import CACHE_TYPES, LaunchConfig
from kvstudio.runlog.values import (
    BuildPrinted,
    CachePrinted,
    CommandSeen,
    ConfigPrinted,
    DevicePrinted,
    LogEvent,
    LogLine,
    ModelSeen,
    OffloadPrinted,
)

_NUMBERS = {
    "n_ctx": "n_ctx",
    "n_batch": "n_batch",
    "n_ubatch": "n_ubatch",
    "n_seq_max": "n_parallel",
    "n_parallel": "n_parallel",
}
_FLASH = {
    "1": "on",
    "0": "off",
    "enabled": "on",
    "disabled": "off",
    "auto": "auto",
    "on": "on",
    "off": "off",
    "true": "on",
    "false": "off",
}
_BOOL = {"true": True, "1": True, "false": False, "0": False}
_TRAILING = re.compile(r"\s*(?:2?>>?\s*\S+|2>&1|&|\|.*|\\)+\s*$")
#: Ollama starts its own copy of the server under its own name.
_RUNNER = re.compile(r"^\S*ollama(?:\.exe)?[\"']? runner|^\S*ollama_llama_server\S*")
_QUOTED_END = re.compile(r'["\'](?:\s+\w+=.*)?$')


def config_from_log(events: Sequence[LogEvent], lines: Sequence[LogLine]) -> LaunchConfig | None:
    """What was started, as far as the log tells: its command line first, printed parameters where that is silent.

    None when the log names neither a command, a model nor a parameter. `build` is the build the log names.
    """
    run = last_run(events)
    everywhere = run.events if any(isinstance(e, CommandSeen) for e in run.events) else tuple(events)
    config = _commanded(everywhere)
    printed = _printed(run.events)
    if config is None and not printed:
        return None
    base = config or LaunchConfig(program=_program(lines))
    new = {name: value for name, value in printed.items() if getattr(base, name) in (None, "")}
    build = next((e.build for e in reversed(list(events)) if isinstance(e, BuildPrinted) and e.build), None)
    return replace(base, **new, build=base.build or build)


def devices_from_log(events: Sequence[LogEvent]) -> tuple[Device, ...]:
    """Devices the last run names, with the free and total memory it prints for them."""
    run = last_run(events)
    described = {e.name: e.description for e in run.events if isinstance(e, DevicePrinted) and e.description}
    known = run_facts.gather(run).devices
    return tuple(
        Device(name, backend_of(name) or "", described.get(name, ""), total, free, DeviceSource.LOG)
        for name, (free, total) in known.items()
    )


def _commanded(events: Sequence[LogEvent]) -> LaunchConfig | None:
    """The last command line that can be read; a wrapper's runner counts as llama-server."""
    for event in reversed([e for e in events if isinstance(e, CommandSeen)]):
        if event.text.startswith("Namespace("):
            return _koboldcpp(event.text)
        text = _QUOTED_END.sub("", _TRAILING.sub("", event.text))
        text = _RUNNER.sub("llama-server", text)
        try:
            config = parse_argv(split_command(text))
        except (KvStudioError, ValueError):
            continue
        if config.model_path or config.typed():
            return config
    return None


def _koboldcpp(text: str) -> LaunchConfig:
    """The options KoboldCpp prints as a Python Namespace."""

    def value(*names: str) -> str | None:
        for name in names:
            if match := re.search(rf"\b{name}=\[?(?:'([^']*)'|(-?\d+|True|False))", text):
                return match[1] if match[1] is not None else match[2]
        return None

    layers, batch = value("gpulayers"), value("batchsize", "blasbatchsize")
    split = re.search(r"tensor_split=\[([\d., ]+)\]", text)
    return LaunchConfig(
        program="koboldcpp",
        model_path=(value("model_param", "model") or "").replace("\\\\", "\\"),
        n_ctx=int(value("contextsize") or 0) or None,
        n_gpu_layers=int(layers) if layers is not None else None,
        n_ubatch=int(batch) if batch is not None else None,
        flash_attn={"True": "on", "False": "off"}.get(value("flashattention") or ""),
        tensor_split=tuple(float(part) for part in split[1].split(",") if part.strip()) if split else None,
        mmproj=value("mmproj") or None,
        model_draft=value("draftmodel") or None,
    )


def _printed(events: Sequence[LogEvent]) -> dict[str, Any]:
    """LaunchConfig fields that printed lines state; the main model speaks, not a draft loaded after it."""
    found: dict[str, Any] = {}
    for event in events:
        if isinstance(event, ConfigPrinted):
            _parameter(event, found)
        elif isinstance(event, ModelSeen) and event.role == "model":
            found.setdefault("model_path", event.path)
        elif isinstance(event, CachePrinted) and event.kind == "kv":
            for name, value in (("cache_type_k", event.k_type), ("cache_type_v", event.v_type)):
                if value in CACHE_TYPES:
                    found.setdefault(name, value)
        elif isinstance(event, OffloadPrinted):
            found.setdefault("n_gpu_layers", -2 if event.offloaded >= event.total else event.offloaded)
    return found


def _parameter(event: ConfigPrinted, found: dict[str, Any]) -> None:
    if event.key in _NUMBERS and (match := re.match(r"\d{1,12}", event.value)):
        found.setdefault(_NUMBERS[event.key], int(match[0]))
    elif event.key == "flash_attn" and event.value in _FLASH:
        found.setdefault("flash_attn", _FLASH[event.value])
    elif event.key == "kv_unified" and event.value in _BOOL:
        found.setdefault("kv_unified", _BOOL[event.value])


def _program(lines: Sequence[LogLine]) -> str:
    """llama-server unless only lines of another tool are there."""
    for line in lines:
        if line.message.startswith(("srv ", "slot ", "que ")):
            return "llama-server"
        if line.message.startswith(("llama_perf_", "sampler seed", "== Running in interactive mode")):
            return "llama-cli"
    return "llama-server"
