"""Pictures of the window for the documentation: `python packaging/screenshots.py OUT [--scheme dark] [--only NAME...]`.

`--parts` adds parts of it from sample values. Under Xvfb with XDG_CURRENT_DESKTOP=GNOME the platform's own dark scheme
is used; offscreen, which ignores the scheme, the dark palette is set by hand.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import story
from PySide6.QtCore import QEventLoop, QSettings, QTimer
from PySide6.QtGui import QColor, QCursor, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication, QScrollArea, QVBoxLayout, QWidget

from kvstudio.advise.by_context import by_context
from kvstudio.advise.not_offered import not_offered
from kvstudio.advise.plan import Plan, World, start
from kvstudio.advise.plan_values import Attempt, TrialKind
from kvstudio.advise.verdict import verdict
from kvstudio.budget.values import Budget
from kvstudio.case.history import History
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.places import history_dir
from kvstudio.ui import theme
from kvstudio.ui.binaries import Chosen
from kvstudio.ui.history.dialog import HistoryDialog
from kvstudio.ui.main_window import MainWindow
from kvstudio.ui.panels.chart_panel import CONTEXT, TABLE, ChartPanel
from kvstudio.ui.panels.empty_page import Entry
from kvstudio.ui.preferences import Preferences
from kvstudio.ui.report_dialog import ReportDialog
from kvstudio.ui.widgets.basic import Surface
from kvstudio.ui.widgets.budget_bars import BudgetBars
from kvstudio.ui.widgets.legend import Legend, kinds_of
from kvstudio.ui.wizard.dialog import WizardWindow
from kvstudio.ui.wizard.from_plan import wizard_view
from kvstudio.ui.wizard.side_pages import baseline_view, why_not_view
from kvstudio.ui.wizard.values import Action, WizardView
from kvstudio.ui.wizard.wizard import FixWizard
from kvstudio.units import GIB, format_room
from tests.advise.world import Reality
from tests.budget import zoo
from tests.ui import samples, wizard_samples

_PATIENCE_S = 240
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


def _wizard(view: WizardView) -> QWidget:
    window = WizardWindow()
    window.show_view(view)
    window.resize(*_SIZE)
    return window


def _plan() -> Plan:
    """The walk of the story before its first run."""
    machine = story.machine()
    world = World(story.model(), machine.devices, machine.host, 11434, binary=story.binary())
    return start(world, story.config(65536, _HALVES))


def _walked_to(variable: str) -> Plan:
    """The story's walk where this variable is about to change; nobody ends the other process."""
    plan = _plan()
    reality = Reality(plan.world)
    while plan.pending is not None and plan.pending.variable != variable:
        plan = plan.skip() if plan.pending.kind is TrialKind.FREE else plan.ran(_told(reality.attempt(plan.pending)))
    return plan


def _told(attempt: Attempt) -> Attempt:
    """With the free memory that a log of a CUDA build tells, and the words that a reader of it has."""
    found, predicted = attempt.diagnosis, attempt.trial.predicted
    failure = predicted.first_failure if predicted is not None else None
    if found is None or failure is None:
        return attempt
    free = failure.free_bytes
    says = (
        f"{failure.device} refused {format_room(failure.bytes)} for the {found.stage}, {format_room(free)} were free."
    )
    return replace(attempt, diagnosis=replace(found, free_bytes=free, summary=says))


def wizard() -> QWidget:
    return _wizard(wizard_view(_walked_to("tensor_split"), can_go_back=True))


def wizard_baseline() -> QWidget:
    return _wizard(baseline_view(_plan()))


def wizard_first() -> QWidget:
    return _wizard(wizard_view(_plan()))


def wizard_running() -> QWidget:
    return _wizard(wizard_view(_walked_to("tensor_split"), progress=wizard_samples.PROGRESS))


def wizard_why_not() -> QWidget:
    plan = _walked_to("tensor_split")
    return _wizard(why_not_view(plan, not_offered(plan)))


def wizard_limit() -> QWidget:
    """Neither one small card nor this machine's memory can take the story's weights."""
    machine = story.machine()
    card = Device("CUDA0", "CUDA", "NVIDIA GPU", 8 * GIB, int(7.6 * GIB))
    assert machine.host is not None
    host = replace(machine.host, total_bytes=8 * GIB, free_bytes=4 * GIB)
    world = World(story.model(), (card,), host, 11434, binary=story.binary())
    # Mapped weights need no memory of their own: what has no limit is no limit.
    plan = start(world, story.config(32768, None).evolve(load_mode="none"))
    reality = Reality(world)
    while plan.pending is not None:
        plan = plan.ran(_told(reality.attempt(plan.pending)))
    return _wizard(wizard_view(plan, can_go_back=True))


