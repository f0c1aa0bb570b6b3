"""The one window: panels wired to the store, values in, wishes out."""

import os
import time
from pathlib import Path
from typing import Any

from PySide6.QtCore import QBuffer, QMimeData, QRectF, Qt
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QGuiApplication,
    QHideEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QFrame,
    QHBoxLayout,
    QMainWindow,
    QScrollArea,
    QSplitter,
    QSplitterHandle,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from kvstudio.advise.verdict import verdict
from kvstudio.budget.values import Provenance
from kvstudio.case import evolve as evolving
from kvstudio.case import opening
from kvstudio.case.values import Case, Checked
from kvstudio.devices.values import Device
from kvstudio.errors import KvStudioError
from kvstudio.oracle.values import OracleResult
from kvstudio.ui import dialogs, menus, sample, theme
from kvstudio.ui.binaries import Binaries, Chosen
from kvstudio.ui.launching import Launching, history_folder
from kvstudio.ui.panels.chart_panel import CONTEXT, ChartPanel
from kvstudio.ui.panels.command_panel import CommandPanel
from kvstudio.ui.panels.devices_panel import DevicesPanel
from kvstudio.ui.panels.empty_page import EmptyPage, Entry
from kvstudio.ui.panels.model_panel import ModelPanel
from kvstudio.ui.panels.run_panel import RunPanel
from kvstudio.ui.panels.settings_panel import SettingsPanel
from kvstudio.ui.panels.status import Banner, StatusStrip
from kvstudio.ui.panels.toolbar import ToolBar
from kvstudio.ui.preferences import Preferences, RecentItem, when
from kvstudio.ui.store import Store
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Scheme, Size, Space, Theme
from kvstudio.ui.widgets.basic import Rule, Surface
from kvstudio.units import format_bytes
from kvstudio.work import task
from kvstudio.work.device_poll import DevicePoll

_FIRST_SIZE = (1280, 820)
_LEAST_SIZE = (900, 600)
_RUN_ICONS = {"model": "chip", "log": "file", "case": "recent"}
_LOG_SHARE = 0.455
DRY_RUN = "dry run"


