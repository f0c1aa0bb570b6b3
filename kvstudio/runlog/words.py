"""A text to those of many words that stand in it, in one pass."""

import re
from collections import Counter
from collections.abc import Iterable

#: How often letters stand in English, in percent; digits and all others are put at a rough figure.
_SHARES = dict(
    zip(
        " etaoinshrdlucmfwypvbgkqjxz",
        (18, 10, 7.4, 6.5, 6, 5.6, 5.6, 5.1, 5, 4.7, 3.4, 3.2, 2.2, 2.2, 2, 1.8, 1.7, 1.6, 1.5, 0.8, 1.2, 1.6, 0.6,
         0.1, 0.1, 0.15, 0.05),
        strict=True,
    )
)  # fmt: skip
_DIGIT, _OTHER = 2.5, 0.4
#: A word is looked for from one of its letters on, with at least so many: fewer match by chance too often.
_TAIL = 3
#: Share of a letter at which one more of it costs as much as that of the letter itself.
_COST = 0.5


def _share(letter: str) -> float:
    return _SHARES.get(letter, _DIGIT if letter.isdigit() else _OTHER)


def _places(word: str) -> range:
    return range(max(1, len(word) - _TAIL + 1))


def _letters(words: Iterable[str]) -> set[str]:
    """Few and rare letters such that each word has one of them at a place where it can be looked for from."""
    left = {word: {word[place] for place in _places(word)} for word in words}
    chosen: set[str] = set()
    while left:
        shared = Counter(letter for letters in left.values() for letter in letters)
        best = max(shared, key=lambda letter: (shared[letter] / (_share(letter) + _COST), letter))
        chosen.add(best)
        left = {word: letters for word, letters in left.items() if best not in letters}
    return chosen


def _tree(words: Iterable[str]) -> str:
    """A pattern for the longest of the words that stands at a place; shared beginnings make many words cheap."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]
    for word in words:
        node = root
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _branch(root)


def _branch(node: dict[str, dict]) -> str:  # type: ignore[type-arg]
    # Alternatives are tried in turn: frequent letters first.
    letters = sorted(filter(None, node), key=lambda letter: (-_share(letter), letter))
    parts = [re.escape(letter) + _branch(node[letter]) for letter in letters]
    if "" in node:
        return f"(?:{'|'.join(parts)})?" if parts else ""
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


class Finder:
    """Tells which words are in a text; a word that holds another stands for it.

    A word is looked for from its rarest letter on, and what stands before that is compared then: letters that are
    common in text are skipped without a look.
    """

    def __init__(self, words: Iterable[str]) -> None:
        words = sorted(set(words), key=len)
        short: list[str] = []
        for word in words:
            if not any(other in word for other in short):
                short.append(word)
        #: Words to look for, each with all the words it can be part of.
        self.short = {word: tuple(w for w in words if word in w) for word in short}
        letters = _letters(short)
        tails: dict[str, list[tuple[int, str]]] = {}
        for word in short:
            places = (place for place in _places(word) if word[place] in letters)
            start = min(places, key=lambda place: (_share(word[place]), place))
            tails.setdefault(word[start:], []).append((start, word))
        #: Words that end with the tail or with a beginning of it, each with its length before that.
        self._by_tail = {
            tail: tuple(place for n in range(1, len(tail) + 1) for place in tails.get(tail[:n], ())) for tail in tails
        }
        self._search = re.compile(_tree(tails)).search

    def find(self, text: str) -> list[str]:
        """Short words in the text; longer ones that hold them may be there."""
        found: list[str] = []
        search, by_tail, startswith = self._search, self._by_tail, text.startswith
        match = search(text)
        while match:
            at = match.start()
            for before, word in by_tail[match[0]]:
                if at >= before and startswith(word, at - before):
                    found.append(word)
            match = search(text, at + 1)
        return found

    def first(self, text: str, start: int) -> int | None:
        """Where from `start` on the first word stands in a text; its beginning may be before `start`."""
        while match := self._search(text, start):
            at = match.start()
            for before, word in self._by_tail[match[0]]:
                if at >= before and text.startswith(word, at - before):
                    return at - before
            start = at + 1
        return None
