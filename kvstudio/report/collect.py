"""What was observed -> the value of every field a maintainer asks for; nothing is made up for one that is not known."""

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from kvstudio.advise.record import Record
from kvstudio.budget.values import EffectiveConfig
from kvstudio.devices.values import Device, Machine
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.argv import format_command
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.report.fields import ASKED
from kvstudio.report.logfacts import LogFacts
from kvstudio.report.values import Field
from kvstudio.units import MIB
from kvstudio.verify.values import Run, RunOutcome

#: Names the upstream form uses for the backends that llama.cpp's device names begin with.
BACKENDS = {
    "CUDA": "CUDA",
    "ROCm": "HIP",
    "HIP": "HIP",
    "MUSA": "Musa",
    "Vulkan": "Vulkan",
    "MTL": "Metal",
    "Metal": "Metal",
    "SYCL": "SYCL",
    "CANN": "CANN",
    "OpenCL": "OpenCL",
    "GPUOpenCL": "OpenCL",
    "OPENVINO": "OpenVINO",
    "OpenVINO": "OpenVINO",
    "RPC": "RPC",
    "WebGPU": "WebGPU",
    "HTP": "Hexagon",
    "BLAS": "BLAS",
    "AMX": "AMX",
    "CPU": "CPU",
}
NO_GPU = "no GPU"
_HUB = re.compile(r"models--(?P<owner>[^/\\]+?)--(?P<name>[^/\\]+)[/\\]+snapshots[/\\]+(?P<revision>[0-9a-f]{7,40})")
_HF_FLAG = re.compile(r"^(?:-hf|-hfr|--hf-repo)$")
_REPO_KEYS = (
    "general.repo_url",
    "general.source.huggingface.repository",
    "general.source.repo_url",
    "general.source.url",
    "general.url",
)
_REVISION_KEYS = ("general.source.huggingface.revision", "general.commit_hash", "general.revision")


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything a report draws from.

    `machine` is None for a log from elsewhere. `command_known`: the settings are those of a command that was typed;
    else they are what a log printed. `from_log`: show that command as it was typed, without what was read beside it.
    """

    config: LaunchConfig
    facts: LogFacts
    command_known: bool = True
    from_log: bool = False
    model: ModelInfo | None = None
    machine: Machine | None = None
    binary: Binary | None = None
    effective: EffectiveConfig | None = None
    offloaded: tuple[int, int] | None = None
    diagnosis: Diagnosis | None = None
    run: Run | None = None
    earlier: tuple[Run, ...] = ()
    n_lines: int = 0
    dropped_lines: int = 0
    chosen: tuple[str, ...] = ()
    walk: Record | None = None


def collect(seen: Observed) -> tuple[Field, ...]:
    """Every field in order; `value` is None where nothing was observed."""
    return tuple(Field(a.id, a.label, _COLLECTORS[a.id](seen) or None, a.how) for a in ASKED)


def exact_command(seen: Observed) -> str | None:
    """The command as typed, variables first; None when a log does not tell it."""
    if not seen.command_known:
        return None
    if seen.from_log:
        words = [word for arg in seen.config.layout for word in arg.tokens]
        variables = [f"{name}={shlex.quote(value)}" for name, value in seen.config.env]
        return " ".join((*variables, shlex.join((seen.config.program, *words))))
    return format_command(seen.config)


def ran_command(seen: Observed) -> str | None:
    """What the test launch really started, when that differs from what was typed."""
    if seen.run is None or not seen.run.argv:
        return None
    variables = [f"{name}={shlex.quote(value)}" for name, value in seen.run.env]
    return " ".join((*variables, shlex.join(seen.run.argv)))


def devices(seen: Observed) -> tuple[Device, ...]:
    """Devices the launch could use: chosen ones first, else all."""
    known = seen.machine.devices if seen.machine else ()
    return tuple(d for d in known if d.name in seen.chosen) or known


def free_before(seen: Observed) -> tuple[tuple[str, int], ...]:
    """Device name and bytes free right before the launch."""
    if seen.run is not None and seen.run.free_before:
        return seen.run.free_before
    if seen.facts.free_mib:
        return tuple((name, mib * MIB) for name, mib in seen.facts.free_mib.items())
    return tuple((d.name, d.free_bytes) for d in devices(seen) if d.free_bytes is not None)


def mib(n_bytes: int) -> str:
    """MiB as llama.cpp's device lines have them."""
    return f"{n_bytes / MIB:.0f} MiB"


def file_name(path: str) -> str:
    """The last part of a path of either kind."""
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name


def _version(seen: Observed) -> str | None:
    if seen.binary is not None:
        number = str(seen.binary.build) if seen.binary.build else seen.binary.version
        commit = f" ({seen.binary.commit})" if seen.binary.commit and seen.binary.commit not in number else ""
        built = f"\nbuilt with {seen.binary.compiler}" if seen.binary.compiler else ""
        return f"version: {number}{commit}{built}"
    facts = seen.facts
    if not facts.build:
        return None
    target = f" for {facts.target}" if facts.target else ""
    built = f"\nbuilt with {facts.compiler}{target}" if facts.compiler else ""
    commit = f" ({facts.commit})" if facts.commit else ""
    return f"version: {facts.build}{commit}{built}"


