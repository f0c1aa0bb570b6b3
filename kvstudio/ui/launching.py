"""Test launches of the window: one worker, its panel, the kept history and the store, tied together."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from kvstudio.budget.values import Budget
from kvstudio.case import evolve as evolving
from kvstudio.case import overhead
from kvstudio.case.overhead import Overheads
from kvstudio.case.values import Case
from kvstudio.devices.values import Device
from kvstudio.errors import KvStudioError
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import LogLine
from kvstudio.ui.panels.run_panel import RunPanel
from kvstudio.ui.panels.run_values import comparison_rows
from kvstudio.ui.store import Store
from kvstudio.ui.text import tr
from kvstudio.verify.options import LaunchOptions
from kvstudio.verify.values import Run
from kvstudio.work import task
from kvstudio.work.launch_worker import LaunchWorker

if TYPE_CHECKING:
    from kvstudio.case.history import Entry

#: Lines of a launch kept in memory: the first, where buffers are printed, and the newest; the file has them all.
_HEAD_LINES, _KEPT_LINES, _DROP_STEP = 20_000, 200_000, 20_000


def keep_within(kept: list[LogLine], lines: tuple[LogLine, ...]) -> None:
    """Add lines of a launch to those in memory, and drop from the middle what is too many."""
    kept.extend(lines)
    if len(kept) > _KEPT_LINES:
        del kept[_HEAD_LINES : _HEAD_LINES + _DROP_STEP]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a launch needs: its number, where its log goes (None and the `problem` where it cannot be kept), and what
    is expected of it.
    """

    number: int
    folder: str | None
    budget: Budget | None
    problem: KvStudioError | None = None


def prepare(folder: Path, case: Case) -> Prepared:
    """Make room for a run in the history, and work out what it is compared with; takes an estimate."""
    # Where an earlier run has put printed sizes in the budget, they are not what is compared with this run's.
    budget = evolving.budget_of(case.replace(runs=(), checked=None))
    try:
        number, place = begin_run(folder, case.config)
    except KvStudioError as problem:
        # Not being able to keep a run is no reason not to make it.
        return Prepared(len(case.runs) + 1, None, budget, problem)
    return Prepared(number, str(place), budget)


