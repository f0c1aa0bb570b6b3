"""What the colours and patterns mean: only the kinds that are there, in the order of the bars."""

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from kvstudio.budget.values import Budget, BufferKind
from kvstudio.ui import text, theme
from kvstudio.ui.theme import Step, Theme
from kvstudio.ui.widgets import bar_geometry, patterns

_SWATCH_WIDTH, _SWATCH_HEIGHT = 16, 12
_AFTER_SWATCH, _AFTER_WORD, _ROW = 6, 15, 20


def kinds_of(budget: Budget | None, host: bool = True) -> tuple[BufferKind, ...]:
    """Kinds with memory on any device, in the order they are drawn."""
    if budget is None:
        return ()
    rows = (*budget.all_devices, budget.host) if host else budget.all_devices
    present = {amount.kind for device in rows for amount in bar_geometry.amounts(device)}
    return tuple(kind for kind in BufferKind if kind in present)


class Legend(QWidget):
    """A swatch and a word per kind, on as many lines as the width needs."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._kinds: tuple[BufferKind, ...] = ()
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def show_kinds(self, kinds: tuple[BufferKind, ...]) -> None:
        """Which kinds to name."""
        if kinds != self._kinds:
            self._kinds = kinds
            self.setAccessibleName(", ".join(text.kind_name(kind) for kind in kinds))
            self.updateGeometry()
            self.update()

    def kinds(self) -> tuple[BufferKind, ...]:
        return self._kinds

    def _places(self, width: float) -> list[tuple[float, float, BufferKind, str]]:
        """x, y, kind and word of each entry; `Other processes` becomes `Other` before anything wraps."""
        for short in (False, True):
            places = self._flow(width, short)
            if not places or places[-1][1] == 0:
                return places
        return places

    def _flow(self, width: float, short: bool) -> list[tuple[float, float, BufferKind, str]]:
        metrics = QFontMetricsF(theme.font(Step.SMALL))
        x = y = 0.0
        places = []
        for kind in self._kinds:
            word = text.kind_name(kind, short=short and kind is BufferKind.OTHER_PROCESSES)
            needed = _SWATCH_WIDTH + _AFTER_SWATCH + metrics.horizontalAdvance(word)
            if x > 0 and x + needed > width:
                x, y = 0.0, y + _ROW
            places.append((x, y, kind, word))
            x += needed + _AFTER_WORD
        return places

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        places = self._places(width)
        return round(places[-1][1] + _ROW) if places else _ROW

    def sizeHint(self) -> QSize:
        return QSize(400, self.heightForWidth(max(self.width(), 400)))

    def minimumSizeHint(self) -> QSize:
        return QSize(120, _ROW)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.updateGeometry()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setFont(theme.font(Step.SMALL))
        for x, y, kind, word in self._places(self.width()):
            top = y + (_ROW - _SWATCH_HEIGHT) / 2
            box = QRectF(round(x), top, _SWATCH_WIDTH, _SWATCH_HEIGHT)
            patterns.framed(painter, box, current.kinds[kind])
            painter.setPen(current.muted)
            start = box.right() + _AFTER_SWATCH
            painter.drawText(QRectF(start, y, self.width() - start, _ROW), Qt.AlignmentFlag.AlignVCenter, word)
