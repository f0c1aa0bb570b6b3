"""What every test stands on: no real home, no real display, tasks that run at once, and nothing left alive."""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# The desktop's settings and colours are none of a test's business.
os.environ.pop("XDG_CURRENT_DESKTOP", None)

_SEEN_BY_QT = ("tests/ui/", "tests/work/")


@pytest.fixture(autouse=True)
def _own_home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home of its own for every test: caches, settings and recent files of the user stay out of it."""
    if request.node.get_closest_marker("rig") is not None:
        # The sample model is put together once, in the user's cache.
        return
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name, folder in (
        ("CONFIG", ".config"),
        ("CACHE", ".cache"),
        ("DATA", ".local/share"),
        ("STATE", ".local/state"),
    ):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / folder))


@pytest.fixture
def inline_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run at once, on the thread that starts them."""
    from kvstudio.work import task

    monkeypatch.setattr(task, "start", lambda job: job.run())


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test of a view or of background work that leaves a thread, a job or a window behind fails."""
    path = Path(str(request.node.fspath)).as_posix()
    if not any(part in path for part in _SEEN_BY_QT):
        yield
        return
    threads = set(threading.enumerate())
    windows = _windows()
    # As in the program: parts of a window that are garbage go on the thread they belong to, never on a job's.
    gc.disable()
    yield
    _end_of_events()
    gc.collect(1)
    gc.enable()
    left = [t.name for t in threading.enumerate() if t not in threads and t.is_alive() and not t.daemon]
    assert not left, f"threads left alive: {left}"
    still = [repr(w) for w in _windows() - windows]
    assert not still, f"windows left open: {still}"


def _windows() -> set[object]:
    widgets = sys.modules.get("PySide6.QtWidgets")
    if widgets is None or widgets.QApplication.instance() is None:
        return set()
    return {w for w in widgets.QApplication.topLevelWidgets() if w.isVisible()}


def _end_of_events() -> None:
    core = sys.modules.get("PySide6.QtCore")
    app = core.QCoreApplication.instance() if core is not None else None
    if app is None:
        return
    task = sys.modules.get("kvstudio.work.task")
    quick = task._quick if task is not None else None
    for pool in (core.QThreadPool.globalInstance(), quick):
        assert pool is None or pool.waitForDone(5000), "a job is still running"
    core.QCoreApplication.sendPostedEvents(None, core.QEvent.Type.DeferredDelete)
    app.processEvents()
