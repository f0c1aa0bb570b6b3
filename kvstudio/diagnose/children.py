"""Events of a router's log to those of each server it started, whose lines are mixed with the others'."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvstudio.runlog.values import LogEvent, LogLine, Note

#: What the router puts before a child's line, the innermost of several; an epoch second looks alike, but never comes
#: back.
_CHILD = re.compile(r"(?:^|[\s:|\"])(?:\[\d{2,10}\] )*\[(\d{2,10})\] ")
MAX_CHILDREN = 64


@dataclass(frozen=True, slots=True)
class Child:
    """The events of one server; `model` is the name the router gave it, None where the text does not tell."""

    events: tuple[LogEvent, ...]
    model: str | None


def split(events: Sequence[LogEvent], texts: Mapping[int, LogLine]) -> tuple[Child, ...]:
    """One entry per child, the one that spoke last at the end; all in one when no two are mixed.

    Of the router's own lines those that say how a child ended go to that child, the others to none.
    """
    parts: dict[str, list[LogEvent]] = {}
    ports: dict[str, str] = {}
    models: dict[str, str] = {}
    mixed = False
    before: str | None = None
    for event in events:
        child = _marked(texts.get(event.line))
        if child is None:
            child = _of_router(event, ports, models)
            if child in parts:
                parts[child].append(event)
            continue
        mixed = mixed or (child != before and child in parts)
        before = child
        parts.setdefault(child, []).append(event)
    marked = sum(map(len, parts.values()))
    if not mixed or len(parts) > MAX_CHILDREN or marked * 2 < len(events):
        return (Child(tuple(events), None),)
    last = sorted(parts, key=lambda child: parts[child][-1].line)
    return tuple(Child(tuple(parts[child]), models.get(child)) for child in last)


def _marked(line: LogLine | None) -> str | None:
    match = _CHILD.search(line.text, 0, 120) if line is not None and "[" in line.text else None
    return match[1] if match is not None else None


def _of_router(event: LogEvent, ports: dict[str, str], models: dict[str, str]) -> str | None:
    """The child a router's line is about; a line that starts one is remembered."""
    if not isinstance(event, Note):
        return None
    groups = dict(event.groups)
    if event.signature == "instance_started":
        ports[groups["what"]] = groups["port"]
        models[groups["port"]] = groups["what"]
    elif event.signature == "instance_exited":
        return ports.get(groups["what"])
    return None
