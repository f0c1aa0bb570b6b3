"""The list of kept runs: outcome, model, number, how it ended and when."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from kvstudio.case.history import Entry
from kvstudio.ui import icons, theme
from kvstudio.ui.history import words
from kvstudio.ui.history.models import ENTRY_ROLE
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Space, Step, Theme, Weight

ROW = 52
_ICON = 16


class _Delegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(200, ROW)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        entry = index.data(ENTRY_ROLE)
        if not isinstance(entry, Entry):
            return
        current, box = Theme.current(), QRect(option.rect)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(box, current.checked_fill)
        painter.fillRect(QRect(box.left(), box.bottom(), box.width(), 1), current.hairline)
        name, role = words.MARKS[entry.run.outcome]
        ratio = painter.device().devicePixelRatioF()
        picture = icons.pixmap(name, getattr(current, role), _ICON, ratio)
        painter.drawPixmap(box.left() + Space.L, box.top() + 9, picture)
        left, right = box.left() + Space.L + _ICON + 10, box.right() - Space.M
        number = tr("Run {}").format(entry.number)
        small = theme.font(Step.SMALL)
        wide = QFontMetrics(small).horizontalAdvance(number)
        self._line(painter, QRect(left, box.top() + 7, right - left - wide - Space.S, 20), entry.title,
                   theme.font(Step.BODY, Weight.DemiBold), current.ink)  # fmt: skip
        painter.setFont(small)
        painter.setPen(current.muted)
        end = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        painter.drawText(QRect(right - wide, box.top() + 7, wide + 1, 20), end, number)
        second = QRect(left, box.top() + 27, right - left, 18)
        at = words.when(entry)
        painter.drawText(second, end, at)
        second.setWidth(second.width() - QFontMetrics(small).horizontalAdvance(at) - Space.M)
        ink = current.bad if role == "bad" else current.muted
        self._line(painter, second, words.detail(entry), small, ink)

    @staticmethod
    def _line(painter: QPainter, box: QRect, text: str, font: QFont, ink: QColor) -> None:
        painter.setFont(font)
        painter.setPen(ink)
        said = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideRight, box.width())
        painter.drawText(box, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), said)


class RunsView(QListView):
    """One run chosen is shown, two are compared."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("historyRuns")
        self.setAccessibleName(tr("Kept runs"))
        self.setItemDelegate(_Delegate(self))
        self.setUniformItemSizes(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
