"""A Budget and a width -> where every segment, tick, label and bracket of the bars goes; needs no window."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from kvstudio.budget.values import Budget, BufferKind, DeviceBudget, FirstFailure
from kvstudio.ui import text
from kvstudio.units import GIB

HOST = "Host"

LEFT = 84
#: The column of figures, and the air between it and the end of the longest bar.
FIGURES = 103
AIR = 19
BAR_HEIGHT = 28
GAP = 32
GAP_OPEN = 28
#: With many devices the rows move together; only the row with a bracket keeps its room.
GAP_MANY = 14
MANY_DEVICES = 4
AXIS_HEIGHT = 28
TICK_OVERHANG = 5
BRACKET_DROP = 6
BRACKET_HEIGHT = 27
MIN_SEGMENT = 3
#: Least air between two labels of an axis.
TICK_AIR = 8
LABEL_PADDING = 8

_AXIS_STEPS = (0.1, 0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
_WANTED_LINES = 5
_ALMOST = 1.01

Measure = Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes of one kind on one device."""

    kind: BufferKind
    bytes: float


@dataclass(frozen=True, slots=True)
class RowValues:
    """What one bar shows: amounts in the order they are drawn, zero ones left out; unknown capacity is None.

    `failing` is the kind whose allocation fails first, on this device, and `failure` what it asked. `mapped_bytes` of
    the weights are page cache: in the bar as far as there is room, and still available to whoever asks.
    """

    name: str
    layers: str
    amounts: tuple[Amount, ...]
    total_bytes: float | None
    failure: FirstFailure | None = None
    mapped_bytes: float = 0.0

    @property
    def used_bytes(self) -> float:
        """Everything in the device after this launch: others, overhead and all buffers."""
        return sum(amount.bytes for amount in self.amounts)

    @property
    def free_bytes(self) -> float | None:
        """What stays free, or available where that is another thing; negative when too much is asked."""
        if self.total_bytes is None:
            return None
        free = self.total_bytes - self.used_bytes
        return free + self.mapped_bytes if self.is_available else free

    @property
    def is_available(self) -> bool:
        """Whether most of what can be had is page cache that gives way, as the system's word for it is."""
        return self.total_bytes is not None and self.mapped_bytes > max(0.0, self.total_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class GroupValues:
    """Bars that share one scale, `scale_bytes` long."""

    rows: tuple[RowValues, ...]
    scale_bytes: float


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of a bar, in logical pixels on whole device pixels. `kind` None is the overflow."""

    kind: BufferKind | None
    x: float
    width: float
    bytes: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Bracket:
    """The line under the segment that fails first, and its sentence's right end."""

    left: float
    right: float
    failure: FirstFailure


@dataclass(frozen=True, slots=True)
class Row:
    """One bar: `y` is the top of the bar, `capacity_x` the tick, None where the capacity is unknown."""

    values: RowValues
    y: float
    segments: tuple[Segment, ...]
    track_right: float
    capacity_x: float | None
    bracket: Bracket | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of an axis; `text` is empty where it would touch the label before it."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis above a group: lines run from `top` to `bottom`."""

    ticks: tuple[Tick, ...]
    top: float
    bottom: float


@dataclass(frozen=True, slots=True)
class BarLayout:
    """Everything the widget draws."""

    rows: tuple[Row, ...]
    axes: tuple[Axis, ...]
    height: float

    def hit(self, x: float, y: float) -> tuple[int, int] | None:
        """Row and segment under a point, or None."""
        for i, row in enumerate(self.rows):
            if row.y <= y <= row.y + BAR_HEIGHT:
                for j, segment in enumerate(row.segments):
                    if segment.x <= x < segment.x + segment.width:
                        return i, j
        return None


@lru_cache(maxsize=2048)
def amounts(device: DeviceBudget) -> tuple[Amount, ...]:
    """Kinds with memory, in the order they are drawn; what others hold is what is not free where nobody says."""
    known = {kind: device.of(kind) for kind in BufferKind}
    if known[BufferKind.OTHER_PROCESSES] is None and device.total_bytes is not None and device.free_bytes is not None:
        known[BufferKind.OTHER_PROCESSES] = max(0, device.total_bytes - device.free_bytes)
    return tuple(Amount(kind, size) for kind, size in known.items() if size)


def _row(device: DeviceBudget, layers: str, failure: FirstFailure | None) -> RowValues:
    shown = amounts(device)
    given_way = 0.0
    if device.mapped_bytes and device.total_bytes is not None:
        over = sum(amount.bytes for amount in shown) - device.total_bytes
        given_way = min(max(0.0, over), device.mapped_bytes)
        kept = {BufferKind.MODEL: given_way}
        shown = tuple(Amount(a.kind, a.bytes - kept.get(a.kind, 0.0)) for a in shown)
    mapped = device.mapped_bytes - given_way
    return RowValues(device.name, layers, tuple(a for a in shown if a.bytes), device.total_bytes, failure, mapped)


def row_values(budget: Budget, host: bool = True) -> tuple[tuple[RowValues, ...], ...]:
    """The devices' bars, then the host's, each group on its own scale."""
    failure = budget.first_failure

    def failing(name: str) -> FirstFailure | None:
        return failure if failure is not None and failure.device == name else None

    used = tuple(_row(d, text.layers(d.n_layers, d.has_output_layer), failing(d.name)) for d in budget.devices)
    devices = (*used, *(_row(d, text.tr("not used"), None) for d in budget.idle))
    groups = (devices,) if devices else ()
    if not host:
        return groups
    on_host = _row(replace(budget.host, name=HOST), text.tr("RAM"), failing(budget.host.name) or failing(HOST))
    return (*groups, (on_host,))


def scale_of(rows: tuple[RowValues, ...]) -> float:
    """The longest thing a group has to show."""
    return max((max(row.used_bytes, row.total_bytes or 0) for row in rows), default=0.0) or float(GIB)


def group_values(budget: Budget, host: bool = True, at_least: float = 0) -> tuple[GroupValues, ...]:
    """Bars of a Budget; `at_least` widens the devices' scale so that two pictures can share it."""
    groups = row_values(budget, host)
    if not groups:
        return ()
    first = GroupValues(groups[0], max(scale_of(groups[0]), at_least))
    return (first, *(GroupValues(rows, scale_of(rows)) for rows in groups[1:]))


def shared_scale(*budgets: Budget | None) -> float:
    """One scale for the device bars of several Budgets."""
    return max((scale_of(row_values(b)[0]) for b in budgets if b is not None and b.all_devices), default=0.0)


def axis_step(longest_bytes: float) -> float:
    """GiB between two lines, so that an axis has four to six."""
    longest = longest_bytes / GIB

    def distance(step: float) -> tuple[float, float]:
        return abs(int(longest * _ALMOST / step) + 1 - _WANTED_LINES), -step

    return min(_AXIS_STEPS, key=distance)


def _ticks(scale_bytes: float, bar_width: float, ratio: float, measure: Measure) -> tuple[Tick, ...]:
    step = axis_step(scale_bytes)
    # A "24 GB" card reports a little under 24 GiB; its last line still belongs on the axis.
    count = int(scale_bytes * _ALMOST / GIB / step) + 1
    per_byte = bar_width / scale_bytes
    ticks: list[Tick] = []
    taken = 0.0
    for i in range(count):
        mark = round(i * step, 4)
        words = f"{mark:g} GiB" if i == 0 else f"{mark:g}"
        x = LEFT + _snap(mark * GIB * per_byte, ratio)
        left = x if i == 0 else x - measure(words) / 2
        fits = i == 0 or left >= taken + TICK_AIR
        ticks.append(Tick(x, words if fits else ""))
        taken = left + measure(words) if fits else taken
    return tuple(ticks)


def _snap(x: float, ratio: float) -> float:
    return round(x * ratio) / ratio


def widths(sizes: tuple[float, ...], scale_bytes: float, bar_width: float, ratio: float = 1.0) -> tuple[int, ...]:
    """Widths of segments in whole device pixels: cumulative rounding, then at least MIN_SEGMENT logical pixels each.

    What the small ones gain is taken from the widest, so that the sum stays right wherever it can.
    """
    per_byte = bar_width * ratio / scale_bytes
    edges = [0]
    running = 0.0
    for size in sizes:
        running += size
        edges.append(round(running * per_byte))
    found = [b - a for a, b in pairwise(edges)]
    least = round(MIN_SEGMENT * ratio)
    for i, width in enumerate(found):
        if sizes[i] > 0 and width < least:
            widest = max(range(len(found)), key=found.__getitem__)
            taken = min(least - width, max(0, found[widest] - least)) if widest != i else 0
            found[widest] -= taken
            found[i] = least
    return tuple(found)


def _label(short_name: str, size: float, room: float, measure: Measure) -> str:
    figure = f"{size / GIB:.1f}"
    for words in (f"{short_name} {figure}", figure):
        if measure(words) + 2 * LABEL_PADDING <= room:
            return words
    return ""


def _segments(
    values: RowValues,
    scale: float,
    bar_width: float,
    ratio: float,
    names: Mapping[BufferKind, str],
    measure: Measure,
) -> tuple[tuple[Segment, ...], float | None, dict[BufferKind, tuple[float, float]]]:
    pixels = widths(tuple(a.bytes for a in values.amounts), scale, bar_width, ratio)
    capacity = None if values.total_bytes is None else LEFT + _snap(values.total_bytes * bar_width / scale, ratio)
    spans: dict[BufferKind, tuple[float, float]] = {}
    segments = []
    x = float(LEFT)
    for amount, width in zip(values.amounts, pixels):
        right = x + width / ratio
        spans[amount.kind] = (x, right)
        seen = right if capacity is None else min(right, capacity)
        if seen > x:
            label = _label(names[amount.kind], amount.bytes, seen - x, measure)
            segments.append(Segment(amount.kind, x, seen - x, amount.bytes, label))
        x = right
    over = values.used_bytes - (values.total_bytes or 0)
    if capacity is not None and x > capacity and over > 0:
        segments.append(Segment(None, capacity, max(x - capacity, MIN_SEGMENT), over))
    return tuple(segments), capacity, spans


def _bracket(values: RowValues, spans: Mapping[BufferKind, tuple[float, float]]) -> Bracket | None:
    if values.failure is None or values.failure.kind not in spans:
        return None
    left, right = spans[values.failure.kind]
    return Bracket(left, right, values.failure)


def lay_out(
    groups: tuple[GroupValues, ...],
    width: float,
    names: Mapping[BufferKind, str],
    measure: Measure,
    ratio: float = 1.0,
    gap: float = GAP,
    figures: float = FIGURES,
) -> BarLayout:
    """Place every bar of every group in `width` logical pixels at `ratio` device pixels each.

    `names` are the short names used inside bars, `measure` says how wide a label is, `figures` how much the column at
    the right needs.
    """
    bar_width = max(40.0, width - LEFT - AIR - max(figures, FIGURES))
    if sum(len(group.rows) for group in groups) > MANY_DEVICES:
        gap = min(gap, GAP_MANY)
    rows: list[Row] = []
    axes: list[Axis] = []
    y = 0.0
    for group in groups:
        y += AXIS_HEIGHT - 4 if not rows else AXIS_HEIGHT
        top = y
        for values in group.rows:
            segments, capacity, spans = _segments(values, group.scale_bytes, bar_width, ratio, names, measure)
            bracket = _bracket(values, spans)
            track = capacity if capacity is not None else LEFT + bar_width
            rows.append(Row(values, y, segments, track, capacity, bracket))
            y += BAR_HEIGHT + (max(gap, BRACKET_HEIGHT) if bracket else gap)
        bottom = rows[-1].y + BAR_HEIGHT if rows else y
        ticks = _ticks(group.scale_bytes, bar_width, ratio, measure)
        axes.append(Axis(ticks, top - 6, bottom + TICK_OVERHANG))
    if not rows:
        return BarLayout((), (), 0)
    last = rows[-1]
    return BarLayout(tuple(rows), tuple(axes), last.y + BAR_HEIGHT + (BRACKET_HEIGHT if last.bracket else 8))


def between(old: tuple[GroupValues, ...], new: tuple[GroupValues, ...], t: float) -> tuple[GroupValues, ...]:
    """A moment of the glide from one picture to another; texts and failures are the new one's.

    Only for pictures with the same bars (see `same_bars`).
    """
    return tuple(
        GroupValues(
            tuple(_row_between(a, b, t) for a, b in zip(one.rows, two.rows)), _mid(one.scale_bytes, two.scale_bytes, t)
        )
        for one, two in zip(old, new)
    )


def same_bars(old: tuple[GroupValues, ...], new: tuple[GroupValues, ...]) -> bool:
    """Whether two pictures show the same devices."""
    return [[r.name for r in g.rows] for g in old] == [[r.name for r in g.rows] for g in new]


def _mid(a: float, b: float, t: float) -> float:
    return a + (b - a) * t


def _row_between(old: RowValues, new: RowValues, t: float) -> RowValues:
    was = {a.kind: a.bytes for a in old.amounts}
    becomes = {a.kind: a.bytes for a in new.amounts}
    mixed = (Amount(kind, _mid(was.get(kind, 0), becomes.get(kind, 0), t)) for kind in BufferKind)
    total = new.total_bytes
    if total is not None and old.total_bytes is not None:
        total = _mid(old.total_bytes, total, t)
    return replace(new, amounts=tuple(a for a in mixed if a.bytes > 0), total_bytes=total)