class Launching(QObject):
    """`running_changed` when a launch begins or is over; for the banner `failed` (KvStudioError), `noted` (str)."""

    running_changed = Signal(bool)
    failed = Signal(object)
    noted = Signal(str)

    def __init__(
        self,
        store: Store,
        panel: RunPanel,
        folder: Path,
        parent: Any = None,
    ) -> None:
        super().__init__(parent)
        self._store, self._panel, self._folder = store, panel, folder
        self.options = LaunchOptions()
        self._number = 0
        self._lines: list[LogLine] = []
        self._budget: Budget | None = None
        self.use_worker(LaunchWorker(self))

    def use_worker(self, worker: LaunchWorker) -> None:
        """Make launches with this worker from now on."""
        self.worker = worker
        worker.lines.connect(self._on_lines)
        worker.phase_reached.connect(self._panel.show_phase)
        worker.sampled.connect(self._panel.show_sample)
        worker.ended.connect(self._on_ended)

    @property
    def folder(self) -> Path:
        """Where runs are kept."""
        return self._folder

    @property
    def running(self) -> bool:
        return self.worker.running

    def start(self) -> None:
        """Launch the settings on screen; the history gives the run its number and a place for its log."""
        case = self._store.case
        if self.running or case.model is None or case.binary is None:
            return

        task.run(
            prepare, self._folder, case,
            done=lambda ready: self._go(case, ready), failed=self.failed.emit, key="begin-run",
        )  # fmt: skip

    def stop(self) -> None:
        """Ask the launch to end; its outcome follows."""
        self.worker.cancel()

    def _go(self, case: Case, ready: Prepared) -> None:
        assert case.model is not None
        if ready.problem is not None:
            self.failed.emit(ready.problem)
        number = ready.number
        self._number, self._lines, self._budget = number, [], ready.budget
        options = replace(self.options, number=number, log_dir=ready.folder)
        self._say_spellings(case)
        totals = tuple((d.name, d.total_bytes) for d in case.chosen_devices)
        self._panel.show_running(number, has_recurrent(case), case.model.name, totals)
        if self.worker.start(case.config, case.binary, options, self._budget, case.machine):
            self.running_changed.emit(True)

    def _say_spellings(self, case: Case) -> None:
        """Settings that this program knows by other names, or not at all."""
        from kvstudio.launch.process_command import spelled

        changed, lost = spelled(case.config, case.binary)
        if lost:
            hint = tr("It is passed as typed, so the program itself will refuse it.")
            self.failed.emit(KvStudioError("; ".join(lost), hint))
        elif changed:
            self.noted.emit("; ".join(changed))

    def _on_lines(self, lines: tuple[LogLine, ...]) -> None:
        keep_within(self._lines, lines)
        self._panel.append_lines(lines)

    def _on_ended(self, run: Run) -> None:
        lines = tuple(self._lines)
        case = self._store.case
        self._store.replace(runs=(*case.runs, run), diagnosis=run.diagnosis, log=lines, log_source=run.log_path or "")
        self.show_run(run, lines)
        self.running_changed.emit(False)
        name = case.model.name if case.model else ""
        task.run(keep_run, self._folder, self._number, run, name, self._budget, failed=self.failed.emit, key="keep-run")
        self._learn(run, case)

    def _learn(self, run: Run, case: Case) -> None:
        """Memory that no buffer explains counts in later budgets, of this start and of later ones."""
        if any(size is not None for _, size in run.overhead):
            task.run(learn, self._folder.parent, run, case.devices, done=self._on_learned, failed=self.failed.emit)

    def _on_learned(self, seen: Overheads) -> None:
        if seen != self._store.case.remembered:
            self._store.replace(remembered=seen)

    def recall(self) -> None:
        """What earlier starts have learned; asked for once."""
        task.run(recall, self._folder.parent, done=self._on_learned)

    def take_over(self, run: Run, lines: tuple[LogLine, ...], budget: Budget | None) -> None:
        """A run that was made elsewhere in the window: into the case, and on screen."""
        self._budget = budget
        case = self._store.case
        self._store.replace(runs=(*case.runs, run), diagnosis=run.diagnosis, log=lines, log_source=run.log_path or "")
        self.show_run(run, lines)
        self._learn(run, case)

    def reopen(self, entry: "Entry", lines: tuple[LogLine, ...]) -> None:
        """A kept run: its settings into the case, its log, checks and sizes on screen."""
        if self.running:
            return
        run = entry.run
        self._store.set_config(run.config)
        others = tuple(r for r in self._store.case.runs if r.number != run.number)
        self._budget = entry.budget
        self._store.replace(runs=(*others, run), diagnosis=run.diagnosis, log=lines, log_source=run.log_path or "")
        self.show_run(run, lines)

    def show_run(self, run: Run, lines: tuple[LogLine, ...]) -> None:
        """Show how a run ended, its printed sizes beside what was estimated before it."""
        case = self._store.case
        earlier = [r.number for r in case.runs if r.number != run.number]
        self._panel.show_run(
            run,
            lines,
            comparison_rows(self._budget, run),
            has_rs=has_recurrent(case),
            try_first=case.fixes[0].title if case.fixes else "",
            compare_with=earlier[-1] if earlier else None,
        )


def begin_run(folder: Path, config: LaunchConfig) -> tuple[int, Path]:
    """Number and folder of a new run."""
    # The history asks psutil about processes, which nothing before the first launch needs.
    from kvstudio.case.history import History

    return History(folder).begin(config)


def keep_run(folder: Path, number: int, run: Run, name: str, budget: Budget | None) -> None:
    """Write a finished run into the history."""
    from kvstudio.case.history import History

    History(folder).finish(number, run, model_name=name, budget=budget)


def learn(folder: Path, run: Run, devices: tuple[Device, ...]) -> Overheads:
    """Add to what launches have shown of these devices."""
    return overhead.learn(folder, run, devices)


def recall(folder: Path) -> Overheads:
    """What launches have shown of devices."""
    return overhead.load(folder)


def has_recurrent(case: Case) -> bool:
    """Whether the model keeps recurrent state."""
    return case.model is not None and any(layer.is_recurrent for layer in case.model.layers)
