"""A table in the look of the window: hairlines instead of a grid, quiet headings, rows that can be copied."""

from PySide6.QtCore import QEvent, QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QGuiApplication, QKeyEvent, QKeySequence, QPainter, QPalette
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from kvstudio.ui import theme
from kvstudio.ui.theme import Step, Theme, Weight

ROW_HEIGHT = 23
_AIR = 6


class _Delegate(QStyledItemDelegate):
    """Hairline under a row; selection in the quiet tint, text in its own colour."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        current = Theme.current()
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(option.rect, current.checked_fill)
            option.state = option.state & ~QStyle.StateFlag.State_Selected
        option.state = option.state & ~QStyle.StateFlag.State_HasFocus
        line = QRectF(option.rect.left(), option.rect.bottom(), option.rect.width(), 1)
        painter.fillRect(line, current.hairline)
        option.rect = option.rect.adjusted(_AIR if index.column() else 0, 0, -_AIR, 0)
        super().paint(painter, option, index)

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        size = super().sizeHint(option, index)
        return QSize(size.width() + 2 * _AIR, size.height())


class _Header(QHeaderView):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.setHighlightSections(False)

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), ROW_HEIGHT)

    def sectionSizeFromContents(self, logical: int) -> QSize:
        # Painted bolder than the style would measure it.
        words = str(self.model().headerData(logical, self.orientation(), Qt.ItemDataRole.DisplayRole) or "")
        wide = QFontMetrics(theme.font(Step.SMALL, Weight.DemiBold)).horizontalAdvance(words)
        return QSize(wide + 2 * (_AIR + 4), ROW_HEIGHT)

    def paintSection(self, painter: QPainter, box: QRect, section: int) -> None:
        current = Theme.current()
        model = self.model()
        words = model.headerData(section, self.orientation(), Qt.ItemDataRole.DisplayRole)
        side = model.headerData(section, self.orientation(), Qt.ItemDataRole.TextAlignmentRole)
        painter.fillRect(box, current.canvas)
        painter.setFont(theme.font(Step.SMALL, Weight.DemiBold))
        painter.setPen(current.muted)
        left = _AIR + 3 if section else 3
        painter.drawText(box.adjusted(left, 0, -_AIR - 3, 0), int(side or 0), str(words or ""))
        painter.fillRect(QRectF(box.left(), box.bottom(), box.width(), 1), current.hairline)


class QuietTable(QTableView):
    """As high as its rows where the layout lets it; Ctrl+C copies the selected rows as tab separated text."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setHorizontalHeader(_Header(self))
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        self.verticalHeader().setMinimumSectionSize(ROW_HEIGHT)
        self.setShowGrid(False)
        self.setFrameShape(QTableView.Shape.NoFrame)
        self.setItemDelegate(_Delegate(self))
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setTabKeyNavigation(False)
        self.setWordWrap(False)
        self.horizontalHeader().setStretchLastSection(True)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.viewport().setBackgroundRole(QPalette.ColorRole.Base)

    def sizeHint(self) -> QSize:
        rows = self.model().rowCount() if self.model() else 0
        return QSize(super().sizeHint().width(), ROW_HEIGHT * (rows + 1) + 2)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.selected_text())
        else:
            super().keyPressEvent(event)

    def selected_text(self) -> str:
        """The selected rows, cells apart by tabs."""
        columns = range(self.model().columnCount())
        rows = sorted(index.row() for index in self.selectionModel().selectedRows())
        return "\n".join("\t".join(str(self.model().index(r, c).data() or "") for c in columns) for r in rows)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.viewport().update()
