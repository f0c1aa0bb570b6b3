"""Bytes to a file in one step: written beside it, then renamed over it."""

import os
import tempfile
from pathlib import Path

from kvstudio.errors import StoreError


def save_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file or leave the one before as it was.

    Raises: StoreError with the system's reason (disk full, read-only folder).
    """
    path = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        hint = "Choose another folder, or make room; what was there before is unchanged."
        raise StoreError(f"{path.name} could not be saved: {error.strerror or error}", hint) from error


def save_text(path: str | Path, text: str) -> None:
    """The same for text, as UTF-8.

    Raises: StoreError with the system's reason.
    """
    save_bytes(path, text.encode("utf-8", errors="replace"))
