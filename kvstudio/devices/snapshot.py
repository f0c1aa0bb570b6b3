"""A machine in a file, to plan on another machine or later."""

import contextlib
import json
import os
import tempfile

from kvstudio.devices.json import from_json, to_json
from kvstudio.devices.values import Machine
from kvstudio.errors import StoreError

#: A snapshot has a few kilobytes; what is larger is something else.
MAX_BYTES = 4 * 1024**2


def load(path: str) -> Machine:
    """Read a saved machine.

    Raises: StoreError naming the file and what is wrong with it.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise StoreError(f"{path} cannot be read: {reason}", "Check the path.") from problem
    try:
        if len(raw) > MAX_BYTES:
            raise ValueError("it is too large")
        plain = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise StoreError(f"{path} is not a saved list of devices: {problem}", "Choose another file.") from problem
    try:
        return from_json(plain)
    except StoreError as problem:
        raise StoreError(f"{path}: {problem.message}", problem.hint) from problem


def save(path: str, machine: Machine) -> None:
    """Write a machine; the old file stays until the new one is whole.

    Raises: StoreError.
    """
    text = json.dumps(to_json(machine), indent=2, ensure_ascii=False) + "\n"
    folder = os.path.dirname(os.path.abspath(path))
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8", suffix=".tmp") as file:
            temporary = file.name
            file.write(text)
        os.replace(temporary, path)
    except OSError as problem:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise StoreError(f"{path} cannot be saved: {problem.strerror or problem}", "Choose another place.") from problem
