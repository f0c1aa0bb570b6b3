"""Walks of the fix wizard kept on disk after each run, so that neither a crash nor closing the window loses one."""

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvstudio.advise.plan import Plan, World, resume
from kvstudio.advise.plan_values import Attempt
from kvstudio.advise.record import Record
from kvstudio.budget.extra_files import read_extras
from kvstudio.budget.extras import Extras
from kvstudio.case.codec import from_plain, to_plain
from kvstudio.devices.values import Device
from kvstudio.errors import StoreError
from kvstudio.files import write_whole
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.verify.values import Run, RunOutcome

SCHEMA = "kvstudio.walk/1"
#: Folder of the walks that came to an end, in the folder of the others.
_ENDED = "ended"
#: Parts of the world that are kept; the model and the launch's other files are read again.
_WORLD = ("devices", "host", "build", "overhead", "binary", "binaries", "other_devices")


@dataclass(frozen=True, slots=True)
class KeptWorld:
    """A world without what is read from files."""

    devices: tuple[Device, ...]
    host: Device | None = None
    build: int | None = None
    overhead: dict[str, int] | None = None
    binary: Binary | None = None
    binaries: tuple[Binary, ...] = ()
    other_devices: tuple[Device, ...] = ()

    def with_files(self, model: ModelInfo, extras: Extras) -> World:
        return World(
            model, self.devices, self.host, self.build, self.overhead or {}, self.binary, self.binaries,
            self.other_devices, extras,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeptWalk:
    """A walk as it was kept: everything but the model. `saved_at` in seconds since 1970."""

    world: KeptWorld
    wanted: LaunchConfig
    attempts: tuple[Attempt, ...] = ()
    skipped: tuple[str, ...] = ()
    max_launches: int = 0
    attended: bool = True
    undone: tuple[int, ...] = ()
    cancelled: tuple[Attempt, ...] = ()
    saved_at: float = 0.0

    def plan(self, model: ModelInfo) -> Plan:
        """The plan to go on with; takes estimates."""
        return resume(
            Record(
                self.world.with_files(model, read_extras(self.wanted)), self.wanted, self.attempts, self.skipped,
                max_launches=self.max_launches, attended=self.attended, undone=self.undone,
                cancelled=self.cancelled,
            )
        )  # fmt: skip


class Walks:
    """The walks in one folder, a file for each command: unfinished ones to go on with, the last ended one to report."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def keep(self, plan: Record, saved_at: float | None = None) -> None:
        """Write a walk down; one that came to its end is nothing to go on with any more, one that was stopped is.

        Raises: StoreError with the system's reason; the walk as kept before is then unchanged.
        """
        if not plan.launched:
            return
        ended = plan.verdict is not None and plan.verdict.outcome != "stopped"
        plain = {
            "schema": SCHEMA,
            "saved_at": time.time() if saved_at is None else saved_at,
            "world": {name: to_plain(getattr(plan.world, name)) for name in _WORLD},
            "wanted": to_plain(plan.wanted),
            "attempts": to_plain(plan.attempts),
            "skipped": to_plain(plan.skipped),
            "max_launches": plan.max_launches,
            "attended": plan.attended,
            "undone": to_plain(plan.undone),
            "cancelled": to_plain(plan.cancelled),
        }
        place = self._place(plan.wanted, ended)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace"))
        except OSError as error:
            says = f"the walk could not be kept in {place.parent}: {error.strerror or error}"
            raise StoreError(says, "It goes on, but cannot be resumed after a crash.") from error
        if ended:
            self.forget(plan.wanted)

    def load(self, wanted: LaunchConfig) -> KeptWalk | None:
        """The unfinished walk of a command, if there is one that can be read."""
        try:
            return _read(self._place(wanted))
        except StoreError:
            return None

    def told(self, wanted: LaunchConfig) -> KeptWalk | None:
        """What is known of a command from controlled runs: the walk that is under way, else the last that ended."""
        for ended in (False, True):
            try:
                found = _read(self._place(wanted, ended))
            except StoreError:
                continue
            if found is not None:
                return found
        return None

    def newest(self) -> KeptWalk | None:
        """The unfinished walk that was kept last."""
        found = []
        for path in self._folder.glob("*.json"):
            try:
                found.append(_read(path))
            except StoreError:
                continue  # a damaged one is not in the way of the others
        return max((walk for walk in found if walk is not None), key=lambda walk: walk.saved_at, default=None)

    def forget(self, wanted: LaunchConfig) -> None:
        """Drop the unfinished walk of a command."""
        self._place(wanted).unlink(missing_ok=True)

    def _place(self, wanted: LaunchConfig, ended: bool = False) -> Path:
        text = json.dumps(to_plain(wanted), sort_keys=True)
        folder = self._folder / _ENDED if ended else self._folder
        return folder / f"{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}.json"


def _read(path: Path) -> KeptWalk | None:
    """A kept walk; None when the file is not there.

    Raises: StoreError that says what is wrong with it.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path.name} is not a kept walk: {error}") from error
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise StoreError(f"{path.name} is not a kept walk")
    kept: KeptWalk = from_plain(KeptWalk, plain)
    attempts, cancelled = _with_tuples(kept.attempts), _with_tuples(kept.cancelled)
    return replace(kept, attempts=attempts, cancelled=cancelled)


def _with_tuples(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Values of a variable as they are in settings: JSON knows no tuples."""
    return tuple(
        replace(a, trial=replace(a.trial, before=_tuple(a.trial.before), after=_tuple(a.trial.after))) for a in attempts
    )


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def candidates(
    own: Binary | None, others: Iterable[Binary], runs: Iterable[Run], wanted: LaunchConfig
) -> tuple[Binary, ...]:
    """Other builds worth trying, best first: known to run these settings, then the nearest older one, then the rest.

    `runs` are kept runs of any time.
    """
    good = {
        run.binary.path
        for run in runs
        if run.outcome is RunOutcome.VERIFIED and run.binary is not None and _same(run.config, wanted)
    }
    mine = own.build or 0 if own is not None else 0
    found = {b.path: b for b in others if own is None or (b.path != own.path and _differs(b, own))}

    def rank(binary: Binary) -> tuple[bool, bool, int]:
        build = binary.build or 0
        return binary.path not in good, not 0 < build < mine, abs(mine - build)

    return tuple(sorted(found.values(), key=rank))


def _differs(one: Binary, other: Binary) -> bool:
    return (one.build, one.commit, one.backends) != (other.build, other.commit, other.backends)


def _same(one: LaunchConfig, other: LaunchConfig) -> bool:
    """The same model and settings, whatever program was typed."""
    return (one.model_path, one.typed()) == (other.model_path, other.typed())
