"""How much CPU time the window takes: first paint, the work page, opening, a step of the slider, a flood of lines.

    QT_QPA_PLATFORM=offscreen python benchmarks/window_speed.py [--profile]

Figures are process CPU time (`time.process_time`), so that a busy machine does not spoil them; stalls are
the longest single turn of the event loop, in CPU time of the window's thread.
"""

import argparse
import cProfile
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("KVSTUDIO_DATA", tempfile.mkdtemp())

FRAME_MS, STALL_MS, FIRST_PAINT_S, PAGE_MS = 16.0, 50.0, 0.7, 250.0
STEPS = 40
TINY = Path(__file__).resolve().parent.parent / "tests" / "data" / "headers" / "tiny.gguf"
LINES_PER_S, FLOOD_S, BATCH_S = 50_000, 4, 0.05
#: Models of 64 layers and of 94 with a mixture of experts.
MODELS = ("qwen3-32b", "qwen3-235b-a22b")
_PAINTED = """
import os, time
from PySide6.QtCore import QEvent, QObject, QTimer
from kvstudio.ui import app, main_window

def painted():
    print(time.process_time(), flush=True)
    os._exit(0)

class Watch(QObject):
    def eventFilter(self, watched, event):
        if event.type() == QEvent.Type.Paint:
            QTimer.singleShot(0, painted)
        return False

class Window(main_window.MainWindow):
    def showEvent(self, event):
        self.watch = Watch()
        self.toolbar.installEventFilter(self.watch)
        super().showEvent(event)
    def begin(self, files=()):
        pass

app.MainWindow = Window
app.run(())
"""


def first_paint() -> float:
    """CPU seconds from the start of a fresh interpreter to the first painted window; the median of three."""
    # Compiled modules as after an installation; the first run writes them.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp()
    runs = [
        float(
            subprocess.run(
                [sys.executable, "-c", _PAINTED], capture_output=True, text=True, check=True, timeout=60
            ).stdout
        )
        for _ in range(4)
    ]
    return statistics.median(runs[1:])


def _window() -> object:
    from PySide6.QtCore import QSettings

    from kvstudio.ui.main_window import MainWindow
    from kvstudio.ui.preferences import Preferences

    settings = QSettings(str(Path(tempfile.mkdtemp()) / "s.ini"), QSettings.Format.IniFormat)
    window = MainWindow(Preferences(settings), devices_file="none")
    window.resize(1280, 820)
    return window


def work_page() -> float:
    """CPU milliseconds to build the page with the panels."""
    from PySide6.QtWidgets import QApplication

    from kvstudio.ui import background

    window = _window()
    window.show()
    QApplication.processEvents()
    # As the window does it: in another thread, before.
    background.import_work_page()
    start = time.process_time()
    _ = window.work
    spent = (time.process_time() - start) * 1000
    window.shut_down()
    window.close()
    return spent


def opening() -> tuple[float, float]:
    """Longest turns of the event loop, in CPU milliseconds of this thread: page made ahead, then a model opened."""
    from PySide6.QtCore import QEventLoop
    from PySide6.QtWidgets import QApplication

    from kvstudio.ui import background

    def longest(seconds: float) -> float:
        turns, end = [0.0], time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.thread_time()
            QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 1)
            turns.append(time.thread_time() - start)
            time.sleep(0.001)
        return max(turns) * 1000

    window = _window()
    window.show()
    longest(0.3)
    # As the window does it: in another thread, before.
    background.import_work_page()
    window._make_ahead()
    ahead = longest(1.0)
    window.open_paths((str(TINY),))
    opened = longest(2.0)
    assert window.store.case.budget is not None, "the model was not opened in time"
    window.shut_down()
    window.close()
    return ahead, opened


