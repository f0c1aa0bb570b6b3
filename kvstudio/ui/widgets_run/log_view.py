"""A log on screen: rows of one height, painted where they are looked at, so its size does not matter."""

from PySide6.QtCore import (
    QItemSelection,
    QItemSelectionModel,
    QItemSelectionRange,
    QModelIndex,
    QPoint,
    QRect,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QFontMetrics,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QPalette,
    QRegion,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractItemView, QFrame, QStyle, QStyleOptionViewItem, QWidget

from kvstudio.runlog.values import LogLine
from kvstudio.ui import colours, theme
from kvstudio.ui.models.log_model import LogModel, Role
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Step, Theme
from kvstudio.ui.widgets_run.log_line import GUTTER, Index, LogDelegate


def _ranges(selection: QItemSelection) -> list[QItemSelectionRange]:
    """A selection is a list of ranges, which the stubs do not know."""
    ranges: list[QItemSelectionRange] = list(selection)  # type: ignore[call-overload]
    return ranges


class LogView(QAbstractItemView):
    """The log's list. It follows the end until the user scrolls away; `following_changed` says when that changes.

    Not a QListView: that one lays out every row again on each append, over a second for a million of them.
    """

    following_changed = Signal(bool)
    copy_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        # Qt calls the overridden methods while it is still being set up.
        self._following, self._placing = True, False
        self._anchor: int | None = None
        self._empty_words = ""
        super().__init__(parent)
        self.setObjectName("logView")
        self.setAccessibleName(tr("Log"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self._delegate = LogDelegate(self)
        self.setItemDelegate(self._delegate)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setBackgroundRole(QPalette.ColorRole.Base)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)

    @property
    def following(self) -> bool:
        return self._following

    def set_following(self, on: bool) -> None:
        """Stay at the end, or stay here."""
        self._anchor = None
        if on != self._following:
            self._following = on
            self.following_changed.emit(on)
        if on:
            self._to_end()

    def say_when_empty(self, words: str) -> None:
        """What stands in the middle while there is no row."""
        self._empty_words = words
        self.viewport().update()

    def gutter(self) -> int:
        """Width of the column of numbers: 48, more where the numbers are longer than five digits."""
        model = self._log_model()
        last = model.line(model.rowCount() - 1).number if model is not None and model.rowCount() else 0
        digits = QFontMetrics(theme.mono(Step.CAPTION)).horizontalAdvance("0") * len(str(last))
        return max(GUTTER, digits + 16)

    def width_for(self, line: LogLine) -> int:
        """Width of the view in which a line is seen whole."""
        return self._delegate.text_width(line, self.gutter()) + self.verticalScrollBar().sizeHint().width()

    def jump_to(self, number: int) -> bool:
        """Scroll to a line, select it, stop following; False when it is not among the rows."""
        model = self._log_model()
        row = model.row_of(number) if model is not None else None
        if model is None or row is None:
            return False
        self.set_following(False)
        self.setCurrentIndex(model.index(row))
        self._anchor = number
        self._to_anchor()
        return True

    def rows_selected(self) -> list[int]:
        """Selected rows in order."""
        if self.model() is None:
            return []
        chosen = _ranges(self.selectionModel().selection())
        return sorted({row for r in chosen for row in range(r.top(), r.bottom() + 1)})

    def selected_text(self) -> str:
        """The selected lines as they stood in the log."""
        model = self._log_model()
        return model.text_of(self.rows_selected()) if model is not None else ""

    def _log_model(self) -> LogModel | None:
        model = self.model()
        return model if isinstance(model, LogModel) else None

    def _count(self) -> int:
        model = self.model()
        return model.rowCount() if model is not None else 0

    def visualRect(self, index: Index) -> QRect:
        if not index.isValid():
            return QRect()
        y = index.row() * Size.LOG_ROW - self.verticalOffset()
        return QRect(0, y, self.viewport().width(), Size.LOG_ROW)

    def scrollTo(
        self, index: Index, hint: QAbstractItemView.ScrollHint = QAbstractItemView.ScrollHint.EnsureVisible
    ) -> None:
        if not index.isValid():
            return
        bar, height = self.verticalScrollBar(), self.viewport().height()
        top = index.row() * Size.LOG_ROW
        if hint == QAbstractItemView.ScrollHint.PositionAtCenter:
            bar.setValue(top - (height - Size.LOG_ROW) // 2)
        elif hint == QAbstractItemView.ScrollHint.PositionAtTop or top < bar.value():
            bar.setValue(top)
        elif hint == QAbstractItemView.ScrollHint.PositionAtBottom or top + Size.LOG_ROW > bar.value() + height:
            bar.setValue(top + Size.LOG_ROW - height)

    def indexAt(self, point: QPoint) -> QModelIndex:
        row = (point.y() + self.verticalOffset()) // Size.LOG_ROW
        return self.model().index(row, 0) if self.model() is not None and 0 <= row < self._count() else QModelIndex()

    def moveCursor(self, action: QAbstractItemView.CursorAction, modifiers: Qt.KeyboardModifier) -> QModelIndex:
        count = self._count()
        if not count:
            return QModelIndex()
        page = max(1, self.viewport().height() // Size.LOG_ROW - 1)
        steps = QAbstractItemView.CursorAction
        here = self.currentIndex().row()
        to = {
            steps.MoveUp: here - 1,
            steps.MovePrevious: here - 1,
            steps.MoveDown: here + 1,
            steps.MoveNext: here + 1,
            steps.MovePageUp: here - page,
            steps.MovePageDown: here + page,
            steps.MoveHome: 0,
            steps.MoveEnd: count - 1,
        }.get(action, here)
        return self.model().index(min(max(to, 0), count - 1), 0)

    def horizontalOffset(self) -> int:
        return 0

    def verticalOffset(self) -> int:
        return self.verticalScrollBar().value()

    def isIndexHidden(self, index: Index) -> bool:
        return False

    def setSelection(self, rect: QRect, command: QItemSelectionModel.SelectionFlag) -> None:
        if not self._count() or self.selectionModel() is None:
            return
        offset = self.verticalOffset()
        first = min(max((rect.top() + offset) // Size.LOG_ROW, 0), self._count() - 1)
        last = min(max((rect.bottom() + offset) // Size.LOG_ROW, 0), self._count() - 1)
        picked = QItemSelection(self.model().index(first, 0), self.model().index(last, 0))
        self.selectionModel().select(picked, command)

    def visualRegionForSelection(self, selection: QItemSelection) -> QRegion:
        region = QRegion()
        for piece in _ranges(selection):
            top = piece.top() * Size.LOG_ROW - self.verticalOffset()
            height = (piece.bottom() - piece.top() + 1) * Size.LOG_ROW
            region += QRect(0, top, self.viewport().width(), height).intersected(self.viewport().rect())
        return region

    def updateGeometries(self) -> None:
        super().updateGeometries()
        height = self.viewport().height()
        bar = self.verticalScrollBar()
        self._placing = True
        bar.setSingleStep(Size.LOG_ROW)
        bar.setPageStep(max(height - Size.LOG_ROW, Size.LOG_ROW))
        bar.setRange(0, max(0, self._count() * Size.LOG_ROW - height))
        self._placing = False
        if self._following:
            self._to_end()
        else:
            self._to_anchor()

    def rowsInserted(self, parent: Index, start: int, end: int) -> None:
        super().rowsInserted(parent, start, end)
        self.updateGeometries()
        self.viewport().update()

    def reset(self) -> None:
        super().reset()
        self.updateGeometries()
        self.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.updateGeometries()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.angleDelta().y() > 0 and self.verticalScrollBar().maximum() > 0:
            self.set_following(False)
        super().wheelEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            text = self.selected_text()
            if text:
                QGuiApplication.clipboard().setText(text)
                self.copy_wanted.emit(text)
            return
        if event.key() in (Qt.Key.Key_Up, Qt.Key.Key_PageUp, Qt.Key.Key_Home):
            self.set_following(False)
        super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        model = self._log_model()
        if model is None:
            return
        current, gutter = Theme.current(), self.gutter()
        painter = QPainter(self.viewport())
        ground = colours.mix(current.ground, current.canvas, 0.6)
        painter.fillRect(QRect(0, 0, gutter, self.viewport().height()), ground)
        if not model.rowCount() and self._empty_words:
            painter.setPen(current.muted)
            painter.setFont(theme.font(Step.SMALL))
            painter.drawText(self.viewport().rect(), Qt.AlignmentFlag.AlignCenter, self._empty_words)
        first = self.verticalOffset() // Size.LOG_ROW
        last = min(model.rowCount(), (self.verticalOffset() + self.viewport().height()) // Size.LOG_ROW + 1)
        option = QStyleOptionViewItem()
        self.initViewItemOption(option)
        here = self.currentIndex().row() if self.hasFocus() else -1
        chosen = self.selectionModel()
        base_state = option.state & ~(QStyle.StateFlag.State_Selected | QStyle.StateFlag.State_HasFocus)
        for row in range(first, last):
            index = model.index(row)
            option.rect = self.visualRect(index)
            option.state = base_state
            if chosen is not None and chosen.isSelected(index):
                option.state |= QStyle.StateFlag.State_Selected
            if row == here:
                option.state |= QStyle.StateFlag.State_HasFocus
            line = model.line(row)
            self._delegate.paint_line(painter, option, line, model.data(index, Role.MARK), gutter)
        painter.end()

    def _to_end(self) -> None:
        bar = self.verticalScrollBar()
        self._placing = True
        bar.setValue(bar.maximum())
        self._placing = False

    def _to_anchor(self) -> None:
        """Keep the line that was jumped to in the middle until the user scrolls: the height may still change."""
        model = self._log_model()
        row = model.row_of(self._anchor) if model is not None and self._anchor is not None else None
        if model is None or row is None:
            return
        self._placing = True
        self.scrollTo(model.index(row), QAbstractItemView.ScrollHint.PositionAtCenter)
        self._placing = False

    def _on_scrolled(self, value: int) -> None:
        if self._placing:
            return
        self._anchor = None
        at_end = value >= self.verticalScrollBar().maximum()
        if at_end != self._following and (not at_end or self.verticalScrollBar().isSliderDown()):
            self._following = at_end
            self.following_changed.emit(at_end)
