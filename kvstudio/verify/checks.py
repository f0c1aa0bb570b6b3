"""The six checks of a real fix, each with the evidence for its answer."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kvstudio.budget.values import Budget
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import ConfigPrinted, LogEvent, LogLine, OffloadPrinted
from kvstudio.units import format_bytes
from kvstudio.verify.endpoints import Reply
from kvstudio.verify.requests import Talk
from kvstudio.verify.values import Check, PrintedBuffer

#: llama.cpp rounds a context up to full blocks of this many cells.
_CELL_BLOCK = 256
_BUILD_LINE = re.compile(r"build(?:_info)?\s*[:=]?\s*b?(\d+)\s*[(-]\s*([0-9a-f]{6,40})\b")
_BUILD_INFO = re.compile(r"b?(\d+)-([0-9a-f]{6,40})")
#: Its figure is runs or tokens; the prompt's own line says `prompt eval time`.
_EVAL_TIME = re.compile(r"(?<!prompt )\beval time =.*?/\s*(\d+) (?:runs|tokens)")
#: `n_gpu_layers` below this means all layers; -1 lets llama.cpp choose.
_AUTO = -1


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything a launch has shown."""

    config: LaunchConfig
    binary: Binary | None
    lines: tuple[LogLine, ...]
    events: tuple[LogEvent, ...]
    buffers: tuple[PrintedBuffer, ...]
    talk: Talk
    budget: Budget | None = None
    has_server: bool = True


def check_all(seen: Seen) -> tuple[Check, ...]:
    """The six, in the order a launch answers them."""
    return (
        check_binary(seen),
        check_buffers(seen),
        check_context(seen),
        check_placement(seen),
        check_generation(seen),
        check_repeated(seen),
    )


def check_binary(seen: Seen) -> Check:
    """The program that ran is the one that was meant: its own build line against what `--version` said."""
    told = _told_build(seen)
    if seen.binary is None:
        return Check("binary", None, "no binary was looked at before the launch")
    meant = f"{seen.binary.path} ({seen.binary.version or seen.binary.title})"
    if told is None:
        return Check("binary", True if seen.lines else None, f"{meant} was started; it printed no build line")
    number, commit, line = told
    says = f"{meant} says build {number} ({commit})"
    same = _same_build(seen.binary, number, commit)
    return Check("binary", same, says if same else f"{says}, which is another build", (line,) if line else ())


def _told_build(seen: Seen) -> tuple[int, str, int] | None:
    for line in seen.lines[:200]:
        found = _BUILD_LINE.search(line.message)
        if found:
            return int(found[1]), found[2], line.number
    found = _BUILD_INFO.fullmatch(seen.talk.build_info or "")
    return (int(found[1]), found[2], 0) if found else None


def _same_build(binary: Binary, number: int, commit: str) -> bool:
    if binary.commit:
        n = min(len(binary.commit), len(commit))
        return binary.commit[:n] == commit[:n]
    return binary.build is None or binary.build == number or str(number) in binary.version


def check_buffers(seen: Seen) -> Check:
    """The caches this model needs, and the compute buffers, were allocated and printed."""
    printed = {b.kind for b in seen.buffers}
    if not printed:
        return Check("buffers", None if not seen.talk.listening else False, "no buffer was printed")
    needed = _needed_caches(seen.budget) or ({"kv", "rs"} & printed)
    missing = sorted((needed | {"model"} | ({"compute"} if seen.talk.listening else set())) - printed)
    parts = [f"{kind} {format_bytes(sum(b.bytes for b in seen.buffers if b.kind == kind))}" for kind in _order(printed)]
    if missing:
        reached = False if seen.talk.listening else None
        return Check("buffers", reached, f"not printed: {', '.join(missing)}; printed: {', '.join(parts)}", _at(seen))
    if not seen.talk.listening:
        return Check("buffers", None, f"printed before the end: {', '.join(parts)}", _at(seen))
    return Check("buffers", True, ", ".join(parts), _at(seen))


def _at(seen: Seen) -> tuple[int, ...]:
    return tuple(b.line for b in seen.buffers if b.kind in ("kv", "rs", "compute"))