def drag(name: str, n_devices: int, profile: bool) -> list[float]:
    """CPU milliseconds of each step of a drag: the next case, and everything painted."""
    from PySide6.QtWidgets import QApplication

    from kvstudio.devices.values import Device, Machine
    from kvstudio.units import GIB
    from kvstudio.work import task
    from tests.budget import zoo

    window = _window()
    window.poll.hold("benchmark")
    cards = tuple(Device(f"CUDA{i}", "CUDA", "card", 24 * GIB, 23 * GIB) for i in range(n_devices))
    window.store.set_machine(Machine(cards, Device("Host", "CPU", "", 512 * GIB, 500 * GIB)))
    window.store.show_model(zoo.model(name), "/models/model.gguf")
    window.show()
    # Fixes of the first picture are worked out by another thread; they are no part of the drag.
    calm = time.monotonic() + 0.3
    while time.monotonic() < calm:
        QApplication.processEvents()
        time.sleep(0.01)
        if task.pending():
            calm = time.monotonic() + 0.3
    spent = []
    seen = cProfile.Profile()
    for i in range(STEPS):
        n_ctx = 8192 + 1024 * i
        if profile:
            seen.enable()
        start = time.process_time()
        window.store.drag({"n_ctx": n_ctx})
        while window.store.case.config.n_ctx != n_ctx:
            QApplication.processEvents()
        QApplication.processEvents()
        spent.append((time.process_time() - start) * 1000)
        seen.disable()
    if profile:
        pstats.Stats(seen).sort_stats("cumulative").print_stats(45)
    window.store.end_live()
    window.shut_down()
    window.close()
    return spent


def flood() -> tuple[float, float]:
    """Longest turn of the event loop and the mean one, in CPU milliseconds of this thread, under a flood of lines."""
    from PySide6.QtWidgets import QApplication

    from kvstudio.runlog.lines import make_line

    window = _window()
    window.poll.hold("benchmark")
    window.show()
    panel = window.work.run_panel
    window.pages.setCurrentWidget(window.work)
    panel.show_running(1, False, "flood", ())
    QApplication.processEvents()
    per_batch = round(LINES_PER_S * BATCH_S)
    turns = []
    for n in range(round(FLOOD_S / BATCH_S)):
        first = n * per_batch
        lines = tuple(
            make_line(first + i + 1, f"0.01.{i % 1000:03d}.000 I slot update: n = {i}") for i in range(per_batch)
        )
        start = time.thread_time()
        window.work.launching._on_lines(lines)
        turns.append(time.thread_time() - start)
        due = time.monotonic() + BATCH_S
        while time.monotonic() < due:
            start = time.thread_time()
            QApplication.processEvents()
            turns.append(time.thread_time() - start)
            time.sleep(0.001)
    panel.show_idle()
    window.shut_down()
    window.close()
    return max(turns) * 1000, statistics.mean(turns) * 1000


def _say(what: str, figure: str, limit: str, ok: bool) -> None:
    sys.stdout.write(f"{what:<52} {figure:>22}   {limit:<12} {'ok' if ok else 'TOO SLOW'}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="where the time of a slider step goes")
    parser.add_argument("--only", choices=("paint", "page", "open", "drag", "flood"))
    options = parser.parse_args()
    from kvstudio.ui import app as application
    from kvstudio.ui import theme

    def wanted(part: str) -> bool:
        return options.only in (None, part)

    results: list[bool] = []

    def told(what: str, figure: str, limit: str, ok: bool) -> None:
        results.append(ok)
        _say(what, figure, limit, ok)

    if wanted("paint"):
        seconds = first_paint()
        told(
            "first paint, from the start of the interpreter",
            f"{seconds:.2f} s",
            f"{FIRST_PAINT_S} s",
            seconds < FIRST_PAINT_S,
        )
    app = application.Application([sys.argv[0]])
    theme.apply(app)
    application.calm_collector()
    if wanted("page"):
        spent = work_page()
        told("work page built", f"{spent:.0f} ms", f"{PAGE_MS:.0f} ms", spent < PAGE_MS)
    if wanted("open"):
        ahead, opened = opening()
        told("page made ahead, longest turn", f"{ahead:.0f} ms", f"{STALL_MS:.0f} ms", ahead < STALL_MS)
        told("model opened, longest turn", f"{opened:.0f} ms", f"{STALL_MS:.0f} ms", opened < STALL_MS)
    for name in MODELS if wanted("drag") else ():
        for n_devices in (2, 8):
            steps = drag(name, n_devices, options.profile)[2:]
            middle, worst = statistics.median(steps), sorted(steps)[int(len(steps) * 0.95)]
            words = f"{middle:.1f} ms, 95 % {worst:.1f}"
            told(f"slider step, {name} on {n_devices} devices", words, f"{FRAME_MS:.0f} ms", middle < FRAME_MS)
    if wanted("flood"):
        worst, mean = flood()
        told(
            f"flood of {LINES_PER_S} lines/s, longest turn",
            f"{worst:.0f} ms, mean {mean:.1f}",
            f"{STALL_MS:.0f} ms",
            worst < STALL_MS,
        )
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
