"""A machine in a file, to plan on another machine or later."""

import json

from kvstudio.devices.json import from_json, to_json
from kvstudio.devices.values import Machine
from kvstudio.errors import StoreError
from kvstudio.files import write_whole

#: A snapshot has a few kilobytes; what is larger is something else.
MAX_BYTES = 4 * 1024**2
_SAVE = "Save one with: kvstudio-cli devices --json > FILE"


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
    except json.JSONDecodeError as problem:
        where = f"{path}, line {problem.lineno}, column {problem.colno}"
        raise StoreError(f"{where}: expected JSON, a saved list of devices", _SAVE) from problem
    except (ValueError, RecursionError) as problem:
        raise StoreError(f"{path} is not a saved list of devices: {problem}", _SAVE) from problem
    try:
        return from_json(plain)
    except StoreError as problem:
        raise StoreError(f"{path}: {problem.message}", problem.hint) from problem


def save(path: str, machine: Machine) -> None:
    """Write a machine; the old file stays until the new one is whole.

    Raises: StoreError.
    """
    text = json.dumps(to_json(machine), indent=2, ensure_ascii=False) + "\n"
    try:
        write_whole(path, text.encode("utf-8", "replace"))
    except OSError as problem:
        raise StoreError(f"{path} cannot be saved: {problem.strerror or problem}", "Choose another place.") from problem
