"""The fix wizard at work: a plan, one worker for its tries, the history that keeps them, the window that shows it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QCloseEvent, QGuiApplication
from PySide6.QtWidgets import QWidget

from kvstudio.advise.not_offered import not_offered
from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import Attempt, NotOffered, Trial
from kvstudio.advise.predict import predict
from kvstudio.case.values import Case
from kvstudio.case.walk import NOT_TRIED, attempt_of
from kvstudio.case.walks import Walks
from kvstudio.errors import KvStudioError
from kvstudio.launch.config import LaunchConfig
from kvstudio.places import history_dir
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.ui import text
from kvstudio.ui.command_words import command_text
from kvstudio.ui.launching import begin_run, has_recurrent, keep_run, keep_within
from kvstudio.ui.panels.run_values import PHASES
from kvstudio.ui.widgets_run.phase_strip import PhaseState
from kvstudio.ui.wizard.beginning import Begun, begin, begin_again
from kvstudio.ui.wizard.dialog import WizardWindow
from kvstudio.ui.wizard.from_plan import wizard_view
from kvstudio.ui.wizard.outcome_page import Ended, outcome_view, shown_checks
from kvstudio.ui.wizard.side_pages import baseline_view, elsewhere, why_not_view
from kvstudio.ui.wizard.values import Action, Page, Progress, WizardView
from kvstudio.verify.options import LaunchOptions
from kvstudio.verify.values import Check, Run, RunOutcome
from kvstudio.work import task
from kvstudio.work.launch_worker import LaunchWorker

_CLOCK_MS = 1000


class FixWizard(WizardWindow):
    """Walks a plan.

    `run_finished` carries a Run, its lines and its predicted Budget; `config_chosen` the settings that work;
    `plan_changed` the plan to go on with later; `report_requested` asks for the report.
    """

    run_finished = Signal(object, object, object)
    config_chosen = Signal(object)
    plan_changed = Signal(object)
    report_requested = Signal()

    def __init__(
        self,
        case: Case,
        parent: QWidget | None = None,
        *,
        plan: Plan | None = None,
        worker: LaunchWorker | None = None,
        folder: Path | None = None,
        options: LaunchOptions | None = None,
    ) -> None:
        super().__init__(parent)
        self._case = case
        self._plan: Plan | None = None
        self._earlier: list[Plan] = []
        self._checks: dict[int, tuple[Check, ...]] = {}
        self._phases: dict[Phase, str] = {}
        self._lines: list[LogLine] = []
        self._says = ""
        self._seconds = 0
        self._number = 0
        self._thinking = False
        self._leaving = False
        self._folder = folder or history_dir()
        self._walks = Walks(self._folder.parent / "walks")
        self._baseline: Begun | None = None
        self._away = case.not_here
        self._reasons: tuple[NotOffered, ...] | None = None
        self._ended: Ended | None = None
        self._options = options or LaunchOptions()
        self._worker = worker or LaunchWorker(self)
        self._worker.phase_reached.connect(self._on_phase)
        self._worker.lines.connect(self._on_lines)
        self._worker.ended.connect(self._on_ended)
        self._clock = QTimer(self)
        self._clock.setInterval(_CLOCK_MS)
        self._clock.timeout.connect(self._on_clock)
        self.action_requested.connect(self._on_action)
        if plan is not None:
            self._on_plan(plan)
        else:
            self._begin(begin, case, self._walks)

    @property
    def plan(self) -> Plan | None:
        """The walk so far."""
        return self._plan

    # the plan

    def _begin(self, fn: Callable[..., Begun], *values: object) -> None:
        self._thinking, self._plan = True, None
        self._draw()
        task.run(fn, *values, done=self._on_begun, failed=self._on_failed, key=f"fix-{id(self)}")

    def _on_begun(self, begun: Begun) -> None:
        self._baseline = begun
        self._on_plan(begun.plan)

    def _think(self, fn: Callable[..., Plan], *values: object) -> None:
        """Work out the next step in the pool: it takes some hundred estimates."""
        self._thinking = True
        self._draw()
        task.run(fn, *values, done=self._on_step, failed=self._on_failed, key=f"fix-{id(self)}")

    def _on_plan(self, plan: Plan) -> None:
        self._thinking, self._reasons = False, None
        self._plan = plan
        self.plan_changed.emit(plan)
        self._draw()

    def _on_step(self, plan: Plan) -> None:
        """A plan after a run or a wish, kept before it is shown."""
        task.run(self._walks.keep, plan, failed=self._on_not_kept, key=f"walk-{id(self)}")
        self._on_plan(plan)

    def _on_not_kept(self, error: KvStudioError) -> None:
        self._says = f"{error.message} {error.hint}".strip()
        self._draw()

    def _on_failed(self, error: KvStudioError) -> None:
        self._thinking, self._ended = False, None
        self._says = f"{error.message} {error.hint}".strip()
        self._draw()

    def _draw(self) -> None:
        plan = self._plan
        if self._ended is not None:
            self.show_view(outcome_view(self._ended, None if self._thinking else plan))
            return
        if plan is None or self._thinking:
            self.show_view(_waiting(plan, self._says))
            return
        if self._baseline is not None:
            begun = self._baseline
            self.show_view(baseline_view(plan, begun.resumed, begun.log, begun.away, begun.foreign))
            return
        if self._reasons is not None:
            self.show_view(why_not_view(plan, self._reasons))
            return
        last = next((a.run_number for a in reversed(plan.attempts) if a.worked), None)
        view = wizard_view(
            plan,
            can_go_back=bool(self._earlier),
            progress=self._progress() if self._worker.running else None,
            checks=self._checks.get(last, ()) if last is not None else (),
        )
        if self._away:
            view = elsewhere(view, self._away)
        self.show_view(replace(view, page=replace(view.page, notice=self._says)) if self._says else view)

    # what is pressed

    def _on_action(self, action: Action) -> None:
        acts = {
            Action.TRY: self._try,
            Action.PREDICT: self._predict,
            Action.CANCEL: self._worker.cancel,
            Action.SKIP: self._skip,
            Action.BACK: self._back,
            Action.NEXT: self._go_on,
            Action.KEEP: self._go_on,
            Action.UNDO: self._undo,
            Action.AGAIN: lambda: self._begin(begin_again, self._case),
            Action.WHY_NOT: self._why_not,
            Action.STOP: self._stop,
            Action.COPY: self._copy,
            Action.USE: self._use,
            Action.REPORT: self.report_requested.emit,
            Action.CLOSE: self.close,
        }
        acts[action]()

    def _skip(self) -> None:
        if self._plan is not None and not self._thinking:
            self._earlier.append(self._plan)
            self._says = ""
            self._think(Plan.skip, self._plan)

    def _stop(self) -> None:
        if self._plan is not None and not self._thinking:
            self._earlier.append(self._plan)
            self._ended = None
            self._think(Plan.stop, self._plan)

    def _predict(self) -> None:
        if self._plan is not None and not self._thinking:
            self._earlier.append(self._plan)
            self._think(predict, self._plan)

    def _go_on(self) -> None:
        self._baseline = self._ended = None
        self._draw()

    def _undo(self) -> None:
        if self._plan is not None and not self._thinking:
            self._earlier.append(self._plan)
            self._ended = None
            self._think(Plan.undo, self._plan)

    def _why_not(self) -> None:
        if self._plan is not None and not self._thinking:
            task.run(not_offered, self._plan, done=self._on_reasons, failed=self._on_failed, key=f"why-{id(self)}")

    def _on_reasons(self, reasons: tuple[NotOffered, ...]) -> None:
        self._reasons = reasons
        self._draw()

    def _back(self) -> None:
        if self._reasons is not None:
            self._reasons = None
            self._draw()
        elif self._earlier and not self._thinking:
            self._says = ""
            self._on_plan(self._earlier.pop())

    def _copy(self) -> None:
        config = self._result()
        if config is not None:
            QGuiApplication.clipboard().setText(command_text(config))

    def _use(self) -> None:
        config = self._result()
        if config is not None:
            self.config_chosen.emit(config)
            self.close()

    def _result(self) -> LaunchConfig | None:
        return self._plan.verdict.config if self._plan is not None and self._plan.verdict is not None else None

    # a try

    def _try(self) -> None:
        trial = self._plan.pending if self._plan is not None else None
        if trial is None or self._worker.running or self._thinking:
            return
        self._says = ""
        self._thinking = True

        def on_begun(begun: tuple[int, Path]) -> None:
            self._go(trial, begun[0], str(begun[1]))

        def on_failed(error: KvStudioError) -> None:
            # Not being able to keep a run is no reason not to make it.
            self._says = f"{error.message} {error.hint}".strip()
            self._go(trial, len(self._case.runs) + len(self._checks) + 1, None)

        task.run(begin_run, self._folder, trial.config, done=on_begun, failed=on_failed, key=f"try-{id(self)}")

    def _go(self, trial: Trial, number: int, log_dir: str | None) -> None:
        self._thinking = False
        if self._leaving:
            return
        self._number, self._seconds = number, 0
        self._phases = {}
        self._lines.clear()
        options = replace(self._options, number=number, log_dir=log_dir)
        other = self._plan.world.other_binary(trial.config) if self._plan is not None else None
        self._worker.start(trial.config, other or self._case.binary, options, trial.predicted, self._case.machine)
        self._clock.start()
        self._draw()

    def _progress(self) -> Progress:
        shown = [p for p in PHASES if p is not Phase.RS or has_recurrent(self._case)]
        states = tuple(PhaseState(p, self._phases.get(p, "todo")) for p in shown)
        return Progress(states, f"{self._seconds // 60}:{self._seconds % 60:02d}", self._says)

    def _on_lines(self, lines: tuple[LogLine, ...]) -> None:
        keep_within(self._lines, lines)

    def _on_phase(self, phase: Phase, state: str, at_s: float) -> None:
        self._phases[phase] = state
        self._seconds = max(self._seconds, int(at_s))
        self._draw()

    def _on_clock(self) -> None:
        self._seconds += 1
        self._draw()

    def _on_ended(self, run: Run) -> None:
        self._clock.stop()
        plan = self._plan
        trial = plan.pending if plan is not None else None
        predicted = trial.predicted if trial is not None else None
        name = self._case.model.name if self._case.model is not None else ""
        task.run(keep_run, self._folder, self._number, run, name, predicted, key=f"keep-{self._number}")
        self.run_finished.emit(run, tuple(self._lines), predicted)
        self._says = run.says or run.message
        if plan is not None and trial is not None and _counts(trial, run):
            self._checks[run.number] = shown_checks(run)
            attempt = attempt_of(trial, run)
            self._earlier.append(plan)
            self._ended, self._says = Ended(plan, attempt, run), ""
            self._learn(Plan.ran, plan, attempt)
        elif plan is not None and trial is not None and run.outcome is RunOutcome.CANCELLED:
            self._learn(Plan.broke_off, plan, attempt_of(trial, run))
        elif not self._leaving:
            self._draw()
        if self._leaving:
            self.close()

    def _learn(self, fn: Callable[[Plan, Attempt], Plan], plan: Plan, attempt: Attempt) -> None:
        """The plan after a launch; with the window on its way out it is only kept."""
        if self._leaving:
            task.run(_keep, self._walks, fn, plan, attempt, key=f"walk-{id(self)}")
        else:
            self._think(fn, plan, attempt)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._worker.running:
            # The try ends first; its run is kept like any other.
            self._leaving = True
            self._worker.cancel()
            self.hide()
            event.ignore()
            return
        self._leaving = True
        task.forget(f"fix-{id(self)}")
        task.forget(f"try-{id(self)}")
        task.forget(f"why-{id(self)}")
        super().closeEvent(event)


def _counts(trial: Trial, run: Run) -> bool:
    """Whether a run is an answer; another build that cannot even start is one."""
    return run.outcome not in NOT_TRIED or (run.outcome is RunOutcome.COULD_NOT_START and trial.variable == "binary")


def _keep(walks: Walks, fn: Callable[[Plan, Attempt], Plan], plan: Plan, attempt: Attempt) -> None:
    walks.keep(fn(plan, attempt))


def _waiting(plan: Plan | None, says: str) -> WizardView:
    """The window while the next step is worked out, or when it could not be."""
    page = Page(
        section=text.tr("Fix"),
        title=text.tr("The next change could not be worked out") if says else text.tr("Working out the next change…"),
        notice=says,
    )
    if plan is None:
        return WizardView(text.tr("Fix: make this launch work"), "", (), (), page, (Action.CLOSE,), None)
    view = wizard_view(plan)
    return replace(
        view, page=page, entries=view.entries[: len(plan.attempts) + 1], actions=(Action.CLOSE,), primary=None
    )
