"""llama.cpp programs as they described themselves earlier, kept in a small file so that a start asks only new ones."""

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from kvstudio import __version__
from kvstudio.files import write_whole
from kvstudio.launch import binary as programs
from kvstudio.launch.binary import Binary, InspectCache

SCHEMA = "kvstudio.programs/1"
FILE = "programs.json"
#: Several programs are asked at once, and each adds its answer to what the file holds by then.
_WRITING = threading.Lock()


def inspect(path: str, folder: str | Path) -> Binary:
    """A program's description: the one kept in `folder` as long as the program is the same file, else asked anew.

    Raises: LaunchError as `kvstudio.launch.binary.inspect` does. That an answer cannot be kept is no error.
    """
    path, file = os.path.abspath(path), Path(folder) / FILE
    known = InspectCache(_load(file)).get(path)
    if known is not None:
        return known
    fresh = InspectCache()
    found = programs.inspect(path, fresh)
    with _WRITING, contextlib.suppress(OSError):
        _save(file, {kept: entry for kept, entry in _load(file).items() if os.path.exists(kept)} | fresh.to_json())
    return found


def _load(file: Path) -> dict[str, Any]:
    """What is kept; nothing when another version of ours wrote it, which may have read answers otherwise."""
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(plain, dict) and (plain.get("schema"), plain.get("by")) == (SCHEMA, __version__)
    entries = plain.get("programs") if whole else None
    return entries if isinstance(entries, dict) else {}


def _save(file: Path, entries: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = {"schema": SCHEMA, "by": __version__, "programs": entries}
    write_whole(file, json.dumps(plain).encode("ascii"))
