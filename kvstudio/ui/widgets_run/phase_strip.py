"""The strip of phases: what is done, what runs, what failed, and at the right the clock and the peaks."""

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, QTimer
from PySide6.QtGui import QFontMetrics, QHelpEvent, QHideEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QStyle, QToolTip, QWidget

from kvstudio.runlog.values import Phase
from kvstudio.ui import colours, icons, theme
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Step, Theme, Weight

_ICON = 16
_GAP = 6
_LINE = 16
_SIDE = 7
_MARGIN = 16
_TURN_MS = 40


@dataclass(frozen=True, slots=True)
class PhaseState:
    """One phase and its state: `todo`, `running`, `done`, `failed` or `skipped`."""

    phase: Phase
    state: str


@dataclass(frozen=True, slots=True)
class Figure:
    """Words and a figure at the right: `Peak CUDA1` and `17.1 GiB`."""

    words: str
    value: str


def phase_name(phase: Phase) -> str:
    """What a phase is called."""
    names = {
        Phase.FIT: tr("Fit"),
        Phase.WEIGHTS: tr("Weights"),
        Phase.KV: tr("KV cache"),
        Phase.RS: tr("Recurrent state"),
        Phase.COMPUTE: tr("Compute"),
        Phase.WARMUP: tr("Warm-up"),
        Phase.LISTENING: tr("Listening"),
        Phase.GENERATE: tr("Generate"),
        Phase.REPEAT: tr("Repeat"),
    }
    return names[phase]


def state_name(state: str) -> str:
    names = {
        "todo": tr("to come"),
        "running": tr("running"),
        "done": tr("done"),
        "failed": tr("failed"),
        "skipped": tr("skipped: this launch has no such step"),
    }
    return names.get(state, state)


