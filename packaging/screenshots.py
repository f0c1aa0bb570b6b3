"""Renders parts of the window with sample values: `python packaging/screenshots.py OUT [--scheme dark] [--only NAME]`.

Offscreen the dark palette is set by hand (the platform ignores the scheme); under Xvfb with
XDG_CURRENT_DESKTOP=GNOME the platform's own is used.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from PySide6.QtCore import QEventLoop, QSettings, QTimer
from PySide6.QtGui import QColor, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget

from kvstudio.advise.by_context import by_context
from kvstudio.advise.verdict import verdict
from kvstudio.budget.values import Budget
from kvstudio.devices.values import Device, DeviceProcess, Machine
from kvstudio.ui import theme
from kvstudio.ui.main_window import MainWindow
from kvstudio.ui.panels.chart_panel import CONTEXT, TABLE, ChartPanel
from kvstudio.ui.preferences import Preferences
from kvstudio.ui.widgets.basic import Surface
from kvstudio.ui.widgets.budget_bars import BudgetBars
from kvstudio.ui.widgets.legend import Legend, kinds_of
from kvstudio.ui.wizard.dialog import WizardWindow
from kvstudio.ui.wizard.from_plan import wizard_view
from tests.budget import zoo
from tests.ui import samples, wizard_samples

_DARK = (
    (QPalette.ColorRole.Window, "#323232"),
    (QPalette.ColorRole.Base, "#242424"),
    (QPalette.ColorRole.Button, "#323232"),
    (QPalette.ColorRole.WindowText, "#F0F0F0"),
    (QPalette.ColorRole.Text, "#F0F0F0"),
    (QPalette.ColorRole.ButtonText, "#F0F0F0"),
)


def bars() -> QWidget:
    page = Surface(canvas=True)
    rows = QVBoxLayout(page)
    rows.setContentsMargins(20, 20, 20, 20)
    legend, chart = Legend(), BudgetBars()
    legend.show_kinds(kinds_of(samples.FAILS))
    chart.show_budget(samples.FAILS, holders=samples.HOLDERS)
    rows.addWidget(legend)
    rows.addWidget(chart)
    page.resize(718, 300)
    return page


_PROCESS = Device("CUDA1", "CUDA", processes=(DeviceProcess(4182, "python3", samples.CUDA1_OTHER),))


def _chart(budget: Budget, measured_in: str | None = None) -> ChartPanel:
    panel = ChartPanel()
    panel.show_budget(budget, holders=samples.HOLDERS, measured_in=measured_in)
    panel.show_verdict(verdict(budget, samples.CONFIG, (_PROCESS,), measured_in))
    return panel


def chart() -> QWidget:
    panel = _chart(samples.FAILS)
    panel.show_fixes(samples.FIXES)
    panel.resize(718, 500)
    return panel


def chart_small() -> QWidget:
    panel = _chart(samples.FAILS)
    panel.set_small(True)
    panel.show_fixes(samples.FIXES)
    panel.resize(554, 510)
    return panel


def chart_open() -> QWidget:
    panel = _chart(samples.FITS, "run 6")
    panel.set_open_run(True)
    panel.resize(718, 345)
    return panel


def chart_table() -> QWidget:
    panel = chart()
    assert isinstance(panel, ChartPanel)
    panel.show_view(TABLE)
    panel.resize(718, 640)
    return panel


def chart_context() -> QWidget:
    panel = _chart(samples.FAILS)
    panel.show_context(
        by_context(samples.estimate, samples.CONFIG, samples.FAILS, n_ctx_train=40960, largest=samples.largest)
    )
    panel.show_view(CONTEXT)
    panel.resize(718, 660)
    return panel


def wizard() -> QWidget:
    window = WizardWindow()
    window.show_view(wizard_samples.story())
    window.resize(1280, 820)
    return window


def wizard_result() -> QWidget:
    window = WizardWindow()
    window.show_view(wizard_view(wizard_samples.walked(), can_go_back=True, checks=wizard_samples.CHECKS))
    window.resize(1280, 820)
    return window


def wizard_running() -> QWidget:
    window = WizardWindow()
    window.show_view(wizard_view(wizard_samples.walking(), progress=wizard_samples.PROGRESS))
    window.resize(1280, 820)
    return window


def _main_window() -> MainWindow:
    """The whole window with a real model's shape on the story's two cards; every number is worked out."""
    settings = QSettings(str(Path(tempfile.mkdtemp()) / "settings.ini"), QSettings.Format.IniFormat)
    window = MainWindow(Preferences(settings))
    host = Device("Host", "CPU", total_bytes=samples.HOST_TOTAL, free_bytes=samples.HOST_TOTAL - samples.HOST_OTHER)
    cards = tuple(replace(d, description="NVIDIA GeForce RTX 4090") for d in wizard_samples.DEVICES)
    path = str(Path.home() / "models" / "Qwen3-32B-Q4_K_M.gguf")
    window.store.set_machine(Machine(cards, host))
    window.store.show_model(zoo.model("qwen3-32b"), path)
    window.store.set_config(samples.CONFIG.evolve(model_path=path))
    return window


def main_window() -> QWidget:
    window = _main_window()
    window.resize(1280, 820)
    return window


def main_small() -> QWidget:
    window = _main_window()
    window.resize(1100, 720)
    return window


def main_context() -> QWidget:
    window = _main_window()
    window.resize(1280, 820)
    window.work.chart.show_view(CONTEXT)
    return window


SCENES: dict[str, Callable[[], QWidget]] = {
    "bars": bars,
    "chart": chart,
    "chart-small": chart_small,
    "chart-open": chart_open,
    "chart-table": chart_table,
    "chart-context": chart_context,
    "main": main_window,
    "main-small": main_small,
    "main-context": main_context,
    "wizard": wizard,
    "wizard-running": wizard_running,
    "wizard-result": wizard_result,
}


def _settle(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def _dark_palette(app: QApplication) -> None:
    palette = app.palette()
    for role, name in _DARK:
        palette.setColor(role, QColor(name))
    app.setPalette(palette)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--only", choices=tuple(SCENES))
    parser.add_argument("--system-fonts", action="store_true", help="the desktop's fonts, not those of the pictures")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QApplication(sys.argv[:1])
    families = [] if options.system_fonts else QFontDatabase.families()
    inter = "Inter" if "Inter" in families else ""
    jetbrains = "JetBrains Mono" if "JetBrains Mono" in families else ""
    followed = theme.apply(app, theme.Scheme(options.scheme), family=inter, mono_family=jetbrains)
    if options.scheme == "dark" and not followed:
        _dark_palette(app)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, make in SCENES.items():
        if options.only in (None, name):
            scene = make()
            scene.show()
            _settle(4000 if name.startswith("main") else 250)
            scene.grab().save(str(options.out / f"{name}-{options.scheme}.png"))
            scene.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