def _os(seen: Observed) -> str | None:
    if seen.machine is not None and seen.machine.system:
        return seen.machine.system
    return f"{seen.facts.os} (from the build line of the log)" if seen.facts.os else None


def _cpu(seen: Observed) -> str | None:
    name = (seen.machine.cpu if seen.machine else "") or seen.facts.cpu
    total = seen.machine.host.total_bytes if seen.machine else None
    return f"{name}, {total / MIB / 1024:.1f} GiB RAM" if name and total else name


def _gpus(seen: Observed) -> str | None:
    if seen.machine is not None:
        if not seen.machine.devices:
            return "none"
        return "; ".join(_device_words(d) for d in seen.machine.devices)
    return "; ".join(f"{name}: {text}" for name, text in seen.facts.gpus.items())


def _device_words(device: Device) -> str:
    size = f", {mib(device.total_bytes)}" if device.total_bytes is not None else ""
    return f"{device.name}: {device.description or device.backend}{size}"


def _driver(seen: Observed) -> str | None:
    if seen.machine is not None and not seen.machine.devices:
        return NO_GPU
    return ", ".join(dict.fromkeys(d.driver for d in devices(seen) if d.driver)) or seen.facts.driver


def _backend(seen: Observed) -> str | None:
    names = [d.backend for d in devices(seen)] or list(seen.facts.backends)
    names += [re.split(r"[\d\[]", name)[0] for name in seen.facts.gpus]
    if seen.diagnosis is not None and seen.diagnosis.backend:
        names.append(seen.diagnosis.backend)
    if not names and seen.machine is not None:
        names = ["CPU"]
    names = names or list(seen.binary.backends if seen.binary else ())
    return ", ".join(dict.fromkeys(BACKENDS.get(name, name) for name in names))


def _build_options(seen: Observed) -> str | None:
    return f"as printed: {seen.facts.system_info}" if seen.facts.system_info else None


def _model_source(seen: Observed) -> str | None:
    said = _metadata(seen)
    found = [said[key] for key in _REPO_KEYS if said.get(key)][:1]
    found += [f"revision {said[key]}" for key in _REVISION_KEYS if said.get(key)][:1]
    for path in _model_paths(seen):
        if match := _HUB.search(path):
            found.append(f"{match['owner']}/{match['name']}, revision {match['revision']}")
            break
    if repo := _hub_flag(seen.config):
        found.append(f"{repo} (from the command)")
    if not found and (base := said.get("general.base_model.0.repo_url")):
        found.append(f"base model {base}; the repository of the GGUF itself is not in the file")
    return "; ".join(dict.fromkeys(found))


def _metadata(seen: Observed) -> dict[str, str]:
    if seen.model is not None:
        return {k: v for k, v in seen.model.header.metadata.items() if isinstance(v, str) and v}
    return seen.facts.metadata


def _hub_flag(config: LaunchConfig) -> str | None:
    for arg in config.layout:
        if len(arg.tokens) > 1 and _HF_FLAG.match(arg.tokens[0]):
            return arg.tokens[1]
    return None


def _model_paths(seen: Observed) -> list[str]:
    shards = [s.path for s in seen.model.header.shards] if seen.model else []
    return shards or [p for p in (seen.config.model_path, *seen.facts.model_files) if p]


def gguf_names(seen: Observed) -> tuple[str, ...]:
    """File names of the model, every shard; of a draft and a projector too where they were given."""
    extra = (seen.config.mmproj, seen.config.model_draft)
    return tuple(dict.fromkeys(file_name(p) for p in (*_model_paths(seen), *(e for e in extra if e))))


def _n_ctx(seen: Observed) -> str | None:
    printed = seen.facts.settings.get("n_ctx")
    value = printed or (str(seen.effective.n_ctx) if seen.effective else None)
    trained = seen.model.n_ctx_train if seen.model else 0
    typed = f"-c {seen.config.n_ctx}" if _is_typed(seen, "n_ctx") else "-c not given"
    if value is None:
        return _only_config(seen, seen.config.n_ctx, typed)
    notes = [typed] if seen.command_known else []
    notes += [f"trained for {trained}"] if trained else []
    return f"{value} ({', '.join(notes)})" if notes else value


def _n_parallel(seen: Observed) -> str | None:
    printed = seen.facts.settings.get("n_seq_max")
    value = printed or (str(seen.effective.n_parallel) if seen.effective else None)
    typed = f"-np {seen.config.n_parallel}" if _is_typed(seen, "n_parallel") else "-np not given"
    if value is None:
        return _only_config(seen, seen.config.n_parallel, typed)
    unified = seen.facts.settings.get("kv_unified") or (
        str(seen.effective.kv_unified).lower() if seen.effective else None
    )
    shared = {"true": ", unified", "1": ", unified"}.get(unified or "", "")
    slots = f"{value} slot{'' if value == '1' else 's'}{shared}"
    return f"{slots} ({typed})" if seen.command_known else slots