def _live(stop: Callable[[FixWizard], bool]) -> QWidget:
    """A real walk with a real server and a whole tiny model on the CPU, up to a page."""
    os.environ["GGML_VK_VISIBLE_DEVICES"] = ""
    # Its name would be found first, and it only replays.
    Path(story.binary().path).unlink()
    path = Path.home() / "models" / "tiny.gguf"
    shutil.copy(_TINY, path)
    window = MainWindow(Preferences(QSettings(str(Path(tempfile.mkdtemp()) / "s.ini"), QSettings.Format.IniFormat)))
    window.resize(*_SIZE)
    window.show()
    window.begin((str(path),))
    case = window.store
    _wait(lambda: case.case.model is not None and case.case.binary is not None and case.case.machine is not None)
    # Refused while the context is made: llama.cpp wants flash attention for a quantized V cache.
    case.edit({"n_ctx": 512, "n_parallel": 1, "cache_type_v": "q8_0", "flash_attn": "off"})
    window.windows.fix()
    dialog = window.findChild(FixWizard)

    seen: list[tuple[Action, ...]] = []

    def is_there() -> bool:
        if stop(dialog):
            return True
        # What can be done with a result is there only once what follows has been worked out.
        seen.append(dialog.offered())
        if len(set(seen[-_CALM_LOOKS:])) > 1:
            return False
        button = next((b for each in dialog.offered() if (b := dialog.button(each)).isDefault()), None)
        if button is not None:
            button.click()
        return False

    _wait(is_there)
    dialog.setParent(None)
    dialog.resize(*_SIZE)
    window.hide()
    _KEPT.append(window)
    return dialog


def wizard_outcome() -> QWidget:
    return _live(lambda dialog: Action.KEEP in dialog.offered())


def wizard_result() -> QWidget:
    return _live(lambda dialog: Action.REPORT in dialog.offered())


def _choose(window: MainWindow, binary: Binary) -> None:
    window.binaries.chosen.emit(Chosen(binary, None))
    window.toolbar.show_binaries(((binary.path, f"{binary.program} b{binary.build}"),), window.store.case.binary, "")


def _window(n_ctx: int, tensor_split: tuple[float, ...] | None, found: Binary | None = None) -> MainWindow:
    """The whole window with the story's model on its two cards; every number is worked out."""
    settings = QSettings(str(Path(tempfile.mkdtemp()) / "settings.ini"), QSettings.Format.IniFormat)
    # Named but never read, as the window is not begun: devices are those of the story.
    window = MainWindow(Preferences(settings), devices_file="story")
    window.resize(*_SIZE)
    # The devices of this machine must not come in between.
    window.poll.hold("story")
    _choose(window, found or story.binary())
    window.store.set_machine(story.machine())
    config = story.config(n_ctx, tensor_split)
    window.store.show_model(story.model(), config.model_path)
    window.store.set_config(config)
    return window


def main_window() -> QWidget:
    return _window(32768, None)


def overflow() -> QWidget:
    return _window(65536, _HALVES)


def _of_zoo(name: str, file: str, total_gib: int, free_gib: float, **typed: Any) -> MainWindow:
    """The whole window with a measured shape on one card of so many GiB."""
    window = _window(32768, None)
    model = zoo.model(name)
    card = Device("CUDA0", "CUDA", "NVIDIA GPU", total_gib * GIB, int(free_gib * GIB))
    window.store.set_machine(replace(story.machine(), devices=(card,)))
    path = str(Path.home() / "models" / file)
    window.store.show_model(model, path)
    window.store.set_config(LaunchConfig(model_path=path, n_gpu_layers=99, **typed))
    return window


def experts_in_ram() -> QWidget:
    return _of_zoo("qwen3-30b-a3b", "Qwen3-30B-A3B-Q4_K_M.gguf", 12, 11.4, n_ctx=32768, n_cpu_moe=30)


def hybrid() -> QWidget:
    return _of_zoo("qwen3next-80b", "Qwen3-Next-80B-A3B-Q4_K_M.gguf", 48, 47.5, n_ctx=65536, n_parallel=8)


def fit() -> QWidget:
    """A context that was left open on a card too small for the trained one."""
    window = _of_zoo("llama31-8b", "Llama-3.1-8B-Q4_K_M.gguf", 12, 11.4)
    window.store.edit({"n_gpu_layers": None})
    window.show()
    _wait(lambda: window.store.case.fitted is not None)
    return window