class PhaseStrip(QWidget):
    """Draws; the values come from whoever watches the launch."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("phaseStrip")
        self.setFixedHeight(Size.STRIP)
        self._phases: tuple[PhaseState, ...] = ()
        self._figures: tuple[Figure, ...] = ()
        self._clock = ""
        self._boxes: list[tuple[QRect, PhaseState]] = []
        self._angle = 0
        self._margin = _MARGIN
        self._timer = QTimer(self)
        self._timer.setInterval(_TURN_MS)
        self._timer.timeout.connect(self._on_turn)

    def set_margin(self, pixels: int) -> None:
        """The air at both ends, where the strip stands in a column of text."""
        self._margin = pixels
        self.update()

    def show_phases(self, phases: tuple[PhaseState, ...], clock: str = "") -> None:
        """The phases in order; `clock` stands beside the running one."""
        if (phases, clock) == (self._phases, self._clock):
            # Told again with every tick of the clock; painting all of it each time would show in the processor's load.
            self._turn_while_running()
            return
        self._phases, self._clock = phases, clock
        self._turn_while_running()
        self._say()
        self.updateGeometry()
        self.update()

    def _turn_while_running(self) -> None:
        running = any(p.state == "running" for p in self._phases)
        moves = self.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration, None, self) > 0
        if running and moves and self.isVisible():
            self._timer.start()
        elif not running:
            self._timer.stop()

    def show_figures(self, figures: tuple[Figure, ...]) -> None:
        """What stands at the right."""
        if figures == self._figures:
            return
        self._figures = figures
        self._say()
        self.update()

    @property
    def phases(self) -> tuple[PhaseState, ...]:
        return self._phases

    @property
    def figures(self) -> tuple[Figure, ...]:
        return self._figures

    def sizeHint(self) -> QSize:
        return QSize(900, Size.STRIP)

    def minimumSizeHint(self) -> QSize:
        return QSize(300, Size.STRIP)

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            for box, phase in self._boxes:
                if box.contains(event.pos()):
                    QToolTip.showText(
                        event.globalPos(), f"{phase_name(phase.phase)}: {state_name(phase.state)}", self, box
                    )
                    return True
            QToolTip.hideText()
        return super().event(event)

    def _say(self) -> None:
        words = [f"{phase_name(p.phase)} {state_name(p.state)}" for p in self._phases]
        words += [f"{f.words} {f.value}" for f in self._figures]
        self.setAccessibleName(", ".join(words))

    def _on_turn(self) -> None:
        self._angle = (self._angle + 12) % 360
        mark = self._running_mark()
        self.update() if mark is None else self.update(mark)

    def _running_mark(self) -> QRect | None:
        """Where the turning mark was painted."""
        box = next((box for box, phase in self._boxes if phase.state == "running"), None)
        return None if box is None else self._mark_in(box)

    def _mark_in(self, box: QRect) -> QRect:
        return QRect(box.x(), self.height() // 2 - _ICON // 2, _ICON, _ICON)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        mark = self._running_mark()
        if mark is not None and event.rect() == mark:
            self._paint_mark(painter, mark, "running")
            return
        right = self._paint_figures(painter)
        self._paint_phases(painter, right)

    def _paint_figures(self, painter: QPainter) -> int:
        """Draw from the right; the ones that find no room are left to the tooltip. Returns where they begin."""
        current = Theme.current()
        x = self.width() - self._margin
        words_font, value_font = theme.font(Step.SMALL), theme.font(Step.SMALL, Weight.DemiBold)
        for figure in reversed(self._figures):
            value_width = QFontMetrics(value_font).horizontalAdvance(figure.value)
            words_width = QFontMetrics(words_font).horizontalAdvance(figure.words)
            box = QRect(x - value_width, 0, value_width + 1, self.height())
            painter.setFont(value_font)
            painter.setPen(current.ink)
            painter.drawText(box, Qt.AlignmentFlag.AlignVCenter, figure.value)
            x -= value_width + 8 + words_width
            painter.setFont(words_font)
            painter.setPen(current.muted)
            painter.drawText(QRect(x, 0, words_width + 1, self.height()), Qt.AlignmentFlag.AlignVCenter, figure.words)
            x -= 16
        return x

    def _widths(self) -> list[int]:
        widths = []
        for phase in self._phases:
            font = theme.font(Step.SMALL, Weight.DemiBold if phase.state in ("failed", "running") else Weight.Normal)
            text = phase_name(phase.phase) + (f"  {self._clock}" if phase.state == "running" and self._clock else "")
            padding = 2 * _SIDE + 2 if phase.state == "failed" else 0
            widths.append(_ICON + _GAP + QFontMetrics(font).horizontalAdvance(text) + padding)
        return widths

    def _paint_phases(self, painter: QPainter, right: int) -> None:
        self._boxes = []
        current = Theme.current()
        line = _LINE
        widths = self._widths()
        room = right - self._margin
        gaps = max(len(widths) - 1, 0)
        while line > 4 and sum(widths) + gaps * (line + 2 * _GAP) > room:
            line -= 2
        x = self._margin
        for i, (phase, whole) in enumerate(zip(self._phases, widths)):
            only_icon = x + whole > right
            width = _ICON if only_icon else whole
            box = QRect(x, 0, width, self.height())
            self._boxes.append((box, phase))
            self._paint_phase(painter, box, phase, not only_icon)
            x += width
            if i < len(widths) - 1:
                both = phase.state == "done" and self._phases[i + 1].state in ("done", "skipped")
                painter.setPen(QPen(current.good if both else current.control_edge, 1.5))
                y = self.height() / 2
                painter.drawLine(QPointF(x + _GAP, y), QPointF(x + _GAP + line, y))
                x += line + 2 * _GAP

    def _paint_phase(self, painter: QPainter, box: QRect, phase: PhaseState, named: bool) -> None:
        current = Theme.current()
        x, middle = box.x(), self.height() // 2
        if phase.state == "failed" and named:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(current.bad_fill)
            painter.drawRoundedRect(QRectF(box.x() - 2, middle - 12, box.width() + 4, 24), 12, 12)
            x += _SIDE - 2
        self._paint_mark(painter, self._mark_in(box.translated(x - box.x(), 0)), phase.state)
        if not named:
            return
        strong = phase.state in ("failed", "running")
        colours = {"failed": current.bad, "done": current.ink, "running": current.ink}
        painter.setPen(colours.get(phase.state, current.muted))
        painter.setFont(theme.font(Step.SMALL, Weight.DemiBold if strong else Weight.Normal))
        text_box = QRect(x + _ICON + _GAP, 0, box.width(), self.height())
        name = phase_name(phase.phase)
        painter.drawText(text_box, Qt.AlignmentFlag.AlignVCenter, name)
        if phase.state == "running" and self._clock:
            width = QFontMetrics(painter.font()).horizontalAdvance(name + "  ")
            painter.setPen(current.muted)
            painter.setFont(theme.font(Step.SMALL))
            painter.drawText(text_box.translated(width, 0), Qt.AlignmentFlag.AlignVCenter, self._clock)

    def _paint_mark(self, painter: QPainter, mark: QRect, state: str) -> None:
        current = Theme.current()
        if state in ("done", "failed"):
            name, colour = ("check-circle", current.good) if state == "done" else ("cross-circle", current.bad)
            painter.drawPixmap(mark.topLeft(), icons.pixmap(name, colour, _ICON, self.devicePixelRatioF()))
            return
        ring = QRectF(mark).adjusted(3.5, 3.5, -3.5, -3.5)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if state == "running":
            ring = QRectF(mark).adjusted(2, 2, -2, -2)
            painter.setPen(QPen(colours.with_alpha(current.accent_text, 0.28), 2))
            painter.drawEllipse(ring)
            pen = QPen(current.accent_text, 2)
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
            painter.setPen(pen)
            painter.drawArc(ring, -self._angle * 16, -90 * 16)
            return
        if state == "skipped":
            dashed = icons.pixmap("circle-dashed", current.muted, 14, self.devicePixelRatioF())
            painter.drawPixmap(mark.x() + 1, mark.y() + 1, dashed)
            return
        painter.setPen(QPen(current.control_edge, 1.35))
        painter.drawEllipse(ring)
