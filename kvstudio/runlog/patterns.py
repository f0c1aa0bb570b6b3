"""The whole table of phrases, and the cheap words that tell which rows a line can match."""

from collections.abc import Iterable, Iterator

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
_MANY = {Kind.HINT, Kind.STAGE}

#: Substrings of which every line that matters contains at least one.
KEYWORDS: tuple[str, ...] = tuple(dict.fromkeys(key for row in SIGNATURES for key in row.keys))


def matches(message: str, rows: Iterable[Signature]) -> Iterator[tuple[Signature, dict[str, str]]]:
    """Which of some rows match a message, in their order, at most one of each kind, with the groups that took part."""
    seen: set[Kind] = set()
    for signature in rows:
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
