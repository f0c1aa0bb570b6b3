"""Numbered lines to typed events, a few microseconds a line."""

import re
from collections.abc import Iterable, Sequence

from kvstudio.runlog.facts import DeviceNames, Tables, facts, mib, size
from kvstudio.runlog.lookup import WORDS, Hints, Shapes, look
from kvstudio.runlog.patterns import matches
from kvstudio.runlog.sieve import Sieve
from kvstudio.runlog.signatures.row import Kind, Signature
from kvstudio.runlog.values import (
    AllocationFailed,
    BreakdownRow,
    BufferPrinted,
    CachePrinted,
    LogEvent,
    LogLine,
    Note,
    OffloadPrinted,
    Phase,
    PhaseReached,
)

#: Characters of a message that patterns look at; a longer message is read at both ends.
MAX_MESSAGE = 4096
#: Lines from which on a batch is sieved as one block.
MIN_BATCH = 8
#: Lines repeat when fewer than one in this many is new.
FEW = 10
_LAYER = {Kind.ALLOCATOR: "A", Kind.BUFFER: "B", Kind.PURPOSE: "C"}

_GLUED = re.compile(
    r"\\n(?=[a-z_~][\w~]*[:( ])"  # escaped line ends inside a wrapper's string
    r"|\r"
    r"|\s+(?=\d+\.\d{2}\.\d{3}\.\d{3} [DIWE] )"
    r"|\s{3,}(?:[DIWE] )?(?=(?:ggml|llama|llm|load|common|sched|srv|alloc|graph)_?\w*: )"
)
#: Without one of these a message holds no second one.
_GLUE = ("\\n", "\r", "\t", "\xa0", "   ", " I ", " E ", " W ", " D ")

_PHASES = {
    "at_fit": (Phase.FIT, False), "fit_done": (Phase.FIT, True), "fit_failed": (Phase.FIT, True),
    "at_weights": (Phase.WEIGHTS, False), "at_kv": (Phase.KV, False), "at_reserve": (Phase.COMPUTE, False),
    "at_warmup": (Phase.WARMUP, False), "listening": (Phase.LISTENING, True), "generated": (Phase.GENERATE, True),
}  # fmt: skip
_BUFFER_PHASES = {"model": Phase.WEIGHTS, "kv": Phase.KV, "rs": Phase.RS, "compute": Phase.COMPUTE}


class LogParser:
    """Reads lines as they come and gives out what they state."""

    def __init__(self) -> None:
        self._devices = DeviceNames()
        self._tables = Tables()
        self._sieve = Sieve(WORDS)
        self._shapes = Shapes()
        self._repeats = False

    def feed(self, lines: Iterable[LogLine]) -> tuple[LogEvent, ...]:
        """Events of these lines, in order."""
        events: list[LogEvent] = []
        lines = tuple(lines)
        known = self._shapes.n_dull
        candidates = lines if self._repeats else self._candidates(lines)
        for line in candidates:
            hints = self._shapes.look(line.message)
            if hints is not None:
                self._read(line.number, line.message, hints, events)
        if len(lines) >= MIN_BATCH:
            # Lines that the sieve lets through and that are like earlier ones are cheaper to compare with those.
            self._repeats = len(candidates) * 2 > len(lines) and (self._shapes.n_dull - known) * FEW < len(lines)
        return tuple(events)

    def _candidates(self, lines: tuple[LogLine, ...]) -> Sequence[LogLine]:
        """Lines that may hold a word; few lines are cheaper to ask one by one."""
        if len(lines) < MIN_BATCH:
            return lines
        block = "\n".join([line.message for line in lines]).encode("utf-8", "replace")
        if block.count(b"\n") != len(lines) - 1:
            # A wrapper's escaped line end inside a message.
            return lines
        chosen: list[LogLine] = []
        number = at = 0
        for start in self._sieve.starts(block):
            number += block.count(b"\n", at, start)
            at = start
            chosen.append(lines[number])
        return chosen

    def _read(self, number: int, message: str, hints: Hints, events: list[LogEvent]) -> None:
        if len(message) > MAX_MESSAGE:
            message = message[: MAX_MESSAGE * 3 // 4] + " ... " + message[-MAX_MESSAGE // 4 :]
        parts = _GLUED.split(message) if any(map(message.__contains__, _GLUE)) else (message,)
        if len(parts) == 1:
            self._read_part(number, message.strip(), hints, events)
            return
        for part in parts:
            of_part = look(part)
            if of_part is not None:
                self._read_part(number, part.strip(), of_part, events)

    def _read_part(self, number: int, message: str, hints: Hints, events: list[LogEvent]) -> None:
        if hints.facts or hints.listed or "|" in message:
            self._read_figures(number, message, events)
        for signature, groups in matches(message, hints.rows):
            events.append(_event(number, signature, groups))
            if signature.name in _PHASES:
                phase_name, done = _PHASES[signature.name]
                events.append(PhaseReached(number, phase_name, done))

    def _read_figures(self, number: int, message: str, events: list[LogEvent]) -> None:
        stated = facts(number, message)
        device = self._devices.read(number, message)
        rows = self._tables.read(number, message)
        for event in (*stated, *((device,) if device else ()), *rows):
            events.append(event)
            phase = _phase_of(event)
            if phase is not None:
                events.append(phase)


def parse(lines: Iterable[LogLine]) -> tuple[LogEvent, ...]:
    """All events of a finished log."""
    return LogParser().feed(lines)


def _phase_of(event: LogEvent) -> PhaseReached | None:
    if isinstance(event, BufferPrinted) and event.kind in _BUFFER_PHASES:
        return PhaseReached(event.line, _BUFFER_PHASES[event.kind], True)
    if isinstance(event, CachePrinted):
        return PhaseReached(event.line, Phase.RS if event.kind == "rs" else Phase.KV, True)
    if isinstance(event, OffloadPrinted):
        return PhaseReached(event.line, Phase.WEIGHTS, False)
    if isinstance(event, BreakdownRow):
        return PhaseReached(event.line, Phase.FIT, False)
    return None


def _event(number: int, signature: Signature, groups: dict[str, str]) -> LogEvent:
    if signature.kind in _LAYER:
        n_bytes, exact = _requested(groups)
        return AllocationFailed(
            number, _LAYER[signature.kind], signature.name, signature.backend, groups.get("buf"), n_bytes,
            int(groups["limit"]) if "limit" in groups else None, exact, tuple(groups.items()),
        )  # fmt: skip
    return Note(number, signature.name, _says(signature, groups), tuple(groups.items()))


def _requested(groups: dict[str, str]) -> tuple[int | None, bool]:
    if "bytes" in groups:
        return int(groups["bytes"]), True
    if "size" in groups:
        return size(groups["size"]), False
    return (mib(groups["mib"]), False) if "mib" in groups else (None, True)


class _Said(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def _says(signature: Signature, groups: dict[str, str]) -> str:
    said = signature.says.format_map(_Said({k: v[:200] for k, v in groups.items()}))
    # A reason that the line does not give is left out.
    return said.removesuffix(": ?")
