"""Bytes to a path, whole or not at all."""

import contextlib
import os
import stat
import tempfile
import time

#: Windows refuses to replace a file that a virus scanner or an indexer has open, for a moment each.
_TRIES, _BETWEEN_S = (10 if os.name == "nt" else 1), 0.05


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write beside the file, then rename over it, so that the one before stays until the new one is complete.

    A link is followed, and a device or pipe is written to as it is: a rename would put a file in its place.

    What was written is still there after a power cut. Raises: OSError with the system's reason; the file before is then
    as it was.
    """
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as file:  # a folder is refused here, in the system's words
            file.write(data)
        return
    folder, name = os.path.split(target)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name[:40]}", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644 if mode is None else stat.S_IMODE(mode))
        _rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(folder)


def _rename(temporary: str, target: str) -> None:
    for tries_left in reversed(range(_TRIES)):
        try:
            os.replace(temporary, target)
            return
        except PermissionError:
            if not tries_left:
                raise
            time.sleep(_BETWEEN_S)


def _sync_folder(folder: str) -> None:
    # Without this a power cut may forget the new name; Windows cannot open folders and does not need it.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
