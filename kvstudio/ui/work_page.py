"""The page with a model or a log on it: model and devices, chart and command, settings, and the run below."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QSplitter,
    QSplitterHandle,
    QVBoxLayout,
    QWidget,
)

from kvstudio.advise.verdict import verdict
from kvstudio.budget.values import Provenance
from kvstudio.case import evolve as evolving
from kvstudio.case.values import Case
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Outcome
from kvstudio.launch.flags import program_name
from kvstudio.launch.unknown import unknown_options
from kvstudio.places import history_dir
from kvstudio.ui.launching import Launching
from kvstudio.ui.panels.chart_panel import CONTEXT, ChartPanel
from kvstudio.ui.panels.command_panel import CommandPanel
from kvstudio.ui.panels.devices_panel import DevicesPanel
from kvstudio.ui.panels.model_panel import ModelPanel
from kvstudio.ui.panels.run_panel import RunPanel
from kvstudio.ui.panels.settings_panel import SettingsPanel
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Theme
from kvstudio.ui.widgets.basic import Rule, Surface, scroll_area, scrolled
from kvstudio.units import format_bytes
from kvstudio.work import task

if TYPE_CHECKING:
    from kvstudio.ui.main_window import MainWindow

#: Of the height, for a log beside a chart and for one without.
_LOG_SHARE, _LOG_SHARE_ALONE = 0.44, 0.62
#: From so many on bars and verdict leave no room for an idle run area.
_MANY_DEVICES = 5
DRY_RUN = "dry run"


class WorkPage(QWidget):
    """Built when it is first needed, part by part with `make_next`: nothing of it is in the first window."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__()
        self._store = window.store
        self._banner = window.banner
        self._low = self._shared_by_hand = self._is_whole = False
        self._making = self._parts(window)

    def make_next(self) -> bool:
        """Build the next part; False when the page was whole already."""
        return next(self._making, None) is not None

    def _parts(self, window: "MainWindow") -> Iterator[QWidget]:
        # Each is made inside what holds it: moving it there later would have Qt style all of it once more.
        self.splitter = _Splitter(Qt.Orientation.Vertical, self)
        self.splitter.setHandleWidth(1)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.splitterMoved.connect(self._on_splitter)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.splitter)
        top = QWidget(self.splitter)
        row = QHBoxLayout(top)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        self._make_left(row, top)
        yield self.devices_panel
        row.addWidget(Rule(vertical=True, parent=top))
        yield from self._make_middle(row, top)
        row.addWidget(Rule(vertical=True, parent=top))
        self.settings = SettingsPanel(top)
        row.addWidget(self.settings)
        yield self.settings
        self.run_panel = RunPanel(self.splitter)
        self.splitter.setStretchFactor(0, 1)
        self.splitter.setStretchFactor(1, 0)
        yield self.run_panel
        self._context = task.Latest(evolving.context_view, self.chart.show_context, self._banner.show_error)
        self.launching = Launching(self._store, self.run_panel, history_dir(), parent=self)
        self._set_tab_order()
        self._wire(window)
        self.launching.options = window.preferences.launch_options
        self.launching.recall()
        self._is_whole = True
        yield self

    def _make_left(self, row: QHBoxLayout, top: QWidget) -> None:
        ground = Surface()
        self._left = scrolled(ground, top)
        row.addWidget(self._left)
        left = QVBoxLayout(ground)
        left.setContentsMargins(Space.L, Space.M, Space.L, Space.M)
        left.setSpacing(Space.M)
        self.model_panel = ModelPanel(ground)
        left.addWidget(self.model_panel)
        left.addWidget(Rule(parent=ground))
        self.devices_panel = DevicesPanel(ground)
        left.addWidget(self.devices_panel)
        left.addStretch(1)

    def _make_middle(self, row: QHBoxLayout, top: QWidget) -> Iterator[QWidget]:
        canvas = Surface(canvas=True, parent=top)
        row.addWidget(canvas, 1)
        middle = QVBoxLayout(canvas)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.setSpacing(0)
        # The command stays in sight however much the chart has to show.
        area = scroll_area(canvas)
        middle.addWidget(area, 1)
        self.chart = ChartPanel(area.viewport())
        area.setWidget(self.chart)
        yield self.chart
        self._command_row = QVBoxLayout()
        self.command = CommandPanel(canvas)
        self._command_row.addWidget(self.command)
        middle.addLayout(self._command_row)
        yield self.command

    def _set_tab_order(self) -> None:
        order = (self.model_panel, self.devices_panel, self.chart, self.command, self.settings, self.run_panel)
        for first, second in pairwise(order):
            QWidget.setTabOrder(first, second)

    def _wire(self, window: "MainWindow") -> None:
        store = self._store
        self.devices_panel.ticked.connect(store.tick)
        self.devices_panel.what_if_added.connect(store.add_what_if)
        self.devices_panel.what_if_removed.connect(store.remove_what_if)
        self.devices_panel.rpc_added.connect(store.add_rpc)
        self.devices_panel.rpc_removed.connect(store.remove_rpc)
        self.settings.edited.connect(store.edit)
        self.settings.dragged.connect(store.drag)
        self.settings.drag_ended.connect(store.end_live)
        self.settings.env_edited.connect(lambda env: store.edit({"env": env}))
        self.settings.reset_requested.connect(store.reset_settings)
        store.working_changed.connect(self.chart.show_working)
        self.chart.fix_applied.connect(store.apply_fix)
        self.chart.context_picked.connect(lambda n_ctx: store.edit({"n_ctx": n_ctx}))
        self.chart.choice_picked.connect(store.edit)
        self.chart.open_requested.connect(window.ask_model)
        self.chart.fix_requested.connect(window.windows.fix)
        self.chart.why_requested.connect(window.windows.why)
        self.chart.view_changed.connect(lambda _: self._on_view())
        self.command.config_edited.connect(store.set_config)
        self.command.paste_requested.connect(window.paste)
        self.command.copied.connect(lambda: self._banner.show_note(tr("Command copied")))
        run = self.run_panel
        run.launch_requested.connect(window.launch)
        run.cancel_requested.connect(window.stop)
        run.open_log_requested.connect(window.ask_open)
        run.fix_requested.connect(window.windows.fix)
        run.report_requested.connect(window.windows.report)
        run.copy_requested.connect(window.copy_command)
        run.compare_requested.connect(window.windows.compare_with)
        run.opened.connect(self._on_run_opened)
        run.height_changed.connect(self._share_height)
        self.launching.running_changed.connect(window.on_running)
        self.launching.failed.connect(self._banner.show_error)
        self.launching.noted.connect(self._banner.show_note)

    def show_case(self, old: Case | None, new: Case) -> None:
        """Draw what differs from `old`; everything when there is none."""

        def differs(*names: str) -> bool:
            return old is None or any(getattr(old, name) is not getattr(new, name) for name in names)

        if old is not None and ((old.model is None) is not (new.model is None) or differs("chosen")):
            self._give_room()
        if differs("model", "budget", "config"):
            self.model_panel.show_model(new.model, new.budget, new.config.model_path)
        if differs("machine", "what_if", "chosen"):
            self.devices_panel.show_devices(new.machine, new.what_if, new.chosen)
        if differs("config", "budget", "model", "chosen"):
            self.settings.show_case(new)
        if differs("config", "budget", "model", "binary"):
            n_ctx = new.budget.config.n_ctx if new.budget else None
            self.command.show_config(new.config, new.model.name if new.model else "", n_ctx, _doubts(new))
        self._show_chart(old, new)
        if differs("log", "diagnosis") or (old is not None and (old.model is None) is not (new.model is None)):
            self._show_log(new)

    def _show_chart(self, old: Case | None, new: Case) -> None:
        if new.model is not None and new.budget is None:
            self.chart.show_coming()
        elif new.model is None:
            # Another machine's path, perhaps of another system.
            self.chart.show_missing(bool(new.log), new.config.model_path.replace("\\", "/").rpartition("/")[2])
        if old is None or old.budget is not new.budget or old.fitted is not new.fitted:
            measured = measured_in(new)
            self.chart.show_budget(
                new.budget,
                fitted=new.fitted if measured is None else None,
                fit_follows=measured is None and new.fitted is None and new.config.fit is not False,
                measured_in=measured,
                holders=holders(new.devices),
                glide=old is not None and old.budget is not None and not self._store.is_dragging,
            )
            self._show_verdict(new)
        if old is None or old.budget is not new.budget:
            self._show_context()
        if old is None or old.fixes is not new.fixes:
            self.chart.show_fixes(new.fixes)

    def _show_verdict(self, case: Case) -> None:
        said = None
        if case.budget is not None:
            measured = measured_in(case)
            source = f"its {measured}" if measured == DRY_RUN else measured
            said = verdict(case.budget, case.config, case.chosen_devices, source, case.fitted)
        self.chart.show_verdict(said)

    def _show_log(self, case: Case) -> None:
        """A log that was opened; those of our own runs come by the launch itself."""
        if case.runs and case.log_source == (case.runs[-1].log_path or ""):
            return
        if case.log:
            first = case.fixes[0].title if case.fixes else ""
            failed = case.diagnosis is not None and case.diagnosis.outcome is Outcome.FAILED
            # Without the model, Fix asks for it.
            can_fix = failed or case.model is not None
            self.run_panel.show_log(case.log, case.diagnosis, case.log_source, try_first=first, can_fix=can_fix)
        elif not self.launching.running:
            self.run_panel.show_idle()

    def _show_context(self) -> None:
        """Memory against context takes many budgets: worked out only while it is looked at, away from this thread."""
        case = self._store.case
        known = case.model is not None and case.budget is not None and not self._store.is_working
        if self.chart.view() == CONTEXT and known:
            self._context.ask(case)

    def show_ready(self, can_launch: bool, why_not: str) -> None:
        """Whether a launch makes sense now."""
        self.run_panel.show_ready(can_launch, why_not)
        self.chart.set_fix_primary(False)

    def _on_run_opened(self, opened: bool) -> None:
        self.chart.set_open_run(opened)
        self._give_room()

    def _on_view(self) -> None:
        self._give_room()
        self._show_context()

    def _give_room(self) -> None:
        """Curves, and bars of many devices, need the height that an idle run area and a heading would take."""
        high = self.chart.view() == CONTEXT or len(self._store.case.chosen_devices) >= _MANY_DEVICES
        self.command.show_header(not self.run_panel.is_open and not high)
        self.run_panel.fold(self._low or high)
        self._share_height()

    def _share_height(self) -> None:
        """The run area gets what it asks for; above it the chart keeps the rest."""
        whole = self.height()
        wanted = self.run_panel.sizeHint().height()
        if self.run_panel.is_open:
            share = _LOG_SHARE if self._store.case.model is not None else _LOG_SHARE_ALONE
            wanted = max(wanted, round(whole * share))
        self.splitter.setSizes([max(1, whole - wanted), wanted])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        # The first size comes when the page is shown; a height that was chosen by hand stays.
        if self._is_whole and not self._shared_by_hand:
            self._share_height()

    def _on_splitter(self, _at: int, _index: int) -> None:
        self._shared_by_hand = True

    def fit(self, width: int, height: int) -> None:
        """Take the form for a window of this size."""
        self._low = height < Size.SMALL_HEIGHT
        self._give_room()
        small = width < Size.SMALL_WIDTH
        self._left.setFixedWidth(Size.LEFT_SMALL if small else Size.LEFT)
        margin = Space.MARGIN if small else Space.CANVAS_MARGIN
        self._command_row.setContentsMargins(margin, Space.XS, margin, Space.M)
        self.chart.set_small(small)


class _Splitter(QSplitter):
    """Its handle is a hairline that can be dragged."""

    def createHandle(self) -> QSplitterHandle:
        return _Handle(self.orientation(), self)


class _Handle(QSplitterHandle):
    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), Theme.current().hairline)


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


def _doubts(case: Case) -> tuple[str, ...]:
    """Options that the program would not take; another program's list says nothing of them."""
    own = case.binary is not None and case.binary.program == program_name(case.config.program)
    return unknown_options(case.config, case.binary if own else None)
