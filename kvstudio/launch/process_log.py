"""The kept log of a process: every byte as it came, bounded on disk, and never a reason to stop."""

from collections import deque
from pathlib import Path
from typing import BinaryIO

#: Past this the beginning is kept and only the last part follows: the line that decides is near one of the ends.
MAX_BYTES = 256 << 20
TAIL_BYTES = 4 << 20


class KeptLog:
    """Writes chunks to a file; a full disk or a size limit is told in `message` instead of raised."""

    def __init__(self, path: str | Path | None, max_bytes: int = MAX_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.message = ""
        self.bytes_written = 0
        self._max = max_bytes
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_limit = tail_bytes
        self._left_out = 0
        self._file: BinaryIO | None = None
        if path is not None:
            try:
                # Unbuffered: what was read is on disk when we are killed.
                self._file = open(path, "wb", buffering=0)  # noqa: SIM115
            except OSError as error:
                self._fail(error)

    def write(self, chunk: bytes) -> None:
        if self._file is None:
            return
        room = self._max - self.bytes_written
        if room > 0:
            self._put(chunk[:room])
        if len(chunk) > max(0, room):
            self._keep_tail(chunk[max(0, room) :])

    def close(self) -> None:
        """Append the kept tail and close."""
        if self._file is None:
            return
        if self._tail:
            if self._left_out:
                self._put(f"\n[{self._left_out} bytes left out here to keep this log small]\n".encode())
                self.message = self.message or f"the log was cut: {self._left_out} bytes in its middle are left out"
            for chunk in self._tail:
                self._put(chunk)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _put(self, chunk: bytes) -> None:
        data = memoryview(chunk)
        try:
            while data and self._file is not None:
                written = self._file.write(data)
                self.bytes_written += written
                data = data[written:]
        except OSError as error:
            self._fail(error)

    def _keep_tail(self, chunk: bytes) -> None:
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        while self._tail_size > self._tail_limit and len(self._tail) > 1:
            dropped = len(self._tail.popleft())
            self._tail_size -= dropped
            self._left_out += dropped

    def _fail(self, error: OSError) -> None:
        """Say it once and go on without: the launch is worth more than its log."""
        self.message = f"the log is not complete: {error.strerror or error} after {self.bytes_written} bytes"
        if self._file is not None:
            self._file.close()
            self._file = None
