"""A launch in its own thread: batches, one end, cancel, and a window that closes while it runs."""

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from kvstudio.errors import LaunchError
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.verify.options import LaunchOptions
from kvstudio.verify.values import MemorySample, Run, RunOutcome
from kvstudio.work.launch_worker import LaunchWorker, _broken_run

CONFIG = LaunchConfig(model_path="m.gguf", n_ctx=4096)


def finished(outcome: RunOutcome = RunOutcome.VERIFIED) -> Run:
    return replace(_broken_run(CONFIG, None, 7, 0.0, ""), outcome=outcome)


class Recorder:
    """Everything the worker says, in order, with the thread it was said on."""

    def __init__(self, worker: LaunchWorker) -> None:
        self.said: list[tuple[str, Any]] = []
        self.threads: set[int] = set()
        worker.lines.connect(lambda lines: self._note("lines", lines))
        worker.phase_reached.connect(lambda phase, state, at: self._note("phase", (phase, state, at)))
        worker.sampled.connect(lambda sample: self._note("sample", sample))
        worker.ended.connect(lambda run: self._note("ended", run))

    def _note(self, kind: str, value: Any) -> None:
        self.said.append((kind, value))
        self.threads.add(threading.get_ident())

    def of(self, kind: str) -> list[Any]:
        return [value for k, value in self.said if k == kind]


@pytest.fixture
def workers(qtbot: QtBot) -> Iterator[list[LaunchWorker]]:
    made: list[LaunchWorker] = []
    yield made
    for worker in made:
        worker.cancel()
        qtbot.waitUntil(lambda worker=worker: not worker.running, timeout=5000)
        worker.deleteLater()


def test_lines_come_in_batches_on_the_gui_thread_and_the_end_comes_last_and_once(
    qtbot: QtBot, workers: list[LaunchWorker]
) -> None:
    def launch(config: LaunchConfig, binary: None, **call: Any) -> Run:
        for i in range(1, 1001):
            call["on_lines"]((LogLine(i, f"line {i}", f"line {i}"),))
        call["on_phase"](Phase.WEIGHTS, "running", 0.5)
        call["on_sample"](MemorySample(0.5, (("CUDA0", 2**33),)))
        return finished()

    worker = LaunchWorker(launch=launch)
    workers.append(worker)
    heard = Recorder(worker)
    with qtbot.waitSignal(worker.ended, timeout=5000):
        assert worker.start(CONFIG, None)

    numbers = [line.number for batch in heard.of("lines") for line in batch]
    assert numbers == list(range(1, 1001))
    assert len(heard.of("lines")) < 50
    assert heard.of("phase") == [(Phase.WEIGHTS, "running", 0.5)]
    assert heard.of("sample")[0].used_bytes == (("CUDA0", 8589934592),)
    assert heard.said[-1][0] == "ended" and len(heard.of("ended")) == 1
    assert heard.threads == {threading.get_ident()}
    assert not worker.running


def test_lines_arrive_while_it_runs_and_cancel_ends_it(qtbot: QtBot, workers: list[LaunchWorker]) -> None:
    def launch(config: LaunchConfig, binary: None, **call: Any) -> Run:
        call["on_lines"]((LogLine(1, "begun", "begun"),))
        assert call["cancel"].wait(10)
        return finished(RunOutcome.CANCELLED)

    worker = LaunchWorker(launch=launch)
    workers.append(worker)
    heard = Recorder(worker)
    with qtbot.waitSignal(worker.lines, timeout=5000):
        worker.start(CONFIG, None)
    assert worker.running and not worker.start(CONFIG, None)

    with qtbot.waitSignal(worker.ended, timeout=5000):
        worker.cancel()
        worker.cancel()

    assert heard.of("ended")[0].outcome is RunOutcome.CANCELLED
    worker.cancel()
    assert len(heard.of("ended")) == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            LaunchError("llama-server is not there", "Choose another one."),
            "llama-server is not there; Choose another one.",
        ),
        (RuntimeError("broken"), "Something unexpected happened: RuntimeError: broken"),
    ],
)
def test_an_error_is_an_end_too(qtbot: QtBot, workers: list[LaunchWorker], error: Exception, says: str) -> None:
    def launch(config: LaunchConfig, binary: None, **call: Any) -> Run:
        raise error

    worker = LaunchWorker(launch=launch)
    workers.append(worker)
    heard = Recorder(worker)
    with qtbot.waitSignal(worker.ended, timeout=5000):
        worker.start(CONFIG, None, LaunchOptions(number=3))

    run = heard.of("ended")[0]
    assert run.outcome is RunOutcome.COULD_NOT_START
    assert run.message.startswith(says) and run.number == 3 and run.config == CONFIG


def test_it_can_be_started_again_after_its_end(qtbot: QtBot, workers: list[LaunchWorker]) -> None:
    worker = LaunchWorker(launch=lambda *_, **__: finished())
    workers.append(worker)
    heard = Recorder(worker)
    for _ in range(3):
        with qtbot.waitSignal(worker.ended, timeout=5000):
            assert worker.start(CONFIG, None)

    assert len(heard.of("ended")) == 3


def test_a_flood_never_holds_the_gui_thread(qtbot: QtBot, workers: list[LaunchWorker]) -> None:
    def launch(config: LaunchConfig, binary: None, **call: Any) -> Run:
        for start in range(0, 200_000, 1000):
            call["on_lines"](tuple(LogLine(i, "x" * 80, "x") for i in range(start, start + 1000)))
        return finished()

    worker = LaunchWorker(launch=launch)
    workers.append(worker)
    counted = [0]
    worker.lines.connect(lambda lines: counted.__setitem__(0, counted[0] + len(lines)))
    with qtbot.waitSignal(worker.ended, timeout=20000):
        worker.start(CONFIG, None)

    assert counted[0] == 200_000


def test_many_signals_leave_the_reference_count_of_true_alone(qtbot: QtBot, workers: list[LaunchWorker]) -> None:
    def launch(config: LaunchConfig, binary: None, **call: Any) -> Run:
        for i in range(50):
            call["on_phase"](Phase.KV, "running", float(i))
            time.sleep(0.001)
        return finished()

    worker = LaunchWorker(launch=launch)
    workers.append(worker)
    before = sys.getrefcount(True)
    with qtbot.waitSignal(worker.ended, timeout=5000):
        worker.start(CONFIG, None)

    assert abs(sys.getrefcount(True) - before) < 40


@pytest.mark.rig
@pytest.mark.timeout(300)
def test_a_real_server_is_launched_heard_and_ended(qtbot: QtBot, workers: list[LaunchWorker]) -> None:
    from kvstudio.launch.binary import inspect
    from kvstudio.ui import sample

    if not sample.is_available():
        pytest.skip("the extra `rig` is not installed")
    files = sample.prepare()
    config = LaunchConfig(model_path=files.model_path, n_ctx=2048, n_parallel=1, env=(("GGML_VK_VISIBLE_DEVICES", ""),))
    worker = LaunchWorker()
    workers.append(worker)
    heard = Recorder(worker)
    with qtbot.waitSignal(worker.ended, timeout=240_000):
        worker.start(config, inspect(files.server_path), LaunchOptions(n_predict=4, repeat=1, concurrent=0))
    run = heard.of("ended")[0]
    assert run.outcome is RunOutcome.VERIFIED, run.says
    assert sum(len(batch) for batch in heard.of("lines")) > 50
    assert [p for p, state, _ in heard.of("phase") if state == "running"][-1] is Phase.REPEAT
