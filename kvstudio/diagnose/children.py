"""Events of a router's log to those of each server it started, whose lines are mixed with the others'."""

import re
from collections.abc import Mapping, Sequence

from kvstudio.runlog.values import LogEvent, LogLine

#: What the router puts before a child's line; an epoch second looks alike but never comes back.
_CHILD = re.compile(r"(?:^|[\s:|])\[(\d{2,10})\] ")
MAX_CHILDREN = 64


def split(events: Sequence[LogEvent], texts: Mapping[int, LogLine]) -> tuple[tuple[LogEvent, ...], ...]:
    """One tuple of events per child, the one that spoke last at the end; all in one when no two are mixed.

    Lines without a child's mark are the router's own and belong to none of them.
    """
    parts: dict[str, list[LogEvent]] = {}
    mixed = False
    before: str | None = None
    for event in events:
        line = texts.get(event.line)
        match = _CHILD.search(line.text, 0, 120) if line is not None and "[" in line.text else None
        if match is None:
            continue
        child = match[1]
        mixed = mixed or (child != before and child in parts)
        before = child
        parts.setdefault(child, []).append(event)
    marked = sum(map(len, parts.values()))
    if not mixed or len(parts) > MAX_CHILDREN or marked * 2 < len(events):
        return (tuple(events),)
    return tuple(map(tuple, sorted(parts.values(), key=lambda part: part[-1].line)))
