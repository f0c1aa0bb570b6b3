"""The run area: nothing yet, a launch under way, how it ended, or somebody else's log."""

from collections.abc import Sequence

from PySide6.QtCore import QElapsedTimer, QSize, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from kvstudio.diagnose.values import Diagnosis
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.ui.panels.run_idle import IdlePage, SourceBar
from kvstudio.ui.panels.run_log_page import RunLogPage
from kvstudio.ui.panels.run_values import ComparisonRow, clock, fill_phases, marks_of, notes_of, phases_of
from kvstudio.ui.panels.run_words import doing, figures_of, peak_figures
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size
from kvstudio.ui.widgets.basic import (
    Rule,
    Surface,
)
from kvstudio.ui.widgets_run.checks_page import ChecksPage
from kvstudio.ui.widgets_run.comparison_table import ComparisonPage
from kvstudio.ui.widgets_run.phase_strip import Figure, PhaseStrip
from kvstudio.verify.values import MemorySample, Run, RunOutcome
from kvstudio.verify.watch import ALLOCATING, PAUSE_S

_IDLE_HEIGHT = 148
_OPEN_HEIGHT = 356
_CLOCK_MS = 250
_COMPARISON_WIDTH = 472


class RunPanel(QWidget):
    """States come in through `show_...`; wishes go out as signals.

    `copy_requested`: the command of a verified run. `compare_requested`: the number of an earlier run.
    """

    launch_requested = Signal()
    cancel_requested = Signal()
    open_log_requested = Signal()
    fix_requested = Signal()
    report_requested = Signal()
    copy_requested = Signal()
    compare_requested = Signal(object)
    #: The area wants another height: it got something to show, or lost it.
    opened = Signal(bool)
    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("runPanel")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._run: Run | None = None
        self._heard: dict[Phase, str] = {}
        self._has_rs = False
        self._number = 0
        self._opened = False
        self._folded = self._unfolded = False
        self._elapsed = QElapsedTimer()
        self._quiet = QElapsedTimer()
        self._ticker = QTimer(self)
        self._ticker.setInterval(_CLOCK_MS)
        self._ticker.timeout.connect(self._on_tick)
        self._build()
        self.show_idle()

    def _build(self) -> None:
        # From the outside in: Qt styles a part once more whenever it is moved into another.
        stack = self._stack = QStackedWidget(self)
        self.idle = IdlePage(stack)
        self.idle.launch_button.clicked.connect(self.launch_requested)
        self.idle.open_button.clicked.connect(self.open_log_requested)
        self.idle.toggle.clicked.connect(self._on_fold_wanted)
        content = self._content = Surface(parent=stack)
        pages = self._pages = QStackedWidget(content)
        self.strip = PhaseStrip(content)
        self.source = SourceBar(content)
        self.log = RunLogPage(pages)
        self.log.running.cancel_requested.connect(self.cancel_requested)
        self.log.card.fix_requested.connect(self.fix_requested)
        self.log.card.report_requested.connect(self.report_requested)
        self.log.card.copy_requested.connect(self._on_copy_card)
        self.log.checks_requested.connect(self._on_checks_wanted)
        proved = self._proved = QWidget(pages)
        self.checks = ChecksPage(proved)
        self.checks.line_requested.connect(self._on_line_wanted)
        self.checks.copy_requested.connect(self.copy_requested)
        self.checks.report_requested.connect(self.report_requested)
        self.checks.compare_requested.connect(self.compare_requested)
        self.comparison = ComparisonPage(proved)
        self.comparison.setFixedWidth(_COMPARISON_WIDTH)
        proved_row = QHBoxLayout(proved)
        proved_row.setContentsMargins(0, 0, 0, 0)
        proved_row.setSpacing(0)
        proved_row.addWidget(self.checks, 1)
        proved_row.addWidget(Rule(vertical=True, parent=proved))
        proved_row.addWidget(self.comparison)
        pages.addWidget(self.log)
        pages.addWidget(proved)
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for widget in (self.strip, self.source):
            column.addWidget(widget)
        column.addWidget(Rule(parent=content))
        column.addWidget(pages, 1)
        stack.addWidget(self.idle)
        stack.addWidget(content)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._stack)

    def show_idle(self) -> None:
        """No run yet."""
        self._ticker.stop()
        self._run = None
        self._stack.setCurrentWidget(self.idle)
        self._open(False)

    def show_ready(self, can_launch: bool, why_not: str = "") -> None:
        """Whether a launch may be asked for; `why_not` is said where the launch is explained."""
        self.idle.show_ready(can_launch, why_not)

    def fold(self, folded: bool) -> None:
        """Where room is short the idle area is its strip only, until its chevron opens it."""
        if folded != self._folded:
            self._folded, self._unfolded = folded, False
            self._show_fold()

    def _is_strip(self) -> bool:
        return self._folded and not self._unfolded

    def _show_fold(self) -> None:
        self.idle.fold(self._is_strip())
        self.updateGeometry()
        self.height_changed.emit()

    def _on_fold_wanted(self) -> None:
        self._unfolded = self._folded and not self._unfolded
        self._show_fold()

    def show_running(
        self,
        number: int,
        has_rs: bool = False,
        title: str = "",
        totals: Sequence[tuple[str, int | None]] = (),
    ) -> None:
        """A launch begins; `totals`: sizes of the devices in bytes. `has_rs`: the model keeps recurrent state."""
        self._run, self._number, self._has_rs = None, number, has_rs
        self._heard = {}
        self._elapsed.start()
        self._quiet.start()
        self._ticker.start()
        self.log.start()
        self.log.running.start(title or tr("Run {}").format(number), {n: t for n, t in totals if t})
        self._show_top(self.strip)
        self._pages.setCurrentWidget(self.log)
        self._stack.setCurrentWidget(self._content)
        self._show_progress()
        self._open(True)

    def append_lines(self, lines: Sequence[LogLine]) -> None:
        """More of the running launch's log."""
        self._quiet.start()
        self.log.append(lines)

    def show_phase(self, phase: Phase, state: str, at_s: float = 0.0) -> None:
        """A phase began (`running`), is `done` or `failed`."""
        self._heard[phase] = state
        self._show_progress()

    def show_sample(self, sample: MemorySample) -> None:
        """Memory of the devices at one moment."""
        self.log.running.add_sample(sample)
        self._show_figures()

    def show_run(
        self,
        run: Run,
        lines: Sequence[LogLine],
        rows: tuple[ComparisonRow, ...] = (),
        *,
        has_rs: bool = False,
        try_first: str = "",
        compare_with: int | None = None,
    ) -> None:
        """How a launch ended: the checks when it started, else the log at its key line and what happened.

        `rows`: see `run_values.comparison_rows`. `try_first`: title of the first fix. `compare_with`: an earlier run.
        """
        self._ticker.stop()
        self._run, self._number, self._has_rs = run, run.number, has_rs
        started = run.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED) and bool(run.checks)
        self.strip.show_phases(phases_of(run, has_rs))
        self.strip.show_figures(figures_of(run))
        says, can_fix = run.says or run.message, run.outcome is not RunOutcome.VERIFIED
        self.log.card.show_diagnosis(run.diagnosis, says, try_first, can_fix=can_fix, notes=notes_of(run))
        self._show_top(self.strip)
        self._stack.setCurrentWidget(self._content)
        self.checks.show_run(run, compare_with)
        self.comparison.show_rows(rows)
        self._pages.setCurrentWidget(self._proved if started else self.log)
        self._open(True)
        self.log.show_lines(lines, marks_of(run.diagnosis), run.log_path is not None, started)

    def show_log(
        self,
        lines: Sequence[LogLine],
        diagnosis: Diagnosis | None,
        source: str,
        *,
        try_first: str = "",
        can_fix: bool = True,
    ) -> None:
        """Somebody's log; `source` is its file, `can_fix` whether a model is known to try fixes with."""
        self._ticker.stop()
        self._run = None
        self.source.show_source(source)
        self.log.card.show_diagnosis(diagnosis, "", try_first, can_fix)
        self._show_top(self.source)
        self._stack.setCurrentWidget(self._content)
        self._pages.setCurrentWidget(self.log)
        self._open(True)
        self.log.show_lines(lines, marks_of(diagnosis), False, False)

    def jump_to_key_line(self) -> None:
        """Show the line that decided."""
        self._pages.setCurrentWidget(self.log)
        self.log.jump_to_key()

    @property
    def is_open(self) -> bool:
        """Whether there is something to show."""
        return self._opened

    def sizeHint(self) -> QSize:
        if self._opened:
            return QSize(1100, _OPEN_HEIGHT)
        return QSize(1100, Size.STRIP if self._is_strip() else _IDLE_HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(600, 240 if self._opened else Size.STRIP if self._is_strip() else _IDLE_HEIGHT)

    def _open(self, opened: bool) -> None:
        changed = opened != self._opened
        self._opened = opened
        self.updateGeometry()
        if changed:
            self.opened.emit(opened)

    def _show_top(self, bar: QWidget) -> None:
        self.strip.setVisible(bar is self.strip)
        self.source.setVisible(bar is self.source)

    def _on_tick(self) -> None:
        self._show_progress()

    def _show_progress(self) -> None:
        phases = fill_phases(self._heard, self._has_rs)
        self.strip.show_phases(phases)
        now = next((p.phase for p in phases if p.state == "running"), None)
        if now is not None and self._heard:
            quiet_s = self._quiet.elapsed() / 1000 if now in ALLOCATING else 0.0
            pause = tr(", no line for {} s").format(int(quiet_s)) if quiet_s >= PAUSE_S else ""
            self.log.running.show_now(doing(now) + pause)
        self._show_figures()

    def _show_figures(self) -> None:
        seconds = self._elapsed.elapsed() / 1000 if self._elapsed.isValid() else 0.0
        peaks = tuple(self.log.running.trace.peaks().items())
        self.strip.show_figures((Figure(tr("Run {}").format(self._number), clock(seconds)), *peak_figures(peaks, None)))

    def _on_checks_wanted(self) -> None:
        self._pages.setCurrentWidget(self._proved)

    def _on_line_wanted(self, number: int | None) -> None:
        self._pages.setCurrentWidget(self.log)
        self.log.jump_to(number)

    def _on_copy_card(self) -> None:
        QGuiApplication.clipboard().setText(self.log.card.text())
