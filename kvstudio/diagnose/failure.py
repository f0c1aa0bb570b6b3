"""Which failure decided a run: allocator lines in groups, groups in episodes between retries and successes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvstudio.diagnose.timeline import Mark, Timeline
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import AllocationFailed, BufferPrinted, CachePrinted

_LAYERS = (Kind.ALLOCATOR, Kind.BUFFER, Kind.PURPOSE)
#: Purposes that only name the part (draft, projector, adapter) and often stand after the real chain.
PART_ONLY = frozenset({"draft_failed", "mmproj_failed", "lora_failed"})
_ENDING = (Kind.WRAPPER, Kind.CRASH, Kind.KILLED)


@dataclass(slots=True)
class Group:
    """The lines one refused request left: allocator, ggml's buffer line, llama.cpp's purpose."""

    marks: list[Mark] = field(default_factory=list)

    def of(self, kind: Kind) -> list[Mark]:
        return [m for m in self.marks if m.kind is kind]

    @property
    def key(self) -> Mark:
        """The deepest line: highest rank, the first of equals."""
        return max(self.marks, key=lambda m: (m.signature.rank, -m.place))

    @property
    def start(self) -> int:
        return self.marks[0].place

    @property
    def end(self) -> int:
        return self.marks[-1].place


@dataclass(frozen=True, slots=True)
class Failure:
    """The deciding group and what stands around it.

    `others` are further groups of the same episode, `resolved` tells that a success followed, `open_retry` that the
    log stops after a retry, `earlier` the groups of episodes before.
    """

    group: Group
    others: tuple[Group, ...]
    earlier: tuple[Group, ...]
    resolved: bool
    open_retry: bool
    retried: Mark | None
    success: Mark | None


def find(run: Timeline) -> Failure | None:
    """The failure of memory that decided the run, or the last that was overcome; None when no line shows one."""
    episodes, bounds = _episodes(run)
    with_groups = [(n, groups) for n, groups in enumerate(episodes) if groups]
    if not with_groups:
        return None
    number, groups = with_groups[-1]
    if _repeats_purpose(episodes, bounds, number):
        # A retry that failed without a line of its own: what was refused stands before it.
        number, groups = number - 1, episodes[number - 1]
    after = bounds[number] if number < len(bounds) else None
    earlier = tuple(g for n, gs in with_groups[:-1] for g in gs)
    retried = after if after is not None and after.kind is Kind.RETRY else None
    successes = [m for m in bounds[number:] if m.kind is Kind.SUCCESS]
    lasts = {m.signature.name for g in groups for m in g.of(Kind.ALLOCATOR)} == {"metal_command_memory"}
    if lasts:
        # After a failed command buffer the Metal backend refuses all work, whatever the server prints.
        successes = []
    end = groups[-1].end
    fatal = any(m.place > end and m.kind in _ENDING for m in run.marks)
    went_on = _progress(run, retried.place) if retried is not None else _went_on(run, groups) and not fatal
    resolved = bool(successes) or (went_on and not lasts)
    open_retry = retried is not None and not resolved and not fatal and not _purpose_after(run, retried)
    first, *others = [g for g in groups if not _tolerated(run, g, groups)] or groups
    return Failure(first, tuple(others), earlier, resolved, open_retry, retried, successes[0] if successes else None)


def _repeats_purpose(episodes: list[list[Group]], bounds: list[Mark], number: int) -> bool:
    if number == 0 or not episodes[number - 1] or bounds[number - 1].kind is not Kind.RETRY:
        return False
    return all(not g.of(Kind.ALLOCATOR) and not g.of(Kind.BUFFER) for g in episodes[number])


def _episodes(run: Timeline) -> tuple[list[list[Group]], list[Mark]]:
    episodes: list[list[Group]] = [[]]
    bounds: list[Mark] = []
    for mark in run.marks:
        if mark.kind in (Kind.RETRY, Kind.SUCCESS):
            episodes.append([])
            bounds.append(mark)
        elif mark.kind in _LAYERS and mark.signature.name not in PART_ONLY:
            _add(episodes[-1], mark)
    return episodes, bounds


def _add(groups: list[Group], mark: Mark) -> None:
    current = groups[-1] if groups else None
    if current is None or _starts_new(current, mark):
        groups.append(Group([mark]))
    else:
        current.marks.append(mark)


def _starts_new(group: Group, mark: Mark) -> bool:
    buffers, purposes = group.of(Kind.BUFFER), group.of(Kind.PURPOSE)
    if mark.kind is Kind.PURPOSE:
        return False
    if purposes:
        return True
    if mark.kind is Kind.BUFFER:
        return any(_size(b) != _size(mark) or _name(b) != _name(mark) for b in buffers)
    if buffers:
        return True
    sized = [a for a in group.of(Kind.ALLOCATOR) if a.signature.name == mark.signature.name]
    return any(_size(a) != _size(mark) for a in sized)


def _size(mark: Mark) -> int | None:
    return mark.event.bytes if isinstance(mark.event, AllocationFailed) else None


def _name(mark: Mark) -> str | None:
    return mark.event.device if isinstance(mark.event, AllocationFailed) else None


def _progress(run: Timeline, after: int, before: int | None = None) -> bool:
    """Whether buffers were printed between two places: the run had gone on."""
    window = run.events[after + 1 : before]
    return any(isinstance(e, BufferPrinted | CachePrinted) and getattr(e, "kind", "") != "mmproj" for e in window)


def _went_on(run: Timeline, groups: Iterable[Group]) -> bool:
    last = list(groups)[-1]
    return _progress(run, last.end) and not last.of(Kind.PURPOSE)


def _tolerated(run: Timeline, group: Group, groups: list[Group]) -> bool:
    """A refusal after which the run printed further buffers did not decide; a later one did."""
    return not group.of(Kind.PURPOSE) and any(
        g.start > group.end and _progress(run, group.end, g.start) for g in groups
    )


def _purpose_after(run: Timeline, retried: Mark) -> bool:
    return any(m.place > retried.place and m.kind is Kind.PURPOSE for m in run.marks)