def _order(kinds: Iterable[str]) -> list[str]:
    order = ("model", "kv", "rs", "compute", "output")
    return sorted(kinds, key=lambda kind: order.index(kind) if kind in order else len(order))


def _needed_caches(budget: Budget | None) -> set[str]:
    if budget is None:
        return set()
    places = (*budget.devices, budget.host)
    return {
        kind
        for kind, there in (("kv", any(p.kv_bytes for p in places)), ("rs", any(p.rs_bytes for p in places)))
        if there
    }


def check_context(seen: Seen) -> Check:
    """Context and slots are at least what was asked for."""
    figures = _context_figures(seen.events)
    n_ctx, n_slots = figures.get("n_ctx"), figures.get("n_seq_max")
    lines = tuple(line for _, line in filter(None, (n_ctx, n_slots, figures.get("n_ctx_seq"))))
    if n_ctx is None:
        return Check("context", None, "no context size was printed")
    per_slot = f", {figures['n_ctx_seq'][0]} per slot" if "n_ctx_seq" in figures else ""
    slots = seen.talk.n_slots or (n_slots[0] if n_slots else None)
    got = f"n_ctx {n_ctx[0]}{per_slot}, {slots or '?'} slot{'' if slots == 1 else 's'}"
    wrong = _context_wrong(seen, n_ctx[0], slots)
    if wrong:
        return Check("context", False, f"{got}; asked for {wrong}", lines)
    return Check("context", True, f"{got}{_context_asked(seen, n_ctx[0])}", lines)


def _context_figures(events: tuple[LogEvent, ...]) -> dict[str, tuple[int, int]]:
    """Key -> (value, line) of the first context that printed them: the model's own, before any draft's."""
    figures: dict[str, tuple[int, int]] = {}
    for event in events:
        if isinstance(event, ConfigPrinted) and event.key in ("n_ctx", "n_ctx_seq", "n_seq_max"):
            value = event.value.strip()
            if value.isdigit():
                figures.setdefault(event.key, (int(value), event.line))
    return figures


def _context_wrong(seen: Seen, n_ctx: int, n_slots: int | None) -> str:
    asked, slots = seen.config.n_ctx, seen.config.n_parallel
    if asked and n_ctx < asked - max(1, n_slots or 1) * _CELL_BLOCK:
        return f"n_ctx {asked}"
    if slots is not None and slots > 0 and n_slots is not None and n_slots != slots:
        return f"{slots} slots"
    trained_full = seen.config.n_ctx == 0 and seen.budget is not None
    if trained_full and seen.budget is not None and n_ctx < seen.budget.config.n_ctx:
        return f"the whole context the model was trained for ({seen.budget.config.n_ctx})"
    return ""


def _context_asked(seen: Seen, n_ctx: int) -> str:
    if seen.config.n_ctx:
        return ""
    if seen.budget is not None and seen.budget.config.n_ctx != n_ctx:
        return f"; no context was asked for, llama.cpp chose it (before fitting: {seen.budget.config.n_ctx})"
    return "; no context was asked for, llama.cpp chose it"


def check_placement(seen: Seen) -> Check:
    """As many layers on devices, and on the devices, as was meant."""
    offload = next((e for e in seen.events if isinstance(e, OffloadPrinted)), None)
    devices = tuple(dict.fromkeys(b.device for b in seen.buffers if b.device is not None))
    on = f" on {', '.join(devices)}" if devices else ""
    if offload is None:
        if not any(b.kind == "model" for b in seen.buffers):
            return Check("placement", None, "no placement was printed")
        wanted = seen.config.n_gpu_layers
        asked = wanted is not None and wanted != 0 and wanted != _AUTO
        says = "everything is in host memory" if not devices else f"buffers{on}"
        return Check(
            "placement", bool(devices) or not asked, says + ("; no device was used" if asked and not on else "")
        )
    got = f"{offload.offloaded} of {offload.total} layers offloaded, buffers{on}"
    if not on:
        got = "no device is in use, everything is in host memory"
        got += (
            f" (the log counts {offload.offloaded} of {offload.total} layers as offloaded)" if offload.offloaded else ""
        )
    wrong = _placement_wrong(seen, offload, devices)
    return Check("placement", not wrong, got + (f"; {wrong}" if wrong else ""), (offload.line,))