def _cache_type(letter: str) -> Callable[[Observed], str | None]:
    name = f"cache_type_{letter.lower()}"

    def value(seen: Observed) -> str | None:
        printed = seen.facts.settings.get(letter)
        known = getattr(seen.effective, name) if seen.effective else getattr(seen.config, name)
        return printed or known

    return value


def _n_gpu_layers(seen: Observed) -> str | None:
    layers = seen.config.n_gpu_layers
    typed = f"-ngl {_layers(layers)}" if layers is not None and _is_typed(seen, "n_gpu_layers") else "-ngl not given"
    printed = seen.facts.settings.get("offloaded")
    if printed is None and seen.offloaded is not None:
        printed = f"{seen.offloaded[0]}/{seen.offloaded[1]}"
    if printed is None:
        return _only_config(seen, seen.config.n_gpu_layers, typed) or (typed if seen.command_known else None)
    on_gpu, whole = printed.split("/")
    words = f"{on_gpu} of {whole} layers on GPU"
    if seen.machine is not None and not seen.machine.devices:
        # llama.cpp counts layers as offloaded whether or not there is anything to take them.
        words = f"no GPU; the log counts {on_gpu} of {whole} layers as offloaded"
    return f"{words} ({typed})" if seen.command_known else words


def _is_typed(seen: Observed, name: str) -> bool:
    """Whether a setting stands in the command; beside the command of a log there are settings the log printed."""
    if getattr(seen.config, name) is None:
        return False
    return not seen.from_log or any(arg.field == name for arg in seen.config.layout)


def _only_config(seen: Observed, value: int | None, typed: str) -> str | None:
    """What was typed, or what a log printed; None where neither says anything."""
    if value is None:
        return None
    return typed if seen.command_known else _layers(value)


def _layers(n: int) -> str:
    return {-1: "auto", -2: "all"}.get(n, str(n))


def _split(seen: Observed) -> str | None:
    if not seen.command_known:
        return None
    mode = seen.config.split_mode or (seen.effective.split_mode if seen.effective else "layer")
    given = "" if seen.config.split_mode else " (-sm not given)"
    ratio = seen.config.tensor_split
    return f"{mode}{given}, " + ("-ts not given" if ratio is None else "-ts " + ",".join(f"{r:g}" for r in ratio))


def _free_memory(seen: Observed) -> str | None:
    totals = {d.name: d.total_bytes for d in devices(seen)}
    words = []
    for name, free in free_before(seen):
        total = totals.get(name)
        shown = "RAM" if name == "Host" else name
        words.append(f"{shown} {mib(free)}" + (f" of {mib(total)}" if total else ""))
    host = seen.machine.host if seen.machine else None
    if host is not None and host.free_bytes is not None and not any(n == "Host" for n, _ in free_before(seen)):
        words.append(f"RAM {mib(host.free_bytes)}")
    return ", ".join(words)


def _allocator_error(seen: Observed) -> str | None:
    key = seen.diagnosis.key_line if seen.diagnosis else None
    if key is not None:
        return f"{key.number}: {key.text}"
    if seen.run is not None and seen.run.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED):
        return "none, it started"
    return None


def _log(seen: Observed) -> str | None:
    if not seen.n_lines:
        return None
    dropped = f", {seen.dropped_lines} more not kept" if seen.dropped_lines else ""
    return f"{seen.n_lines} lines{dropped}"


def _known_good(seen: Observed) -> str | None:
    """An earlier run of the same settings with an older build that worked."""
    binary = seen.run.binary if seen.run else None
    if seen.run is None or binary is None:
        return None
    for other in _worked(seen.earlier):
        theirs = other.binary
        same = other.config.evolve(program="") == seen.run.config.evolve(program="")
        if theirs is None or not same or not theirs.build or not binary.build:
            continue
        if theirs.build < binary.build:
            commit = f" ({theirs.commit})" if theirs.commit else ""
            return f"b{theirs.build}{commit}: the same command works, run {other.number}"
    return None


def _worked(runs: Iterable[Run]) -> list[Run]:
    good = [r for r in runs if r.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED) and r.binary is not None]
    return sorted(good, key=lambda r: -((r.binary.build or 0) if r.binary else 0))


_COLLECTORS: dict[str, Callable[[Observed], str | None]] = {
    "version": _version,
    "binary_path": lambda seen: seen.binary.path if seen.binary else None,
    "os": _os,
    "cpu": _cpu,
    "gpus": _gpus,
    "driver": _driver,
    "backend": _backend,
    "build_options": _build_options,
    "model_source": _model_source,
    "gguf": lambda seen: ", ".join(gguf_names(seen)),
    "n_ctx": _n_ctx,
    "n_parallel": _n_parallel,
    "cache_type_k": _cache_type("K"),
    "cache_type_v": _cache_type("V"),
    "n_gpu_layers": _n_gpu_layers,
    "split": _split,
    "free_memory": _free_memory,
    "command": exact_command,
    "allocator_error": _allocator_error,
    "log": _log,
    "known_good": _known_good,
}
