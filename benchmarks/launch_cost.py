"""What a test launch costs us: CPU time of watching it, and the longest turn of the window's event loop meanwhile.

Run: python -m benchmarks.launch_cost [--only watch|window] [--server PATH --model GGUF] [--seconds S]

Without `--server` a fake llama-server is launched, once with a log of usual length and once with one that prints 50,000
lines a second. `watch` counts the CPU time of this process (not the server's) against the clock, in a launch that stays
up without requests and in one that asks all the time. `window` counts each turn of the event loop in CPU time of the
window's thread, from the press of the button until the ended run is on screen.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("KVSTUDIO_DATA", tempfile.mkdtemp())

from kvstudio.launch import binary as binaries
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.verify import launch as verify_launch
from kvstudio.verify.options import LaunchOptions
from tests.fakes.launches import fake_binary, fake_config

STALL_MS, SHARE, PATIENCE_S = 50.0, 0.02, 300.0
TINY = Path(__file__).resolve().parent.parent / "tests" / "data" / "headers" / "tiny.gguf"
FLOOD_LINES, LINES_PER_S, LINES_PER_WRITE = 300_000, 50_000, 500


def _flood_log() -> str:
    path = Path(tempfile.mkdtemp()) / "flood.log"
    lines = (
        f"0.01.{n % 1000:03d}.000 I slot update_slots: id  0 | task {n} | n_tokens = {n}" for n in range(FLOOD_LINES)
    )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _subject(options: argparse.Namespace, flood: bool) -> tuple[LaunchConfig, Binary]:
    if options.server and not flood:
        config = LaunchConfig(model_path=options.model, n_ctx=512, n_parallel=1)
        return config, binaries.inspect(options.server)
    if not flood:
        return fake_config(), fake_binary()
    pace = LINES_PER_WRITE / LINES_PER_S
    return fake_config(log=_flood_log(), group=LINES_PER_WRITE, line_delay=pace), fake_binary()


def watch(options: argparse.Namespace, asking: bool) -> tuple[float, float, int]:
    """(CPU seconds of this process, seconds, answers) of a launch while it is up, or of one always asked."""
    config, binary = _subject(options, False)
    begun, begun_at = time.process_time(), time.monotonic()
    repeat = 1_000_000 if asking else 0
    chosen = LaunchOptions(repeat=repeat, concurrent=0, keep_running=True, log_dir=tempfile.mkdtemp())
    cancel, marks = threading.Event(), []

    def on_sample(point: object) -> None:
        # The load is over after a moment; what is counted is the time the server is up.
        at = getattr(point, "time_s", 0.0)
        if not marks and at > 3.0:
            marks.append((time.process_time(), time.monotonic()))
        elif marks and at > 3.0 + options.seconds and len(marks) == 1:
            marks.append((time.process_time(), time.monotonic()))
            cancel.set()

    run = verify_launch.test_launch(config, binary, options=chosen, on_sample=on_sample, cancel=cancel)
    if asking:
        return time.process_time() - begun, time.monotonic() - begun_at, len(run.prompts)
    (cpu, clock), (cpu_end, clock_end) = marks
    return cpu_end - cpu, clock_end - clock, len(run.prompts)


class Window:
    """The main window with the subject opened, driven turn by turn."""

    def __init__(self, options: argparse.Namespace, flood: bool = False) -> None:
        from PySide6.QtCore import QSettings

        from kvstudio.ui.main_window import MainWindow
        from kvstudio.ui.preferences import Preferences

        settings = QSettings(str(Path(tempfile.mkdtemp()) / "s.ini"), QSettings.Format.IniFormat)
        self.main = MainWindow(Preferences(settings), devices_file="none")
        self.main.resize(1280, 820)
        self.main.show()
        self.turns: list[float] = []
        config, binary = _subject(options, flood)
        self.main.open_paths((str(TINY),))
        _ = self.main.work
        self.calm()
        opened = self.main.store.case.config.model_path
        path = options.model if options.server and not flood else opened
        self.main.store.set_binary(binary)
        self.main.store.set_config(replace(config, model_path=path))
        self.calm()
        self.turns.clear()

    def turn(self) -> None:
        from PySide6.QtCore import QEventLoop
        from PySide6.QtWidgets import QApplication

        start = time.thread_time()
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 1)
        self.turns.append(time.thread_time() - start)
        time.sleep(0.001)

    def calm(self) -> None:
        from kvstudio.work import task

        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            self.turn()
            if task.pending():
                end = time.monotonic() + 0.5

    def close(self) -> None:
        self.main.shut_down()
        self.main.close()


def window(options: argparse.Namespace, flood: bool) -> tuple[float, float, str]:
    """(longest turn of the event loop in CPU ms, seconds of the launch, its outcome)."""
    driven = Window(options, flood)
    begun = time.monotonic()
    driven.main.work.launching.start()
    while not driven.main.store.case.runs and time.monotonic() - begun < PATIENCE_S:
        driven.turn()
    driven.calm()
    run = driven.main.store.case.runs[-1]
    driven.close()
    return max(driven.turns) * 1000, run.seconds, str(run.outcome.value)


def watch_in_window(options: argparse.Namespace) -> tuple[float, float]:
    """(CPU seconds of this process, seconds) of a launch while it is up, the window and what it paints included."""
    from PySide6.QtCore import QEventLoop, QTimer

    def run_for(seconds: float) -> None:
        # Qt's own loop, which sleeps between events as in the real program.
        loop = QEventLoop()
        QTimer.singleShot(round(seconds * 1000), loop.quit)
        loop.exec()

    driven = Window(options)
    launching = driven.main.work.launching
    launching.options = replace(launching.options, keep_running=True)
    launching.start()
    run_for(3.0)
    begun, begun_at = time.process_time(), time.monotonic()
    run_for(options.seconds)
    spent, seconds = time.process_time() - begun, time.monotonic() - begun_at
    launching.stop()
    while not driven.main.store.case.runs:
        driven.turn()
    driven.close()
    return spent, seconds


def _say(what: str, figure: str, limit: str, ok: bool) -> None:
    sys.stdout.write(f"{what:<52} {figure:>34}   {limit:<10} {'ok' if ok else 'TOO MUCH'}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("watch", "window"))
    parser.add_argument("--server", help="a real llama-server instead of the fake one")
    parser.add_argument("--model", default=str(TINY), help="the model for --server")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each launch is watched")
    options = parser.parse_args()
    results = []
    if options.only in (None, "watch"):
        spent, seconds, _ = watch(options, asking=False)
        results.append(spent / seconds < SHARE)
        figure = f"{spent / seconds:.2%} of a core in {seconds:.0f} s"
        _say("watching a server that is up", figure, f"{SHARE:.0%}", results[-1])
        spent, seconds, answers = watch(options, asking=True)
        _say(
            "one request and its answer", f"{spent / answers * 1000:.2f} ms, {answers / seconds:.0f} a second", "", True
        )
    if options.only in (None, "window"):
        from kvstudio.ui import app as application
        from kvstudio.ui import theme

        app = application.Application([sys.argv[0]])
        theme.apply(app)
        application.calm_collector()
        spent, seconds = watch_in_window(options)
        results.append(spent / seconds < SHARE)
        figure = f"{spent / seconds:.2%} of a core in {seconds:.0f} s"
        _say("the same in the window, which draws it", figure, f"{SHARE:.0%}", results[-1])
        for flood in (False, True):
            worst, seconds, outcome = window(options, flood)
            results.append(worst < STALL_MS)
            what = f"launch with {FLOOD_LINES} lines, longest turn" if flood else "launch, longest turn"
            _say(what, f"{worst:.0f} ms ({outcome}, {seconds:.1f} s)", f"{STALL_MS:.0f} ms", results[-1])
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
