"""One quick look that tells whether a line can matter at all."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

#: Letters by how often logs have them; a word is looked for from its rarest letter on, which skips most of a line.
_COMMON_FIRST = " etaosrin|=0123456789.,:lhdcmpu_gfy-bkwvI"
_PIECE = 10
_DIGITS = b"0123456789"
_MAX_SHAPES = 20_000
_SLICE = 64 * 1024


def _piece(word: str) -> str:
    """A part of the word that starts where letters are rare."""

    def rarity(place: int) -> int:
        at = _COMMON_FIRST.find(word[place])
        return at if at >= 0 else len(_COMMON_FIRST)

    start = max(range(max(1, len(word) - 4)), key=lambda place: (rarity(place), -place))
    return word[start : start + _PIECE]


def _tree(words: Iterable[str]) -> str:
    """Words as a pattern that shares beginnings: many words cost little more than a few."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]
    for word in words:
        node = root
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _branch(root)


def _branch(node: dict[str, dict]) -> str:  # type: ignore[type-arg]
    if "" in node:
        return ""
    parts = [re.escape(letter) + _branch(below) for letter, below in sorted(node.items())]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


@cache
def _patterns(words: tuple[str, ...]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Pieces of words, found fast and in lines that do not matter too, and whole words, which settle it.

    Compiled at the first line that is read, not at start, and once.
    """
    pieces = _tree(sorted({_piece(word) for word in words}))
    return re.compile(pieces.encode()), re.compile(_tree(sorted(words)).encode())


class Filter:
    """Passes lines that contain one of the words; lines alike but for digits are asked once."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._pieces, self._words = _patterns(words)
        self._dull: set[bytes] = set()
        #: Shapes of lines found to hold no word so far.
        self.n_dull = 0

    def passes(self, line: bytes, shape: bytes | None = None) -> bool:
        """Whether the line needs a closer look. `shape` is the line without digits, where the caller has it already."""
        shape = line.translate(None, _DIGITS) if shape is None else shape
        if shape in self._dull:
            return False
        if self._pieces.search(line) and self._words.search(line):
            return True
        if len(self._dull) >= _MAX_SHAPES:
            self._dull.clear()
        self._dull.add(shape)
        self.n_dull += 1
        return False

    def find(self, line: bytes) -> Iterator[int]:
        """Where in a line words may stand."""
        for start in range(0, len(line), _SLICE):
            # In slices: a search holds the interpreter, and one over megabytes would hold the window still.
            for match in self._pieces.finditer(line, start, start + _SLICE + _PIECE):
                if match.start() < start + _SLICE:
                    yield match.start()


class Finder:
    """Tells which words are in a text, in one pass; a word that holds another stands for it."""

    def __init__(self, words: Iterable[str]) -> None:
        words = sorted(set(words), key=len)
        short: list[str] = []
        for word in words:
            if not any(other in word for other in short):
                short.append(word)
        #: Words to look for, each with all the words it can be part of.
        self.short = {word: tuple(w for w in words if word in w) for word in short}
        self._finditer = re.compile(f"(?=({_tree(sorted(short))}))").finditer

    def find(self, text: str) -> set[str]:
        """Short words in the text; longer ones that hold them may be there."""
        return {match[1] for match in self._finditer(text)}
