"""Allocator lines that somebody's terminal or editor broke in two, made whole again."""

from collections.abc import Sequence

from kvstudio.diagnose.quoting import Texts
from kvstudio.runlog.parse import parse
from kvstudio.runlog.values import AllocationFailed, LogEvent, LogLine

#: The end of a request's line, which stands alone when the line was broken before it, and what it is the end of.
_SECOND_HALF = "malloc_said"
_WHOLE = "cuda_malloc"
#: Lines that are known without their size, which the next line starts with.
_FIRST_HALVES = ("buffer_graph", "buffer_tensors", "cpu_buffer")
#: Bytes that are no text, where the upper half ends.
_UNREADABLE = "\ufffd "


def join(events: Sequence[LogEvent], texts: Texts) -> Sequence[LogEvent]:
    """The events, with the size and device that the other half of a broken line states."""
    told = {e.line for e in events if isinstance(e, AllocationFailed) and e.bytes is not None}
    whole = {n: found for n, event in enumerate(events) if (found := _whole(event, told, texts)) is not None}
    return tuple(whole.get(n, event) for n, event in enumerate(events)) if whole else events


def _whole(event: LogEvent, told: set[int], texts: Texts) -> AllocationFailed | None:
    if not isinstance(event, AllocationFailed) or event.bytes is not None:
        return None
    ends = event.signature == _SECOND_HALF
    if not ends and event.signature not in _FIRST_HALVES:
        return None
    first = event.line - 1 if ends else event.line
    upper, lower = texts.get(first), texts.get(first + 1)
    if not told.isdisjoint((first, first + 1)) or upper is None or lower is None:
        return None
    line = LogLine(first, upper.text, f"{upper.message.rstrip(_UNREADABLE)} {lower.message}")
    wanted = _WHOLE if ends else event.signature
    sized = (e for e in parse((line,)) if isinstance(e, AllocationFailed) and e.bytes is not None)
    return next((e for e in sized if e.signature == wanted), None)
