"""Renders parts of the window with sample values: `python packaging/screenshots.py OUT [--scheme dark] [--only NAME]`.

Offscreen the dark palette is set by hand (the platform ignores the scheme); under Xvfb with
XDG_CURRENT_DESKTOP=GNOME the platform's own is used.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtGui import QColor, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget

from kvstudio.ui import theme
from kvstudio.ui.widgets.basic import Surface
from kvstudio.ui.widgets.budget_bars import BudgetBars
from kvstudio.ui.widgets.legend import Legend, kinds_of
from tests.ui import samples

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


SCENES: dict[str, Callable[[], QWidget]] = {"bars": bars}


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
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QApplication(sys.argv[:1])
    families = QFontDatabase.families()
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
            _settle(250)
            scene.grab().save(str(options.out / f"{name}-{options.scheme}.png"))
            scene.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
