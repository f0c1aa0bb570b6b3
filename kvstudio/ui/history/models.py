"""Kept runs as a list, and rows of words as a table."""

from PySide6.QtCore import QAbstractListModel, QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from kvstudio.case.history import Entry
from kvstudio.ui.history import words
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Theme
from kvstudio.ui.widgets.basic import plain_tooltip

ENTRY_ROLE = Qt.ItemDataRole.UserRole
_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


class RunsModel(QAbstractListModel):
    """Entry by Entry, newest first."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._entries: tuple[Entry, ...] = ()

    def show_entries(self, entries: tuple[Entry, ...]) -> None:
        """Other runs; `entries` oldest first, as the history lists them."""
        self.beginResetModel()
        self._entries = entries[::-1]
        self.endResetModel()

    def forget(self, numbers: tuple[int, ...]) -> None:
        """Runs that are gone."""
        for row in reversed(range(len(self._entries))):
            if self._entries[row].number in numbers:
                self.beginRemoveRows(QModelIndex(), row, row)
                self._entries = self._entries[:row] + self._entries[row + 1 :]
                self.endRemoveRows()

    def entry(self, row: int) -> Entry:
        return self._entries[row]

    def row_of(self, number: int) -> int | None:
        """Where a run stands."""
        return next((row for row, entry in enumerate(self._entries) if entry.number == number), None)

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._entries)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or not 0 <= index.row() < len(self._entries):
            return None
        entry = self._entries[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return entry.title
        if role == ENTRY_ROLE:
            return entry
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{tr('Run {}').format(entry.number)}, {entry.title}: {words.detail(entry)}, {words.when(entry)}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tooltip(entry.run.says or entry.run.message) if entry.run.says or entry.run.message else None
        return None


class WordsModel(QAbstractTableModel):
    """Rows of words under headings; columns from `right` on hold figures. What is `quiet` is muted."""

    def __init__(self, heads: tuple[str, ...], right: int, quiet: tuple[str, ...] = (), parent: QObject | None = None):
        super().__init__(parent)
        self._heads, self._right, self._quiet = heads, right, quiet
        self._rows: tuple[tuple[str, ...], ...] = ()

    def show_rows(self, rows: tuple[tuple[str, ...], ...], heads: tuple[str, ...] | None = None) -> None:
        """Other rows; each as long as `heads`."""
        self.beginResetModel()
        self._rows, self._heads = rows, heads or self._heads
        self.endResetModel()

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._heads)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is not Qt.Orientation.Horizontal or not 0 <= section < len(self._heads):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self._heads[section]
        return self._side(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        said = self._rows[index.row()][index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return said
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._side(index.column())
        if role == Qt.ItemDataRole.ForegroundRole and said in self._quiet:
            return Theme.current().muted
        return None

    def _side(self, column: int) -> int:
        side = Qt.AlignmentFlag.AlignRight if column >= self._right else Qt.AlignmentFlag.AlignLeft
        return int(side | Qt.AlignmentFlag.AlignVCenter)
