"""A log -> as much of it as a limit allows: whole, or its head, the window around the key line and its tail."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvstudio.report.redact import plain
from kvstudio.report.values import Redaction
from kvstudio.runlog.values import LogLine

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: Characters that would hide or reorder text: controls but tab, and the bidirectional overrides.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]")
#: A single line longer than this is cut inside; llama.cpp's own stay far below.
LINE_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Shown:
    """A line as it will be printed: its number and its text, redacted and clean."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines left out, first to last number."""

    first: int
    last: int

    @property
    def words(self) -> str:
        count = self.last - self.first + 1
        return f"[... {count} lines left out here, {self.first} to {self.last} ...]"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is printed of a log, in order; `whole` when nothing was left out."""

    items: tuple[Shown | Gap, ...]
    n_lines: int
    whole: bool

    @property
    def says(self) -> str:
        if self.whole:
            return f"{self.n_lines} {'line' if self.n_lines == 1 else 'lines'}, whole"
        kept = sum(isinstance(item, Shown) for item in self.items)
        gaps = ", ".join(f"{g.first} to {g.last}" for g in self.items if isinstance(g, Gap))
        return f"{kept} of {self.n_lines} lines; left out for length: {gaps or 'parts of long lines'}"


def clean(text: str) -> str:
    """The text without terminal colours; other characters that cannot be seen are written out."""
    if text.isprintable():
        return text
    return _UNSEEN.sub(lambda m: f"\\x{ord(m[0]):02x}", _ESCAPES.sub("", text.rstrip("\r\n")))


def shown(line: LogLine, redactions: tuple[Redaction, ...]) -> Shown:
    """One line as it will be printed. It is cut first at a place far past any line of llama.cpp, then redacted."""
    text = line.text
    left_out = len(text) - LINE_CHARS * 4
    text = plain(text[: LINE_CHARS * 4] if left_out > 0 else text, redactions)
    text = clean(text)
    if len(text) > LINE_CHARS:
        left_out = len(line.text) - LINE_CHARS
        text = f"{text[:LINE_CHARS]} [... {left_out} characters left out]"
    return Shown(line.number, text)


def excerpt(
    lines: Sequence[LogLine], key_line: int | None, redactions: tuple[Redaction, ...], limit_chars: int | None = None
) -> Excerpt:
    """The log in at most `limit_chars` characters, numbers and line ends counted; None is no limit.

    When it must be cut, half of the room goes to the window around the key line (to the tail when there is none), a
    sixth to the head and the rest to the tail.
    """
    if not lines:
        return Excerpt((), 0, True)
    if limit_chars is None:
        return _collected(range(len(lines)), lines, redactions)
    if sum(_room(line.text) for line in lines) <= limit_chars:
        whole = _collected(range(len(lines)), lines, redactions)
        if sum(_room(i.text) for i in whole.items if isinstance(i, Shown)) <= limit_chars:
            return whole
    return _collected(_chosen(lines, key_line, redactions, max(limit_chars, 0)), lines, redactions)


def _chosen(lines: Sequence[LogLine], key_line: int | None, redactions: tuple[Redaction, ...], limit: int) -> list[int]:
    """Indices of the lines to keep, in order."""
    kept: set[int] = set()
    left = limit - 200  # for the words of the gaps
    key = _index_of(lines, key_line)
    window = limit // 2 if key is not None else 0

    def take(indices: Sequence[int], room: int) -> int:
        for index in indices:
            if index in kept:
                continue
            cost = _room(shown(lines[index], redactions).text)
            if cost > room:
                break
            kept.add(index)
            room -= cost
        return room

    if key is not None:
        after_room = window // 2
        window -= after_room - take(range(key, min(key + 40, len(lines))), after_room)
        left -= limit // 2 - take(range(key - 1, -1, -1), window)
    head_room = max(left // 4, 0)
    left -= head_room - take(range(len(lines)), head_room)
    take(range(len(lines) - 1, -1, -1), max(left, 0))
    return sorted(kept)


def _index_of(lines: Sequence[LogLine], number: int | None) -> int | None:
    if number is None:
        return None
    guess = number - lines[0].number
    if 0 <= guess < len(lines) and lines[guess].number == number:
        return guess
    return next((i for i, line in enumerate(lines) if line.number == number), None)


def _collected(indices: Sequence[int], lines: Sequence[LogLine], redactions: tuple[Redaction, ...]) -> Excerpt:
    items: list[Shown | Gap] = []
    expected = lines[0].number
    for index in indices:
        line = lines[index]
        if line.number > expected:
            items.append(Gap(expected, line.number - 1))
        items.append(shown(line, redactions))
        expected = line.number + 1
    if expected <= lines[-1].number:
        items.append(Gap(expected, lines[-1].number))
    long_lines = any(len(lines[i].text) > LINE_CHARS for i in indices)
    whole = not long_lines and not any(isinstance(item, Gap) for item in items)
    return Excerpt(tuple(items), max(len(lines), lines[-1].number - lines[0].number + 1), whole)


def _room(text: str) -> int:
    """Characters of a printed line: number, colon, blank, text, line end."""
    return min(len(text), LINE_CHARS + 60) + 9
