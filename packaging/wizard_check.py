"""One fix walk by real mouse and keyboard: `python packaging/wizard_check.py [--by mouse|keys] [--pictures DIR]`.

Needs an X session with xdotool and a window manager. A whole tiny model runs on the CPU with the installed
llama-server, under a command that it refuses; the walk goes on to the verified result, and then to the report.
Exit code 0: the walk was verified with all six checks, the report tells its root cause, and no server is left.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QEventLoop, QPoint, QTimer
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from kvstudio.report.markdown import escape
from kvstudio.ui import theme
from kvstudio.ui.main_window import MainWindow
from kvstudio.ui.report_dialog import ReportDialog
from kvstudio.ui.widgets_run.checks_page import CheckRow
from kvstudio.ui.wizard.values import Action
from kvstudio.ui.wizard.wizard import FixWizard
from kvstudio.work import task

TINY = Path(__file__).resolve().parent.parent / "tests" / "data" / "headers" / "tiny.gguf"
#: llama.cpp wants flash attention for a quantized V cache, so this is refused while the context is made.
REFUSED = " -c 512 -np 1 -ctv q8_0 -fa off"
PATIENCE_S = 120.0
MOST_PAGES = 30
MOST_TABS = 40
CALM_MS = 300
CHECKS = 6
_Dialog = TypeVar("_Dialog", bound=QWidget)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=("mouse", "keys", "both"), default="both", help="both: in turn")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--pictures", type=Path, help="save a picture of every page here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvstudio-wizard-") as home:
        os.environ |= {f"XDG_{name}_HOME": f"{home}/{name}" for name in ("CONFIG", "CACHE", "DATA", "STATE")}
        # No devices, whatever this machine has: every try is made on the CPU.
        os.environ |= {"KVSTUDIO_DATA": f"{home}/data", "GGML_VK_VISIBLE_DEVICES": "", "QT_QPA_PLATFORM": "xcb"}
        model = shutil.copy(TINY, home)
        app = QApplication(sys.argv[:1])
        theme.apply(app, theme.Scheme(args.scheme))
        window = MainWindow()
        window.show()
        window.begin((model,))
        try:
            code = Walk(window, args.by, args.pictures).check()
        finally:
            window.close()
            task.drain(3000)
            left = running_with(model)
        if left:
            sys.stdout.write(f"still running: {left}\n")
        return 1 if left else code


class Walk:
    """Hands and eyes: only X events go in, what is on screen is read from the widgets."""

    def __init__(self, window: MainWindow, by: str, pictures: Path | None) -> None:
        self._window, self._by, self._pictures = window, by, pictures
        self._began = time.monotonic()
        self._shown = 0

    def check(self) -> int:
        """Walk from the command to the report; the exit code."""
        self._type_command()
        self._say("command typed")
        wizard = self._open_wizard()
        self._walk(wizard)
        plan = wizard.plan
        assert plan is not None
        assert plan.verdict is not None
        checks = len(wizard.page.findChildren(CheckRow))
        passed = all(check.ok for check in self._window.store.case.runs[-1].checks)
        self._say(f"{plan.verdict.outcome} after {len(plan.attempts)} launches: {plan.verdict.says}")
        self._press(wizard.button(Action.REPORT), by_key=self._by == "keys")
        report = self._wait_for(ReportDialog)
        cause = plan.verdict.root_cause
        told = cause is not None and self._until(
            lambda: escape(cause.says) in report.text(), "the root cause in the report"
        )
        self._picture(report, "report")
        self._say(f"the report {'tells' if told else 'does NOT tell'} the root cause")
        self._say(f"{checks} checks are shown, {'all' if passed else 'NOT all'} of the last run passed")
        return 0 if plan.verdict.outcome == "verified" and checks == CHECKS and passed and told else 1

    def _type_command(self) -> None:
        store, command = self._window.store, self._window.work.command
        self._until(lambda: store.case.model is not None and store.case.binary is not None, "model and llama-server")
        self._until(lambda: store.case.machine is not None and store.case.budget is not None, "the estimate")
        if self._by == "mouse":
            self._click(command.edit)
        else:
            self._key("ctrl+l")
        self._until(command.is_editing, "the field of the command")
        self._key("ctrl+End")
        xdotool("type", "--delay", "20", REFUSED)
        self._until(lambda: command.field.toPlainText().endswith(REFUSED), "the typed command")
        if self._by == "mouse":
            self._click(command.findChild(QPushButton, "applyCommand"))
        else:
            self._key("Return")
        self._until(lambda: store.case.config.flash_attn == "off", "the settings as typed")

    def _open_wizard(self) -> FixWizard:
        if self._by == "mouse":
            self._click(self._window.toolbar.fix_button)
        else:
            self._key("F8")
        wizard = self._wait_for(FixWizard)
        self._until(lambda: wizard.offered() == (Action.NEXT,) and wizard.plan is not None, "the baseline")
        return wizard

    def _walk(self, wizard: FixWizard) -> None:
        """Take the primary button of every page; by both means a click and Return in turn."""
        for page in range(MOST_PAGES):
            self._until(lambda: calm(wizard), "a page that can be left")
            self._picture(wizard, "page")
            if Action.REPORT in wizard.offered():
                return
            before = wizard.offered()
            left = wizard.page.widget()
            button = next(b for a in before if (b := wizard.button(a)).isDefault())
            if self._by == "keys" or (self._by == "both" and page % 2):
                self._key("Return")
            else:
                self._click(button)
            self._until(lambda left=left: wizard.page.widget() is not left, "the page that follows")
            if Action.CANCEL in wizard.offered():
                self._picture(wizard, "running")
        raise SystemExit("the walk does not end")

    def _press(self, button: QPushButton, by_key: bool) -> None:
        """A button that is not the primary one: reached by Tab, or clicked."""
        if not by_key:
            self._click(button)
            return
        for _ in range(MOST_TABS):
            if button.hasFocus():
                self._key("space")
                return
            self._key("Tab")
            settle(60)
        raise SystemExit(f"Tab does not reach {button.text()}")

    def _click(self, widget: QWidget) -> None:
        middle = widget.mapToGlobal(QPoint(widget.width() // 2, widget.height() // 2))
        ratio = widget.devicePixelRatio()
        xdotool("mousemove", str(round(middle.x() * ratio)), str(round(middle.y() * ratio)), "click", "1")

    def _key(self, key: str) -> None:
        xdotool("key", "--clearmodifiers", key)

    def _wait_for(self, kind: type[_Dialog]) -> _Dialog:
        def is_up() -> bool:
            found = self._window.findChild(kind)
            return found is not None and found.isActiveWindow()

        self._until(is_up, kind.__name__)
        found = self._window.findChild(kind)
        assert found is not None
        return found

    def _until(self, true: Callable[[], bool], what: str) -> bool:
        end = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > end:
                raise SystemExit(f"{what} did not come")
            settle(50)
        return True

    def _picture(self, widget: QWidget, name: str) -> None:
        if self._pictures is None:
            return
        settle(400)
        self._pictures.mkdir(parents=True, exist_ok=True)
        self._shown += 1
        widget.grab().save(str(self._pictures / f"{self._shown:02d}-{name}.png"))

    def _say(self, what: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:5.1f} s  {what}\n")
        sys.stdout.flush()


def running_with(path: str) -> str:
    """Processes that still run with this file on their command line, a line each; the desktop's own do not count."""
    listed = subprocess.run(("pgrep", "-a", "-f", path), capture_output=True, text=True, check=False, timeout=30)
    return listed.stdout.strip()


def ready(wizard: FixWizard) -> bool:
    """Whether the page can be left: nothing runs, and what follows has been worked out."""
    offered = wizard.offered()
    return any(wizard.button(a).isDefault() and wizard.button(a).isEnabled() for a in offered)


def calm(wizard: FixWizard) -> bool:
    """Whether a page that can be left stays as it is; a hand is slower than the page of a try that is worked out."""
    before = (wizard.offered(), wizard.page.widget())
    settle(CALM_MS)
    return ready(wizard) and before == (wizard.offered(), wizard.page.widget())


def settle(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def xdotool(*words: str) -> None:
    subprocess.run(("xdotool", *words), check=True, timeout=30)


if __name__ == "__main__":
    raise SystemExit(main())
