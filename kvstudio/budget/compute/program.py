"""A few layers' events on each buffer, and how to play them for all layers: repetitions are played again."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvstudio.budget.compute.allocate import Arena, GraphAllocator, Player, Stream
from kvstudio.budget.compute.layers import Kept
from kvstudio.budget.compute.tensor import Tensor

Events = list[tuple[int, int, int]]
#: What a block holds, and its bytes.
Label = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Events `first` up to `last` are those of the last layers before a gap; `leafs` the events that took what these
    layers made at the start of the graph.
    """

    first: int
    last: int
    leafs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One buffer: its events, what each block is with its bytes, and by gap what is repeated (None: nothing)."""

    events: Events
    labels: list[Label | None]
    repeats: tuple[Repeat | None, ...]
    alignment: int
    max_bytes: int | None

    @property
    def touched(self) -> tuple[int, ...]:
        """Numbers of the gaps that make a difference."""
        return tuple(n for n, repeat in enumerate(self.repeats) if repeat is not None)

    def measure(self, missing: Sequence[int]) -> tuple[int, dict[str, int]]:
        """(bytes, what was alive when it was fullest by kind); `missing`: repetitions in each of the touched gaps."""
        arena = Arena(self.alignment, self.max_bytes)
        player = Player(arena, self.events)
        repeats = [(repeat, times) for repeat, times in zip(filter(None, self.repeats), missing, strict=True)]
        at = 0
        held = []
        for repeat, times in repeats:
            if repeat.leafs:
                player.play(at, repeat.leafs[-1] + 1)
                at = repeat.leafs[-1] + 1
            held.append([player.hold(repeat.leafs) for _ in range(times)])
        for (repeat, times), leafs in zip(repeats, held, strict=True):
            player.play(at, repeat.last)
            at = repeat.last
            _play_again(player, repeat, times, leafs)
        player.play(at, len(self.events))
        sums: dict[str, int] = {}
        for i in player.peak:
            label = self.labels[i]
            assert label is not None
            sums[label[0]] = sums.get(label[0], 0) + label[1]
        return arena.size, sums


def _play_again(player: Player, repeat: Repeat, times: int, leafs: list[list[tuple[int, int]]]) -> None:
    """The events once for each repetition left out, or until nothing changes any more; `leafs` of each of them."""
    first, last = repeat.first, repeat.last
    places = player.places
    before = 2 * first - last
    for turn in range(times):
        state = None if repeat.leafs else (player.arena.holes(), places[first:last])
        # What was handed on by the repetition before is now what the last one left.
        places[before:first] = places[first:last]
        for event, place in zip(repeat.leafs, leafs[turn], strict=True):
            places[event] = place
        player.play(first, last)
        if state is not None and state == (player.arena.holes(), places[first:last]):
            return


class Program:
    """The parts of a graph by backend."""

    __slots__ = ("followed", "parts")

    def __init__(self, parts: tuple[Part, ...], followed: bool) -> None:
        self.parts = parts
        self.followed = followed

    @property
    def touched(self) -> tuple[tuple[int, ...], ...]:
        """By part the numbers of the gaps that make a difference."""
        return tuple(part.touched for part in self.parts)


class NotPeriodicError(Exception):
    """The kept periods of a repetition differ, so nothing follows for those left out."""


def repeats_of(
    allocator: GraphAllocator, kept: Kept, makers: Sequence[tuple[Tensor, int]]
) -> list[tuple[Repeat | None, ...]]:
    """By backend what is repeated for each gap; `makers`: leafs that a layer made, with the layer.

    Raises: NotPeriodicError.
    """
    found: list[list[Repeat | None]] = [[] for _ in allocator.streams]
    for gap in kept.gaps:
        n = len(gap.period)
        start = kept.layers.index(gap.period[0])
        if start < n:
            raise NotPeriodicError
        earlier = kept.layers[start - n : start]
        try:
            before, first, last = (allocator.marks[il] for il in (earlier[0], gap.period[0], kept.layers[start + n]))
        except KeyError as missing:
            raise NotPeriodicError from missing
        for at, stream in enumerate(allocator.streams):
            here = [(leaf.taken, il) for leaf, il in makers if leaf.buffer == at]
            leafs = [[taken for taken, il in here if il in period] for period in (earlier, gap.period)]
            found[at].append(_repeat(stream, before[at], first[at], last[at], *leafs))
    return [tuple(repeats) for repeats in found]


def _repeat(
    stream: Stream, before: int, first: int, last: int, leafs_before: list[int], leafs: list[int]
) -> Repeat | None:
    """Compares two periods event by event. What one takes must be given back by itself or the next one, or never."""
    events, n = stream.events, last - first
    moved = dict(zip(leafs, leafs_before, strict=False))
    if first - before != n or len(leafs) != len(leafs_before):
        raise NotPeriodicError
    if any(events[leaf][1] != events[other][1] for leaf, other in moved.items()):
        raise NotPeriodicError
    given = set()
    for i in range(first, last):
        taken, size, offset = events[i]
        earlier, *same = events[i - n]
        if [size, offset] != same:
            raise NotPeriodicError
        if taken >= 0:
            given.add(taken)
        expected = -1 if taken < 0 else taken - n if taken >= before else moved.get(taken)
        if earlier != expected:
            raise NotPeriodicError
    if not given.issuperset(leafs):
        raise NotPeriodicError
    if any(before <= taken < first for taken, _, _ in events[last:]):
        raise NotPeriodicError
    return Repeat(first, last, tuple(leafs)) if n or leafs else None
