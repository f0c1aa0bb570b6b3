"""What the terminal shows: results on stdout, messages on stderr, a progress line only on a terminal."""

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from kvstudio.errors import KvStudioError

DONE, BAD_INPUT, DOES_NOT_FIT = 0, 2, 3


def emit_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def emit(text: str) -> None:
    """A line of the result."""
    sys.stdout.write(plain(text) + "\n")


def message(text: str) -> None:
    """A line for the person, not part of the result."""
    sys.stderr.write(plain(text) + "\n")


def fail(error: KvStudioError) -> int:
    """Say an expected failure in one line, its hint in the same line; the exit code for bad input."""
    message(f"kvstudio-cli: {error.message.rstrip('.')}." + (f" {error.hint}" if error.hint else ""))
    return BAD_INPUT


def plain(text: str) -> str:
    """Text without control characters: names and logs are hostile, a terminal obeys escape codes."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text)


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows as aligned columns, two spaces apart; `right` are the columns aligned to the right."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return lines


class Progress:
    """A line on stderr that is rewritten in place; silent when stderr is not a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        """Replace the line by this text."""
        if self._live:
            line = plain(text).replace("\n", " ")[:100]
            self._stream.write("\r" + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)

    def clear(self) -> None:
        """Wipe the line, so that a result starts at the margin."""
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
