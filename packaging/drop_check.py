"""A file dropped by a real mouse: `python packaging/drop_check.py [FILE] [--picture PNG]` in an X session with xdotool.

A small window offers the file; the pointer takes it there, carries it over kvstudio with the button held, and lets go.
Exit code 0: the title of kvstudio's window then names the model.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QDrag, QMouseEvent
from PySide6.QtWidgets import QApplication, QLabel

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "tests" / "data" / "headers" / "tiny.gguf"
SOURCE_TITLE = "drag source"
PATIENCE_S = 30.0
#: A drag begins only once the pointer has moved some pixels, and a target must see it come.
STEPS, STEP_S = 24, 0.03


class Source(QLabel):
    """A window that can be dragged from."""

    def __init__(self, path: str) -> None:
        super().__init__(f"drag me: {Path(path).name}")
        self._path = path
        self.setWindowTitle(SOURCE_TITLE)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        # Above everything and where it was put, whatever the window manager thinks of places.
        self.setWindowFlags(Qt.WindowType.WindowStaysOnTopHint | Qt.WindowType.FramelessWindowHint)
        self.setGeometry(10, 10, 220, 60)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if not event.buttons() & Qt.MouseButton.LeftButton:
            return
        mime = QMimeData()
        mime.setUrls([QUrl.fromLocalFile(self._path)])
        drag = QDrag(self)
        drag.setMimeData(mime)
        drag.exec(Qt.DropAction.CopyAction)


def offer(path: str) -> int:
    """The drag source's own process."""
    app = QApplication(sys.argv[:1])
    source = Source(path)
    source.show()
    return app.exec()


def xdotool(*words: str) -> str:
    return subprocess.run(("xdotool", *words), capture_output=True, text=True, check=True, timeout=20).stdout.strip()


def wait_for(process: subprocess.Popen[bytes]) -> str:
    """The window of a process, once it is on screen."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        found = subprocess.run(
            ("xdotool", "search", "--all", "--onlyvisible", "--pid", str(process.pid), "--name", "."),
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        if found.stdout.strip():
            return found.stdout.split()[-1]
        time.sleep(0.1)
    raise SystemExit("a window did not come up")


def middle(window: str) -> tuple[int, int]:
    geometry = dict(
        line.split("=", 1) for line in xdotool("getwindowgeometry", "--shell", window).splitlines() if "=" in line
    )
    x, y, width, height = (int(geometry[name]) for name in ("X", "Y", "WIDTH", "HEIGHT"))
    return x + width // 2, y + height // 2


def settled(window: str) -> tuple[int, int]:
    """The middle of a window that has stopped moving."""
    place: tuple[int, int] | None = None
    while place != (now := middle(window)):
        place = now
        time.sleep(1)
    return place


def carry(start: tuple[int, int], end: tuple[int, int]) -> None:
    """Button down at the start, up at the end, and every step between seen by what lies below."""
    xdotool("mousemove", *map(str, start), "mousedown", "1")
    for step in range(1, STEPS + 1):
        place = (a + (b - a) * step // STEPS for a, b in zip(start, end, strict=True))
        xdotool("mousemove", *map(str, place))
        time.sleep(STEP_S)
    time.sleep(0.5)
    xdotool("mouseup", "1")


def check(path: str, wanted: str, picture: str | None, program: Sequence[str]) -> int:
    children: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="kvstudio-drop-") as home:
        env = os.environ | {f"XDG_{name}_HOME": f"{home}/{name}" for name in ("CONFIG", "CACHE", "DATA", "STATE")}
        env["QT_QPA_PLATFORM"] = "xcb"
        try:
            children.append(subprocess.Popen(program, env=env, cwd=ROOT))
            window = wait_for(children[0])
            children.append(subprocess.Popen((sys.executable, __file__, path, "--offer"), env=env))
            source = wait_for(children[1])
            start, end = settled(source), settled(window)
            before = xdotool("getwindowname", window)
            carry(start, end)
            title, began = before, time.monotonic()
            while wanted not in title and time.monotonic() - began < PATIENCE_S:
                time.sleep(0.1)
                title = xdotool("getwindowname", window)
            took = time.monotonic() - began
            if picture:
                time.sleep(2)
                subprocess.run(("import", "-window", "root", picture), check=True, timeout=30)
        finally:
            for child in children:
                child.terminate()
            for child in children:
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
    opened = wanted in title
    says = "opened" if opened else "NOT opened"
    sys.stdout.write(f"from {start} to {end}; title {before!r}, then {title!r}: {says} after {took:.1f} s\n")
    return 0 if opened else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=str(TINY))
    parser.add_argument("--wanted", default="Tiny llama", help="what the title must hold (default: %(default)s)")
    parser.add_argument("--picture", help="save a picture of the screen here")
    parser.add_argument("--program", help="the built program instead of the source")
    parser.add_argument("--offer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.offer:
        return offer(args.file)
    program = (args.program,) if args.program else (sys.executable, "-m", "kvstudio")
    return check(args.file, args.wanted, args.picture, program)


if __name__ == "__main__":
    raise SystemExit(main())