def small() -> QWidget:
    window = _window(65536, _HALVES)
    window.resize(1100, 720)
    return window


def context() -> MainWindow:
    window = _window(65536, _HALVES)
    window.show()
    window.work.chart.show_view(CONTEXT)
    _wait(lambda: window.work.chart.context.chart.height() > 1)
    return window


def choice() -> QWidget:
    """The foot of the view by context."""
    window = context()
    _settle(500)
    chart = window.work.chart.context.choice
    for area in window.findChildren(QScrollArea):
        if area.isAncestorOf(chart):
            area.verticalScrollBar().setValue(area.verticalScrollBar().maximum())
    return window


def failed() -> MainWindow:
    """A launch of the story, from start to end; the server that refuses is one that replays its log."""
    window = _window(65536, _HALVES)
    case = window.store.case
    log = Path(tempfile.mkdtemp()) / "server.log"
    log.write_text(story.failed_log(case.budget, case.config))
    os.environ |= {"FAKE_LLAMA_LOG": str(log), "FAKE_LLAMA_EXIT": "1", "FAKE_LLAMA_LINE_DELAY": "0.08"}
    window.show()
    window.launch()
    _wait(lambda: bool(window.store.case.runs) and not window.is_running)
    return window


def report() -> QWidget:
    window = failed()
    _settle(500)
    window.windows.report()
    _settle(1500)
    dialog = window.findChild(ReportDialog)
    dialog.setParent(None)
    dialog.resize(*_SIZE)
    _KEPT.append(window)
    return dialog


def verified() -> MainWindow:
    """A real launch of the sample: a real server, a real model, two software devices."""
    os.environ["KVSTUDIO_DATA"] = tempfile.mkdtemp()
    window = MainWindow(Preferences(QSettings(str(Path(tempfile.mkdtemp()) / "s.ini"), QSettings.Format.IniFormat)))
    window.resize(*_SIZE)
    window.show()
    window.try_sample()
    _wait(lambda: window.store.case.model is not None and window.store.case.binary is not None)
    _wait(lambda: window.store.case.machine is not None and len(window.store.case.machine.devices) > 1)
    window.store.edit({"n_ctx": 8192, "n_parallel": 2, "n_gpu_layers": 99})
    _launch(window)
    return window


def _launch(window: MainWindow) -> None:
    """One launch to its end."""
    before = len(window.store.case.runs)
    window.launch()
    _wait(lambda: len(window.store.case.runs) > before and not window.is_running)
    window.banner.hide()


