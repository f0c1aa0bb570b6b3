"""A switch between a few views: one button a choice, joined into one control."""

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter, QPainterPath, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QSizePolicy, QWidget

from kvstudio.ui import theme
from kvstudio.ui.theme import Radius, Size, Step, Theme, Weight


class _Segment(QAbstractButton):
    """One choice of a SegmentedSwitch; corners are round only at the ends."""

    _PADDING = 18

    stepped = Signal(int)

    def __init__(self, text: str, first: bool, last: bool, parent: QWidget) -> None:
        super().__init__(parent)
        self.setText(text)
        self.setCheckable(True)
        self._first, self._last = first, last

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        if event.key() in steps:
            self.stepped.emit(steps[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(theme.font(Step.BODY, Weight.DemiBold))
        return QSize(metrics.horizontalAdvance(self.text()) + 2 * self._PADDING, Size.CONTROL)

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        checked, enabled = self.isChecked(), self.isEnabled()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        edge = (current.accent_text if checked else current.control_edge) if enabled else current.hairline
        width = 2.0 if self.hasFocus() and enabled else 1.0
        painter.setPen(QPen(current.accent_text if width > 1 else edge, width))
        painter.setBrush(
            current.checked_fill
            if checked
            else current.control_hover
            if self.underMouse() and enabled
            else current.canvas
        )
        half = width / 2
        box = QRectF(self.rect()).adjusted(half, half, -half, -half)
        painter.drawPath(_rounded(box, self._first, self._last))
        painter.setFont(theme.font(Step.BODY, Weight.DemiBold if checked else Weight.Normal))
        painter.setPen(current.ink if enabled else current.faint)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self.text())


def _rounded(box: QRectF, left: bool, right: bool) -> QPainterPath:
    radius = float(Radius.FIELD)
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.WindingFill)
    path.addRoundedRect(box, radius, radius)
    if not left:
        path.addRect(QRectF(box.left(), box.top(), radius, box.height()))
    if not right:
        path.addRect(QRectF(box.right() - radius, box.top(), radius, box.height()))
    return path.simplified()


class SegmentedSwitch(QWidget):
    """One of a few views. `picked` carries the key of the choice; keys and words are given as pairs."""

    picked = Signal(str)

    def __init__(self, choices: tuple[tuple[str, str], ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._group = QButtonGroup(self)
        last = len(choices) - 1
        self._buttons = {key: _Segment(words, i == 0, i == last, self) for i, (key, words) in enumerate(choices)}
        for key, button in self._buttons.items():
            button.setObjectName(key)
            self._group.addButton(button)
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            button.stepped.connect(self._on_stepped)
            button.toggled.connect(lambda on, key=key: self._on_toggled(key, on))
        next(iter(self._buttons.values())).setChecked(True)

    def current(self) -> str:
        """The key that is chosen."""
        return next(key for key, button in self._buttons.items() if button.isChecked())

    def choose(self, key: str) -> None:
        """Choose as if the user had."""
        self._buttons[key].setChecked(True)

    def _on_stepped(self, step: int) -> None:
        keys = list(self._buttons)
        at = keys.index(self.current()) + step
        if 0 <= at < len(keys):
            self.choose(keys[at])
            self._buttons[keys[at]].setFocus()

    def _on_toggled(self, key: str, on: bool) -> None:
        # One stop in the tab order, as for radio buttons; the arrows move inside.
        self._buttons[key].setFocusPolicy(Qt.FocusPolicy.StrongFocus if on else Qt.FocusPolicy.NoFocus)
        if on:
            self._buttons[key].raise_()
            self.picked.emit(key)

    def sizeHint(self) -> QSize:
        widths = [button.sizeHint().width() for button in self._buttons.values()]
        return QSize(sum(widths) - (len(widths) - 1), Size.CONTROL)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        x = 0
        for button in self._buttons.values():
            # Neighbours share one edge; the chosen one is on top and shows its own.
            button.setGeometry(x, 0, button.sizeHint().width(), Size.CONTROL)
            x += button.width() - 1
