"""The window's thread never waits: files, folders, programs and the network are other threads' work."""

import os
import sys
import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings

from kvstudio.devices.values import Device, Machine
from kvstudio.ui import background
from kvstudio.ui.main_window import MainWindow
from kvstudio.ui.preferences import Preferences
from kvstudio.units import GIB
from tests.ui.test_store import TINY, _write_projector

MACHINE = Machine((Device("CUDA0", "CUDA", "card", 24 * GIB, 23 * GIB),), Device("Host", "CPU", "", 64 * GIB, 50 * GIB))
LOG = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 100.00 MiB on device 0: cudaMalloc failed: out of memory\n"
)
#: What may keep a thread waiting on a slow disk or a busy machine.
WAITING = (
    "open",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "subprocess.Popen",
    "socket.connect",
)


class Watch:
    """Notes what one thread asks of the system about files that are not the program's own."""

    def __init__(self, *own: Path) -> None:
        self.thread = threading.get_ident()
        self.own = tuple(str(folder) for folder in own)
        self.seen: list[str] = []
        self.on = False

    def note(self, event: str, what: object) -> None:
        if not self.on or threading.get_ident() != self.thread:
            return
        path = os.fsdecode(what) if isinstance(what, str | bytes | os.PathLike) else str(what)
        if not path.startswith(self.own) and not path.isdigit():
            self.seen.append(f"{event} {path}")


_watches: list[Watch] = []


def _hook(event: str, values: tuple[object, ...]) -> None:
    # A hook cannot be taken away again: it stays, and is quiet without a watch.
    for watch in _watches:
        if event in WAITING:
            watch.note(event, values[0] if values else "")


sys.addaudithook(_hook)


@pytest.fixture
def watch(monkeypatch):
    import kvstudio

    made = Watch(Path(kvstudio.__file__).parent, Path(sys.prefix), Path(sys.base_prefix))
    stat = os.stat

    def noted(path, *args, **named):
        made.note("os.stat", path)
        return stat(path, *args, **named)

    monkeypatch.setattr(os, "stat", noted)
    _watches.append(made)
    yield made
    made.on = False
    _watches.remove(made)


@pytest.fixture
def window(qtbot, tmp_path, monkeypatch):
    monkeypatch.setattr(background, "probe", lambda listed: MACHINE)
    made = MainWindow(Preferences(QSettings(str(tmp_path / "settings.ini"), QSettings.Format.IniFormat)))
    qtbot.addWidget(made)
    made.show()
    made.store.set_machine(MACHINE)
    yield made
    made.shut_down()
    made.close()


def test_opening_changing_and_saving_a_case_is_no_work_of_the_window(window, watch, qtbot, tmp_path):
    projector, log, saved = tmp_path / "mmproj-x.gguf", tmp_path / "server.log", tmp_path / "a.kvcase"
    _write_projector(projector)
    log.write_text(LOG)
    store = window.store
    watch.on = True
    window.open_paths((TINY,))
    qtbot.waitUntil(lambda: store.case.budget is not None, timeout=20_000)
    store.use_projector(str(projector))
    qtbot.waitUntil(lambda: store.case.extras is not None and store.case.extras.projector is not None, timeout=20_000)
    for n_ctx in (1024, 2048, 4096):
        store.drag({"n_ctx": n_ctx})
        qtbot.waitUntil(lambda n_ctx=n_ctx: store.case.config.n_ctx == n_ctx)
    store.end_live()
    store.undo()
    store.redo()
    with qtbot.waitSignal(store.noted):
        store.save_case(str(saved))
    window.open_paths((str(log),))
    qtbot.waitUntil(lambda: bool(store.case.log), timeout=20_000)
    window.open_paths((str(saved),))
    qtbot.waitUntil(lambda: store.case.config.mmproj == str(projector) and store.case.extras is not None)
    watch.on = False
    assert watch.seen == []


def test_a_recent_file_that_is_gone_is_looked_for_elsewhere_and_leaves_the_list(window, watch, qtbot, tmp_path):
    gone = str(tmp_path / "gone.gguf")
    window.preferences.add_recent(gone, "model", "gone", "")
    watch.on = True
    window.empty.chosen.emit(gone)
    qtbot.waitUntil(lambda: not window.preferences.recent(), timeout=20_000)
    qtbot.waitUntil(lambda: "gone.gguf" in window.banner.texts()[0], timeout=20_000)
    watch.on = False
    # Qt writes the settings when the event loop is idle; a test that waits may see it.
    assert [seen for seen in watch.seen if "settings" not in seen] == []


def test_the_page_is_made_part_by_part(window, qtbot):
    parts = 0
    while window._make_next():
        parts += 1
        # A page that is not whole must bear everything the window does meanwhile.
        window.resize(1300 + parts, 800)
        window.grab()
    assert parts >= 5
    assert window.work.isVisibleTo(window.pages) or window.pages.count() == 2
