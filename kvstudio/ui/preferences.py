"""What the window remembers between starts: its place, recent files, scheme and binary; nothing else."""

import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QSettings

from kvstudio.errors import KvStudioError
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Scheme
from kvstudio.verify.options import LaunchOptions

_MOST_RECENT = 20
_WEEK_S = 7 * 24 * 3600.0
#: Options of a launch that are a person's habit: type, least and most.
_OPTIONS: dict[str, tuple[Any, float, float]] = {
    "prompt": (str, 0, 0),
    "n_predict": (int, 1, 10_000),
    "repeat": (int, 0, 10_000),
    "concurrent": (int | None, 0, 256),
    "fill_context": (int | float, 0, 1),
    "timeout_s": (int | float | None, 1, _WEEK_S),
    "phase_timeout_s": (int | float | None, 1, _WEEK_S),
}


@dataclass(frozen=True, slots=True)
class RecentItem:
    """A file that was open: `kind` model, log or case; `opened_at` seconds since the epoch."""

    path: str
    kind: str
    title: str
    detail: str
    opened_at: float


class Preferences:
    """A thin reading of QSettings; whatever is damaged there counts as not set, `damage` says so of a whole file."""

    def __init__(self, settings: QSettings | None = None) -> None:
        self._settings = settings if settings is not None else QSettings("kvstudio", "kvstudio")
        # Qt reads the file, and finds out about it, when it is first asked for something.
        self._settings.allKeys()
        self.damage = self._put_aside() if self._settings.status() is QSettings.Status.FormatError else None

    def _put_aside(self) -> KvStudioError:
        """A file that Qt cannot read would be written over; it is copied first."""
        kept = Path(self._settings.fileName()).with_suffix(".damaged")
        try:
            shutil.copyfile(self._settings.fileName(), kept)
            hint = tr("The file is kept as {}.").format(kept)
        except OSError as error:
            hint = tr("The file could not be kept: {}.").format(error.strerror or error)
        return KvStudioError(tr("The settings file was damaged: recent files and choices are forgotten"), hint)

    @property
    def scheme(self) -> Scheme:
        try:
            return Scheme(str(self._settings.value("scheme", Scheme.SYSTEM.value)))
        except ValueError:
            return Scheme.SYSTEM

    @scheme.setter
    def scheme(self, scheme: Scheme) -> None:
        self._settings.setValue("scheme", scheme.value)

    @property
    def binary(self) -> str:
        return str(self._settings.value("binary", "") or "")

    @binary.setter
    def binary(self, path: str) -> None:
        self._settings.setValue("binary", path)

    @property
    def geometry(self) -> QByteArray | None:
        value = self._settings.value("geometry")
        return value if isinstance(value, QByteArray) else None

    @geometry.setter
    def geometry(self, value: QByteArray) -> None:
        self._settings.setValue("geometry", value)

    @property
    def launch_options(self) -> LaunchOptions:
        """How test launches ask and wait; what is damaged counts as not set."""
        try:
            kept = json.loads(str(self._settings.value("launchOptions", "{}")))
            return read_options(kept)
        except (ValueError, TypeError, AttributeError):
            return LaunchOptions()

    @launch_options.setter
    def launch_options(self, options: LaunchOptions) -> None:
        kept = {name: getattr(options, name) for name in _OPTIONS}
        self._settings.setValue("launchOptions", json.dumps(kept))

    def recent(self) -> tuple[RecentItem, ...]:
        """Newest first."""
        try:
            rows = json.loads(str(self._settings.value("recent", "[]")))
            return tuple(
                RecentItem(str(r["path"]), str(r["kind"]), str(r["title"]), str(r["detail"]), float(r["opened_at"]))
                for r in rows
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return ()

    def add_recent(self, path: str, kind: str, title: str, detail: str) -> None:
        """Put a file on top of the list."""
        rest = [item for item in self.recent() if item.path != path]
        self._keep([RecentItem(path, kind, title, detail, time.time()), *rest][:_MOST_RECENT])

    def forget(self, path: str) -> None:
        """Take a file off the list."""
        self._keep([item for item in self.recent() if item.path != path])

    def clear_recent(self) -> None:
        self._keep([])

    def _keep(self, items: list[RecentItem]) -> None:
        self._settings.setValue("recent", json.dumps([asdict(item) for item in items]))


def read_options(kept: dict[str, Any]) -> LaunchOptions:
    """Options from plain values; one of a wrong type or out of its range takes the default."""
    usual = LaunchOptions()
    found: dict[str, Any] = {}
    for name, (kinds, least, most) in _OPTIONS.items():
        value = kept.get(name, getattr(usual, name))
        ranged = isinstance(value, int | float) and not isinstance(value, bool)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and (not ranged or least <= value <= most)
        found[name] = value if fits else getattr(usual, name)
    return LaunchOptions(**found)


def when(then: float, now: float) -> str:
    """`today`, `yesterday`, `3 days ago`, else `12 Nov`, with the year when it is another."""
    today, day = time.localtime(now), time.localtime(then)
    days = (_midnight(today) - _midnight(day)) // 86400
    if days <= 0:
        return time.strftime("%H:%M", day)
    if days == 1:
        return "yesterday"
    if days < 7:
        return f"{int(days)} days ago"
    name = time.strftime("%b", day)
    return f"{day.tm_mday} {name}" + (f" {day.tm_year}" if day.tm_year != today.tm_year else "")


def _midnight(day: time.struct_time) -> float:
    # Noon of that day, so that a change of summer time does not move it across a border.
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 12, 0, 0, 0, 0, -1)) // 3600 * 3600