def compared() -> QWidget:
    """Two real launches of the sample side by side, the second with a longer context and smaller keys."""
    window = verified()
    window.store.edit({"n_ctx": 32768, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attn": "on"})
    _launch(window)
    _wait(lambda: len(History(history_dir()).list().entries) == 2)
    dialog = HistoryDialog(history_dir())
    dialog.load((1, 2))
    _wait(lambda: len(dialog.chosen()) == 2)
    dialog.resize(*_SIZE)
    window.hide()
    _KEPT.append(window)
    return dialog


def _log(name: str) -> Callable[[], QWidget]:
    """Somebody's log, opened in the window: the line that decided is marked."""

    def scene() -> QWidget:
        settings = QSettings(str(Path(tempfile.mkdtemp()) / "settings.ini"), QSettings.Format.IniFormat)
        window = MainWindow(Preferences(settings), devices_file="story")
        window.resize(*_SIZE)
        window.poll.hold("story")
        _choose(window, story.binary())
        window.store.set_machine(story.machine())
        window.show()
        window.open_paths((str(_LOGS / f"{name}.log"),))
        _wait(lambda: window.store.case.diagnosis is not None)
        return window

    return scene


def empty() -> QWidget:
    """The start page with things opened before and models found."""
    settings = QSettings(str(Path(tempfile.mkdtemp()) / "settings.ini"), QSettings.Format.IniFormat)
    preferences = Preferences(settings)
    for name, kind, detail in _RECENT:
        preferences.add_recent(str(Path.home() / "models" / name), kind, name, detail)
    window = MainWindow(preferences, devices_file="story")
    window.resize(*_SIZE)
    # The devices of this machine must not come in between.
    window.poll.hold("story")
    _choose(window, story.binary())
    window.store.set_machine(story.machine())
    window.empty.show_found(
        tuple(Entry(f"/{name}", name, detail, source, "chip") for name, detail, source in _FOUND), 4
    )
    window.empty.show_sample(True)
    return window


_SIZE = (1280, 820)
_HALVES = (1.0, 1.0)
_CALM_LOOKS = 6
_KEPT: list[QWidget] = []
_TINY = Path(__file__).resolve().parent.parent / "tests" / "data" / "headers" / "tiny.gguf"
_LOGS = Path(__file__).resolve().parent.parent / "tests" / "data" / "logs"
_RECENT = (
    ("docker-llama.log", "log", "log, started and listening"),
    ("gemma-27b-two-cards.kvcase", "case", "case, what-if: two 16 GB cards"),
    (story.FILE, "model", "Q4_K_M, 18.4 GiB, trained context 40960"),
    ("server-2026-11-29.log", "log", "log, the KV cache did not fit on CUDA1"),
)
_FOUND = (
    ("Qwen3 32B", "Q4_K_M, 18.4 GiB, trained context 40960", "Hugging Face"),
    ("Gemma 3 27B IT", "Q4_0, 16.0 GiB, sliding window", "LM Studio"),
    ("gpt-oss 20B", "MXFP4, 11.3 GiB, mixture of experts", "Ollama"),
    ("Qwen3 30B A3B", "Q6_K, 23.4 GiB, 2 shards", "llama.cpp cache"),
)

#: Scenes of the documentation: the whole window.
WHOLE: dict[str, Callable[[], QWidget]] = {
    "main": main_window,
    "overflow": overflow,
    "moe": experts_in_ram,
    "hybrid": hybrid,
    "fit": fit,
    "small": small,
    "context": context,
    "choice": choice,
    "failed": failed,
    "report": report,
    "verified": verified,
    "compared": compared,
    "empty": empty,
    "wizard": wizard,
    "wizard-baseline": wizard_baseline,
    "wizard-first": wizard_first,
    "wizard-running": wizard_running,
    "wizard-why-not": wizard_why_not,
    "wizard-limit": wizard_limit,
    "wizard-outcome": wizard_outcome,
    "wizard-result": wizard_result,
    "log-three-refusals": _log("cuda-compute-3tries"),
    "log-limit": _log("vulkan-compute-pp-ctk"),
    "log-recovered": _log("live-compute-retried"),
    "log-killed": _log("oomkiller-cgroup-fit"),
    "log-lookalike": _log("lookalike-slots"),
}
SCENES: dict[str, Callable[[], QWidget]] = {
    "bars": bars,
    "chart": chart,
    "chart-small": chart_small,
    "chart-open": chart_open,
    "chart-table": chart_table,
    "chart-context": chart_context,
}


def _wait(ready: Callable[[], bool]) -> None:
    for _ in range(_PATIENCE_S * 5):
        if ready():
            return
        _settle(200)
    raise TimeoutError("the window did not get there")


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
    parser.add_argument("--only", nargs="*", choices=(*WHOLE, *SCENES))
    parser.add_argument("--parts", action="store_true", help="parts of the window too, from sample values")
    parser.add_argument("--system-fonts", action="store_true", help="the desktop's fonts, not those of the pictures")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QApplication(sys.argv[:1])
    families = [] if options.system_fonts else QFontDatabase.families()
    inter = "Inter" if "Inter" in families else ""
    jetbrains = "JetBrains Mono" if "JetBrains Mono" in families else ""
    followed = theme.apply(app, theme.Scheme(options.scheme), family=inter, mono_family=jetbrains)
    QCursor.setPos(1399, 999)
    # The desktop's own fonts arrive a moment after its scheme.
    _settle(400)
    theme.apply(app, theme.Scheme(options.scheme), family=inter, mono_family=jetbrains)
    if options.scheme == "dark" and not followed:
        _dark_palette(app)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    scenes = WHOLE | (SCENES if options.parts else {})
    for name in options.only or scenes:
        make = (WHOLE | SCENES)[name]
        # The sample model lies in the real home folder.
        home = os.environ.get("HOME", "")
        if name not in ("verified", "compared"):
            story.make_home()
        scene = make()
        scene.show()
        _settle(4000 if name in ("overflow", "small") else 1500)
        path = out / f"{name}-{options.scheme}.png"
        scene.grab().save(str(path))
        _quantise(path)
        scene.close()
        os.environ["HOME"] = home
    return 0


def _quantise(path: Path) -> None:
    """Fewer colours, a quarter of the size; skipped where imagemagick is not there."""
    convert = shutil.which("convert")
    if convert:
        subprocess.run([convert, str(path), "+dither", "-colors", "255", f"PNG8:{path}"], check=True)


if __name__ == "__main__":
    sys.exit(main())
