"""A test launch in its own thread; what it says arrives on the GUI thread in batches, then exactly one end."""

import threading
import time
import traceback
from collections.abc import Callable

from PySide6.QtCore import QObject, QThread, QTimer, Signal, Slot

from kvstudio.budget.values import Budget
from kvstudio.devices.values import Machine
from kvstudio.errors import KvStudioError
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.verify.options import LaunchOptions
from kvstudio.verify.values import MemorySample, Run, RunOutcome

BATCH_MS = 50
#: Lines handed to the window at once; a flood is handed over in slices so that no single slot takes long.
MAX_BATCH = 20_000

Launch = Callable[..., Run]


def _test_launch(*values: object, **call: object) -> Run:
    """The real thing, imported when it is first wanted: HTTP and processes are nothing the first window needs."""
    from kvstudio.verify import launch

    return launch.test_launch(*values, **call)  # type: ignore[arg-type]


class _Outbox:
    """What the launch said since the last look; filled by the launch's thread, emptied by the GUI's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[LogLine] = []
        self._phases: list[tuple[Phase, str, float]] = []
        self._samples: list[MemorySample] = []

    def put_lines(self, lines: tuple[LogLine, ...]) -> None:
        with self._lock:
            self._lines.extend(lines)

    def put_phase(self, phase: Phase, state: str, at_s: float) -> None:
        with self._lock:
            self._phases.append((phase, state, at_s))

    def put_sample(self, sample: MemorySample) -> None:
        with self._lock:
            self._samples.append(sample)

    def take(
        self, most: int | None
    ) -> tuple[tuple[LogLine, ...], tuple[tuple[Phase, str, float], ...], tuple[MemorySample, ...]]:
        with self._lock:
            lines = tuple(self._lines if most is None else self._lines[:most])
            self._lines = [] if most is None else self._lines[most:]
            phases, samples = tuple(self._phases), tuple(self._samples)
            self._phases, self._samples = [], []
        return lines, phases, samples


class _LaunchThread(QThread):
    """Blocks in the launch; `result` is there once it has finished, whatever happened."""

    def __init__(self, launch: Callable[[], Run], when_broken: Callable[[str], Run], parent: QObject) -> None:
        super().__init__(parent)
        self.setObjectName("kvstudio-launch")
        self._launch, self._when_broken = launch, when_broken
        self.result: Run | None = None

    def run(self) -> None:
        try:
            self.result = self._launch()
        except KvStudioError as error:
            self.result = self._when_broken("; ".join(part for part in (error.message, error.hint) if part))
        except Exception as error:
            # An end must be told even for a defect of ours, or the window would wait for it for ever.
            frames = traceback.extract_tb(error.__traceback__)
            where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
            self.result = self._when_broken(f"Something unexpected happened: {type(error).__name__}: {error}{where}")


class LaunchWorker(QObject):
    """Runs one launch at a time; lives in the GUI thread.

    `lines`: a tuple of LogLine, at most every 50 ms. `phase_reached`: Phase, state, seconds since the start.
    `sampled`: a MemorySample. `ended`: the Run, exactly once per launch, after every line, phase and sample of it.
    """

    lines = Signal(object)
    phase_reached = Signal(object, str, float)
    sampled = Signal(object)
    ended = Signal(object)

    def __init__(self, parent: QObject | None = None, launch: Launch = _test_launch) -> None:
        super().__init__(parent)
        self._launch = launch
        self._thread: _LaunchThread | None = None
        self._outbox = _Outbox()
        self._cancel = threading.Event()
        self._timer = QTimer(self)
        self._timer.setInterval(BATCH_MS)
        self._timer.timeout.connect(self._on_tick)

    @property
    def running(self) -> bool:
        """From `start` until `ended`."""
        return self._thread is not None

    def start(
        self,
        config: LaunchConfig,
        binary: Binary | None,
        options: LaunchOptions | None = None,
        budget: Budget | None = None,
        machine: Machine | None = None,
    ) -> bool:
        """Begin; False when one is running already."""
        if self._thread is not None:
            return False
        options = options or LaunchOptions()
        self._outbox, self._cancel = _Outbox(), threading.Event()
        outbox, cancel, launch = self._outbox, self._cancel, self._launch
        started_at = time.time()

        def go() -> Run:
            return launch(
                config,
                binary,
                options=options,
                on_lines=outbox.put_lines,
                on_phase=outbox.put_phase,
                on_sample=outbox.put_sample,
                cancel=cancel,
                budget=budget,
                machine=machine,
            )

        def broken(message: str) -> Run:
            return _broken_run(config, binary, options.number, started_at, message)

        self._thread = _LaunchThread(go, broken, self)
        self._thread.finished.connect(self._on_finished)
        self._timer.start()
        self._thread.start()
        return True

    def cancel(self) -> None:
        """Ask the launch to end; `ended` follows. May be called at any time, any number of times."""
        self._cancel.set()

    @Slot()
    def _on_tick(self) -> None:
        self._hand_over(MAX_BATCH)

    @Slot()
    def _on_finished(self) -> None:
        thread = self._thread
        if thread is None:
            return
        self._timer.stop()
        self._hand_over(None)
        thread.wait()  # its run() has returned; this only joins what is left of it
        result = thread.result
        self._thread = None
        thread.deleteLater()
        self.ended.emit(result)

    def _hand_over(self, most: int | None) -> None:
        lines, phases, samples = self._outbox.take(most)
        if lines:
            self.lines.emit(lines)
        for phase, state, at_s in phases:
            self.phase_reached.emit(phase, state, at_s)
        for sample in samples:
            self.sampled.emit(sample)


def _broken_run(config: LaunchConfig, binary: Binary | None, number: int, started_at: float, message: str) -> Run:
    """A launch that never became one."""
    return Run(
        number=number,
        config=config,
        argv=(),
        env=config.env,
        binary=binary,
        outcome=RunOutcome.COULD_NOT_START,
        reached=None,
        phases=(),
        seconds=0.0,
        started_at=started_at,
        exit_code=None,
        signal=None,
        buffers=(),
        peak=(),
        free_before=(),
        samples=(),
        checks=(),
        diagnosis=None,
        log_path=None,
        message=message,
        says=message,
    )
