"""Every run that was made, kept on disk so that no crash loses more than the last one, and two of them side by side."""

import contextlib
import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from kvstudio.budget.values import Budget
from kvstudio.case.codec import from_plain, to_plain
from kvstudio.errors import StoreError
from kvstudio.files import write_whole
from kvstudio.launch.config import LaunchConfig
from kvstudio.verify.compare import compare_buffers
from kvstudio.verify.values import Run, RunOutcome

SCHEMA = "kvstudio.run/1"
#: Names inside one run's folder.
RUN_FILE, BEGIN_FILE, LOG_FILE = "run.json", "begin.json", "launch.log"
_DIGITS = 6
_WORKED = frozenset({RunOutcome.VERIFIED})
_FAILED = frozenset({RunOutcome.FAILED, RunOutcome.CRASHED, RunOutcome.KILLED})


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept run. `number` is its place in the history, `budget` what was predicted before it."""

    number: int
    run: Run
    model_name: str = ""
    budget: Budget | None = None
    note: str = ""

    @property
    def title(self) -> str:
        return self.model_name or Path(self.run.config.model_path).name


@dataclass(frozen=True, slots=True)
class Listing:
    """All runs that could be read, oldest first, and what was to say about the others."""

    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One kind of memory on one device in two runs, in bytes; None where a run does not know it."""

    device: str
    kind: str
    before_estimated: int | None
    before_printed: int | None
    after_estimated: int | None
    after_printed: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side: what was changed first, then sizes, then how they ended.

    `changes`: (setting, before, after). `regression`: the same settings work with one binary and not with the other.
    """

    before: Entry
    after: Entry
    changes: tuple[tuple[str, Any, Any], ...]
    sizes: tuple[SizeRow, ...]
    outcomes: tuple[RunOutcome, RunOutcome]
    regression: bool
    says: str


class History:
    """The runs in one folder, a sub-folder each."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def begin(self, config: LaunchConfig) -> tuple[int, Path]:
        """(number, folder) for a run that is about to start; its log belongs into that folder.

        A run that is never finished, because we were killed, is then still known, with its log.
        Raises: StoreError when the folder cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            number = max(self._numbers(), default=0) + 1
            while True:  # mkdir decides between two programs that want the same number
                with contextlib.suppress(FileExistsError):
                    self._place(number).mkdir()
                    break
                number += 1
            mine = {"schema": SCHEMA, "pid": os.getpid(), "began_at": time.time(), "config": to_plain(config)}
            _write(self._place(number) / BEGIN_FILE, mine)
        except OSError as error:
            raise _not_kept(self._folder, error) from error
        return number, self._place(number)

    def finish(
        self, number: int, run: Run, *, model_name: str = "", budget: Budget | None = None, note: str = ""
    ) -> Entry:
        """Keep a run that was begun; it is there whole or not at all.

        Raises: StoreError (disk full, folder gone); runs kept before are untouched.
        """
        place = self._place(number)
        try:
            place.mkdir(parents=True, exist_ok=True)
            run = replace(run, number=number, log_path=self._keep_log(place, run.log_path))
            plain = {
                "schema": SCHEMA,
                "model_name": model_name,
                "note": note,
                "run": to_plain(replace(run, log_path=_relative(run.log_path, place))),
                "budget": to_plain(budget),
            }
            _write(place / RUN_FILE, plain)
            (place / BEGIN_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise _not_kept(place, error) from error
        return Entry(number, run, model_name, budget, note)

    def add(self, run: Run, *, model_name: str = "", budget: Budget | None = None, note: str = "") -> Entry:
        """Keep a run that is over; its log is copied.

        Raises: StoreError (disk full, read-only folder).
        """
        number, _ = self.begin(run.config)
        return self.finish(number, run, model_name=model_name, budget=budget, note=note)

    def list(self) -> Listing:
        """Every run; one that cannot be read is skipped with a note, never in the way of the others."""
        entries, notes = [], []
        for number in sorted(self._numbers()):
            try:
                entries.append(self.load(number))
            except StoreError as error:
                if not self._is_running(number):
                    notes.append(error.message)
        return Listing(tuple(entries), tuple(notes))

    def load(self, number: int) -> Entry:
        """One run.

        Raises: StoreError that says what is wrong with it.
        """
        place = self._place(number)
        try:
            plain = json.loads((place / RUN_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise StoreError(self._unfinished(number)) from error
        except OSError as error:
            raise StoreError(f"run {number} could not be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise StoreError(f"run {number} is damaged: {error}") from error
        return _entry(number, plain, place)

    def remove(self, number: int) -> None:
        """Forget a run and its log."""
        shutil.rmtree(self._place(number), ignore_errors=True)

    def prune(self, keep: int) -> int:
        """Forget all but the newest `keep` runs; returns how many went."""
        old = sorted(self._numbers())[: -keep or None]
        for number in old:
            self.remove(number)
        return len(old)

    def _numbers(self) -> tuple[int, ...]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _not_kept(self._folder, error) from error
        return tuple(int(name) for name in names if name.isascii() and name.isdigit())

    def _place(self, number: int) -> Path:
        return self._folder / f"{number:0{_DIGITS}d}"

    def _keep_log(self, place: Path, path: str | None) -> str | None:
        """The log inside the run's own folder, wherever it was written."""
        if path is None or not Path(path).is_file() or Path(path).parent == place:
            return path
        target = place / LOG_FILE
        with contextlib.suppress(shutil.SameFileError):
            shutil.copyfile(path, target)
        return str(target)

    def _is_running(self, number: int) -> bool:
        begun = self._begun(number)
        pid = begun.get("pid")
        try:
            return isinstance(pid, int) and psutil.Process(pid).create_time() < float(begun.get("began_at", 0))
        except (psutil.Error, ValueError, TypeError, OverflowError):
            return False

    def _begun(self, number: int) -> dict[str, Any]:
        try:
            plain = json.loads((self._place(number) / BEGIN_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return plain if isinstance(plain, dict) else {}

    def _unfinished(self, number: int) -> str:
        if not self._place(number).is_dir():
            return f"there is no run {number}"
        logs = sorted(self._place(number).glob("*.log"))
        where = f"; its log is {logs[0]}" if logs else ""
        return f"run {number} was never finished{where}"


def compare(before: Entry, after: Entry) -> Comparison:
    """Two runs side by side."""
    changes = config_changes(before.run.config, after.run.config)
    binaries = _binaries(before.run, after.run)
    other_binary = None not in binaries and binaries[0] != binaries[1]
    if None not in binaries:  # how the program was typed says less than which one it was
        changes = tuple(change for change in changes if change[0] != "program")
    outcomes = (before.run.outcome, after.run.outcome)
    regression = not changes and other_binary and bool(_WORKED & set(outcomes)) and bool(_FAILED & set(outcomes))
    if other_binary:
        changes = (("binary", *binaries), *changes)
    sizes = _size_rows(before, after)
    return Comparison(before, after, changes, sizes, outcomes, regression, _says(before, after, changes, regression))


def config_changes(before: LaunchConfig, after: LaunchConfig) -> tuple[tuple[str, Any, Any], ...]:
    """(setting, before, after) of everything that differs, None for not typed; unknown flags and variables too."""
    old, new = _flat(before), _flat(after)
    names = [*old, *(name for name in new if name not in old)]
    return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def _flat(config: LaunchConfig) -> dict[str, Any]:
    unknown = {" ".join(arg.tokens): True for arg in config.layout if arg.field is None}
    return {"program": config.program, "model_path": config.model_path, **config.typed(), **unknown, **dict(config.env)}


def _binary_title(run: Run) -> str | None:
    return f"{run.binary.title} {run.binary.commit or ''}".strip() if run.binary else None


def _binaries(before: Run, after: Run) -> tuple[str | None, str | None]:
    """What the two programs are called; by their places too where two places have one name."""
    titles = (_binary_title(before), _binary_title(after))
    if before.binary is None or after.binary is None or titles[0] != titles[1]:
        return titles
    return f"{titles[0]} {before.binary.path}", f"{titles[1]} {after.binary.path}"


def _size_rows(before: Entry, after: Entry) -> tuple[SizeRow, ...]:
    old = {(row.device, row.kind): row for row in compare_buffers(before.budget, before.run.buffers)}
    new = {(row.device, row.kind): row for row in compare_buffers(after.budget, after.run.buffers)}
    keys = dict.fromkeys([*old, *new])
    return tuple(
        SizeRow(
            *key,
            *((old[key].estimated, old[key].measured) if key in old else (None, None)),
            *((new[key].estimated, new[key].measured) if key in new else (None, None)),
        )
        for key in keys
    )


def _says(before: Entry, after: Entry, changes: tuple[tuple[str, Any, Any], ...], regression: bool) -> str:
    first, second = before.run.outcome.value.replace("_", " "), after.run.outcome.value.replace("_", " ")
    if regression:
        good, bad = (before, after) if before.run.outcome in _WORKED else (after, before)
        works, fails = _binaries(good.run, bad.run)
        return f"The same settings work with {works} and fail with {fails}: a difference between the binaries."
    if not changes:
        return f"The same settings: {first}, then {second}."
    what = ", ".join(f"{name} {_word(old)} -> {_word(new)}" for name, old, new in changes)
    return f"Changed: {what}. Outcome: {first} -> {second}."


def _word(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(str(item) for item in value) if isinstance(value, tuple) else str(value)


def _entry(number: int, plain: Any, place: Path) -> Entry:
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        found = plain.get("schema") if isinstance(plain, dict) else type(plain).__name__
        raise StoreError(f"run {number} is not one this version can read: schema {found!r}, {SCHEMA} expected")
    try:
        run: Run = from_plain(Run, plain.get("run"))
        budget: Budget | None = from_plain(Budget | None, plain.get("budget"))
    except (StoreError, TypeError) as error:
        raise StoreError(f"run {number} is damaged: {error}") from error
    log = None if run.log_path is None else str(place / run.log_path)
    return Entry(
        number, replace(run, log_path=log), str(plain.get("model_name", "")), budget, str(plain.get("note", ""))
    )


def _relative(path: str | None, place: Path) -> str | None:
    """The log's name where it lies in the run's folder, so that a history can be moved."""
    return Path(path).name if path is not None and Path(path).parent == place else path


def _write(path: Path, plain: dict[str, Any]) -> None:
    # Escaped: a file name that is no valid text comes back as it was.
    write_whole(path, json.dumps(plain).encode("ascii"))


def _not_kept(place: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the run could not be kept in {place}: {error.strerror or error}", "Runs kept before are unchanged."
    )
