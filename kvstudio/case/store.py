"""A case to a JSON file and back, without what can be worked out again."""

import json
from pathlib import Path
from typing import Any

from kvstudio.case.codec import from_plain, to_plain
from kvstudio.case.evolve import evolve_budget
from kvstudio.case.values import Case
from kvstudio.errors import StoreError
from kvstudio.files import write_whole
from kvstudio.header.values import Header
from kvstudio.model.describe import describe

SCHEMA = "kvstudio.case/1"
SUFFIX = ".kvcase"
#: Worked out from the rest, so not kept.
_DERIVED = ("budget", "fixes", "fitted", "remembered", "extras")


def to_json(case: Case) -> dict[str, Any]:
    """The case as plain values, with its schema's name."""
    plain: dict[str, Any] = to_plain(case.replace(model=None, budget=None, fixes=(), fitted=None, extras=None))
    for name in _DERIVED:
        del plain[name]
    # A model is its header: everything else about it is described again, by the rules of the version that opens it.
    plain["model"] = to_plain(case.model.header) if case.model is not None else None
    return {"schema": SCHEMA, **plain}


def from_json(plain: Any) -> Case:
    """The case that `to_json` wrote, its budget worked out again.

    Raises: StoreError that names the first place that is not as it should be.
    """
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        found = plain.get("schema") if isinstance(plain, dict) else type(plain).__name__
        raise StoreError(f"not a saved case: schema {found!r}, {SCHEMA} expected", "Open a .kvcase file.")
    kept = {name: value for name, value in plain.items() if name not in (*_DERIVED, "model")}
    case: Case = from_plain(Case, kept)
    if plain.get("model") is None:
        return case
    return evolve_budget(case, model=describe(from_plain(Header, plain["model"], "model")))


def is_case(text: str) -> bool:
    """Whether a file's beginning looks like a saved case."""
    return text.lstrip().startswith("{") and SCHEMA in text[:4096]


def save(case: Case, path: str | Path) -> None:
    """Write the case; the file before stays whole until the new one is complete.

    Raises: StoreError with the system's reason (disk full, read-only folder).
    """
    path = Path(path)
    # Escaped: a file name that is no valid text comes back as it was.
    text = json.dumps(to_json(case), indent=1)
    try:
        write_whole(path, text.encode("ascii"))
    except OSError as error:
        raise StoreError(
            f"{path.name} could not be saved: {error.strerror or error}", "What was there before is unchanged."
        ) from error


def load(path: str | Path) -> Case:
    """Read a saved case.

    Raises: StoreError that says what is wrong with the file.
    """
    path = Path(path)
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path.name} could not be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        where = f"{path.name}, line {error.lineno}, column {error.colno}"
        raise StoreError(f"{where}: expected JSON, a saved case", "Open a .kvcase file.") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path.name} is not a saved case: {error}", "Open a .kvcase file.") from error
    try:
        return from_json(plain)
    except StoreError as error:
        raise StoreError(f"{path.name}: {error.message}", error.hint) from error
