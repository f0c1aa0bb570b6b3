"""A message to the rows of the table and the facts it can stand for, by the words that are in it."""

import re
from collections.abc import Callable
from functools import cache

from kvstudio.runlog.facts import FACT_WORDS
from kvstudio.runlog.patterns import KEYWORDS, SIGNATURES
from kvstudio.runlog.signatures.row import Signature
from kvstudio.runlog.words import Finder

#: Words of lines that list devices or belong to a table.
_LIST_WORDS = (
    "memory breakdown",
    "fit_memory_breakdown",
    "breakdown_print: ",
    "Device ",
    "devices",
    "ggml_vulkan: ",
    "n_slots = ",
)
#: Words that make a line worth a closer look; a plain substring search is the cheapest filter there is.
WORDS: tuple[str, ...] = tuple(dict.fromkeys((*KEYWORDS, *FACT_WORDS, *_LIST_WORDS)))

_DIGITS = b"0123456789"
_NO_DIGIT = str.maketrans("", "", "0123456789")
#: Shapes of lines remembered, at the most.
_MAX_SHAPES = 20_000
_MAX_SHAPE = 1000

#: A wrapper's marks inside a line, which are not in the message it carries.
_DRESS = re.compile(r"\\|#0|\^\[|\x1b|\[(?:\d{1,3}(?:;\d{1,3})*)?m|\}\s*$")
#: What looks around in a pattern, or at an end: in a line that still has its prefixes it may see other text.
_AROUND = re.compile(
    r"\(\?(?:<[=!]|!)(?:[^()\\]|\\.|\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\))*\)|(?<![\[\\])\^|(?<!\\)\$"
)


Search = Callable[[str], re.Match[str] | None]


@cache
def _loose(pattern: str) -> Search:
    """The pattern without its looks around: it matches wherever the pattern matches in a part of the line."""
    return re.compile(_AROUND.sub("", pattern)).search


class Hints:
    """What a message can be: `rows` in table order, a line that states facts, one of a list of devices or a table."""

    __slots__ = ("_loose", "facts", "listed", "rows")

    def __init__(self, rows: tuple[Signature, ...], facts: bool, listed: bool) -> None:
        self.rows = rows
        self.facts = facts
        self.listed = listed
        self._loose: tuple[tuple[str, Search], ...] | None = None

    @property
    def loose(self) -> tuple[tuple[str, Search], ...]:
        """Names of the rows, and what finds each in a line that still has its prefixes; compiled when asked for."""
        if self._loose is None:
            self._loose = tuple((row.name, _loose(row.pattern)) for row in self.rows)
        return self._loose


class _Index:
    """The words, and what each of them points to."""

    def __init__(self) -> None:
        self.finder = Finder(WORDS)
        facts, lists = set(FACT_WORDS), set(_LIST_WORDS)
        self._hints = {
            short: Hints(
                tuple(row for row in SIGNATURES if not set(row.keys).isdisjoint(words)),
                not facts.isdisjoint(words),
                not lists.isdisjoint(words),
            )
            for short, words in self.finder.short.items()
        }
        numbered = {word: word.translate(_NO_DIGIT) for word in self.finder.short if any(map(str.isdigit, word))}
        varying = "|".join(sorted({re.escape(without) for without in numbered.values() if without}))
        #: Words with digits, without them: a line in which one is may hold the word for other digits.
        self.varies = re.compile(varying.encode()).search
        self.numbers = tuple(word for word, without in numbered.items() if not without)
        self._together: dict[tuple[str, ...], Hints] = {}

    def look(self, text: str) -> Hints | None:
        words = self.finder.find(text)
        if len(words) < 2:
            return self._hints[words[0]] if words else None
        key = tuple(words)
        known = self._together.get(key)
        if known is None:
            if len(self._together) >= _MAX_SHAPES:
                self._together.clear()
            known = self._together[key] = self._join(key)
        return known

    def _join(self, words: tuple[str, ...]) -> Hints:
        hints = [self._hints[word] for word in words]
        names = {row.name for hint in hints for row in hint.rows}
        rows = tuple(row for row in SIGNATURES if row.name in names)
        return Hints(rows, any(hint.facts for hint in hints), any(hint.listed for hint in hints))


@cache
def _index() -> _Index:
    """Made at the first line that is read, not at start, and once."""
    return _Index()


def look(text: str) -> Hints | None:
    """What the text can be; None when no word is in it."""
    return _index().look(text)


def next_word(text: str, start: int) -> int | None:
    """Where from `start` on the next word stands in a long text."""
    return _index().finder.first(text, start)


def phrases(text: str, hints: Hints) -> tuple[str, ...] | None:
    """Names of rows that may match the message of a line which still has its prefixes.

    None: what the line states shows only without them. Too many rows rather than too few.
    """
    if hints.facts or hints.listed or len(text) > _MAX_SHAPE or not text.isprintable() or _DRESS.search(text):
        return None
    return tuple([name for name, search in hints.loose if search(text)])


def may_vary(shape: bytes) -> bool:
    """Whether a line without its digits may hold a word for some digits only."""
    return bool(_index().varies(shape))


class Shapes:
    """Hints of lines; those alike but for digits are looked through once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Hints | None] = {}
        #: Shapes looked through so far that hold no word.
        self.n_dull = 0

    def look(self, text: str) -> Hints | None:
        """What the text can be; None when no word is in it."""
        index = _index()
        shape = text.encode("utf-8", "replace").translate(None, _DIGITS)
        if shape in self._known and not any(number in text for number in index.numbers):
            return self._known[shape]
        hints = index.look(text)
        if hints is None:
            self.n_dull += 1
        if len(shape) <= _MAX_SHAPE and not index.varies(shape):
            if len(self._known) >= _MAX_SHAPES:
                self._known.clear()
            self._known[shape] = hints
        return hints
