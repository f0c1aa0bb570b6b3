"""Where curves by context go: n_ctx and bytes to pixels, values between points, labels apart; needs no window."""

from dataclasses import dataclass
from itertools import pairwise

from PySide6.QtCore import QRectF

from kvstudio.advise.by_context import N_CTX_STEP, ContextView, Curve
from kvstudio.budget.values import DeviceBudget
from kvstudio.ui.widgets import bar_geometry

LEFT, RIGHT = 84, 56
GAP = 10
#: Room above the first frame for what is written on its capacity.
TOP = 16
#: Air above the highest curve.
HEADROOM = 1.02
_PLOT, _PLOT_MANY, _PLOT_MOST = 136, 96, 64


@dataclass(frozen=True, slots=True)
class Plot:
    """One device's frame: n_ctx to x and bytes to y."""

    index: int
    box: QRectF
    n_ctx_max: int
    top_bytes: float

    def x(self, n_ctx: float) -> float:
        return self.box.left() + self.box.width() * n_ctx / self.n_ctx_max

    def y(self, size: float) -> float:
        return self.box.bottom() - self.box.height() * size / self.top_bytes

    def n_ctx(self, x: float) -> int:
        """The nearest whole step of the context at a pixel column."""
        share = (x - self.box.left()) / self.box.width()
        steps = round(share * self.n_ctx_max / N_CTX_STEP)
        return max(1, min(steps, self.n_ctx_max // N_CTX_STEP)) * N_CTX_STEP


def used_bytes(device: DeviceBudget) -> float:
    """Everything in the device, others included."""
    return sum(amount.bytes for amount in bar_geometry.amounts(device))


def plots(view: ContextView, width: float, left: float = LEFT) -> tuple[Plot, ...]:
    """Frames of all devices in `width` pixels, names and axis in the first `left` of them."""
    first = view.curves[0].points[0].devices
    height = _PLOT if len(first) <= 2 else _PLOT_MANY if len(first) <= 4 else _PLOT_MOST
    made = []
    top_bytes = max(_top(view, i) for i in range(len(first))) if first else 1.0
    for i in range(len(first)):
        box = QRectF(left, TOP + i * (height + GAP), max(60.0, width - left - RIGHT), height)
        made.append(Plot(i, box, view.n_ctx_max, top_bytes))
    return tuple(made)


def _top(view: ContextView, index: int) -> float:
    total = view.curves[0].points[0].devices[index].total_bytes or 0
    return max([float(total), *(used_bytes(c.points[-1].devices[index]) for c in view.curves)]) * HEADROOM


def spread(wanted: list[float], apart: float) -> list[float]:
    """Move labels down until no two are closer than `apart`, keeping their order."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    placed = list(wanted)
    for one, two in pairwise(order):
        placed[two] = max(placed[two], placed[one] + apart)
    return placed


def value_at(curve: Curve, index: int, n_ctx: float) -> float:
    """Bytes of a device between two points of a curve."""
    points = curve.points
    for a, b in pairwise(points):
        if n_ctx <= b.n_ctx:
            t = (n_ctx - a.n_ctx) / max(1, b.n_ctx - a.n_ctx)
            one, two = used_bytes(a.devices[index]), used_bytes(b.devices[index])
            return one + (two - one) * max(0.0, t)
    return used_bytes(points[-1].devices[index])
