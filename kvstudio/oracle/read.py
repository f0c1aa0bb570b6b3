"""What a dry run prints to the rows of its first table."""

import re
from collections.abc import Iterable

from kvstudio.oracle.values import HOST, STEP_BYTES, Measured
from kvstudio.runlog.lines import LineReader
from kvstudio.runlog.parse import LogParser
from kvstudio.runlog.values import BreakdownRow, LogLine

#: `NAME MODEL CONTEXT COMPUTE` in MiB, as llama-fit-params prints it.
_ESTIMATE_LINE = re.compile(r"^(\S+) (\d+) (\d+) (\d+)\s*$")
#: Lines kept for a diagnosis: a dry run is short, and its failure stands at its end.
KEEP_LINES = 5000
_ROW_WORD = "memory_breakdown"


class TableReader:
    """Reads a dry run as it comes; `complete` once its first table is through.

    The first table measures the settings as they were given; later ones belong to what fitting tries.
    """

    def __init__(self) -> None:
        self.complete = False
        self.lines: list[LogLine] = []
        self._reader, self._parser = LineReader(), LogParser()
        self._rows: list[Measured] = []

    def feed(self, chunk: bytes) -> bool:
        """Take bytes; True once the first table is complete."""
        for line in self._reader.feed(chunk):
            self._take(line)
        return self.complete

    def close(self) -> None:
        for line in self._reader.close():
            self._take(line)
        self.complete = self.complete or bool(self._rows)

    @property
    def rows(self) -> tuple[Measured, ...]:
        return tuple(self._rows)

    def _take(self, line: LogLine) -> None:
        if len(self.lines) < KEEP_LINES:
            self.lines.append(line)
        if self.complete:
            return
        rows = [event for event in self._parser.feed((line,)) if isinstance(event, BreakdownRow)]
        self._rows += [_measured(row) for row in rows if row.table == 1]
        # With JSON lines the same table follows once more as a record, which the parser counts as the second.
        self.complete = bool(self._rows) and _ROW_WORD not in line.text


def _measured(row: BreakdownRow) -> Measured:
    is_device = row.total_bytes is not None
    return Measured(row.name, is_device, row.model_bytes, row.context_bytes, row.compute_bytes)


def read_estimate(lines: Iterable[LogLine]) -> tuple[Measured, ...]:
    """The rows llama-fit-params prints; whole MiB become bytes."""
    found = (_ESTIMATE_LINE.match(line.text) for line in lines)
    return tuple(
        Measured(m[1], m[1] != HOST, *(int(m[i]) * STEP_BYTES for i in (2, 3, 4))) for m in found if m is not None
    )
