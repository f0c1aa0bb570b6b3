"""Measured against estimate, buffer by buffer; what is equal is quiet, so that only what differs stands out."""

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import (
    QHBoxLayout,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from kvstudio.budget.values import BufferKind
from kvstudio.ui import theme
from kvstudio.ui.panels.run_values import ComparisonRow
from kvstudio.ui.text import device_names, kind_name, raw_bytes, tr
from kvstudio.ui.theme import Space, Step, Theme, Weight
from kvstudio.ui.widgets import patterns
from kvstudio.ui.widgets.basic import Label, SectionLabel, Surface, plain_tooltip
from kvstudio.ui.widgets.quiet_table import ROW_HEIGHT, QuietTable
from kvstudio.units import MIB

_SWATCH = (16, 12)
_UNKNOWN = "–"

DEVICE, BUFFER, ESTIMATED, MEASURED, DIFFERENCE = range(5)
Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


def kinds_words(kinds: tuple[BufferKind, ...]) -> str:
    """`weights`, `KV`, `weights, compute`."""
    names = [kind_name(kind, short=True) for kind in kinds]
    return ", ".join(name if name.isupper() else name.lower() for name in names)


def size_words(n_bytes: int | None, whole: bool = False) -> str:
    """MiB without the unit; `whole` for what was counted in whole MiB."""
    if n_bytes is None:
        return _UNKNOWN
    return f"{n_bytes / MIB:.0f}" if whole else f"{n_bytes / MIB:.1f}"


def difference_words(row: ComparisonRow) -> str:
    """`exact`, `+2.0 (0.4 %)`, `+44, learned`."""
    difference = row.difference
    if row.learned:
        return tr("{:+.0f}, learned").format(difference / MIB) if difference is not None else tr("learned")
    if difference is None:
        return tr("not printed") if row.measured is None else _UNKNOWN
    if row.exact:
        return tr("exact")
    share = f" ({abs(difference) / row.estimated * 100:.1f} %)" if row.estimated else ""
    return f"{difference / MIB:+.1f}{share}"


class ComparisonModel(QAbstractTableModel):
    """Rows of ComparisonRow."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[ComparisonRow, ...] = ()
        self._names: dict[str, str] = {}

    def show_rows(self, rows: tuple[ComparisonRow, ...]) -> None:
        """Another run."""
        self.beginResetModel()
        self._rows, self._names = rows, device_names(row.device for row in rows)
        self.endResetModel()

    def row(self, index: int) -> ComparisonRow:
        return self._rows[index]

    def rowCount(self, parent: Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _ROOT) -> int:
        return 0 if parent.isValid() else DIFFERENCE + 1

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is not Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _side(section)
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        return (tr("Device"), tr("Buffer"), tr("Estimated"), tr("Measured"), tr("Difference"))[section]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return self._words(index.row(), index.column())
        if role == Qt.ItemDataRole.ToolTipRole and index.column() in (ESTIMATED, MEASURED):
            size = row.estimated if index.column() == ESTIMATED else row.measured
            return raw_bytes(size) if size is not None else None
        if role == Qt.ItemDataRole.ToolTipRole and index.column() == DEVICE and "[" in row.device:
            return plain_tooltip(row.device)
        if role == Qt.ItemDataRole.ToolTipRole and index.column() == BUFFER:
            return kinds_words(row.kinds)
        return None

    def _words(self, at: int, column: int) -> str:
        row = self._rows[at]
        if column == DEVICE:
            return "" if at and self._rows[at - 1].device == row.device else self._names[row.device]
        if column == BUFFER:
            return kinds_words(row.kinds)
        if column == DIFFERENCE:
            return difference_words(row)
        return size_words(row.estimated if column == ESTIMATED else row.measured, row.learned)


def _side(column: int) -> int:
    side = Qt.AlignmentFlag.AlignRight if column >= ESTIMATED else Qt.AlignmentFlag.AlignLeft
    return int(side | Qt.AlignmentFlag.AlignVCenter)


class _Delegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        weight = Weight.DemiBold if index.column() == DEVICE else Weight.Normal
        metrics = QFontMetrics(theme.font(Step.SMALL, weight))
        extra = _SWATCH[0] + 8 if index.column() == BUFFER else 0
        return QSize(metrics.horizontalAdvance(str(index.data() or "")) + extra + 13, ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        current = Theme.current()
        model = index.model()
        assert isinstance(model, ComparisonModel)
        row, box = model.row(index.row()), QRect(option.rect)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(box, current.checked_fill)
        quiet = index.column() == DIFFERENCE and (row.exact and not row.learned)
        painter.setFont(theme.font(Step.SMALL, Weight.DemiBold if index.column() == DEVICE else Weight.Normal))
        painter.setPen(current.muted if quiet else current.ink)
        if index.column() == BUFFER:
            top = box.y() + (box.height() - _SWATCH[1]) / 2
            patterns.framed(painter, QRectF(box.x(), top, *_SWATCH), current.kinds[row.kinds[0]])
            painter.setPen(current.ink)
            box.adjust(_SWATCH[0] + 8, 0, 0, 0)
        words = QFontMetrics(painter.font()).elidedText(
            str(index.data() or ""), Qt.TextElideMode.ElideRight, box.width()
        )
        painter.drawText(box, _side(index.column()), words)


class _Table(QuietTable):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("comparisonTable")
        self.setItemDelegate(_Delegate(self))
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.horizontalHeader().setStretchLastSection(False)

    def arrange(self) -> None:
        """The buffer's column takes what is left."""
        self.horizontalHeader().setSectionResizeMode(BUFFER, QHeaderView.ResizeMode.Stretch)


class ComparisonPage(Surface):
    """The table under its heading, with a word on what overhead is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(canvas=True, parent=parent)
        self.setObjectName("comparisonPage")
        self.model = ComparisonModel(self)
        self.table = _Table()
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Measured against estimate"))
        self._note = Label(step=Step.SMALL, role="muted", wrap=True)
        head = QHBoxLayout()
        head.addWidget(SectionLabel(tr("Measured against estimate")))
        head.addStretch(1)
        head.addWidget(Label(tr("MiB"), Step.SMALL, role="muted"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.L, 10, Space.L, Space.S)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addSpacing(6)
        layout.addWidget(self.table, 1)
        layout.addSpacing(Space.XS)
        layout.addWidget(self._note)

    def show_rows(self, rows: tuple[ComparisonRow, ...]) -> None:
        """The rows of a run."""
        self.model.show_rows(rows)
        self.table.arrange()
        learned = any(row.learned for row in rows)
        if not rows:
            self._note.setText(tr("Nothing was printed that could be compared."))
        else:
            self._note.setText(tr("Overhead is memory no buffer explains; kept for these devices.") if learned else "")
        self._note.setVisible(bool(self._note.text()))