class MainWindow(QMainWindow):
    """Wires; decides nothing that a panel or the store can decide."""

    def __init__(self, preferences: Preferences | None = None, devices_file: str | None = None) -> None:
        super().__init__()
        self.preferences = preferences if preferences is not None else Preferences()
        self.store = Store(self)
        self.binaries = Binaries(self)
        self._devices_file = devices_file
        self._walk: Any = None
        self.poll = DevicePoll(_probe, self)
        self._shut = self._closing = False
        self.setWindowTitle("kvstudio")
        self.setAcceptDrops(True)
        self.setMinimumSize(*_LEAST_SIZE)
        self._build()
        self._context = task.Latest(evolving.context_view, self.chart.show_context, self.banner.show_error)
        self.launching = Launching(self.store, self.run_panel, history_folder(), parent=self)
        self._wire()
        menus.build(self)
        self._restore()
        self._show_all(self.store.case)
        self._show_recent()

    # Building ----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.toolbar = ToolBar()
        self.banner = Banner()
        self.empty = EmptyPage()
        self.strip = StatusStrip()
        self.model_panel = ModelPanel()
        self.devices_panel = DevicesPanel()
        self.chart = ChartPanel()
        self.command = CommandPanel()
        self.settings = SettingsPanel()
        self.run_panel = RunPanel()
        start = QWidget()
        column = _column(start)
        column.addWidget(self.empty, 1)
        column.addWidget(self.strip)
        self.pages = QStackedWidget()
        self.pages.addWidget(start)
        self.pages.addWidget(self._build_work())
        central = QWidget()
        column = _column(central)
        column.addWidget(self.toolbar)
        column.addWidget(self.banner)
        column.addWidget(self.pages, 1)
        # The window opens with no ring around its first button; Tab goes there.
        central.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setCentralWidget(central)
        central.setFocus()
        self._overlay = _DropOverlay(central)
        for first, second in zip(self._tab_order(), self._tab_order()[1:]):
            QWidget.setTabOrder(first, second)

    def _build_work(self) -> QWidget:
        self._left = Surface()
        left = QVBoxLayout(self._left)
        left.setContentsMargins(Space.L, Space.M, Space.L, Space.M)
        left.setSpacing(Space.M)
        left.addWidget(self.model_panel)
        left.addWidget(Rule())
        left.addWidget(self.devices_panel)
        left.addStretch(1)
        left_scroll = _scroll(self._left)
        self._left_scroll = left_scroll
        self._canvas = Surface(canvas=True)
        canvas = _column(self._canvas)
        canvas.addWidget(self.chart, 1)
        self._command_row = QVBoxLayout()
        self._command_row.addWidget(self.command)
        canvas.addLayout(self._command_row)
        top = QWidget()
        row = QHBoxLayout(top)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(left_scroll)
        row.addWidget(Rule(vertical=True))
        row.addWidget(_scroll(self._canvas), 1)
        row.addWidget(Rule(vertical=True))
        row.addWidget(self.settings)
        self.splitter = _Splitter(Qt.Orientation.Vertical)
        self.splitter.setHandleWidth(1)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.addWidget(top)
        self.splitter.addWidget(self.run_panel)
        self.splitter.setStretchFactor(0, 1)
        self.splitter.setStretchFactor(1, 0)
        return self.splitter

    def _tab_order(self) -> tuple[QWidget, ...]:
        return (
            self.toolbar,
            self.model_panel,
            self.devices_panel,
            self.chart,
            self.command,
            self.settings,
            self.run_panel,
        )

    def _wire(self) -> None:
        store, bar, empty = self.store, self.toolbar, self.empty
        store.changed.connect(self._on_changed)
        store.failed.connect(self.banner.show_error)
        store.noted.connect(self.banner.show_note)
        store.opened.connect(self._on_opened)
        store.asked.connect(self._on_asked)
        bar.open_requested.connect(self.ask_open)
        bar.recent_chosen.connect(self._open_recent)
        bar.binary_chosen.connect(self._choose_binary)
        bar.binary_browse_requested.connect(lambda: dialogs.ask_binary(self, self._choose_binary))
        bar.check_requested.connect(self.check)
        bar.launch_requested.connect(self.launch)
        bar.stop_requested.connect(self.stop)
        bar.fix_requested.connect(self.fix)
        bar.report_requested.connect(self.report)
        empty.open_requested.connect(self.ask_open)
        empty.paste_requested.connect(self.paste)
        empty.sample_requested.connect(self.try_sample)
        empty.chosen.connect(self._open_recent)
        empty.clear_requested.connect(self._clear_recent)
        self.devices_panel.ticked.connect(store.tick)
        self.devices_panel.what_if_added.connect(store.add_what_if)
        self.devices_panel.what_if_removed.connect(store.remove_what_if)
        self.settings.edited.connect(store.edit)
        self.settings.dragged.connect(store.drag)
        self.settings.drag_ended.connect(store.end_live)
        self.settings.env_edited.connect(lambda env: store.edit({"env": env}))
        self.settings.reset_requested.connect(store.reset_settings)
        self.chart.fix_applied.connect(store.apply_fix)
        self.chart.context_picked.connect(lambda n_ctx: store.edit({"n_ctx": n_ctx}))
        self.chart.fix_requested.connect(self.fix)
        self.chart.why_requested.connect(self.show_why)
        self.chart.view_changed.connect(lambda _: self._show_context())
        self.command.config_edited.connect(store.set_config)
        self.command.paste_requested.connect(self.paste)
        self.command.copied.connect(lambda: self.banner.show_note(tr("Command copied")))
        run = self.run_panel
        run.launch_requested.connect(self.launch)
        run.cancel_requested.connect(self.stop)
        run.open_log_requested.connect(self.ask_open)
        run.fix_requested.connect(self.fix)
        run.report_requested.connect(self.report)
        run.copy_requested.connect(self.copy_command)
        run.opened.connect(self._on_run_opened)
        self.launching.running_changed.connect(self._on_running)
        self.launching.failed.connect(self.banner.show_error)
        self.binaries.list_changed.connect(self._show_binaries)
        self.binaries.chosen.connect(self._on_binary)
        self.binaries.failed.connect(self.banner.show_error)
        self.poll.polled.connect(store.set_machine)

    # Start and end -------------------------------------------------------------------------------------------------

    def begin(self, files: tuple[str, ...] = ()) -> None:
        """What may start once the window is on screen: open files, look for programs, devices and models."""
        self.open_paths(files)
        if self._devices_file is not None:
            task.run(_load_snapshot, self._devices_file, done=self.store.set_machine, failed=self.banner.show_error)
        else:
            self.poll.start()
        self.binaries.look(self.preferences.binary)
        if not files:
            task.run(_find_models, done=self._on_models, failed=lambda _: self.empty.show_found((), 0), key="discover")
        self.empty.show_sample(sample.is_available())

    def shut_down(self) -> None:
        """Stop what runs; called once, at the end."""
        if not self._shut:
            self._shut = True
            self.poll.stop()
            self.preferences.geometry = self.saveGeometry()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.launching.running:
            # The child ends first; then the window closes by itself.
            self.launching.stop()
            self._closing = True
            self.hide()
            event.ignore()
            return
        self.shut_down()
        super().closeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.poll.release("hidden")

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.poll.hold("hidden")

    def _restore(self) -> None:
        kept = self.preferences.geometry
        if kept is None or not self.restoreGeometry(kept):
            available = self.screen().availableGeometry()
            self.resize(min(_FIRST_SIZE[0], available.width()), min(_FIRST_SIZE[1], available.height()))

    # Wishes ------------------------------------------------------------------------------------------------------

    def open_paths(self, paths: tuple[str, ...]) -> None:
        """Open files as if they had been dropped."""
        if paths:
            self.store.open_paths(paths)

    def ask_open(self) -> None:
        dialogs.ask_open(self, self.open_paths)

    def ask_save(self) -> None:
        model = self.store.case.model
        dialogs.ask_save(self, f"{model.name if model else 'case'}.kvcase", self.store.save_case)

    def paste(self) -> None:
        """Read the clipboard: files, a command line, a log or a path."""
        self._take(QGuiApplication.clipboard().mimeData())

    def copy_command(self) -> None:
        self.command.copy.click()

    def edit_command(self) -> None:
        if self.pages.currentIndex() == 1:
            self.command.begin_edit()

    def add_what_if(self) -> None:
        if self.pages.currentIndex() == 1:
            self.devices_panel.begin_what_if()

    def show_help(self) -> None:
        dialog = dialogs.HelpDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def set_scheme(self, scheme: Scheme) -> None:
        """Light, dark or the desktop's; said when the desktop does not listen."""
        self.preferences.scheme = scheme
        app = QApplication.instance()
        if isinstance(app, QApplication) and not theme.set_scheme(app, scheme):
            self.banner.show_note(tr("This desktop does not let a program choose its colour scheme"))

    def launch(self) -> None:
        """Start a test launch with the settings on screen."""
        self.launching.start()

    def stop(self) -> None:
        """End the test launch."""
        self.launching.stop()

    def check(self) -> None:
        """Ask llama.cpp for its own figures, without loading the model."""
        case = self.store.case
        if case.model is None or case.binary is None or self.launching.running:
            return
        self.toolbar.show_checking(True)

        def on_done(result: OracleResult) -> None:
            self.toolbar.show_checking(False)
            if result.ok:
                self.store.replace(checked=Checked(case.config, case.chosen, result))
            self._open(dialogs.CheckDialog(result, self))

        def on_failed(error: KvStudioError) -> None:
            self.toolbar.show_checking(False)
            self.banner.show_error(error)

        task.run(_check, case, done=on_done, failed=on_failed, key="check")

    def fix(self) -> None:
        """Open the fix wizard."""
        from kvstudio.ui.wizard.wizard import FixWizard

        case, earlier = self.store.case, self._walk
        if case.model is None or self.launching.running:
            return
        same = earlier is not None and earlier.wanted == case.config and earlier.world.devices == case.chosen_devices
        wizard = FixWizard(case, self, plan=earlier if same else None, folder=self.launching.folder)
        wizard.run_finished.connect(self.launching.take_over)
        wizard.config_chosen.connect(self.store.set_config)
        wizard.report_requested.connect(self.report)
        wizard.plan_changed.connect(self._on_walked)
        self._open(wizard)

    def _on_walked(self, plan: Any) -> None:
        # Closing the wizard loses nothing: it goes on from here as long as the settings are the same.
        self._walk = plan

    def report(self) -> None:
        """Open the report."""
        from kvstudio.ui.report_dialog import ReportDialog

        dialog = ReportDialog(self.store.case, self)
        dialog.show_picture(self._chart_picture())
        self._open(dialog)

    def _chart_picture(self) -> bytes:
        """The chart as it is on screen, a PNG."""
        data = QBuffer()
        data.open(QBuffer.OpenModeFlag.WriteOnly)
        self.chart.grab().save(data, "PNG")
        return bytes(data.data().data())

    @staticmethod
    def _open(dialog: QDialog) -> None:
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def try_sample(self) -> None:
        """Open the sample model with the sample server on two software devices."""
        if not sample.is_available():
            problem = KvStudioError(tr("The sample is not installed"), "pip install 'kvstudio[rig]'")
            self.banner.show_error(problem)
            return
        self.empty.show_sample(True, busy=True)
        self.banner.show_note(tr("Preparing the sample…"))
        task.run(sample.prepare, done=self._on_sample, failed=self._on_sample_failed, key="sample")

    def _on_sample(self, ready: sample.Sample) -> None:
        self.empty.show_sample(True)
        self.store.edit({"env": ready.env})
        self.binaries.choose(ready.server_path, ready.env)
        self.open_paths((ready.model_path,))

    def _on_sample_failed(self, error: KvStudioError) -> None:
        self.empty.show_sample(True)
        self.banner.show_error(error)

    def _choose_binary(self, path: str) -> None:
        self.binaries.choose(path)

    def _on_binary(self, chosen: Chosen) -> None:
        self.preferences.binary = chosen.binary.path
        self.store.set_binary(chosen.binary)
        if chosen.problem is not None:
            self.banner.show_error(chosen.problem)
        if self._devices_file is None:
            self.poll.set_listed(chosen.listed)

    def _on_opened(self, what: tuple[str, str, str, str]) -> None:
        self.preferences.add_recent(*what)
        self._show_recent()
        self.banner.hide()

    def _open_recent(self, path: str) -> None:
        if not os.path.exists(path):
            self.preferences.forget(path)
            self._show_recent()
        self.open_paths((path,))

    def _clear_recent(self) -> None:
        self.preferences.clear_recent()
        self._show_recent()

    def _on_asked(self, what: object) -> None:
        if isinstance(what, opening.OpenedProjector):
            name = Path(what.path).name
            model = self.store.case.model
            self.banner.ask(
                tr("{} is a multimodal projector").format(name),
                tr("It is loaded beside a model and takes memory of its own."),
                ((tr("Use with {}").format(model.name if model else ""), lambda: self.store.use_projector(what.path)),),
            )
        elif isinstance(what, opening.OpenedFolder):
            self._ask_folder(what)

    def _ask_folder(self, what: opening.OpenedFolder) -> None:
        rows = tuple((path, os.path.relpath(path, what.path)) for path in what.models + what.logs)
        dialog = dialogs.ChooseDialog(tr("Open from {}").format(Path(what.path).name), rows, self)
        dialog.accepted.connect(lambda: self.open_paths((dialog.chosen(),) if dialog.chosen() else ()))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def _on_running(self, running: bool) -> None:
        (self.poll.hold if running else self.poll.release)("launch")
        self._show_state()
        if self._closing and not running:
            self.close()

    def _on_run_opened(self, opened: bool) -> None:
        self.chart.set_open_run(opened)
        self.command.show_header(not opened)
        self._share_height()

    # Drop and paste ------------------------------------------------------------------------------------------------

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _readable(event.mimeData()):
            event.acceptProposedAction()
            self._show_hover(True)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self._show_hover(False)

    def dropEvent(self, event: QDropEvent) -> None:
        self._show_hover(False)
        event.acceptProposedAction()
        self._take(event.mimeData())

    def _take(self, mime: QMimeData) -> None:
        paths = tuple(url.toLocalFile() for url in mime.urls() if url.isLocalFile())
        if paths:
            self.open_paths(paths)
        else:
            self.store.open_text(mime.text())

    def _show_hover(self, on: bool) -> None:
        self.empty.show_drop(on)
        self._overlay.setVisible(on and self.pages.currentIndex() == 1)
        self._overlay.setGeometry(self.centralWidget().rect())
        self._overlay.raise_()

    # Showing -----------------------------------------------------------------------------------------------------

    def _on_changed(self, old: Case, new: Case) -> None:
        if new.config.env != old.config.env:
            self.binaries.set_env(new.config.env)
        self._show(old, new)

    def _show_all(self, case: Case) -> None:
        self._show(None, case)

    def _show(self, old: Case | None, new: Case) -> None:
        def differs(*names: str) -> bool:
            return old is None or any(getattr(old, name) is not getattr(new, name) for name in names)

        page = 0 if new.model is None and not new.log and not new.config.model_path else 1
        if self.pages.currentIndex() != page:
            self.pages.setCurrentIndex(page)
        if differs("model", "budget", "config"):
            self.model_panel.show_model(new.model, new.budget, new.config.model_path)
        if differs("machine", "what_if", "chosen"):
            self.devices_panel.show_devices(new.machine, new.what_if, new.chosen)
        if differs("config", "budget", "model", "chosen"):
            self.settings.show_case(new)
            n_ctx = new.budget.config.n_ctx if new.budget else None
            self.command.show_config(new.config, new.model.name if new.model else "", n_ctx)
        if differs("binary", "machine"):
            self.strip.show_machine(new.binary, new.machine, self.binaries.note)
        if differs("model"):
            self.setWindowTitle(f"{new.model.name} – kvstudio" if new.model and new.model.name else "kvstudio")
        self._show_chart(old, new)
        if differs("log", "diagnosis"):
            self._show_log(new)
        self._show_state()

    def _show_chart(self, old: Case | None, new: Case) -> None:
        if old is None or old.budget is not new.budget:
            glide = old is not None and old.budget is not None and not self.store.is_dragging
            measured = measured_in(new)
            self.chart.show_budget(new.budget, measured_in=measured, holders=holders(new.devices), glide=glide)
            said = None
            if new.budget is not None:
                source = f"its {measured}" if measured == DRY_RUN else measured
                said = verdict(new.budget, new.config, new.chosen_devices, source)
            self.chart.show_verdict(said)
            self._show_context()
        if old is None or old.fixes is not new.fixes:
            self.chart.show_fixes(new.fixes)

    def _show_log(self, case: Case) -> None:
        """A log that was opened; those of our own runs come by the launch itself."""
        if case.runs and case.log_source == (case.runs[-1].log_path or ""):
            return
        if case.log:
            first = case.fixes[0].title if case.fixes else ""
            can_fix = case.model is not None
            self.run_panel.show_log(case.log, case.diagnosis, case.log_source, try_first=first, can_fix=can_fix)
        elif not self.launching.running:
            self.run_panel.show_idle()

    def _show_context(self) -> None:
        """Memory against context takes many budgets: worked out only while it is looked at, away from this thread."""
        case = self.store.case
        if self.chart.view() == CONTEXT and case.model is not None and case.budget is not None:
            task.run(
                evolving.context_view,
                case,
                done=self.chart.show_context,
                failed=self.banner.show_error,
                key="by-context",
            )

    def show_why(self) -> None:
        """The allocations of the device that fails, one after the other."""
        budget = self.store.case.budget
        if budget is not None:
            dialog = dialogs.WhyDialog(budget, self)
            dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            dialog.open()

    def _show_state(self) -> None:
        case = self.store.case
        failed = case.diagnosis is not None and case.diagnosis.outcome == "failed"
        last = case.runs[-1] if case.runs else None
        verified = last is not None and last.outcome == "verified" and last.config == case.config
        can_launch = case.model is not None and case.binary is not None and not self.launching.running
        self.run_panel.show_ready(can_launch, "" if case.binary else tr("No llama-server was found: choose one first"))
        self.chart.set_fix_primary(False)
        self.toolbar.show_state(
            has_model=case.model is not None,
            has_log=bool(case.log or case.runs),
            has_binary=case.binary is not None,
            running=self.launching.running,
            primary=not failed and not verified,
        )

    def _show_binaries(self) -> None:
        self.toolbar.show_binaries(self.binaries.entries(), self.binaries.current, self.binaries.note)
        self.strip.show_machine(self.binaries.current, self.store.case.machine, self.binaries.note)

    def _show_recent(self) -> None:
        items = self.preferences.recent()
        self.toolbar.show_recent(tuple((item.path, f"{item.title}    {item.detail}") for item in items[:12]))
        now = time.time()
        self.empty.show_recent(tuple(_recent_entry(item, now) for item in items))

    def _on_models(self, found: Any) -> None:
        entries, folders = found
        self.empty.show_found(entries, folders)

    # Size --------------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_to_size()

    def _share_height(self) -> None:
        """The run area gets what it asks for; above it the chart keeps the rest."""
        whole = self.splitter.height()
        wanted = self.run_panel.sizeHint().height()
        if self.run_panel.is_open:
            wanted = max(wanted, round(whole * _LOG_SHARE))
        self.splitter.setSizes([max(1, whole - wanted), wanted])

    def _fit_to_size(self) -> None:
        self.run_panel.fold(self.height() < Size.SMALL_HEIGHT)
        self._share_height()
        small = self.width() < Size.SMALL_WIDTH
        self._left_scroll.setFixedWidth(Size.LEFT_SMALL if small else Size.LEFT)
        margin = Space.MARGIN if small else Space.CANVAS_MARGIN
        self._command_row.setContentsMargins(margin, Space.XS, margin, Space.M)
        self.chart.set_small(small)


