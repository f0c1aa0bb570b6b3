"""A report's bytes or text to a file, whole or not at all."""

from pathlib import Path

from kvstudio.errors import StoreError
from kvstudio.files import write_whole


def save_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file or leave the one before as it was.

    Raises: StoreError with the system's reason (disk full, read-only folder).
    """
    path = Path(path)
    try:
        write_whole(path, data)
    except OSError as error:
        hint = "Choose another folder, or make room; what was there before is unchanged."
        raise StoreError(f"{path.name} could not be saved: {error.strerror or error}", hint) from error


def save_text(path: str | Path, text: str) -> None:
    """The same for text, as UTF-8.

    Raises: StoreError with the system's reason.
    """
    save_bytes(path, text.encode("utf-8", errors="replace"))
