"""The choice in one picture: a row per wish, a field per step with what it leaves free; a click takes the step."""

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from kvstudio.advise.choices import Choice
from kvstudio.advise.choices import Step as Taken
from kvstudio.ui import text, theme
from kvstudio.ui.theme import Radius, Step, Theme, Weight
from kvstudio.ui.widgets import patterns
from kvstudio.ui.widgets.basic import show_tooltip
from kvstudio.units import format_room

_LEFT, _GAP, _ROW, _BOX = 148, 6, 50, 40
_BEYOND = "*"


def step_words(step: Taken) -> str:
    """What a step leaves, in two words."""
    if step.room_bytes is None:
        return text.tr("unknown")
    size = format_room(abs(step.room_bytes))
    return text.tr("{} free").format(size) if step.room_bytes >= 0 else text.tr("{} over").format(size)


class ChoiceChart(QWidget):
    """`show_choices` in, `picked` ({field: value}) out; arrows move, Enter takes."""

    picked = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._choices: tuple[Choice, ...] = ()
        self._at: tuple[int, int] | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(420)
        self.setAccessibleName(text.tr("What each step buys and costs"))

    def show_choices(self, choices: tuple[Choice, ...]) -> None:
        """Draw them; none draws nothing."""
        self._choices, self._at = choices, None
        self.setFixedHeight(max(1, len(choices) * _ROW))
        said = (f"{c.title}: {', '.join(f'{s.label} {step_words(s)}' for s in c.steps)}" for c in choices)
        self.setAccessibleDescription("; ".join(said))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(640, self.height())

    def box(self, row: int, column: int) -> QRectF:
        """Where a step is drawn."""
        count = max(1, len(self._choices[row].steps))
        room = self.width() - _LEFT
        left = _LEFT + round(room * column / count)
        right = _LEFT + round(room * (column + 1) / count) - (_GAP if column + 1 < count else 1)
        return QRectF(left + 0.5, row * _ROW + 0.5, right - left, _BOX)

    def hit(self, x: float, y: float) -> tuple[int, int] | None:
        """Row and step under a point."""
        for row, choice in enumerate(self._choices):
            for column in range(len(choice.steps)):
                if self.box(row, column).contains(QPointF(x, y)):
                    return row, column
        return None

    def words_at(self, at: tuple[int, int]) -> str:
        """What the tooltip says."""
        choice, step = self._choices[at[0]], self._choices[at[0]].steps[at[1]]
        lines = [f"{choice.title}: {step.label}", step_words(step), choice.costs]
        if step.beyond:
            lines.append(text.tr("longer than the model was trained for: needs RoPE scaling"))
        return "\n".join(lines)

    def _take(self, at: tuple[int, int] | None) -> None:
        if at is not None and not self._choices[at[0]].steps[at[1]].is_now:
            self.picked.emit(dict(self._choices[at[0]].steps[at[1]].change))

    def _move(self, at: tuple[int, int] | None) -> None:
        if at != self._at:
            self._at = at
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._move(self.hit(event.position().x(), event.position().y()))

    def leaveEvent(self, event: QEvent) -> None:
        self._move(None)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._take(self.hit(event.position().x(), event.position().y()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        moves = {
            Qt.Key.Key_Left: (0, -1), Qt.Key.Key_Right: (0, 1), Qt.Key.Key_Up: (-1, 0), Qt.Key.Key_Down: (1, 0),
        }  # fmt: skip
        if self._choices and event.key() in moves:
            down, right = moves[Qt.Key(event.key())]
            row = max(0, min((self._at or (0, 0))[0] + down, len(self._choices) - 1))
            column = max(0, min((self._at or (0, -1))[1] + right, len(self._choices[row].steps) - 1))
            self._move((row, column))
            self.setAccessibleDescription(self.words_at((row, column)))
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._take(self._at)
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        return show_tooltip(self, event, self._said_at) or super().event(event)

    def _said_at(self, x: float, y: float) -> str:
        at = self.hit(x, y)
        return "" if at is None else self.words_at(at)

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for row, choice in enumerate(self._choices):
            self._paint_title(painter, row, choice, current)
            for column, step in enumerate(choice.steps):
                self._paint_step(painter, self.box(row, column), step, current)
        if self._at is not None:
            patterns.outline(painter, self.box(*self._at), current.accent_text, 2)

    def _paint_title(self, painter: QPainter, row: int, choice: Choice, current: Theme) -> None:
        top, room = row * _ROW + 1, _LEFT - 12
        painter.setFont(theme.font(Step.SMALL, Weight.DemiBold))
        painter.setPen(current.ink)
        title = QFontMetricsF(painter.font()).elidedText(choice.title, Qt.TextElideMode.ElideRight, room)
        painter.drawText(QRectF(0, top, room, 16), Qt.AlignmentFlag.AlignVCenter, title)
        painter.setFont(theme.font(Step.CAPTION))
        painter.setPen(current.muted)
        painter.drawText(QRectF(0, top + 16, room, _ROW - 18), int(Qt.TextFlag.TextWordWrap), choice.costs)

    def _paint_step(self, painter: QPainter, box: QRectF, step: Taken, current: Theme) -> None:
        state = {True: "good", False: "bad", None: "neutral"}[step.fits]
        colour, fill = current.state(state)
        painter.setBrush(fill)
        painter.setPen(QPen(current.accent_text, 2) if step.is_now else QPen(current.state_edge(state), 1))
        painter.drawRoundedRect(box, Radius.CHIP, Radius.CHIP)
        inner = box.adjusted(6, 3, -4, -3)
        label = step.label + (_BEYOND if step.beyond else "")
        strong = Weight.DemiBold if step.is_now else Weight.Medium
        for words, kind, weight, ink, flag in (
            (label, Step.SMALL, strong, current.ink, Qt.AlignmentFlag.AlignTop),
            (step_words(step), Step.CAPTION, Weight.Normal, colour, Qt.AlignmentFlag.AlignBottom),
        ):
            painter.setFont(theme.font(kind, weight))
            painter.setPen(ink)
            shown = QFontMetricsF(painter.font()).elidedText(words, Qt.TextElideMode.ElideRight, inner.width())
            painter.drawText(inner, int(flag | Qt.AlignmentFlag.AlignLeft), shown)
