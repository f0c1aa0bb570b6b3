"""What the terminal shows: results on stdout, messages on stderr, a progress line only on a terminal."""

import contextlib
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from kvstudio.errors import KvStudioError

DONE, BAD_INPUT, DOES_NOT_FIT = 0, 2, 3
_INDENT = 2
#: The space of `8.4 GiB`, and one in its place at which no line is broken.
_BEFORE_A_UNIT, _KEPT = re.compile(r"(?<=\d) (?=(?:[KMGT]i)?B\b|s\b|tokens\b|cells\b)"), "\u00a0"
#: Below this every line would hold a word or two.
_NARROWEST = 20


def emit_json(value: Any) -> None:
    """One JSON document on stdout; letters that the locale cannot write are escaped, so that none is lost."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=1)
    _write(text + "\n")


def emit(text: str) -> None:
    """A line of the result, as long as it is: a command or a line of a log is copied whole."""
    _write(plain(text) + "\n")


def _write(text: str) -> None:
    """To stdout; when its reader has gone away (`| head`) the work and its exit code are those of any other time."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        forget_output()


def forget_output() -> None:
    """Let what is still unwritten go nowhere; Python would complain again while flushing at its end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit_words(text: str, indent: int = 0) -> None:
    """A sentence of the result, broken between words where the terminal is narrow; `indent` from the second line on."""
    columns = width()
    lines = [text]
    if columns is not None and len(text) > columns:
        lines = textwrap.wrap(
            _BEFORE_A_UNIT.sub(_KEPT, text),
            max(columns, indent + _NARROWEST),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    for line in lines:
        emit(line.replace(_KEPT, " "))


def emit_table(rows: Sequence[Sequence[str]], right: Sequence[int] = (), heads: bool = True) -> None:
    """Aligned columns; on a terminal too narrow for them a sentence a row, which begins with its first cell.

    `heads`: the first row names the columns.
    """
    lines, columns = table(rows, right), width()
    if columns is None or max(map(len, lines), default=0) <= columns:
        for line in lines:
            emit(line)
        return
    names = list(rows[0]) if heads else [""] * len(rows[0])
    for row in rows[1:] if heads else rows:
        cells = [f"{name} {cell}".strip() for name, cell in zip(names, row, strict=True) if cell not in ("", "-")]
        emit_words(f"{row[0]}: {', '.join(cells[1:])}", _INDENT)


def message(text: str) -> None:
    """A line for the person, not part of the result; where nobody can be told, the result still counts."""
    with contextlib.suppress(OSError):
        sys.stderr.write(plain(text) + "\n")
        sys.stderr.flush()


def width() -> int | None:
    """Columns to keep to: those of the terminal or of COLUMNS; None for a file or a pipe."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return None
    return max(shutil.get_terminal_size().columns, _NARROWEST)


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
            # A line that wraps could not be rewritten: the cursor would be on its last part.
            line = plain(text).replace("\n", " ")[: max(shutil.get_terminal_size().columns - 1, _NARROWEST)]
            self._stream.write("\r" + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)

    def clear(self) -> None:
        """Wipe the line, so that a result starts at the margin."""
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
