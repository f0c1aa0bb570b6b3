"""Blocks of whole lines to the places of those lines that may hold one of many words, at the speed of a plain search.

Text is read as pairs of bytes, each pair as one character of 16 bits: half as many steps, and pairs that occur in
words are far rarer than letters. A word starts at an even or an odd place, so it has two rows of pairs; one pattern
of a few sets of pairs, one set after the other, stands for all words. It passes too much, never too little.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from math import prod

#: Shortest word of each group, and how many pairs it has for certain wherever it starts.
_GROUPS = ((9, 4), (5, 2))
#: Bytes over 127 lose their highest bit: no pair is half of a UTF-16 surrogate then.
_FOLD = bytes(byte & 0x7F for byte in range(256))
#: How often letters stand in English, in percent; digits and all others are put at a rough figure.
_SHARES = dict(
    zip(
        b" etaoinshrdlucmfwypvbgkqjxz",
        (18, 10, 7.4, 6.5, 6, 5.6, 5.6, 5.1, 5, 4.7, 3.4, 3.2, 2.2, 2.2, 2, 1.8, 1.7, 1.6, 1.5, 0.8, 1.2, 1.6, 0.6,
         0.1, 0.1, 0.15, 0.05),
        strict=True,
    )
)  # fmt: skip
_DIGIT, _OTHER = 2.5, 0.4
#: Ends of many English words, far more frequent than their letters.
_ENDINGS = frozenset((b"sion", b"tion", b"ment", b"able", b"ings"))

Pairs = tuple[bytes, ...]


@cache
def _share(pair: bytes) -> float:
    return prod(_SHARES.get(byte, _DIGIT if chr(byte).isdigit() else _OTHER) for byte in pair)


def _rows(word: bytes, n: int) -> Iterable[tuple[Pairs, ...]]:
    """For a word at an even and at an odd place: the rows of `n` pairs that are in it."""
    word = word.translate(_FOLD)
    for start in (0, 1):
        pairs = tuple(word[at : at + 2] for at in range(start, len(word) - 1, 2))
        rows = tuple(pairs[at : at + n] for at in range(len(pairs) - n + 1))
        yield tuple(row for row in rows if b"".join(row) not in _ENDINGS) or rows


def _sets(words: Iterable[bytes], n: int) -> tuple[set[bytes], ...]:
    """`n` sets of pairs such that each word has a row in them; rare first pairs that many words share are preferred."""
    sets: tuple[set[bytes], ...] = tuple(set() for _ in range(n))
    left = [rows for word in words for rows in _rows(word, n)]
    shared = Counter(first for rows in left for first in {row[0] for row in rows})
    while left:
        chosen = max(shared, key=lambda first: (shared[first] / (_share(first) + 0.3), first))
        remaining = []
        for rows in left:
            fitting = [row for row in rows if row[0] == chosen]
            if not fitting:
                remaining.append(rows)
                continue
            shared.subtract({row[0] for row in rows})
            row = min(fitting, key=lambda row: prod(map(_share, row)))
            for pairs, pair in zip(sets, row, strict=True):
                pairs.add(pair)
        left = remaining
    return sets


def _pattern(sets: Iterable[set[bytes]]) -> re.Pattern[str]:
    return re.compile("".join(f"[{''.join(re.escape(p.decode('utf-16-le')) for p in sorted(s))}]" for s in sets))


@cache
def _compiled(words: tuple[str, ...]) -> tuple[tuple[re.Pattern[str], ...], tuple[bytes, ...]]:
    """A pattern for each group of words, and the words too short for any."""
    raw = {word.encode() for word in words}
    short = sorted(raw, key=len)
    rare = sorted(word for n, word in enumerate(short) if not any(other in word for other in short[:n]))
    patterns = []
    for shortest, n in _GROUPS:
        group = [word for word in rare if len(word) >= shortest]
        rare = [word for word in rare if len(word) < shortest]
        if group:
            patterns.append(_pattern(_sets(group, n)))
    return tuple(patterns), tuple(rare)


class Sieve:
    """Finds the lines of a block that may hold one of the words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._patterns, self._short = _compiled(words)

    def starts(self, data: bytes) -> list[int]:
        """Where those lines start, in order."""
        found: set[int] = set()
        folded = data.translate(_FOLD)
        text = (folded + b"\n" if len(folded) % 2 else folded).decode("utf-16-le")
        for pattern in self._patterns:
            self._matched(pattern, text, data, found)
        for word in self._short:
            at = data.find(word)
            while at >= 0:
                found.add(data.rfind(b"\n", 0, at) + 1)
                at = data.find(word, _next_line(data, at))
        return sorted(found)

    @staticmethod
    def _matched(pattern: re.Pattern[str], text: str, data: bytes, found: set[int]) -> None:
        """Add the lines in which a pattern matches. No set has a line end, so that a match is within one line."""
        end = 0
        for match in pattern.finditer(text):
            at = 2 * match.start()
            if at >= end:
                found.add(data.rfind(b"\n", 0, at) + 1)
                end = _next_line(data, at)


def _next_line(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end + 1
