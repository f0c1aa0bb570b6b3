"""A log named on the command line, or standard input, read and diagnosed."""

import os
import shutil
import sys
import tempfile

from kvstudio.diagnose.read import ReadLog, read_log
from kvstudio.errors import KvStudioError


def _not_a_model(name: str) -> str:
    """`name` again, unless that file is a model; a pipe is left alone, its first bytes can be read only once."""
    if os.path.isfile(name):
        with open(name, "rb") as file:
            if file.read(4) == b"GGUF":
                raise KvStudioError(f"{name} is a GGUF model, not a log.", "For a model there is kvstudio-cli inspect.")
    return name


def open_log(name: str) -> ReadLog:
    """The log in file `name`, or of standard input for `-`, whatever its size.

    Raises: KvStudioError when it cannot be read.
    """
    try:
        if name != "-":
            return read_log(_not_a_model(name))
        if sys.stdin is None:
            raise KvStudioError("standard input is closed.", "Pipe the log in, or name its file.")
        # A pipe has no size and cannot be read twice; a file on disk keeps a log of any length out of memory.
        with tempfile.NamedTemporaryFile(prefix="kvstudio-", suffix=".log") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
            return read_log(copy.name)
    except OSError as error:
        where = "standard input" if name == "-" else name
        raise KvStudioError(f"the log {where} could not be read: {error.strerror or error}.") from error
