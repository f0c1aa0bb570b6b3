"""The whole table of phrases, and the cheap words that tell which rows a line can match."""

from collections.abc import Iterator

from kvstudio.runlog.signatures.allocators import ALLOCATORS
from kvstudio.runlog.signatures.buffers import BUFFERS
from kvstudio.runlog.signatures.refusals import HINTS, PLANNER, REFUSALS
from kvstudio.runlog.signatures.row import Kind, Signature
from kvstudio.runlog.signatures.stages import OUTCOMES, PURPOSES, STAGES
from kvstudio.runlog.signatures.wrappers import ENDS, HARMLESS, WRAPPERS

#: Order matters within a kind: the first row of a group that matches a line speaks for it.
SIGNATURES: tuple[Signature, ...] = (
    HARMLESS + ALLOCATORS + BUFFERS + PURPOSES + PLANNER + REFUSALS + OUTCOMES + STAGES + HINTS + ENDS + WRAPPERS
)
BY_NAME: dict[str, Signature] = {signature.name: signature for signature in SIGNATURES}

#: A line that one of these kinds explains is not looked at for the later ones: harmless is not a failure as well.
_SPEAKS_ALONE = {Kind.HARMLESS}


def _index() -> tuple[tuple[str, tuple[Signature, ...]], ...]:
    by_key: dict[str, list[Signature]] = {}
    for signature in SIGNATURES:
        for key in signature.keys:
            by_key.setdefault(key, []).append(signature)
    return tuple((key, tuple(rows)) for key, rows in by_key.items())


_INDEX = _index()
_ORDER = {signature.name: place for place, signature in enumerate(SIGNATURES)}

#: Substrings of which every line that matters contains at least one.
KEYWORDS: tuple[str, ...] = tuple(key for key, _ in _INDEX)


def matches(message: str) -> Iterator[tuple[Signature, dict[str, str]]]:
    """Rows that match a message, in table order, at most one of each kind, with the named groups that took part."""
    candidates = {row.name: row for key, rows in _INDEX if key in message for row in rows}
    if not candidates:
        return
    seen: set[Kind] = set()
    for signature in sorted(candidates.values(), key=lambda row: _ORDER[row.name]):
        if signature.kind in seen and signature.kind not in (Kind.HINT, Kind.STAGE):
            continue
        found = signature.pattern.search(message)
        if found is None:
            continue
        seen.add(signature.kind)
        yield signature, _groups(found.groupdict())
        if signature.kind in _SPEAKS_ALONE:
            return


def _groups(found: dict[str, str | None]) -> dict[str, str]:
    """Named groups that took part; `bytes2` and the like count as `bytes`."""
    return {name.rstrip("23"): value for name, value in found.items() if value is not None}
