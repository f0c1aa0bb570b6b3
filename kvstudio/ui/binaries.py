"""The llama.cpp programs of this machine: found, inspected and listed in the background, one of them chosen."""

import os
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from kvstudio.errors import KvStudioError
from kvstudio.launch.binary import Binary
from kvstudio.work import task

_INSPECTED_AT_ONCE = 8
#: What is free on remote devices is asked each so many polls: it takes a process each time.
_RELIST_EVERY = 10
#: Programs that can be launched and asked; the others measure or serve as a device.
LAUNCHES = ("llama-server", "llama-cli", "llama-completion", "llama-mtmd-cli")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The program in use with its device list; `listed` is None when it could not list, `problem` says why.

    `away`: (RPC server, reason) of each that does not answer.
    """

    binary: Binary
    listed: str | None
    problem: KvStudioError | None = None
    away: tuple[tuple[str, str], ...] = ()


class Binaries(QObject):
    """`list_changed` when names are known better, `chosen` carries a Chosen, `failed` a KvStudioError.

    `relisted`: the text of the current program's device list, asked anew while nothing was chosen.
    """

    list_changed = Signal()
    chosen = Signal(object)
    failed = Signal(object)
    searched = Signal(object)
    relisted = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._titles: dict[str, str] = {}
        self._current: Binary | None = None
        self._env: tuple[tuple[str, str], ...] = ()
        self._rpc: tuple[str, ...] = ()
        self._away: tuple[tuple[str, str], ...] = ()
        self._polls = 0
        self.note = "Looking for llama.cpp…"

    @property
    def current(self) -> Binary | None:
        return self._current

    def entries(self) -> tuple[tuple[str, str], ...]:
        """(path, title) of each program known."""
        return tuple(self._titles.items())

    def look(self, preferred: str = "") -> None:
        """Search the machine; then choose `preferred` if it is there, else the first found."""

        def on_done(paths: tuple[str, ...]) -> None:
            self._on_found(paths, preferred)

        def on_failed(error: KvStudioError) -> None:
            self.note = ""
            self.failed.emit(error)
            self.list_changed.emit()

        task.run(_find, preferred, done=on_done, failed=on_failed, key="find-binaries")

    def choose(self, path: str, env: tuple[tuple[str, str], ...] | None = None) -> None:
        """Inspect a program and list its devices; it becomes the current one unless that fails."""
        if env is not None:
            self._env = env
        self._titles.setdefault(path, _short_title(path))
        asked = (path, self._env, self._rpc)
        task.run(_inspect_and_list, *asked, done=self._on_chosen, failed=self._on_failed, key="choose-binary")

    def set_env(self, env: tuple[tuple[str, str], ...], rpc: tuple[str, ...] = ()) -> None:
        """Variables of the launch may hide devices, RPC servers bring some: list again when they change."""
        if (env, rpc) == (self._env, self._rpc):
            return
        self._env, self._rpc = env, rpc
        self.list_again()

    def list_again(self) -> None:
        """Ask the program in use for its devices anew."""
        if self._current is not None:
            self.choose(self._current.path)

    def on_polled(self) -> None:
        """The machine's own memory was read again: now and then that of remote devices is, which only the program can
        ask for."""
        self._polls += 1
        if not self._rpc or self._current is None or self._polls % _RELIST_EVERY:
            return
        asked = (self._current.path, self._env, self._rpc)

        def on_done(listed: Chosen) -> None:
            if self._current is None or asked != (self._current.path, self._env, self._rpc):
                return  # something else was chosen meanwhile
            if listed.away != self._away:
                self._on_chosen(listed)
            elif listed.listed is not None:
                self.relisted.emit(listed.listed)

        # That it cannot be asked now is no news: what was listed last stays.
        task.run(_inspect_and_list, *asked, done=on_done, key="relist")

    def _on_found(self, paths: tuple[str, ...], preferred: str) -> None:
        self.note = ""
        # One that was chosen by hand may be called anything.
        paths = tuple(path for path in paths if path == preferred or _launches(path))
        for path in paths:
            self._titles.setdefault(path, _short_title(path))
        self.list_changed.emit()
        self.searched.emit(paths)
        first = preferred if preferred in paths else (paths[0] if paths else "")
        if first and self._current is None:
            self.choose(first)
        for path in paths[:_INSPECTED_AT_ONCE]:
            if path != first:
                task.run(_inspect, path, done=self._on_inspected, key=f"inspect {path}")

    def _on_inspected(self, binary: Binary) -> None:
        self._titles[binary.path] = binary.title
        self.list_changed.emit()

    def _on_chosen(self, chosen: Chosen) -> None:
        self._current, self._away = chosen.binary, chosen.away
        self._titles[chosen.binary.path] = chosen.binary.title
        self.list_changed.emit()
        self.chosen.emit(chosen)

    def _on_failed(self, error: KvStudioError) -> None:
        self.failed.emit(error)
        self.list_changed.emit()


def _find(preferred: str) -> tuple[str, ...]:
    from kvstudio.launch.binary import find

    found = find()
    if preferred and preferred not in found and os.access(preferred, os.X_OK) and os.path.isfile(preferred):
        return (preferred, *found)
    return found


def _inspect(path: str) -> Binary:
    from kvstudio.case import programs
    from kvstudio.places import data_dir

    return programs.inspect(path, data_dir())


def _inspect_and_list(path: str, env: tuple[tuple[str, str], ...], rpc: tuple[str, ...]) -> Chosen:
    from kvstudio.launch.binary import list_devices

    binary = _inspect(path)
    away: tuple[tuple[str, str], ...] = ()
    if rpc:
        from kvstudio.launch.rpc import unreachable

        away = unreachable(rpc)
    try:
        answering = tuple(server for server in rpc if server not in dict(away))
        return Chosen(binary, list_devices(binary, env=env, rpc=answering), None, away)
    except KvStudioError as error:
        return Chosen(binary, None, error, away)


def _short_title(path: str) -> str:
    return os.path.basename(path)


def _launches(path: str) -> bool:
    """Whether it is a program that loads a model and answers; `ggml-rpc-server` is a device, not a launch."""
    from kvstudio.launch.flags import program_name

    return program_name(path) in LAUNCHES
