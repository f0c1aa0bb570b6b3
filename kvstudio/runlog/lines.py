"""Log bytes, in any chunks, to numbered lines of text."""

import codecs

from kvstudio.runlog.prefixes import clean, strip
from kvstudio.runlog.values import LogLine

#: Characters kept of one line; the rest of a longer line is dropped and counted.
MAX_LINE = 16_384
_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))


def make_line(number: int, raw: str) -> LogLine:
    """One LogLine from decoded text without its line end; a carriage return inside keeps what the terminal showed."""
    text = clean(raw.rstrip("\r"))
    message, level, time_s = strip(text)
    return LogLine(number, text, message, level, time_s)


class LineReader:
    """Turns chunks of bytes into LogLines; memory stays bounded whatever the bytes are.

    CRLF, NUL bytes, broken UTF-8 and UTF-16 with a byte order mark are read; `n_lines` counts the lines given out and
    `n_cut` those that were longer than MAX_LINE.
    """

    def __init__(self) -> None:
        self.n_lines = 0
        self.n_cut = 0
        self._pending = bytearray()
        self._overflow = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._head: bytes | None = b""

    def feed(self, chunk: bytes) -> tuple[LogLine, ...]:
        """The lines that `chunk` completes."""
        return self._split(self._utf8(chunk))

    def close(self) -> tuple[LogLine, ...]:
        """The last line, when it has no line end."""
        lines = self._split(self._head) if self._head else ()
        self._head = None
        if not self._pending:
            return lines
        last = self._give(bytes(self._pending))
        self._pending, self._overflow = bytearray(), False
        return (*lines, last)

    def _utf8(self, chunk: bytes) -> bytes:
        if self._head is not None:
            self._head += chunk
            if len(self._head) < 3:
                return b""
            chunk, self._head = self._head, None
            for mark, name in _MARKS:
                if chunk.startswith(mark):
                    chunk = chunk[len(mark) :]
                    if name != "utf-8":
                        self._decoder = codecs.getincrementaldecoder(name)("replace")
                    break
        if self._decoder is not None:
            chunk = self._decoder.decode(chunk).encode("utf-8", "replace")
        return chunk.replace(b"\0", b"") if b"\0" in chunk else chunk

    def _split(self, chunk: bytes) -> tuple[LogLine, ...]:
        first, *rest = chunk.split(b"\n")
        self._append(first)
        if not rest:
            return ()
        lines = [self._give(bytes(self._pending))]
        self._pending, self._overflow = bytearray(), False
        lines.extend(self._give(raw) for raw in rest[:-1])
        self._append(rest[-1])
        return tuple(lines)

    def _append(self, raw: bytes) -> None:
        room = 4 * MAX_LINE - len(self._pending)
        if len(raw) > room:
            self._overflow = True
        if room > 0 and raw:
            self._pending += raw[:room]

    def _give(self, raw: bytes) -> LogLine:
        self.n_lines += 1
        text = raw[: 4 * MAX_LINE].decode("utf-8", "replace")
        if self._overflow or len(text) > MAX_LINE or len(raw) > 4 * MAX_LINE:
            self.n_cut += 1
            text = text[:MAX_LINE] + " [line cut]"
        return make_line(self.n_lines, text)
