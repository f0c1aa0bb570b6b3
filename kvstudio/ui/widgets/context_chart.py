"""Memory of each device against n_ctx: stacked areas, the curves of other K/V types, the capacity, where it ends."""

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QPixmap,
    QPolygonF,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from kvstudio.advise.by_context import N_CTX_STEP, ContextView
from kvstudio.budget.values import BufferKind, DeviceBudget
from kvstudio.ui import colours, text, theme
from kvstudio.ui.kinds import KindStyle
from kvstudio.ui.theme import Step, Theme, Weight
from kvstudio.ui.widgets import bar_geometry, patterns
from kvstudio.ui.widgets.basic import show_tooltip
from kvstudio.ui.widgets.context_geometry import GAP, HEADROOM, LEFT, RIGHT, Plot, plots, spread, used_bytes, value_at
from kvstudio.units import GIB, format_gib

_AXIS = 26
_AREA_ALPHA = 0.78
_APART = 14
_CATCH = 9
_KEY_STEP = 1024

#: Width and dashes, in widths, of the current type's curve and of the others.
_PENS: tuple[tuple[float, tuple[float, ...]], ...] = ((2.0, ()), (1.6, (5, 2)), (1.6, (1.6, 1.4)))
_MORE: tuple[float, tuple[float, ...]] = (1.6, (6, 2, 1.4, 2))


