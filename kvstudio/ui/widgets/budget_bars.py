"""The bars: a Budget drawn as one stacked bar per device and one for the host, on the scale the layout gives."""

from collections.abc import Mapping
from dataclasses import dataclass

from PySide6.QtCore import QEasingCurve, QEvent, QPoint, QPointF, QRectF, QSize, Qt, QVariantAnimation, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFont,
    QFontMetricsF,
    QHelpEvent,
    QHideEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from kvstudio.budget.values import Budget, BufferKind, Provenance
from kvstudio.ui import colours, icons, text, theme
from kvstudio.ui.kinds import KindStyle, Pattern
from kvstudio.ui.theme import Step, Theme, Weight
from kvstudio.ui.widgets import bar_geometry as geometry
from kvstudio.ui.widgets import patterns
from kvstudio.ui.widgets.bar_geometry import BAR_HEIGHT, BarLayout, GroupValues, Row, Segment
from kvstudio.ui.widgets.basic import plain_tooltip
from kvstudio.units import format_gib, format_room

_GLIDE_MS = 120
_MINIMUM_WIDTH = 440
_STALE_OPACITY = 0.4
#: Name and layers, need and room: the height of a line and the way from one to the next.
_LINE, _LINES_APART = 19, 15


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment as the pointer or the keyboard finds it; `kind` None is what does not fit."""

    device: str
    kind: BufferKind | None
    bytes: int
    lines: tuple[str, ...]

    def words(self) -> str:
        """What the tooltip says, one fact a line."""
        return "\n".join(self.lines)


def pieces_of(budget: Budget, device: str, kind: BufferKind | None, size: float, holders: Mapping[str, str]) -> Piece:
    """What there is to say about one segment: name, bytes, formula in words, provenance."""
    n_bytes = round(size)
    if kind is None:
        head = text.tr("{}: {} more than it has").format(device, format_room(n_bytes))
        return Piece(device, None, n_bytes, (head, text.raw_bytes(n_bytes)))
    lines = [f"{device}: {text.kind_name(kind)}, {format_room(n_bytes)}", text.raw_bytes(n_bytes)]
    on_host = device == geometry.HOST
    parts = [b for b in budget.buffers if b.kind is kind and (b.device is None if on_host else b.device == device)]
    for part in parts:
        name = f"{part.name}: " if len(parts) > 1 or part.name != device else ""
        lines.append(f"{name}{part.why}")
    lines.extend(_source_lines(kind, tuple(part.provenance for part in parts), holders.get(device, "")))
    return Piece(device, kind, n_bytes, tuple(lines))


def _source_lines(kind: BufferKind, known: tuple[Provenance, ...], holder: str) -> tuple[str, ...]:
    if kind is BufferKind.OTHER_PROCESSES:
        return (holder or text.tr("held by others before this launch"), text.tr("measured: read from the driver"))
    if kind is BufferKind.OVERHEAD and not known:
        return (text.tr("memory that no buffer explains: the driver's own, learned from runs on this device"),)
    return tuple(text.provenance_name(p) for p in dict.fromkeys(known))


class BudgetBars(QWidget):
    """`show_budget` in, `segment_hovered` (a Piece or None) out; left and right go through the segments."""

    segment_hovered = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._budget: Budget | None = None
        self._called: dict[str, str] = {}
        self._holders: dict[str, str] = {}
        self._target: tuple[GroupValues, ...] = ()
        self._shown: tuple[GroupValues, ...] = ()
        self._origin: tuple[GroupValues, ...] = ()
        self._layout = BarLayout((), (), 0)
        self._column = float(geometry.FIGURES)
        self._gap = float(geometry.GAP)
        self._host = True
        self._at_least = 0.0
        self._picked: tuple[int, int] | None = None
        self._stale = False
        self._by_keyboard = False
        self._glide = QVariantAnimation(self)
        self._glide.setDuration(_GLIDE_MS)
        self._glide.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._glide.setStartValue(0.0)
        self._glide.setEndValue(1.0)
        self._glide.valueChanged.connect(self._on_glide)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(_MINIMUM_WIDTH)
        self.setAccessibleName(text.tr("Memory per device"))

    # values in

    def show_budget(
        self, budget: Budget | None, *, holders: Mapping[str, str] | None = None, glide: bool = False
    ) -> None:
        """Draw a Budget, or nothing. `holders` says per device who holds memory; `glide` for a discrete change."""
        self._budget = budget
        self._holders = dict(holders or {})
        self._called = text.device_names(device.name for device in budget.devices) if budget is not None else {}
        old = self._shown
        self._target = geometry.group_values(budget, self._host, self._at_least) if budget is not None else ()
        self._glide.stop()
        moves = glide and self.isVisible() and geometry.same_bars(old, self._target) and old != self._target
        if moves and not theme.reduced_motion(self):
            self._origin = old
            self._glide.start()
        else:
            self._shown = self._target
            self._place()
        self._say()

    def set_gap(self, open_run: bool) -> None:
        """Less air between the bars while the run area is open."""
        self._gap = float(geometry.GAP_OPEN if open_run else geometry.GAP)
        self._place()

    def set_scope(self, host: bool = True, at_least: float = 0.0) -> None:
        """Without the host, or on a scale shared with another picture; for pairs of before and after."""
        self._host, self._at_least = host, at_least
        self.show_budget(self._budget, holders=self._holders)

    # geometry

    def _names(self) -> dict[BufferKind, str]:
        return {kind: text.kind_name(kind, short=True) for kind in BufferKind}

    def _label_font(self, ink: QColor) -> QFont:
        light = colours.luminance(ink) > 0.5
        return theme.font(Step.SMALL, Weight.DemiBold if light else Weight.Medium)

    def _figures(self) -> float:
        strong = QFontMetricsF(theme.font(Step.BODY, Weight.DemiBold))
        plain = QFontMetricsF(theme.font(Step.BODY))
        widest = 0.0
        for group in self._target:
            for row in group.rows:
                need, total = _figures_of(row)
                widest = max(widest, strong.horizontalAdvance(need) + plain.horizontalAdvance(total))
        return widest + 1

    def _place(self) -> None:
        metrics = QFontMetricsF(theme.font(Step.SMALL, Weight.DemiBold))
        self._column = max(self._figures(), float(geometry.FIGURES))
        self._layout = geometry.lay_out(
            self._shown,
            self.width(),
            self._names(),
            metrics.horizontalAdvance,
            self.devicePixelRatioF(),
            self._gap,
            self._column,
        )
        if self.height() != round(self._layout.height):
            self.setFixedHeight(max(1, round(self._layout.height)))
        self.updateGeometry()
        self.update()

    def layout_shown(self) -> BarLayout:
        """The geometry on screen, the same that answers the pointer."""
        return self._layout

    def sizeHint(self) -> QSize:
        return QSize(680, round(self._layout.height))

    def _on_glide(self, t: float) -> None:
        self._shown = geometry.between(self._origin, self._target, t) if t < 1 else self._target
        self._place()

    # pointer and keyboard

    def piece(self, at: tuple[int, int] | None) -> Piece | None:
        """What is known about the segment at (row, segment)."""
        if at is None or self._budget is None or at[0] >= len(self._layout.rows):
            return None
        row = self._layout.rows[at[0]]
        if at[1] >= len(row.segments):
            return None
        segment = row.segments[at[1]]
        return pieces_of(self._budget, row.values.name, segment.kind, segment.bytes, self._holders)

    def _pick(self, at: tuple[int, int] | None) -> None:
        if at != self._picked:
            self._picked = at
            self.segment_hovered.emit(self.piece(at))
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._pick(self._layout.hit(event.position().x(), event.position().y()))

    def leaveEvent(self, event: QEvent) -> None:
        if not self.hasFocus():
            self._pick(None)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            at = self._layout.hit(event.pos().x(), event.pos().y())
            self._tell(at, event.globalPos())
            return True
        return super().event(event)

    def _tell(self, at: tuple[int, int] | None, where: QPoint) -> None:
        piece = self.piece(at)
        if piece is None:
            QToolTip.hideText()
        else:
            QToolTip.showText(where, plain_tooltip(piece.words()), self)

    def _order(self) -> list[tuple[int, int]]:
        return [(i, j) for i, row in enumerate(self._layout.rows) for j in range(len(row.segments))]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        order = self._order()
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        if event.key() == Qt.Key.Key_Escape and self._picked is not None:
            self._pick(None)
            QToolTip.hideText()
        elif event.key() in steps and order:
            at = order.index(self._picked) + steps[Qt.Key(event.key())] if self._picked in order else 0
            self._visit(order[max(0, min(at, len(order) - 1))])
        elif event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down) and order:
            row = (self._picked or (0, 0))[0] + (1 if event.key() == Qt.Key.Key_Down else -1)
            wanted = [at for at in order if at[0] == max(0, min(row, len(self._layout.rows) - 1))]
            self._visit(wanted[0] if wanted else order[0])
        else:
            super().keyPressEvent(event)

    def _visit(self, at: tuple[int, int]) -> None:
        self._pick(at)
        row = self._layout.rows[at[0]]
        where = QPoint(round(row.segments[at[1]].x), round(row.y + BAR_HEIGHT))
        self._tell(at, self.mapToGlobal(where))
        piece = self.piece(at)
        self.setAccessibleDescription(piece.words() if piece else "")

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._pick(None)
        super().focusOutEvent(event)
        self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        # A window that is merely brought to the front has not been walked through with the keyboard.
        if event.reason() != Qt.FocusReason.ActiveWindowFocusReason:
            self._by_keyboard = True
        self.update()

    def hideEvent(self, event: QHideEvent) -> None:
        self._glide.stop()
        self._shown = self._target
        super().hideEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._place()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.ApplicationFontChange, QEvent.Type.LanguageChange):
            self._place()
        elif event.type() == QEvent.Type.PaletteChange:
            self.update()

    def _say(self) -> None:
        rows = [row for group in self._target for row in group.rows]
        self.setAccessibleDescription("; ".join(f"{row.name}: {''.join(_figures_of(row))}" for row in rows))

    # painting

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        painter.setOpacity(_STALE_OPACITY if self._stale else 1.0)
        for axis in self._layout.axes:
            self._paint_axis(painter, axis, current)
        for i, row in enumerate(self._layout.rows):
            self._paint_bar(painter, row, current)
            self._paint_words(painter, row, current)
            if self._picked is not None and self._picked[0] == i and self._picked[1] < len(row.segments):
                patterns.outline(painter, _box(row, row.segments[self._picked[1]]), current.ink, 2)
        for row in self._layout.rows:
            if row.bracket is not None and not self._is_gliding():
                self._paint_bracket(painter, row, current)
        if self.hasFocus() and self._by_keyboard:
            left, right = geometry.LEFT - 6.0, max((tick.x for a in self._layout.axes for tick in a.ticks), default=0.0)
            right = max([right, *(s.x + s.width for row in self._layout.rows for s in row.segments)]) + 8
            patterns.outline(painter, QRectF(left, 0, right - left, self.height()), current.accent_text, 2)

    def set_stale(self, stale: bool) -> None:
        """Paler while these are the sizes of earlier settings."""
        if stale is not self._stale:
            self._stale = stale
            self.update()

    def _is_gliding(self) -> bool:
        return self._glide.state() == QVariantAnimation.State.Running

    def _paint_axis(self, painter: QPainter, axis: geometry.Axis, current: Theme) -> None:
        painter.setFont(theme.font(Step.CAPTION))
        metrics = QFontMetricsF(painter.font())
        for i, tick in enumerate(axis.ticks):
            painter.fillRect(
                QRectF(tick.x, axis.top, 1 / self.devicePixelRatioF(), axis.bottom - axis.top), current.hairline
            )
            painter.setPen(current.muted)
            shift = 0 if i == 0 else metrics.horizontalAdvance(tick.text) / 2
            painter.drawText(QPointF(tick.x - shift, axis.top - 5), tick.text)

    def _paint_bar(self, painter: QPainter, row: Row, current: Theme) -> None:
        left = float(geometry.LEFT)
        if row.capacity_x is not None:
            painter.fillRect(QRectF(left, row.y, row.track_right - left, BAR_HEIGHT), current.track)
        for segment in row.segments:
            style = current.overflow if segment.kind is None else current.kinds[segment.kind]
            box = _box(row, segment)
            patterns.framed(painter, box, style)
            if segment.label and segment.kind is not None:
                self._paint_label(painter, box, segment.label, style)
        if row.capacity_x is not None:
            overhang = geometry.TICK_OVERHANG
            tick = QRectF(row.capacity_x - 1, row.y - overhang, 2, BAR_HEIGHT + 2 * overhang)
            painter.fillRect(tick, current.ink)

    def _paint_label(self, painter: QPainter, box: QRectF, words: str, style: KindStyle) -> None:
        painter.setFont(self._label_font(style.ink))
        width = QFontMetricsF(painter.font()).horizontalAdvance(words)
        start = box.left() + geometry.LABEL_PADDING
        if style.pattern is not Pattern.NONE:
            painter.fillRect(QRectF(start - 4, box.top() + 5, width + 8, box.height() - 10), style.fill)
        painter.setPen(style.ink)
        painter.drawText(QRectF(start, box.top(), width + 2, box.height()), Qt.AlignmentFlag.AlignVCenter, words)

    def _paint_words(self, painter: QPainter, row: Row, current: Theme) -> None:
        middle = Qt.AlignmentFlag.AlignVCenter
        # Two lines about the middle of the bar, as far apart as the font needs.
        line, apart = theme.px(_LINE), theme.px(_LINES_APART)
        first = row.y + (BAR_HEIGHT - apart - line) / 2
        second = first + apart
        room = geometry.LEFT - 6
        painter.setFont(theme.font(Step.BODY, Weight.DemiBold))
        painter.setPen(current.ink)
        metrics = QFontMetricsF(painter.font())
        name = metrics.elidedText(
            self._called.get(row.values.name, row.values.name), Qt.TextElideMode.ElideMiddle, room
        )
        painter.drawText(QRectF(0, first, room, line), middle, name)
        painter.setFont(theme.font(Step.CAPTION))
        painter.setPen(current.muted)
        layers = QFontMetricsF(painter.font()).elidedText(row.values.layers, Qt.TextElideMode.ElideRight, room)
        painter.drawText(QRectF(0, second, room, line), middle, layers)
        self._paint_figures(painter, row, current, first, second)

    def _paint_figures(self, painter: QPainter, row: Row, current: Theme, first: float, second: float) -> None:
        middle = Qt.AlignmentFlag.AlignVCenter
        column, line = self._column, theme.px(_LINE)
        x = self.width() - column
        free = row.values.free_bytes
        over = free is not None and free < 0
        need, total = _figures_of(row.values)
        painter.setFont(theme.font(Step.BODY, Weight.DemiBold))
        painter.setPen(current.bad if over else current.ink)
        painter.drawText(QRectF(x, first, column, line), middle, need)
        x_total = x + QFontMetricsF(painter.font()).horizontalAdvance(need)
        painter.setFont(theme.font(Step.BODY))
        painter.setPen(current.muted)
        painter.drawText(QRectF(x_total, first, column, line), middle, total)
        if over:
            icon = icons.pixmap("warn", current.bad, 13, self.devicePixelRatioF())
            painter.drawPixmap(QPointF(x, second + (line - 13) / 2), icon)
            painter.setFont(theme.font(Step.SMALL, Weight.Medium))
            painter.setPen(current.bad)
            x += 18
        else:
            painter.setFont(theme.font(Step.SMALL))
        painter.drawText(QRectF(x, second, column, line), middle, room_words(free, row.values.is_available))

    def _paint_bracket(self, painter: QPainter, row: Row, current: Theme) -> None:
        assert row.bracket is not None
        # Three quarters of a pixel down, so that the line fills one pixel row whole and half the next.
        y = row.y + BAR_HEIGHT + geometry.BRACKET_DROP - 0.25
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(
            QPen(current.bad, 1.5, Qt.PenStyle.SolidLine, Qt.PenCapStyle.SquareCap, Qt.PenJoinStyle.MiterJoin)
        )
        left, right = row.bracket.left + 0.75, row.bracket.right - 0.75
        painter.drawPolyline([QPointF(left, y - 2.5), QPointF(left, y), QPointF(right, y), QPointF(right, y - 2.5)])
        painter.setFont(theme.font(Step.SMALL, Weight.Medium))
        words = bracket_words(row.bracket.failure.kind, row)
        width = QFontMetricsF(painter.font()).horizontalAdvance(words)
        start = min(max(0.0, row.bracket.right + 1 - width), self.width() - width)
        patch = QRectF(start, y + 3, width + 1, 17)
        painter.fillRect(patch, current.canvas)
        painter.drawText(patch, Qt.AlignmentFlag.AlignVCenter, words)


def bracket_words(kind: BufferKind, row: Row) -> str:
    """`KV cache asks for 7.8 GiB, 6.9 GiB are free`, or the backend's limit where that is the reason."""
    failure = row.bracket.failure if row.bracket else row.values.failure
    if failure is None:
        return ""
    many, name, asked = kind is BufferKind.MODEL, text.kind_name(kind), format_room(failure.bytes)
    if failure.limit_bytes is not None:
        limited = text.tr("{} asks for {}, one allocation may be {}")
        if many:
            limited = text.tr("{} ask for {}, one allocation may be {}")
        return limited.format(name, asked, format_room(failure.limit_bytes))
    short = text.tr("{} ask for {}, {} are free") if many else text.tr("{} asks for {}, {} are free")
    return short.format(name, asked, format_room(failure.free_bytes or 0))


def room_words(free: float | None, available: bool = False) -> str:
    """`5.5 GiB free`, `5.5 GiB available` where page cache gives way, `1.3 GiB over`, or that nobody knows."""
    if free is None:
        return text.tr("capacity unknown")
    size = format_room(round(abs(free)))
    if free < 0:
        return text.tr("{} over").format(size)
    return text.tr("{} available").format(size) if available else text.tr("{} free").format(size)


def _figures_of(row: geometry.RowValues) -> tuple[str, str]:
    used = format_gib(round(row.used_bytes))
    return used, f" / {format_gib(round(row.total_bytes))} GiB" if row.total_bytes is not None else " GiB"


def _box(row: Row, segment: Segment) -> QRectF:
    return QRectF(segment.x, row.y, segment.width, BAR_HEIGHT)
