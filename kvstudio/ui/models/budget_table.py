"""A Budget as a table: what each device holds, buffer by buffer, as the log will name and print it."""

from dataclasses import dataclass

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, QRectF, Qt
from PySide6.QtGui import QGuiApplication, QPainter, QPixmap

from kvstudio.budget.values import Budget, BufferKind, DeviceBudget, Provenance
from kvstudio.ui import text, theme
from kvstudio.ui.theme import Step, Theme, Weight
from kvstudio.ui.widgets import bar_geometry, patterns
from kvstudio.ui.widgets.basic import plain_tooltip
from kvstudio.units import MIB, format_gib, format_room

COLUMNS = 5
DEVICE, MEMORY, BUFFER, MIB_COLUMN, SOURCE = range(COLUMNS)

#: What a row stands for, for delegates.
ROW_ROLE = Qt.ItemDataRole.UserRole

_SWATCH = (16, 12)

_Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line: a buffer, a device's other memory, or (kind None) the sum of a device."""

    device: str
    kind: BufferKind | None
    buffer: str
    bytes: int | None
    source: str
    why: str = ""
    first: bool = False


def rows_of(budget: Budget) -> tuple[TableRow, ...]:
    """All lines of a Budget in the order of the bars, a sum after each device."""
    rows: list[TableRow] = []
    for device in (*budget.all_devices, budget.host):
        on_host = device is budget.host
        name = bar_geometry.HOST if on_host else device.name
        lines = [*_unprinted(device, name), *_printed(budget, None if on_host else device.name, name)]
        lines.append(TableRow(name, None, "", _used(device), _room(device)))
        rows += [TableRow(r.device, r.kind, r.buffer, r.bytes, r.source, r.why, i == 0) for i, r in enumerate(lines)]
    return tuple(rows)


def _used(device: DeviceBudget) -> int:
    return round(sum(amount.bytes for amount in bar_geometry.amounts(device)))


def _room(device: DeviceBudget) -> str:
    if device.total_bytes is None:
        return text.tr("capacity unknown")
    free = device.total_bytes - _used(device)
    said = text.tr("{} over") if free < 0 else text.tr("{} free")
    return text.tr("of {} GiB, {}").format(format_gib(device.total_bytes), said.format(format_room(abs(free))))


def _unprinted(device: DeviceBudget, name: str) -> list[TableRow]:
    sources = {
        BufferKind.OTHER_PROCESSES: text.tr("measured"),
        BufferKind.OVERHEAD: text.tr("learned"),
    }
    found = {amount.kind: round(amount.bytes) for amount in bar_geometry.amounts(device)}
    return [TableRow(name, kind, "", found[kind], said) for kind, said in sources.items() if kind in found]


def _printed(budget: Budget, device: str | None, name: str) -> list[TableRow]:
    mine = [b for b in budget.buffers if b.device == device]
    order = list(BufferKind)
    mine.sort(key=lambda b: order.index(b.kind))
    return [TableRow(name, b.kind, b.name, b.bytes, _source(b.provenance), b.why) for b in mine if b.bytes != 0]


def _source(provenance: Provenance) -> str:
    words = {
        Provenance.EXACT: text.tr("exact"),
        Provenance.ESTIMATED: text.tr("estimated"),
        Provenance.MEASURED: text.tr("measured"),
        Provenance.UNKNOWN: text.tr("unknown"),
    }
    return words[provenance]


class BudgetTableModel(QAbstractTableModel):
    """`show_budget` in; a change of figures only keeps rows, selection and scroll position."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[TableRow, ...] = ()

    def show_budget(self, budget: Budget | None) -> None:
        """Show a Budget, or nothing."""
        rows = rows_of(budget) if budget is not None else ()
        same = [(r.device, r.kind, r.buffer) for r in rows] == [(r.device, r.kind, r.buffer) for r in self._rows]
        if same and rows:
            self._rows = rows
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, COLUMNS - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def rows(self) -> tuple[TableRow, ...]:
        return self._rows

    def rowCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def columnCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else COLUMNS

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object | None:
        if orientation is not Qt.Orientation.Horizontal or not 0 <= section < COLUMNS:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        if role == Qt.ItemDataRole.DisplayRole:
            return (text.tr("Device"), text.tr("Memory"), text.tr("Buffer"), text.tr("MiB"), text.tr("Known as"))[
                section
            ]
        return None

    def data(
        self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object | None:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        row, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return _words(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tooltip("\n".join(_tip(row)))
        if role == Qt.ItemDataRole.FontRole:
            strong = row.kind is None or column == DEVICE
            return theme.font(Step.SMALL, Weight.DemiBold if strong else Weight.Normal)
        if role == Qt.ItemDataRole.ForegroundRole:
            return Theme.current().muted if column == SOURCE and row.kind is not None else Theme.current().ink
        if role == Qt.ItemDataRole.DecorationRole and column == MEMORY and row.kind is not None:
            return _swatch(row.kind)
        return row if role == ROW_ROLE else None


def _heading(column: int) -> str:
    return (text.tr("Device"), text.tr("Memory"), text.tr("Buffer"), text.tr("MiB"), text.tr("Known as"))[column]


def _words(row: TableRow, column: int) -> str:
    if column == DEVICE:
        return row.device if row.first else ""
    if column == MEMORY:
        return text.tr("Sum") if row.kind is None else text.kind_name(row.kind)
    if column == BUFFER:
        return row.buffer
    if column == MIB_COLUMN:
        return "–" if row.bytes is None else f"{row.bytes / MIB:.1f}"
    return row.source


def _tip(row: TableRow) -> tuple[str, ...]:
    size = () if row.bytes is None else (text.raw_bytes(row.bytes),)
    return (*size, *((row.why,) if row.why else ()))


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignRight if column == MIB_COLUMN else Qt.AlignmentFlag.AlignLeft
    return int(side | Qt.AlignmentFlag.AlignVCenter)


def _swatch(kind: BufferKind) -> QPixmap:
    ratio = QGuiApplication.primaryScreen().devicePixelRatio()
    width, height = _SWATCH
    picture = QPixmap(round(width * ratio), round(height * ratio))
    picture.setDevicePixelRatio(ratio)
    painter = QPainter(picture)
    patterns.framed(painter, QRectF(0, 0, width, height), Theme.current().kinds[kind])
    painter.end()
    return picture
