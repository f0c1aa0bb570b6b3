"""A file's first bytes, read in chunks and checked against the size of the file, never mapped into memory."""

import functools
import io
import os
import re
import stat
import struct
from types import TracebackType
from typing import Self

from kvstudio.errors import HeaderError

#: Memory used for reading. The file is not mapped: a file that shrinks under a mapping kills the process.
CHUNK_BYTES = 256 * 1024

#: The largest real header is some 40 MB (a vocabulary with its merges); more than this is not a header.
MAX_HEADER_BYTES = 512 * 1024 * 1024

_U32 = struct.Struct("<I").unpack_from
_U64 = struct.Struct("<Q").unpack_from

#: Strings are skipped in runs of this many, of up to this length each; tokens rarely are longer.
_RUN = 64
_RUN_LONGEST = 63


@functools.lru_cache(maxsize=1)
def _string_run() -> re.Pattern[bytes]:
    """Matches exactly `_RUN` GGUF strings (a 64-bit length, then that many bytes).

    A loop over a vocabulary's 262,144 strings takes four times as long as the regular expression engine.
    """
    lengths = (*range(2, 24), 1, 0, *range(24, _RUN_LONGEST + 1))
    strings = b"|".join(re.escape(bytes([n])) + rb"\x00{7}" + (b".{%d}" % n if n else b"") for n in lengths)
    return re.compile(b"(?s)(?:%b){%d}+" % (strings, _RUN))


class ByteSource:
    """Reads little-endian values of a file forwards; every request is checked against the bytes left.

    Errors: HeaderError that names the file, the offset and what was expected there.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = _open(path)
        self.size = os.fstat(self._file.fileno()).st_size
        self._end = min(self.size, MAX_HEADER_BYTES)
        self._buffer = b""
        self._start = 0  # offset in the file of the buffer's first byte
        self._at = 0  # position in the buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def offset(self) -> int:
        """Bytes from the start of the file to the next value."""
        return self._start + self._at

    @property
    def left(self) -> int:
        """Bytes of the file that a header could still use."""
        return self._end - self.offset

    def error(self, says: str, hint: str = "", offset: int | None = None) -> HeaderError:
        """The error to raise: one sentence with the file and the offset."""
        at = self.offset if offset is None else offset
        return HeaderError(f"{self.path}: at byte {at}, {says}.", hint or "Download or convert the file again.")

    def u32(self, what: str) -> int:
        if len(self._buffer) - self._at < 4:
            self._need(4, what)
        value: int = _U32(self._buffer, self._at)[0]
        self._at += 4
        return value

    def u64(self, what: str) -> int:
        if len(self._buffer) - self._at < 8:
            self._need(8, what)
        value: int = _U64(self._buffer, self._at)[0]
        self._at += 8
        return value

    def take(self, n_bytes: int, what: str) -> bytes:
        """The next `n_bytes`; the caller bounds them, the file's end is checked here."""
        if len(self._buffer) - self._at < n_bytes:
            self._need(n_bytes, what)
        taken = self._buffer[self._at : self._at + n_bytes]
        self._at += n_bytes
        return taken

    def unpack(self, packed: struct.Struct, what: str) -> tuple[int | float | bool, ...]:
        if len(self._buffer) - self._at < packed.size:
            self._need(packed.size, what)
        values = packed.unpack_from(self._buffer, self._at)
        self._at += packed.size
        return values

    def skip(self, n_bytes: int, what: str) -> None:
        """Step over bytes without reading them."""
        self.check(n_bytes, what)
        self._at += n_bytes
        if self._at > len(self._buffer):
            self._start += self._at
            self._buffer, self._at = b"", 0

    def skip_strings(self, count: int, what: str) -> None:
        """Step over `count` strings, most of them short."""
        run = _string_run().match if count >= _RUN else None
        while count:
            found = run(self._buffer, self._at) if run and count >= _RUN else None
            if found:
                self._at = found.end()
                count -= _RUN
                continue
            # A long string or the chunk's end is near: walk, then try the fast way again.
            for _ in range(min(count, _RUN)):
                self.skip(self.u64(what), what)
            count -= min(count, _RUN)

    def rewind(self, offset: int) -> None:
        """Go back to an offset that is still in the chunk."""
        self._at = offset - self._start

    def check(self, n_bytes: int, what: str) -> None:
        """Raise unless the file has `n_bytes` more that a header could use."""
        if n_bytes <= self.left:
            return
        if self.offset + n_bytes > self.size:
            says = f"{what} needs {n_bytes:,} bytes but the file has only {max(0, self.size - self.offset):,} left"
            raise self.error(says, "The file is cut short or damaged; download it again.")
        says = f"{what} needs {n_bytes:,} bytes, which makes the header larger than {MAX_HEADER_BYTES:,} bytes"
        raise self.error(says, "No real model has such a header; the file is damaged.")

    def _need(self, n_bytes: int, what: str) -> None:
        """Have at least `n_bytes` in the buffer from the present position on."""
        self.check(n_bytes, what)
        rest = self._buffer[self._at :]
        self._start, self._at = self.offset, 0
        self._buffer = rest + self._read(self._start + len(rest), max(n_bytes, CHUNK_BYTES) - len(rest), what)
        if len(self._buffer) < n_bytes:
            raise self.error(f"{what} could not be read: the file became shorter", "Wait until the download has ended.")

    def _read(self, offset: int, n_bytes: int, what: str) -> bytes:
        parts = []
        try:
            self._file.seek(offset)
            while n_bytes > 0 and (part := self._file.read(n_bytes)):
                parts.append(part)
                n_bytes -= len(part)
        except OSError as problem:
            raise self.error(f"{what} could not be read: {problem.strerror or problem}", "Check the disk.") from problem
        return b"".join(parts)


def _open(path: str) -> io.FileIO:
    """Open a regular file. A pipe would wait for ever, so the kind is looked at first."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise HeaderError(
                f"{path}: at byte 0, expected a GGUF file, found a folder.", "Choose a file in that folder."
            )
        if not stat.S_ISREG(mode):
            raise HeaderError(
                f"{path}: at byte 0, expected a GGUF file, found a device or pipe.", "Choose a regular file."
            )
        return io.FileIO(path, "rb")
    except FileNotFoundError as problem:
        raise HeaderError(f"{path}: there is no such file.", "Check the path.") from problem
    except PermissionError as problem:
        says = f"{path}: at byte 0, expected a GGUF file, but reading it is not permitted."
        raise HeaderError(says, "Change the file's permissions.") from problem
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise HeaderError(
            f"{path}: at byte 0, expected a GGUF file, but it cannot be opened: {reason}.", "Check the path."
        ) from problem
