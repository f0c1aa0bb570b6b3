"""Log lines as rows: appended in batches, filtered in slices, so that a million lines never stall the window."""

import re
import time
from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt, QTimer, Signal, Slot

from kvstudio.report.excerpt import clean
from kvstudio.runlog.values import LogLine

APPEND_MS = 100
#: Lines made into rows in one go; what is left waits for the next turn of the event loop.
SLICE = 20_000
#: Looking through lines stops after this long and goes on in the next turn.
SCAN_S = 0.012
SCAN_STEP = 1000
#: Lines kept; of a longer log the oldest after the head are let go, in steps.
MAX_LINES = 1_000_000
HEAD_LINES = 20_000
DROP_STEP = 100_000
#: More of one line is never shown in a row, searched or measured.
SHOWN_CHARS = 1000

Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


class Filter(StrEnum):
    """Which lines are shown; marked ones always are."""

    NO_METADATA = "no_metadata"
    MEMORY = "memory"
    ALL = "all"


class Mark(StrEnum):
    """What a line means to the diagnosis."""

    NONE = ""
    KEY = "key"
    EVIDENCE = "evidence"
    GENERIC = "generic"


class Role(IntEnum):
    LINE = Qt.ItemDataRole.UserRole
    MARK = Qt.ItemDataRole.UserRole + 1


_METADATA = re.compile(
    r"(?:common_param: +)?(?:llama_model_loader: (?:- (?:kv|type)|Dumping|additional)|print_info: |"
    r"llm_load_print_meta: |load: (?:  - |printing|special|token|control|\d)|"
    r"load_vocab|llama_model_load: |init_tokenizer)"
)
_MEMORY = (
    "MiB", "GiB", "buffer", "alloc", "memory", "Memory", "KV ", "n_ctx", "n_seq_max", "n_batch", "n_ubatch", "offload",
    "cache", "VRAM", "using device", "tensor_split", "tensor split", "projected", "ut of ",
)  # fmt: skip


def is_metadata(line: LogLine) -> bool:
    """A line that only repeats what the model's header says."""
    return _METADATA.match(line.message) is not None


def is_about_memory(line: LogLine) -> bool:
    """A line that names a size, a buffer or a setting that decides one."""
    return not is_metadata(line) and _names_memory(line.message)


def _names_memory(message: str) -> bool:
    return len(message) < SHOWN_CHARS and any(word in message for word in _MEMORY)


def shown_text(line: LogLine) -> str:
    """A line's message as a row shows it."""
    return clean(line.message[:SHOWN_CHARS].replace("\t", "    "))


