"""The whole table of phrases, and the cheap words that tell which rows a line can match."""

from collections.abc import Iterator
from functools import cache, lru_cache

from kvstudio.runlog.signatures.allocators import ALLOCATORS
from kvstudio.runlog.signatures.buffers import BUFFERS
from kvstudio.runlog.signatures.refusals import HINTS, PLANNER, REFUSALS
from kvstudio.runlog.signatures.row import Kind, Signature
from kvstudio.runlog.signatures.stages import OUTCOMES, PURPOSES, STAGES
from kvstudio.runlog.signatures.wrappers import ENDS, HARMLESS, WRAPPERS
from kvstudio.runlog.words import Finder

#: Order matters within a kind: the first row of a group that matches a line speaks for it.
SIGNATURES: tuple[Signature, ...] = (
    HARMLESS + ALLOCATORS + BUFFERS + PURPOSES + PLANNER + REFUSALS + OUTCOMES + STAGES + HINTS + ENDS + WRAPPERS
)
BY_NAME: dict[str, Signature] = {signature.name: signature for signature in SIGNATURES}

#: A line that one of these kinds explains is not looked at for the later ones: harmless is not a failure as well.
_SPEAKS_ALONE = {Kind.HARMLESS}
_MANY = {Kind.HINT, Kind.STAGE}


#: Messages up to this length that differ in digits only are looked through once.
_MAX_SHAPE = 400
_ANY_DIGIT = str.maketrans("123456789", "0" * 9)

Placed = tuple[tuple[int, Signature], ...]


@cache
def _index() -> tuple[Finder, dict[str, Placed], dict[str, Placed]]:
    """What finds words in a message, and for each short word the rows (with their places) it can stand for.

    Words with digits are apart: whether they are in a message is not told by its shape.
    """
    finder = Finder(key for row in SIGNATURES for key in row.keys)
    placed = tuple(enumerate(SIGNATURES))
    rows = {
        short: tuple((place, row) for place, row in placed if not set(row.keys).isdisjoint(words))
        for short, words in finder.short.items()
    }
    plain = {word: of for word, of in rows.items() if not any(map(str.isdigit, word))}
    return finder, plain, {word: of for word, of in rows.items() if word not in plain}


@lru_cache(maxsize=4096)
def _by_shape(shape: str) -> Placed:
    """Rows that words without digits point to, in table order."""
    finder, plain, _ = _index()
    return tuple(sorted({place: row for word in finder.find(shape) for place, row in plain.get(word, ())}.items()))


def _candidates(message: str) -> Placed:
    shape = message.translate(_ANY_DIGIT)
    known = _by_shape(shape) if len(shape) <= _MAX_SHAPE else _by_shape.__wrapped__(shape)
    more = [place for word, rows in _index()[2].items() if word in message for place in rows]
    return tuple(sorted({*known, *more}, key=lambda placed: placed[0])) if more else known


#: Substrings of which every line that matters contains at least one.
KEYWORDS: tuple[str, ...] = tuple(dict.fromkeys(key for row in SIGNATURES for key in row.keys))


def matches(message: str) -> Iterator[tuple[Signature, dict[str, str]]]:
    """Rows that match a message, in table order, at most one of each kind, with the named groups that took part."""
    seen: set[Kind] = set()
    for _, signature in _candidates(message):
        if signature.kind in seen and signature.kind not in _MANY:
            continue
        found = signature.search(message)
        if found is None:
            continue
        seen.add(signature.kind)
        yield signature, _groups(found.groupdict())
        if signature.kind in _SPEAKS_ALONE:
            return


def _groups(found: dict[str, str | None]) -> dict[str, str]:
    """Named groups that took part; `bytes2` and the like count as `bytes`."""
    return {name.rstrip("234"): value for name, value in found.items() if value is not None}
