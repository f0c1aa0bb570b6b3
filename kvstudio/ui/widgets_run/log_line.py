"""One line of a log as it is painted: number, time, level letter, text, and what it means to the diagnosis."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from kvstudio.runlog.values import LogLine
from kvstudio.ui import theme
from kvstudio.ui.models.log_model import Mark, Role, shown_text
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Step, Theme, Weight

#: Width of the column of numbers, more where they are longer than five digits.
GUTTER = 48
_BAR = 4
_TIME_X = 56
_LEVEL_GAP = 9
_TEXT_GAP = 16
_END = 2

Index = QModelIndex | QPersistentModelIndex


def elapsed(time_s: float | None) -> str:
    """`0.402`, `75.31`, `100.3`, `4711`: five characters; nothing where the line has no time."""
    if time_s is None:
        return ""
    return f"{time_s:.3f}"[:5] if time_s < 1000 else f"{time_s:.0f}"


class LogDelegate(QStyledItemDelegate):
    """Paints one line: number, time, level letter, text, and what it means to the diagnosis."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(0, Size.LOG_ROW)

    def columns(self, gutter: int) -> tuple[int, int]:
        """Where the level letter and the text begin."""
        letter = QFontMetrics(theme.mono(Step.SMALL)).horizontalAdvance("0")
        level = gutter + (_TIME_X - GUTTER) + 5 * letter + _LEVEL_GAP
        return level, level + _TEXT_GAP

    def text_width(self, line: LogLine, gutter: int) -> int:
        """What a line needs to be seen whole as the key line."""
        width = QFontMetrics(theme.mono(Step.SMALL, Weight.DemiBold)).horizontalAdvance(shown_text(line))
        return self.columns(gutter)[1] + width + _END

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        line, mark = index.data(Role.LINE), index.data(Role.MARK)
        if line is None:
            return
        gutter = option.rect.x()
        self.paint_line(painter, option, line, mark, gutter or GUTTER)

    def paint_line(
        self, painter: QPainter, option: QStyleOptionViewItem, line: LogLine, mark: Mark, gutter: int
    ) -> None:
        """Paint in `option.rect`, which is the whole row, its gutter included."""
        current = Theme.current()
        row = option.rect
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        if mark is Mark.KEY:
            painter.fillRect(row, current.bad_fill)
        elif selected:
            painter.fillRect(row.adjusted(gutter, 0, 0, 0), current.checked_fill)
        bar = {Mark.KEY: current.bad, Mark.EVIDENCE: current.accent_fill}.get(mark)
        if bar is not None:
            painter.fillRect(QRect(row.x(), row.y(), _BAR, row.height()), bar)
        self._paint_numbers(painter, row, line, mark, gutter)
        self._paint_text(painter, row, line, mark, gutter)
        if option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(current.accent_text, 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(row.adjusted(gutter + 1, 1, -1, -1))

    def _paint_numbers(self, painter: QPainter, row: QRect, line: LogLine, mark: Mark, gutter: int) -> None:
        current = Theme.current()
        middle = Qt.AlignmentFlag.AlignVCenter
        is_key = mark is Mark.KEY
        painter.setFont(theme.mono(Step.CAPTION, Weight.DemiBold if is_key else Weight.Normal))
        painter.setPen(current.bad if is_key else current.muted)
        painter.drawText(
            QRect(row.x(), row.y(), gutter - 8, row.height()), middle | Qt.AlignmentFlag.AlignRight, str(line.number)
        )
        painter.setFont(theme.mono(Step.CAPTION))
        painter.setPen(current.muted)
        level_x, _ = self.columns(gutter)
        time_box = QRect(gutter + _TIME_X - GUTTER, row.y(), level_x - gutter - 8, row.height())
        painter.drawText(time_box, middle, elapsed(line.time_s))
        painter.setFont(theme.mono(Step.SMALL, Weight.Medium))
        quiet = mark is Mark.GENERIC or line.level == "D"
        colours = {"E": current.bad, "W": current.warn}
        painter.setPen(current.muted if quiet else colours.get(line.level or "", current.ink))
        painter.drawText(QRect(level_x, row.y(), 14, row.height()), middle, line.level or "")

    def _paint_text(self, painter: QPainter, row: QRect, line: LogLine, mark: Mark, gutter: int) -> None:
        current = Theme.current()
        font = theme.mono(Step.SMALL, Weight.DemiBold if mark is Mark.KEY else Weight.Normal)
        if mark is Mark.GENERIC:
            font = QFont(font)
            font.setItalic(True)
        metrics = QFontMetrics(font)
        _, x = self.columns(gutter)
        room = max(0, row.right() - x)
        tag = tr("generic: only says that loading failed") if mark is Mark.GENERIC else ""
        tag_font = theme.font(Step.CAPTION, Weight.DemiBold)
        tag_width = QFontMetrics(tag_font).horizontalAdvance(tag) + 12 if tag else 0
        text_room = max(80, room - (tag_width + 12 if tag else 0))
        text = metrics.elidedText(shown_text(line), Qt.TextElideMode.ElideRight, text_room)
        painter.setFont(font)
        painter.setPen(current.muted if mark is Mark.GENERIC or line.level == "D" else current.ink)
        painter.drawText(
            QRect(x, row.y(), text_room, row.height()), Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, text
        )
        if tag:
            at = x + metrics.horizontalAdvance(text) + 12
            box = QRectF(at + 0.5, row.y() + 2.5, tag_width, row.height() - 5)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(current.control_edge, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box, 4, 4)
            painter.setPen(current.muted)
            painter.setFont(tag_font)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, tag)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