class ContextChart(QWidget):
    """`show_context` in, `context_picked` (an n_ctx) out: click, or move with left and right and press Enter."""

    context_picked = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view: ContextView | None = None
        self._picture: QPixmap | None = None
        self._pointed: int | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.CrossCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(420)
        self.setAccessibleName(text.tr("Memory per device against context"))

    def show_context(self, view: ContextView | None) -> None:
        """Draw a view; None draws nothing."""
        self._view = view
        self._pointed = None
        self._picture = None
        height = 0.0
        if view is not None and view.curves and view.curves[0].points[0].devices:
            height = plots(view, 600)[-1].box.bottom() + _AXIS
            self.setAccessibleDescription(self._said(view))
        self.setFixedHeight(max(1, round(height)))
        self.update()

    def _said(self, view: ContextView) -> str:
        devices = view.curves[0].points[0].devices
        ends = [f"{d.name}: {n if n is not None else '–'}" for d, n in zip(devices, view.curves[0].fits, strict=True)]
        return text.tr("Largest context that fits: {}").format(", ".join(ends))

    def _plots(self) -> tuple[Plot, ...]:
        return plots(self._view, self.width(), self._left()) if self._view is not None and self._view.curves else ()

    def frames(self) -> tuple[Plot, ...]:
        """The geometry on screen, the same that answers the pointer."""
        return self._plots()

    def _left(self) -> float:
        """Room for the layers of a device beside the figures of its axis."""
        assert self._view is not None
        metrics = QFontMetricsF(theme.font(Step.CAPTION))
        devices = self._view.curves[0].points[0].devices
        widest = max(
            (metrics.horizontalAdvance(text.layers(d.n_layers, d.has_output_layer)) for d in devices), default=0
        )
        return max(LEFT, round(widest + metrics.horizontalAdvance("128") + 10))

    def sizeHint(self) -> QSize:
        return QSize(640, self.height())

    # pointer and keyboard

    def picked_at(self, x: float, y: float) -> int | None:
        """The context a click at a point means: a marked end where one is near, else the step below the pointer."""
        if self._view is None:
            return None
        for plot in self._plots():
            if not plot.box.adjusted(-4, -GAP, 4, GAP).contains(QPointF(x, y)):
                continue
            total = self._view.curves[0].points[0].devices[plot.index].total_bytes
            for curve in self._view.curves:
                end = curve.fits[plot.index]
                if end is not None and total is not None:
                    near = abs(plot.x(end) - x) <= _CATCH and abs(plot.y(total) - y) <= _CATCH
                    if near and end < self._view.n_ctx_max:
                        return end
            return plot.n_ctx(x)
        return None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._pointed = self.picked_at(event.position().x(), event.position().y())
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self._pointed = None
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        picked = self.picked_at(event.position().x(), event.position().y())
        if event.button() == Qt.MouseButton.LeftButton and picked is not None:
            self.context_picked.emit(picked)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -_KEY_STEP, Qt.Key.Key_Right: _KEY_STEP}
        if self._view is None:
            super().keyPressEvent(event)
        elif event.key() in steps:
            start = self._pointed if self._pointed is not None else self._view.n_ctx_now
            moved = start + steps[Qt.Key(event.key())]
            self._pointed = max(N_CTX_STEP, min(moved, self._view.n_ctx_max))
            self.setAccessibleDescription(self.words_at(self._pointed))
            self.update()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._pointed is not None:
            self.context_picked.emit(self._pointed)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._pointed = None
        self.update()

    def words_at(self, n_ctx: int) -> str:
        """What each device holds at one context, per type."""
        if self._view is None:
            return ""
        devices = self._view.curves[0].points[0].devices
        lines = [text.tr("Context {}").format(n_ctx)]
        for i, device in enumerate(devices):
            sizes = (f"{c.cache_type} {value_at(c, i, n_ctx) / GIB:.1f}" for c in self._view.curves)
            lines.append(f"{device.name}: {', '.join(sizes)} GiB")
        return "\n".join(lines)

    def event(self, event: QEvent) -> bool:
        return show_tooltip(self, event, self._said_at) or super().event(event)

    def _said_at(self, x: float, y: float) -> str:
        at = self.picked_at(x, y)
        return "" if at is None else self.words_at(at)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange, QEvent.Type.ApplicationFontChange):
            self._picture = None
            self.update()

    # painting

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._picture = None

    def paintEvent(self, event: QPaintEvent) -> None:
        view, frames = self._view, self._plots()
        if view is None or not frames:
            return
        current = Theme.current()
        ratio = self.devicePixelRatioF()
        if self._picture is None or self._picture.devicePixelRatio() != ratio:
            self._picture = self._draw(view, frames, current, ratio)
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_now(painter, frames, view, current)
        for plot in frames:
            self._paint_ends(painter, plot, view, current)
        self._paint_axis(painter, frames[-1], view, current)
        if self.hasFocus():
            box = QRectF(frames[0].box.topLeft(), frames[-1].box.bottomRight()).adjusted(-5, 0, 5, 5)
            patterns.outline(painter, box, current.accent_text, 2)

    def _draw(self, view: ContextView, frames: tuple[Plot, ...], current: Theme, ratio: float) -> QPixmap:
        """What stays while the pointer moves; the areas are the dear part."""
        picture = QPixmap(round(self.width() * ratio), round(self.height() * ratio))
        picture.setDevicePixelRatio(ratio)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for plot in frames:
            self._paint_grid(painter, plot, view, current)
            self._paint_areas(painter, plot, view, current)
            self._paint_curves(painter, plot, view, current)
        painter.end()
        return picture

    def _device(self, view: ContextView, plot: Plot) -> DeviceBudget:
        return view.curves[0].points[0].devices[plot.index]

    def _paint_grid(self, painter: QPainter, plot: Plot, view: ContextView, current: Theme) -> None:
        device = self._device(view, plot)
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.setFont(theme.font(Step.BODY, Weight.DemiBold))
        painter.setPen(current.ink)
        short = text.device_names(d.name for d in view.curves[0].points[0].devices)[device.name]
        name = QFontMetricsF(painter.font()).elidedText(short, Qt.TextElideMode.ElideMiddle, plot.box.left() - 20)
        painter.drawText(QRectF(0, plot.box.top() + 6, plot.box.left() - 20, 19), middle, name)
        painter.setFont(theme.font(Step.CAPTION))
        painter.setPen(current.muted)
        layers = text.layers(device.n_layers, device.has_output_layer)
        painter.drawText(QRectF(0, plot.box.top() + 22, plot.box.left() - 14, 19), middle, layers)
        step = _value_step(device.total_bytes or plot.top_bytes / HEADROOM)
        mark = 0.0
        while mark <= (device.total_bytes or plot.top_bytes) * 1.01:
            y = plot.y(mark)
            painter.fillRect(QRectF(plot.box.left(), round(y), plot.box.width(), 1), current.hairline)
            label = QRectF(plot.box.left() - 46, y - 8, 40, 16)
            painter.drawText(label, int(middle | Qt.AlignmentFlag.AlignRight), f"{mark / GIB:g}")
            mark += step

    def _paint_areas(self, painter: QPainter, plot: Plot, view: ContextView, current: Theme) -> None:
        points = view.curves[0].points
        below = [0.0] * len(points)
        for kind in BufferKind:
            sizes = [_size(p.devices[plot.index], kind) for p in points]
            if not any(sizes):
                continue
            above = [a + b for a, b in zip(below, sizes, strict=True)]
            self._fill(painter, plot, view, below, above, current.kinds[kind], _AREA_ALPHA)
            below = above
        total = self._device(view, plot).total_bytes
        if total is not None and below[-1] > total:
            floor = [float(total)] * len(points)
            self._fill(painter, plot, view, floor, [max(float(total), b) for b in below], current.overflow, 1.0)

    def _fill(
        self,
        painter: QPainter,
        plot: Plot,
        view: ContextView,
        low: list[float],
        high: list[float],
        style: KindStyle,
        alpha: float,
    ) -> None:
        xs = [plot.x(p.n_ctx) for p in view.curves[0].points]
        # The first point is a step, not zero; the area starts at the axis all the same.
        xs[0] = plot.box.left()
        top = [QPointF(x, plot.y(v)) for x, v in zip(xs, high, strict=True)]
        bottom = [QPointF(x, plot.y(v)) for x, v in zip(xs, low, strict=True)]
        path = QPainterPath()
        path.addPolygon(QPolygonF([*top, *reversed(bottom)]))
        painter.save()
        if alpha >= 1:
            painter.fillPath(path, Theme.current().canvas)
        painter.setClipPath(path)
        patterns.fill(painter, plot.box, style, alpha)
        painter.restore()

    def _paint_curves(self, painter: QPainter, plot: Plot, view: ContextView, current: Theme) -> None:
        total = self._device(view, plot).total_bytes
        if total is not None:
            painter.fillRect(QRectF(plot.box.left(), plot.y(total) - 1, plot.box.width(), 2), current.ink)
        ends = []
        for i, curve in reversed(list(enumerate(view.curves))):
            width, dashes = _PENS[i] if i < len(_PENS) else _MORE
            line = [QPointF(plot.x(p.n_ctx), plot.y(used_bytes(p.devices[plot.index]))) for p in curve.points]
            line[0].setX(plot.box.left())
            if i:
                painter.setPen(QPen(colours.with_alpha(current.canvas, 0.6), width + 1.6))
                painter.drawPolyline(line)
            pen = QPen(current.ink, width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap)
            if dashes:
                pen.setDashPattern(dashes)
            painter.setPen(pen)
            painter.drawPolyline(line)
            ends.append((line[-1].y(), curve.cache_type))
        painter.setFont(theme.font(Step.SMALL, Weight.Medium))
        painter.setPen(current.ink)
        for y, (_, name) in zip(spread([end[0] for end in ends], _APART), ends, strict=True):
            box = QRectF(plot.box.right() + 8, y - 9, RIGHT - 8, 18)
            painter.drawText(box, Qt.AlignmentFlag.AlignVCenter, name)

    def _paint_now(self, painter: QPainter, frames: tuple[Plot, ...], view: ContextView, current: Theme) -> None:
        for n_ctx, width, style in (
            (view.n_ctx_now, 1.5, Qt.PenStyle.DashLine),
            (self._pointed, 1, Qt.PenStyle.SolidLine),
        ):
            if n_ctx is not None and n_ctx <= view.n_ctx_max:
                x = frames[0].x(n_ctx)
                painter.setPen(QPen(current.accent_text, width, style, Qt.PenCapStyle.FlatCap))
                painter.drawLine(QPointF(x, frames[0].box.top()), QPointF(x, frames[-1].box.bottom() + 5))

    def _paint_ends(self, painter: QPainter, plot: Plot, view: ContextView, current: Theme) -> None:
        total = self._device(view, plot).total_bytes
        if total is None:
            return
        painter.setFont(theme.font(Step.CAPTION, Weight.DemiBold))
        painter.setPen(current.ink)
        said = text.tr("Capacity {} GiB").format(format_gib(total))
        width = QFontMetricsF(painter.font()).horizontalAdvance(said) + 2
        where = QRectF(plot.box.left() + 6, plot.y(total) - 18, width, 16)
        first_fit = view.curves[0].fits[plot.index]
        boxed = self._box(plot, first_fit, total) if first_fit is not None and first_fit < view.n_ctx_max else None
        # The axis has the capacity too, so it is what makes way.
        if used_bytes(self._device(view, plot)) <= total and (boxed is None or boxed.left() > where.right() + 4):
            painter.drawText(where, Qt.AlignmentFlag.AlignVCenter, said)
        for i, curve in reversed(list(enumerate(view.curves))):
            end = curve.fits[plot.index]
            if end is None or end >= view.n_ctx_max:
                continue
            radius = 5.0 if i == 0 else 3.5
            painter.setPen(QPen(current.ink, 2.0 if i == 0 else 1.5))
            painter.setBrush(current.canvas)
            painter.drawEllipse(QPointF(plot.x(end), plot.y(total)), radius, radius)
        if boxed is not None and first_fit is not None:
            painter.setFont(theme.font(Step.SMALL, Weight.DemiBold))
            painter.setPen(QPen(current.ink, 1))
            painter.setBrush(current.canvas)
            painter.drawRoundedRect(boxed, 3, 3)
            painter.drawText(boxed, Qt.AlignmentFlag.AlignCenter, self._fits(first_fit))

    @staticmethod
    def _fits(n_ctx: int) -> str:
        return text.tr("{} fits").format(n_ctx)

    def _box(self, plot: Plot, n_ctx: int, total: float) -> QRectF:
        """Where the largest context that fits is written: left of its mark, above the line of the capacity."""
        font = theme.font(Step.SMALL, Weight.DemiBold)
        width = QFontMetricsF(font).horizontalAdvance(self._fits(n_ctx)) + 14
        left = max(plot.box.left(), plot.x(n_ctx) - 8 - width)
        return QRectF(round(left) + 0.5, round(plot.y(total) - 23) + 0.5, round(width), 18)

    def _paint_axis(self, painter: QPainter, plot: Plot, view: ContextView, current: Theme) -> None:
        y = plot.box.bottom() + 6
        shown = self._pointed if self._pointed is not None else view.n_ctx_now
        words = text.tr("Context {}").format(shown) if self._pointed else text.tr("Context now {}").format(shown)
        painter.setFont(theme.font(Step.CAPTION, Weight.DemiBold))
        width = QFontMetricsF(painter.font()).horizontalAdvance(words) + 2
        x = min(max(0.0, plot.x(min(shown, view.n_ctx_max)) - width / 2), self.width() - width)
        painter.setPen(current.accent_text)
        painter.drawText(QRectF(x, y, width, 18), Qt.AlignmentFlag.AlignCenter, words)
        painter.setFont(theme.font(Step.CAPTION))
        painter.setPen(current.muted)
        for i in range(5):
            n_ctx = view.n_ctx_max * i // 4
            own = QFontMetricsF(painter.font()).horizontalAdvance(str(n_ctx)) + 2
            left = plot.x(n_ctx) - own / 2
            if left + own + 6 < x or left > x + width + 6:
                painter.drawText(QRectF(left, y, own, 18), Qt.AlignmentFlag.AlignCenter, str(n_ctx))


def _size(device: DeviceBudget, kind: BufferKind) -> float:
    return next((a.bytes for a in bar_geometry.amounts(device) if a.kind is kind), 0.0)


def _value_step(total: float) -> float:
    """Two or three lines below the capacity."""
    half = total * 1.01 / GIB / 2
    fitting = [step for step in (0.1, 0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96) if step <= half]
    return (fitting[-1] if fitting else 0.1) * GIB