def _placement_wrong(seen: Seen, offload: OffloadPrinted, devices: tuple[str, ...]) -> str:
    wanted = seen.config.n_gpu_layers
    if missing := _silent_servers(seen, devices):
        return missing
    if wanted is not None and wanted != _AUTO:
        expected = offload.total if wanted < _AUTO else min(wanted, offload.total)
        if offload.offloaded != expected:
            return f"asked for {expected}"
    if offload.offloaded and not devices:
        # Without any device llama.cpp still prints its layers as offloaded; they are in host memory then.
        asked = wanted is not None and wanted != _AUTO
        return "layers on a device were asked for" if asked else _missing_device(seen, devices)
    if seen.config.device:
        others = [d for d in devices if not any(_is_named(d, name) for name in seen.config.device)]
        if others:
            return f"{', '.join(others)} was not asked for"
    return _missing_device(seen, devices) if wanted is not None and wanted != _AUTO else ""


def _silent_servers(seen: Seen, devices: tuple[str, ...]) -> str:
    """Remote servers that were to be used and hold nothing; without layers to give away none of them would."""
    if seen.config.n_gpu_layers == 0 or not seen.config.rpc:
        return ""
    silent = [server for server in seen.config.rpc if not any(f"[{server}]" in device for device in devices)]
    refused = [s for s in silent if any("Failed to connect" in line.text and s in line.text for line in seen.lines)]
    if refused:
        return f"{', '.join(refused)} could not be reached, so llama.cpp went on without"
    return f"nothing was placed on {', '.join(silent)}" if silent and not devices else ""


def _is_named(device: str, name: str) -> bool:
    """Whether `-dev name` means the device of a buffer; remote ones are counted within their server there."""
    remote = "[" in device and name.startswith("RPC")
    return device == name or remote or device.startswith(f"{name}[")


def _missing_device(seen: Seen, devices: tuple[str, ...]) -> str:
    """A device the budget puts layers on that holds nothing; only where llama.cpp was not free to choose."""
    if seen.budget is None:
        return ""
    meant = [d.name for d in seen.budget.devices if d.model_bytes]
    short = {name.partition("[")[0] for name in devices}
    missing = [name for name in meant if name not in devices and name.partition("[")[0] not in short]
    return f"{', '.join(missing)} holds nothing" if missing else ""


def check_generation(seen: Seen) -> Check:
    """A prompt went through generation."""
    if not seen.has_server:
        return _generation_by_log(seen)
    first, looked = seen.talk.first, seen.talk.looked
    if first is None:
        return Check("generation", None, "no prompt was sent")
    says = _reply_says(first) + (f"; with a picture: {_reply_says(looked)}" if looked else "")
    return Check("generation", first.ok and (looked is None or looked.ok), says)


def _reply_says(reply: Reply) -> str:
    return f"{reply.says}, {reply.seconds:.1f} s at {reply.endpoint}"


def _generation_by_log(seen: Seen) -> Check:
    """For a program that is not a server: its own count of generated tokens."""
    for line in reversed(seen.lines):
        found = _EVAL_TIME.search(line.message)
        if found:
            n = int(found[1])
            return Check("generation", n > 0, f"{n} tokens generated, as the program counts", (line.number,))
    return Check("generation", None, "the program did not print how much it generated")


def check_repeated(seen: Seen) -> Check:
    """Repeated, concurrent and context-filling requests survived."""
    names = {"repeated": "in a row", "concurrent": "at once", "fill": "filling the context"}
    tried = [(names[kind], replies) for kind, replies in seen.talk.groups if kind in names and replies]
    if not tried:
        return Check("repeated", None, "; ".join(("no request was repeated", *seen.talk.left_out)))
    says = "; ".join((*(_group_says(name, replies) for name, replies in tried), *seen.talk.left_out))
    return Check("repeated", all(reply.ok for _, replies in tried for reply in replies), says)


def _group_says(name: str, replies: tuple[Reply, ...]) -> str:
    good = sum(reply.ok for reply in replies)
    bad = next((f" ({reply.says})" for reply in replies if not reply.ok), "")
    if name == "filling the context" and good:
        return f"{name}: {_reply_says(replies[0])}"
    return f"{good} of {len(replies)} {name} answered{bad}"
