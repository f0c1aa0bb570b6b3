"""A log file, or its bytes, to a bounded set of lines, its events and its diagnosis."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvstudio.budget.values import Budget
from kvstudio.diagnose.diagnose import diagnose
from kvstudio.diagnose.values import Diagnosis
from kvstudio.runlog.lines import MAX_LINE, LineReader, make_line
from kvstudio.runlog.lookup import WORDS, look, may_vary, next_word, phrases
from kvstudio.runlog.parse import FEW, LogParser
from kvstudio.runlog.sieve import Sieve
from kvstudio.runlog.values import LogEvent, LogLine

CHUNK = 1 << 20
#: Files up to this size are read whole: every line is kept.
SMALL = 4 << 20
#: Lines kept of a large file: its first, its last, and those around the key line.
HEAD, TAIL, AROUND = 2000, 2000, 400
#: Lines alike but for digits are read this often; of more only the last is.
SAME = 400
MAX_SHAPES, MAX_KEPT = 50_000, 60_000
#: Lines unlike each other that may say the same are read this often, and then as many of the last.
SAID = 100
#: Count of a shape that no word is in.
DULL = -1
#: Of those of which only the whole line tells whether it says anything.
UNSURE = 5000
#: A line longer than MAX_LINE is read in windows: so many of the first and of the last that hold a word.
WINDOW, MAX_WINDOWS, MAX_BLOCK = 4096, 64, 4 << 20
#: Bytes on both sides of a place that may be part of a word: no word is as long.
LONGEST = 128
_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log as read. `lines` are all of it, or head, tail, event lines and the key line's surroundings when `cut`."""

    lines: tuple[LogLine, ...]
    events: tuple[LogEvent, ...]
    diagnosis: Diagnosis
    n_lines: int
    n_bytes: int
    cut: bool


def read_log(source: str | Path | bytes, budget: Budget | None = None) -> ReadLog:
    """Read and diagnose a log in bounded memory.

    Raises: OSError when the file cannot be read.
    """
    size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
    if size <= SMALL or _is_wide(source):
        return _whole(source, size, budget)
    return _scanned(source, size, budget)


