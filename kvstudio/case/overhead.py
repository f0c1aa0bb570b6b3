"""Memory that no buffer explained in earlier launches, by device, backend and build; kept in a small file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kvstudio.devices.values import Device
from kvstudio.errors import StoreError
from kvstudio.files import write_whole
from kvstudio.verify.values import Run, RunOutcome

SCHEMA = "kvstudio.overhead/1"
FILE = "overhead.json"
#: Only runs that loaded count: the peak of one that failed half way says nothing.
_LOADED = (RunOutcome.VERIFIED, RunOutcome.STARTED)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one device held beyond its buffers, in bytes, under one build (None: a build without a number)."""

    device: str
    description: str
    backend: str
    build: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Overheads:
    """Everything seen so far, one entry per device, backend and build, oldest first."""

    seen: tuple[Seen, ...] = ()

    def after(self, run: Run, devices: tuple[Device, ...]) -> "Overheads":
        """With what a run on `devices` showed; itself when it showed nothing."""
        if run.outcome not in _LOADED or run.binary is None:
            return self
        known = {device.name: device for device in devices}
        fresh = {
            _key(known[name], run.binary.build): Seen(
                name, known[name].description, known[name].backend, run.binary.build, size
            )
            for name, size in run.overhead
            if size is not None and name in known
        }
        if not fresh:
            return self
        return Overheads((*(s for s in self.seen if _key_of(s) not in fresh), *fresh.values()))

    def of(self, devices: tuple[Device, ...], build: int | None) -> dict[str, int]:
        """Bytes by device name: of this build where it was seen, else of the build seen last."""
        found: dict[str, int] = {}
        for device in devices:
            same = [s for s in self.seen if _key_of(s)[:3] == _key(device, None)[:3]]
            exact = [s for s in same if s.build == build]
            if same:
                found[device.name] = (exact or same)[-1].bytes
        return found


def _key(device: Device, build: int | None) -> tuple[str, str, str, int | None]:
    return device.name, device.description, device.backend, build


def _key_of(seen: Seen) -> tuple[str, str, str, int | None]:
    return seen.device, seen.description, seen.backend, seen.build


def load(folder: str | Path) -> Overheads:
    """What is kept in `folder`; a missing or damaged file is as good as none."""
    try:
        plain = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            return Overheads()
        return Overheads(tuple(_seen(row) for row in plain["seen"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Overheads()


def learn(folder: str | Path, run: Run, devices: tuple[Device, ...]) -> Overheads:
    """Add what a run showed to the file; read anew, so that two programs do not forget each other's.

    Raises: StoreError (disk full, read-only folder); the file before is unchanged.
    """
    before = load(folder)
    now = before.after(run, devices)
    if now != before:
        text = json.dumps({"schema": SCHEMA, "seen": [asdict(seen) for seen in now.seen]}, ensure_ascii=False)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            write_whole(Path(folder) / FILE, text.encode("utf-8", "replace"))
        except OSError as error:
            says = f"the overhead learned could not be kept in {folder}: {error.strerror or error}"
            raise StoreError(says, "It counts until this program ends.") from error
    return now


def joined(kept: Overheads, runs: tuple[Run, ...], devices: tuple[Device, ...], build: int | None) -> Mapping[str, int]:
    """Bytes by device: kept ones, then those of a case's own runs, the latest last."""
    found = kept.of(devices, build)
    for run in runs:
        if run.outcome in _LOADED:
            found |= {name: size for name, size in run.overhead if size is not None}
    return found


def _seen(row: Mapping[str, object]) -> Seen:
    size, build = row["bytes"], row["build"]
    if not isinstance(size, int) or size < 0 or not isinstance(build, int | None):
        raise ValueError("not a size or a build")
    seen = Seen("", "", "", build, size)
    return replace(seen, device=str(row["device"]), description=str(row["description"]), backend=str(row["backend"]))