def _column(widget: QWidget) -> QVBoxLayout:
    layout = QVBoxLayout(widget)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(0)
    return layout


def _scroll(content: QWidget) -> QScrollArea:
    area = QScrollArea()
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setWidget(content)
    return area


class _Splitter(QSplitter):
    """Its handle is a hairline that can be dragged."""

    def createHandle(self) -> QSplitterHandle:
        return _Handle(self.orientation(), self)


class _Handle(QSplitterHandle):
    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), Theme.current().hairline)


class _DropOverlay(QWidget):
    """A frame over everything while something is held above it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), theme.with_alpha(current.canvas, 0.75))
        pen = QPen(current.accent_text, 2)
        pen.setDashPattern([5, 3.5])
        painter.setPen(pen)
        inset = Space.L
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(inset, inset, -inset, -inset), 10, 10)
        painter.setFont(theme.font(theme.Step.PAGE, theme.Weight.Medium))
        painter.setPen(current.ink)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, tr("Drop to open"))


def _readable(mime: QMimeData) -> bool:
    return any(url.isLocalFile() for url in mime.urls()) or mime.hasText()


def _recent_entry(item: RecentItem, now: float) -> Entry:
    failed = item.kind == "log" and any(word in item.detail for word in ("not fit", "fail", "refus", "short"))
    icon, role = ("warn", "bad") if failed else (_RUN_ICONS.get(item.kind, "file"), "muted")
    return Entry(item.path, item.title, item.detail, when(item.opened_at, now), icon, role)


def _probe(listed: str | None) -> Any:
    from kvstudio.devices.probe import probe

    return probe(listed)


def _load_snapshot(path: str) -> Any:
    from kvstudio.devices.snapshot import load

    return load(path)


def holders(devices: tuple[Device, ...]) -> dict[str, str]:
    """Who holds most of each device: `python3 (4182) holds 7.6 GiB`."""
    found = {}
    for device in devices:
        known = [p for p in device.processes if p.bytes]
        if known:
            biggest = max(known, key=lambda p: p.bytes or 0)
            found[device.name] = f"{biggest.name} ({biggest.pid}) holds {format_bytes(biggest.bytes or 0)}"
    return found


def measured_in(case: Case) -> str | None:
    """`run 6` when the budget's sizes are those a run printed."""
    if case.budget is None or not any(b.provenance is Provenance.MEASURED for b in case.budget.buffers):
        return None
    same = [run for run in case.runs if run.config == case.config and run.buffers]
    return f"run {same[-1].number}" if same else DRY_RUN


def _check(case: Case) -> OracleResult:
    from kvstudio.oracle.cache import OracleCache
    from kvstudio.oracle.check import check

    assert case.binary is not None
    cache = OracleCache(history_folder().parent / "checks")
    return check(case.config, case.binary, case.model, budget=case.budget, devices=case.chosen, cache=cache)


def _model_entry(found: Any) -> Entry:
    return Entry(found.path, found.name, found.detail, found.source, "chip")


def _find_models() -> tuple[tuple[Entry, ...], int]:
    from kvstudio.header.discover import find_models

    found = find_models()
    return tuple(_model_entry(model) for model in found), len({model.source for model in found})
