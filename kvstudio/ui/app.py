"""The application around the window: style, defects, files the desktop hands over, and a clean end."""

import gc
import os
import signal
import sys
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QFileOpenEvent, QIcon
from PySide6.QtWidgets import QApplication

import kvstudio
from kvstudio.ui import dialogs, theme
from kvstudio.ui.main_window import MainWindow
from kvstudio.ui.preferences import Preferences
from kvstudio.work import task

APP_ID = "io.github.kvstudio.KvStudio"
_SELFTEST_MS = 30_000
_LAST_JOBS_MS = 3000
_CALM_AFTER_MS = 1500


class Application(QApplication):
    """Turns the desktop's open-file events into `file_opened`."""

    file_opened = Signal(str)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FileOpen and isinstance(event, QFileOpenEvent):
            path = event.file() or event.url().toLocalFile()
            if path:
                self.file_opened.emit(path)
                return True
        return super().event(event)


#: Objects made before the collector looks at the youngest; a case in the window is some ten thousand.
_YOUNG = 50_000
#: After so many looks at the young ones it looks at all.
_OLD = 1000
_COLLECT_MS = 100


class Collector(QObject):
    """Python's cycle collector, on the window's thread alone and only while no job computes.

    Left to itself it runs on whichever thread makes the next object; there it would take parts of the window with it
    that belong to the window's thread, and it would look through everything a job has made so far.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._looks = 0
        # What is there now stays for good.
        gc.collect()
        gc.freeze()
        gc.disable()
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.look)
        self._timer.start(_COLLECT_MS)

    def look(self) -> None:
        """Collect what has become garbage, where there may be some."""
        if task.is_computing() or gc.get_count()[0] < _YOUNG:
            return
        self._looks += 1
        gc.collect(2 if self._looks % _OLD == 0 else 1)


def calm_collector() -> None:
    """Hand collecting to the window's thread for as long as the application lives."""
    Collector(QApplication.instance())


#: Seconds until a thread that computes lets the window's go on; each event of it asks several times.
_TURN_S = 0.001


def run(files: Sequence[str] = (), *, devices: str | None = None, selftest: bool = False, sample: bool = False) -> int:
    """Open the window with `files`; returns the exit status. `devices` is a snapshot to use instead of a probe."""
    sys.setswitchinterval(_TURN_S)
    app = Application([sys.argv[0]])
    app.setApplicationName("kvstudio")
    app.setApplicationVersion(kvstudio.__version__)
    app.setDesktopFileName(APP_ID)
    app.setWindowIcon(QIcon(str(theme.RESOURCES / "kvstudio.svg")))
    preferences = Preferences()
    theme.apply(app, preferences.scheme)
    # Ctrl+C in the terminal ends the program: Python sees a signal only between two events.
    signal.signal(signal.SIGINT, lambda *_: app.quit())
    ticks = QTimer()
    ticks.timeout.connect(lambda: None)
    ticks.start(500)
    window = MainWindow(preferences, devices_file=devices)
    dialogs.install_excepthook(lambda: window)
    app.file_opened.connect(lambda path: window.open_paths((path,)))
    app.aboutToQuit.connect(window.shut_down)
    if selftest:
        return _selftest(app, window, files)
    window.show()
    QTimer.singleShot(0, lambda: window.begin(tuple(files)))
    QTimer.singleShot(_CALM_AFTER_MS, calm_collector)
    if sample:
        QTimer.singleShot(0, window.try_sample)
    status = app.exec()
    if not task.drain(_LAST_JOBS_MS):
        # What still computes computes for nobody, and Python would wait for it with no window to be seen.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _selftest(app: Application, window: MainWindow, files: Sequence[str]) -> int:
    problems: list[str] = []
    window.store.failed.connect(lambda error: problems.append(error.message))
    window.show()
    window.open_paths(tuple(files))
    deadline = QTimer()
    deadline.setSingleShot(True)
    deadline.timeout.connect(lambda: _too_late(app, problems))
    deadline.start(_SELFTEST_MS)
    idle = QTimer()
    idle.timeout.connect(lambda: app.quit() if not task.pending() else None)
    idle.start(20)
    app.exec()
    idle.stop()
    window.shut_down()
    window.close()
    for problem in problems:
        sys.stderr.write(f"kvstudio: {problem}\n")
    return 1 if problems else 0


def _too_late(app: Application, problems: list[str]) -> None:
    problems.append("files were not read in time")
    app.quit()