def _chunks(source: str | Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        for start in range(0, len(source), CHUNK):
            yield source[start : start + CHUNK]
        return
    with open(source, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _is_wide(source: str | Path | bytes) -> bool:
    """UTF-16, as a Windows shell writes it: words cannot be searched for in its bytes."""
    first = next(_chunks(source), b"")[:2]
    return first in (b"\xff\xfe", b"\xfe\xff")


def _whole(source: str | Path | bytes, size: int, budget: Budget | None) -> ReadLog:
    reader, parser = LineReader(), LogParser()
    kept: list[LogLine] = []
    events: list[LogEvent] = []
    tail: list[LogLine] = []
    for lines in (*map(reader.feed, _chunks(source)), reader.close()):
        events.extend(parser.feed(lines))
        room = HEAD * 20 - len(kept)
        kept.extend(lines[:room])
        tail = (tail + list(lines[max(0, room) :]))[-TAIL:]
    lines_kept = (*kept, *tail)
    return ReadLog(
        lines_kept,
        tuple(events),
        diagnose(lines_kept, events, budget),
        reader.n_lines,
        size,
        len(lines_kept) < reader.n_lines,
    )


class _Scanner:
    """Reads the lines of a large log that can matter, and remembers the last of those that repeat without end."""

    def __init__(self) -> None:
        self.kept: dict[int, LogLine] = {}
        self.events: list[LogEvent] = []
        self.number = 0
        self._parser = LogParser()
        self._sieve = Sieve(WORDS)
        self._count: dict[bytes, int] = {}
        self._latest: dict[bytes, tuple[int, bytes]] = {}
        self._said: dict[tuple[str, ...], int] = {}
        self._last_said: dict[tuple[str, ...], deque[tuple[int, bytes]]] = {}
        self._windows = _Windows(0)
        self._open = False
        self._repeats = True

    def scan(self, data: bytes, *, ends: bool) -> None:
        """Read a block of whole lines; without `ends` its last line goes on in the next block."""
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        number = self.number if self._open else self.number + 1
        at = 0
        while number <= HEAD and at < len(data):
            end = _line_end(data, at)
            self._line(number, data[at:end])
            number, at = number + 1, end + 1
        if self._repeats and at < len(data):
            self._each(data[at:].removesuffix(b"\n"), number)
        elif at < len(data):
            self._sieved(data, at, number)
        n_ends = data.count(b"\n")
        self.number = (self.number if self._open else self.number + 1) + n_ends - ends
        self._open = not ends

    def _each(self, data: bytes, first: int) -> None:
        """Read all lines: cheap as long as most are like one before but for digits."""
        shapes = data.translate(None, _DIGITS).split(b"\n")
        counts, latest = self._count.get, self._latest
        n_new = 0
        for number, (raw, shape) in enumerate(zip(data.split(b"\n"), shapes, strict=True), first):
            count = counts(shape)
            if count is None:
                n_new += 1
                self._new(number, raw, shape)
            elif count > SAME:
                latest[shape] = (number, raw)
            elif count >= 0:
                self._count[shape] = count + 1
                self._read(number, raw)
        self._repeats = n_new * FEW < len(shapes)

    def _sieved(self, data: bytes, at: int, number: int) -> None:
        """Read the lines from `at` on that may hold a word; the others are never cut out."""
        starts = self._sieve.starts(data)
        known = len(self._count)
        for start in starts:
            if start >= at:
                number += data.count(b"\n", at, start)
                at = start
                self._line(number, data[start : _line_end(data, start)])
        # Most lines passed and few of them were new: they repeat, and to compare shapes is cheaper.
        n_lines = data.count(b"\n")
        self._repeats = len(starts) * 2 > n_lines and known < MAX_SHAPES and (len(self._count) - known) * FEW < n_lines

    def _line(self, number: int, raw: bytes) -> None:
        shape = raw.translate(None, _DIGITS)
        count = self._count.get(shape)
        if count is None or number <= HEAD:
            self._new(number, raw, shape)
        elif count > SAME:
            self._latest[shape] = (number, raw)
        elif count >= 0:
            self._count[shape] = count + 1
            self._read(number, raw)

    def close(self) -> None:
        """Read the last of the lines, and of a line's windows, that were passed over because there are many."""
        self._read_windows()
        last = {pair for pairs in self._last_said.values() for pair in pairs}
        for number, raw in sorted(last.union(self._latest.values())):
            self._read(number, raw)
        self.events.sort(key=lambda event: event.line)

    def _new(self, number: int, raw: bytes, shape: bytes) -> None:
        """A line unlike those before it, or one of the first: read it, and note whether its like matter."""
        if len(raw) > MAX_LINE:
            self._long(number, raw)
            return
        text = raw.decode("utf-8", "replace")
        hints = look(text)
        if len(self._count) < MAX_SHAPES or shape in self._count:
            if hints is not None:
                self._count[shape] = self._count.get(shape, 0) + 1
            elif not may_vary(shape):
                self._count[shape] = DULL
        if number <= HEAD:
            self._read(number, raw)
        elif hints is not None:
            self._unlike(number, raw, phrases(text, hints))

    def _unlike(self, number: int, raw: bytes, said: tuple[str, ...] | None) -> None:
        """A line unlike those before it: not read when it says nothing, put off when many have said the same."""
        if said == ():
            return
        key, most = (said, SAID) if said is not None else ((), UNSURE)
        count = self._said[key] = self._said.get(key, 0) + 1
        if count <= most:
            self._read(number, raw)
        else:
            self._last_said.setdefault(key, deque(maxlen=most)).append((number, raw))

    def _read(self, number: int, raw: bytes) -> None:
        line = make_line(number, raw.decode("utf-8", "replace"))
        events = self._parser.feed((line,))
        if events or number <= HEAD:
            self.events.extend(events)
            if len(self.kept) < MAX_KEPT:
                self.kept.setdefault(number, line)

    def _long(self, number: int, raw: bytes) -> None:
        """Windows of a line too long to keep, or of a part of it."""
        if self._windows.number != number:
            self._read_windows()
            self._windows = _Windows(number)
        for window in self._windows.first_of(raw):
            self._read(number, window)

    def _read_windows(self) -> None:
        for window in self._windows.last:
            self._read(self._windows.number, window)


class _Windows:
    """What to read of one line that is too long to keep: its start, and pieces in which a word stands."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: Pieces to read in the end; of many, those before were passed over.
        self.last: deque[bytes] = deque(maxlen=MAX_WINDOWS)
        self._n_given = 0
        self._before = ""

    def first_of(self, raw: bytes) -> Iterator[bytes]:
        """Pieces of the line's next part to read at once, as long as there are few."""
        text = raw.decode("utf-8", "replace")
        start = 0
        if self._n_given == 0:
            start = WINDOW
            yield from self._give(text[:WINDOW])
        # A word may stand across two parts.
        text, start = self._before + text, start + len(self._before)
        at = next_word(text, max(0, start - LONGEST))
        while at is not None:
            start = max(start - LONGEST, at - WINDOW // 2)
            yield from self._give(text[start : start + WINDOW])
            start += WINDOW
            at = next_word(text, start)
        self._before = text[-LONGEST:]

    def _give(self, piece: str) -> Iterator[bytes]:
        self._n_given += 1
        if self._n_given <= MAX_WINDOWS:
            yield piece.encode("utf-8", "replace")
        else:
            self.last.append(piece.encode("utf-8", "replace"))


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _scanned(source: str | Path | bytes, size: int, budget: Budget | None) -> ReadLog:
    scanner = _Scanner()
    carry = b""
    for chunk in _chunks(source):
        end = chunk.rfind(b"\n") + 1
        if end:
            scanner.scan(carry + chunk[:end], ends=True)
            carry = chunk[end:]
        else:
            carry += chunk
            if len(carry) > MAX_BLOCK:
                scanner.scan(carry, ends=False)
                carry = b""
    if carry:
        scanner.scan(carry, ends=False)
    scanner.close()
    kept = scanner.kept
    diagnosis = diagnose(tuple(kept.values()), scanner.events, budget)
    wanted = [range(max(1, scanner.number - TAIL), scanner.number + 1)]
    if diagnosis.key_line is not None:
        key = diagnosis.key_line.number
        wanted.append(range(max(1, key - AROUND), key + AROUND))
    _fetch(source, wanted, kept)
    lines = tuple(kept[n] for n in sorted(kept))
    # Lines that state nothing by themselves explain those next to them: they were not there before.
    diagnosis = diagnose(lines, scanner.events, budget)
    return ReadLog(lines, tuple(scanner.events), diagnosis, scanner.number, size, len(lines) < scanner.number)


def _fetch(source: str | Path | bytes, wanted: list[range], kept: dict[int, LogLine]) -> None:
    """Read some stretches of lines in a second pass that only counts the rest."""
    number = 1
    carry = b""
    for chunk in _chunks(source):
        n_ends = chunk.count(b"\n")
        if any(number < stretch.stop and stretch.start <= number + n_ends for stretch in wanted):
            raws = chunk.split(b"\n")[:-1] if n_ends else []
            for n, raw in enumerate(raws, number):
                _keep(n, carry + raw if n == number else raw, wanted, kept)
        last = chunk[chunk.rfind(b"\n") + 1 :]
        carry = (last if n_ends else carry + last)[: 4 * MAX_LINE]
        number += n_ends
    if carry:
        _keep(number, carry, wanted, kept)


def _keep(number: int, raw: bytes, wanted: list[range], kept: dict[int, LogLine]) -> None:
    if number not in kept and any(number in stretch for stretch in wanted):
        text = raw[: 4 * MAX_LINE].decode("utf-8", "replace")
        kept[number] = make_line(number, text[:MAX_LINE])
