"""Events of one file to the run that counts, as marks in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvstudio.runlog.patterns import BY_NAME
from kvstudio.runlog.signatures.row import Kind, Signature
from kvstudio.runlog.values import AllocationFailed, BufferPrinted, LogEvent, Note

#: Kinds that decide how a run ended.
DECISIVE = frozenset({Kind.ALLOCATOR, Kind.BUFFER, Kind.PURPOSE, Kind.PLANNER, Kind.REFUSAL, Kind.KILLED, Kind.SUCCESS})
_FATAL = frozenset({Kind.PURPOSE, Kind.WRAPPER, Kind.KILLED, Kind.CRASH})
#: A runtime error is three lines: what, where, and the call.
NEAR = 3
_OTHER_ERRORS = frozenset({"runtime_other", "illegal_access", "driver_version"})


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that matters: `place` is its event's position among all events of the run."""

    place: int
    line: int
    signature: Signature
    event: AllocationFailed | Note

    @property
    def kind(self) -> Kind:
        return self.signature.kind

    @property
    def groups(self) -> dict[str, str]:
        return dict(self.event.groups)


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run of a log. `number` counts runs from 1, `n_runs` those in the file."""

    events: tuple[LogEvent, ...]
    marks: tuple[Mark, ...]
    number: int = 1
    n_runs: int = 1

    def of(self, *kinds: Kind) -> tuple[Mark, ...]:
        return tuple(mark for mark in self.marks if mark.kind in kinds)

    def named(self, *names: str) -> tuple[Mark, ...]:
        return tuple(mark for mark in self.marks if mark.signature.name in names)


def last_run(events: Sequence[LogEvent]) -> Timeline:
    """The last run in the file that shows how it went; the only one when the file holds one."""
    runs = [timeline for timeline in map(_timeline, _split(events)) if timeline.events] or [_timeline(())]
    told = [n for n, run in enumerate(runs) if _tells(run)]
    chosen = told[-1] if told else len(runs) - 1
    n_runs = len(told) or 1
    number = told.index(chosen) + 1 if told else 1
    run = runs[chosen]
    if not told and len(runs) > 1:
        run = _timeline(tuple(events))
    return Timeline(run.events, run.marks, number, n_runs)


def _timeline(events: Sequence[LogEvent]) -> Timeline:
    marks: list[Mark] = []
    for place, event in enumerate(events):
        if isinstance(event, AllocationFailed | Note) and event.signature in BY_NAME:
            mark = Mark(place, event.line, BY_NAME[event.signature], event)
            if not (marks and _explains(mark, marks[-1])) and not _expression(mark, marks):
                marks.append(mark)
    return Timeline(tuple(events), tuple(marks))


def _explains(mark: Mark, before: Mark) -> bool:
    """Vulkan's reason on the line after a refused pinned buffer belongs to that harmless line."""
    return (
        before.signature.name == "pinned"
        and mark.signature.name in ("vulkan_exception", "vulkan_limit", "vulkan_no_type")
        and mark.line - before.line <= 1
    )


def _expression(mark: Mark, marks: Sequence[Mark]) -> bool:
    """The call that a runtime error names last is no shortage when the error itself was another one."""
    near = marks[-NEAR:] if mark.signature.name == "pool_call" else ()
    return any(m.signature.name in _OTHER_ERRORS and mark.line - m.line <= NEAR for m in near)


def _tells(run: Timeline) -> bool:
    return any(
        m.kind in DECISIVE or m.kind is Kind.FIT or (m.kind is Kind.WRAPPER and m.signature.rank > 1) for m in run.marks
    )


def _split(events: Sequence[LogEvent]) -> list[tuple[LogEvent, ...]]:
    """Cut at lines that start a program, and where loading begins again after it had failed."""
    runs: list[tuple[LogEvent, ...]] = []
    current: list[LogEvent] = []
    substance = ended = False
    for event in events:
        kind = BY_NAME[event.signature].kind if isinstance(event, AllocationFailed | Note) else None
        begins = kind is Kind.START or (ended and _loads_again(event))
        if begins and substance:
            runs.append(tuple(current))
            current, substance, ended = [], False, False
        current.append(event)
        substance = (
            substance or (kind not in (None, Kind.START, Kind.HINT, Kind.CRASH)) or isinstance(event, BufferPrinted)
        )
        # A failed measurement is followed by the real load: still the same run.
        ended = (ended or kind in _FATAL) and kind is not Kind.FIT
    runs.append(tuple(current))
    return runs


def _loads_again(event: LogEvent) -> bool:
    return isinstance(event, Note) and event.signature in ("at_weights", "at_fit")