class LogModel(QAbstractListModel):
    """`changed` after rows or counts have changed; `dropped` counts lines that were let go."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lines: list[LogLine] = []
        self._rows: list[int] | None = None  # None: every line is a row
        self._scanned = 0
        self._pending: list[LogLine] = []
        self._filter = Filter.NO_METADATA
        self._search = ""
        self._marks: dict[int, Mark] = {}
        self._metadata = 0
        self._is_metadata = bytearray()  # one byte per line that was looked at
        self.dropped = 0
        self._append_timer = QTimer(self)
        self._append_timer.setInterval(APPEND_MS)
        self._append_timer.setSingleShot(True)
        self._append_timer.timeout.connect(self._on_append_due)
        self._scan_timer = QTimer(self)
        self._scan_timer.setInterval(0)
        self._scan_timer.timeout.connect(self._on_scan)
        self._refilter()

    def rowCount(self, parent: Index = _ROOT) -> int:
        if parent.isValid():
            return 0
        return len(self._lines) if self._rows is None else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < self.rowCount():
            return None
        line = self.line(index.row())
        if role == Qt.ItemDataRole.DisplayRole:
            return clean(line.text[:SHOWN_CHARS])
        if role == Role.LINE:
            return line
        if role == Role.MARK:
            return self._marks.get(line.number, Mark.NONE)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{line.number}: {shown_text(line)}"
        return None

    def line(self, row: int) -> LogLine:
        """The line of a row."""
        return self._lines[row if self._rows is None else self._rows[row]]

    @property
    def n_lines(self) -> int:
        """Lines kept, filtered out or not."""
        return len(self._lines) + len(self._pending)

    @property
    def n_metadata(self) -> int:
        """Lines that only repeat the header, as far as they were counted."""
        return self._metadata

    @property
    def filter(self) -> Filter:
        return self._filter

    @property
    def scanning(self) -> bool:
        """Whether rows are still being looked for."""
        return self._scan_timer.isActive()

    def holds(self, lines: Sequence[LogLine]) -> bool:
        """Whether these are lines that are shown already, as at the end of a launch that was watched.

        Of a long log the caller may have kept fewer: the same first and last line, and none that is not here.
        """
        mine = self._lines
        if self._pending or not lines or len(lines) > len(mine):
            return False
        return lines[0] is mine[0] and lines[-1] is mine[-1]

    def show_lines(self, lines: Sequence[LogLine]) -> None:
        """Another log altogether."""
        self._append_timer.stop()
        self.beginResetModel()
        self._pending = []
        self._lines = list(lines)
        self._metadata = self.dropped = 0
        self._is_metadata = bytearray()
        self._marks = {}
        self._start_scan()
        self.endResetModel()
        self._on_scan()
        self.changed.emit()

    def append(self, lines: Sequence[LogLine]) -> None:
        """More lines of the same log; they become rows within 100 ms."""
        self._pending.extend(lines)
        if not self._append_timer.isActive():
            self._append_timer.start()

    def flush(self) -> None:
        """Make rows of what is waiting, now."""
        self._append_timer.stop()
        self._on_append_due()

    def set_filter(self, wanted: Filter) -> None:
        """Show other lines."""
        if wanted is not self._filter:
            self._filter = wanted
            self._refilter()

    def set_search(self, text: str) -> None:
        """Only lines with this text in them, whatever their case."""
        if text.lower() != self._search:
            self._search = text.lower()
            self._refilter()

    def mark(self, marks: dict[int, Mark]) -> None:
        """What line numbers mean; marked lines pass every filter but a search."""
        if marks != self._marks:
            self._marks = dict(marks)
            self._refilter()

    def row_of(self, number: int) -> int | None:
        """The row of a line number, None when it is not shown."""
        count = self.rowCount()
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self.line(middle).number < number:
                low = middle + 1
            else:
                high = middle
        return low if low < count and self.line(low).number == number else None

    def text_of(self, rows: Sequence[int]) -> str:
        """Rows as they stood in the log, for the clipboard."""
        return "\n".join(self.line(row).text for row in rows)

    def _passes(self) -> Callable[[LogLine, int], bool] | None:
        """The test of a line (and whether it is metadata), None when every line passes."""
        marks, search, chosen = self._marks, self._search, self._filter
        if chosen is Filter.ALL and not search:
            return None

        def test(line: LogLine, metadata: int) -> bool:
            if search and search not in line.text[: 4 * SHOWN_CHARS].lower():
                return False
            if chosen is Filter.ALL or line.number in marks:
                return True
            return not metadata and (chosen is Filter.NO_METADATA or _names_memory(line.message))

        return test

    def _refilter(self) -> None:
        self.beginResetModel()
        self._start_scan()
        self.endResetModel()
        self._on_scan()
        self.changed.emit()

    def _start_scan(self) -> None:
        self._test = self._passes()
        self._rows = None if self._test is None else []
        self._scanned = 0
        self._scan_timer.start()

    @Slot()
    def _on_scan(self) -> None:
        """Look at lines for a moment: which are rows, and how many are metadata."""
        until = time.perf_counter() + SCAN_S
        found: list[int] = []
        while self._scanned < len(self._lines):
            self._scan_step(found)
            if time.perf_counter() > until:
                break
        if found and self._rows is not None:
            at = len(self._rows)
            self.beginInsertRows(QModelIndex(), at, at + len(found) - 1)
            self._rows.extend(found)
            self.endInsertRows()
        if self._scanned >= len(self._lines):
            self._scan_timer.stop()
            self.changed.emit()
        elif not self._scan_timer.isActive():
            self._scan_timer.start()

    def _scan_step(self, found: list[int]) -> None:
        first, end = self._scanned, min(self._scanned + SCAN_STEP, len(self._lines))
        if end > len(self._is_metadata):
            fresh = bytes(is_metadata(line) for line in self._lines[len(self._is_metadata) : end])
            self._is_metadata += fresh
            self._metadata += fresh.count(1)
        if self._test is not None:
            test, flags = self._test, self._is_metadata
            found += [first + i for i, line in enumerate(self._lines[first:end]) if test(line, flags[first + i])]
        self._scanned = end

    @Slot()
    def _on_append_due(self) -> None:
        batch, self._pending = self._pending[:SLICE], self._pending[SLICE:]
        if self._pending:
            self._append_timer.start()
        if not batch:
            return
        if len(self._lines) + len(batch) > MAX_LINES:
            self._drop_oldest()
        at = len(self._lines)
        if self._rows is None:
            self.beginInsertRows(QModelIndex(), at, at + len(batch) - 1)
            self._lines.extend(batch)
            self.endInsertRows()
        else:
            self._lines.extend(batch)
        self._on_scan()
        self.changed.emit()

    def _drop_oldest(self) -> None:
        """Let go of a block after the head, so that both the start and the newest lines stay."""
        self.beginResetModel()
        del self._lines[HEAD_LINES : HEAD_LINES + DROP_STEP]
        del self._is_metadata[HEAD_LINES : HEAD_LINES + DROP_STEP]
        self.dropped += DROP_STEP
        self._start_scan()
        self.endResetModel()
