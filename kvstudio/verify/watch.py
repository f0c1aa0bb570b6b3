"""Bytes of a running launch to what was seen of it: lines, events, phases with times, buffers; safe across threads."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kvstudio.runlog.lines import LineReader
from kvstudio.runlog.parse import LogParser
from kvstudio.runlog.values import LogEvent, LogLine, Phase, PhaseReached
from kvstudio.verify.printed import PrintedBuffers
from kvstudio.verify.values import Pause, PrintedBuffer

_T = TypeVar("_T")

_ORDER = {phase: i for i, phase in enumerate(Phase)}
PHASE_NAMES = {
    Phase.FIT: "fitting to free memory",
    Phase.WEIGHTS: "loading the weights",
    Phase.KV: "allocating the KV cache",
    Phase.RS: "allocating the recurrent state",
    Phase.COMPUTE: "reserving compute buffers",
    Phase.WARMUP: "the warm-up",
    Phase.LISTENING: "getting ready to answer",
    Phase.GENERATE: "the first answer",
    Phase.REPEAT: "the repeated answers",
}


#: Phases in which memory is allocated and filled, and how long a silence there is worth telling, in seconds.
ALLOCATING = (Phase.FIT, Phase.WEIGHTS, Phase.KV, Phase.RS, Phase.COMPUTE, Phase.WARMUP)
PAUSE_S = 1.0
_MOST_PAUSES = 100


class BothEnds(Generic[_T]):
    """A sequence of any length in bounded memory: the first `n` and the last `n` things."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._first: list[_T] = []
        self._last: deque[_T] = deque(maxlen=n)

    def extend(self, things: Iterable[_T]) -> None:
        for thing in things:
            (self._first if len(self._first) < self._n else self._last).append(thing)

    def all(self) -> tuple[_T, ...]:
        return (*self._first, *self._last)


class Watch:
    """What is known of a launch so far.

    `feed` comes from the reader thread and `reach` from the requests thread; `take` hands the news to the thread that
    shows them. `on_phase_began` is called at once, for the clock of the phase.
    """

    def __init__(self, on_phase_began: Callable[[Phase], None], keep_lines: int = 20_000) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._reader, self._parser = LineReader(), LogParser()
        self._lines: BothEnds[LogLine] = BothEnds(keep_lines)
        self._events: BothEnds[LogEvent] = BothEnds(keep_lines)
        self._printed = PrintedBuffers()
        self._phases: dict[Phase, tuple[str, float]] = {}
        self._new_lines: list[LogLine] = []
        self._new_phases: list[tuple[Phase, str, float]] = []
        self._on_phase_began = on_phase_began
        self._last_line: tuple[int, float] | None = None
        self._pauses: list[Pause] = []

    def begin(self) -> None:
        """The launch starts now: times count from here."""
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def feed(self, chunk: bytes) -> None:
        with self._lock:
            began = self._add(self._reader.feed(chunk))
        self._tell(began)

    def close(self) -> None:
        """The last line, which may have no line end."""
        with self._lock:
            self._add(self._reader.close())

    def reach(self, phase: Phase, done: bool) -> None:
        """A phase that no line tells of began or is through."""
        with self._lock:
            began = self._reach(phase, done)
        self._tell([phase] if began else [])

    def fail(self, phase: Phase) -> None:
        """Mark where it ended: no later phase has begun."""
        with self._lock:
            _, at = self._phases.get(phase, ("", self.seconds))
            for earlier, (state, began) in self._phases.items():
                if state == "running" and earlier is not phase:
                    self._set(earlier, "done", began)
            self._set(phase, "failed", at)

    def take(self) -> tuple[tuple[LogLine, ...], tuple[tuple[Phase, str, float], ...]]:
        """Lines and phase changes since the last call."""
        with self._lock:
            lines, phases = tuple(self._new_lines), tuple(self._new_phases)
            self._new_lines.clear()
            self._new_phases.clear()
        return lines, phases

    def lines(self) -> tuple[LogLine, ...]:
        with self._lock:
            return self._lines.all()

    def events(self) -> tuple[LogEvent, ...]:
        with self._lock:
            return self._events.all()

    def pauses(self) -> tuple[Pause, ...]:
        """Where no line came for a while although memory was at work."""
        with self._lock:
            return tuple(self._pauses)

    def buffers(self) -> tuple[PrintedBuffer, ...]:
        with self._lock:
            return self._printed.buffers

    def printed_per_device(self) -> dict[str, int]:
        with self._lock:
            return self._printed.per_device()

    def phases(self) -> tuple[tuple[Phase, str, float], ...]:
        """(phase, `running`, `done` or `failed`, seconds after the start), in order.

        A line may be read after the server was already seen to answer: by then the phase it tells of had begun.
        """
        with self._lock:
            ready = self._phases.get(Phase.LISTENING, ("", float("inf")))[1]
            return tuple(
                (phase, state, min(at, ready) if _ORDER[phase] < _ORDER[Phase.LISTENING] else at)
                for phase, (state, at) in ((p, self._phases[p]) for p in Phase if p in self._phases)
            )

    def reached(self) -> Phase | None:
        """The furthest phase that began."""
        with self._lock:
            return max(self._phases, key=_ORDER.__getitem__, default=None)

    def _note_pause(self, lines: tuple[LogLine, ...]) -> None:
        if not lines:
            return
        now = self.seconds
        phase = max(self._phases, key=_ORDER.__getitem__, default=None)
        if self._last_line is not None and phase in ALLOCATING and len(self._pauses) < _MOST_PAUSES:
            number, at = self._last_line
            if now - at >= PAUSE_S:
                self._pauses.append(Pause(number, at, now - at, phase))
        self._last_line = lines[-1].number, now

    def _add(self, lines: tuple[LogLine, ...]) -> list[Phase]:
        self._note_pause(lines)
        events = self._parser.feed(lines)
        self._lines.extend(lines)
        self._new_lines.extend(lines)
        self._events.extend(events)
        self._printed.feed(events)
        # The requests' own phases are told by whoever asks; a log line about a slot must not begin them again.
        told = [e for e in events if isinstance(e, PhaseReached) and _ORDER[e.phase] < _ORDER[Phase.GENERATE]]
        return [event.phase for event in told if self._reach(event.phase, event.done)]

    def _reach(self, phase: Phase, done: bool) -> bool:
        """Note a phase; True when it has just begun as the furthest one."""
        state, at = self._phases.get(phase, ("", self.seconds))
        newest = not self._phases or _ORDER[phase] > max(_ORDER[p] for p in self._phases)
        if state == "" or (state == "running" and done):
            if newest:
                for earlier, (earlier_state, began) in self._phases.items():
                    if earlier_state == "running":
                        self._set(earlier, "done", began)
            # A line that speaks of an earlier phase than the one at work tells of something that is over.
            self._set(phase, "done" if done or not (newest or state == "running") else "running", at)
        return newest

    def _set(self, phase: Phase, state: str, at: float) -> None:
        self._phases[phase] = (state, at)
        self._new_phases.append((phase, state, at))

    def _tell(self, began: list[Phase]) -> None:
        if began:
            self._on_phase_began(began[-1])
