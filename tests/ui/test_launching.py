"""A test launch in the window: panel, history, case and polling follow it from start to end."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings

from kvstudio.budget.values import Provenance
from kvstudio.case.history import History
from kvstudio.devices.values import Device, Machine
from kvstudio.devices.what_if import parse
from kvstudio.launch.binary import Binary
from kvstudio.places import history_dir
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.ui import background, launching
from kvstudio.ui.main_window import MainWindow
from kvstudio.ui.preferences import Preferences
from kvstudio.units import GIB
from kvstudio.verify.values import PrintedBuffer, Run, RunOutcome
from kvstudio.work.launch_worker import LaunchWorker

TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
MACHINE = Machine((Device("CUDA0", "CUDA", "", 24 * GIB, 23 * GIB),), Device("Host", "CPU", "", 64 * GIB, 50 * GIB))
BINARY = Binary("/opt/llama-server", "llama-server", "b11434", 11434, "abc", None, ("CUDA",), frozenset())


def run_of(config, options, outcome):
    return Run(
        options.number, config, ("llama-server",), (), BINARY, outcome, Phase.KV, (), 0.1, 0.0, 1, None, (), (), (), (),
        (), None, None,
    )  # fmt: skip


@pytest.fixture
def window(qtbot, tmp_path, monkeypatch):
    monkeypatch.setenv("KVSTUDIO_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(background, "probe", lambda listed: MACHINE)
    settings = QSettings(str(tmp_path / "s.ini"), QSettings.Format.IniFormat)
    made = MainWindow(Preferences(settings))
    qtbot.addWidget(made)
    made.show()
    made.store.set_machine(MACHINE)
    made.store.set_binary(BINARY)
    made.open_paths((TINY,))
    qtbot.waitUntil(lambda: made.store.case.model is not None)
    yield made
    qtbot.waitUntil(lambda: not made.is_running)
    made.shut_down()


def use(window, launch):
    window.work.launching.use_worker(LaunchWorker(window, launch=launch))


def test_a_failed_launch_is_kept_and_shown(window, qtbot):
    def launch(config, binary, *, options, on_lines, on_phase, **_):
        on_lines((LogLine(1, "E out of memory", "out of memory", "E"),))
        on_phase(Phase.WEIGHTS, "done", 0.0)
        return run_of(config, options, RunOutcome.FAILED)

    use(window, launch)
    window.launch()
    qtbot.waitUntil(lambda: bool(window.store.case.runs))
    assert window.store.case.runs[0].outcome == RunOutcome.FAILED
    assert [line.text for line in window.store.case.log] == ["E out of memory"]
    assert window.work.run_panel.is_open
    assert window.toolbar.report_button.isEnabled()
    qtbot.waitUntil(lambda: len(History(history_dir()).list().entries) == 1)
    assert History(history_dir()).list().entries[0].title == "Tiny llama"


def test_of_a_flood_the_first_and_the_newest_lines_stay_and_the_end_lays_no_log_anew(window, qtbot, monkeypatch):
    monkeypatch.setattr(launching, "_KEPT_LINES", 300)
    monkeypatch.setattr(launching, "_HEAD_LINES", 100)
    monkeypatch.setattr(launching, "_DROP_STEP", 100)
    printed = tuple(LogLine(n, f"I slot n = {n}", f"slot n = {n}", "I") for n in range(1, 1001))

    def launch(config, binary, *, options, on_lines, **_):
        for first in range(0, len(printed), 100):
            on_lines(printed[first : first + 100])
            time.sleep(0.06)
        return run_of(config, options, RunOutcome.CANCELLED)

    use(window, launch)
    model = window.work.run_panel.log.model
    window.launch()
    qtbot.waitUntil(lambda: window.is_running)
    resets = []
    model.modelReset.connect(lambda: resets.append(1))
    qtbot.waitUntil(lambda: bool(window.store.case.runs))
    kept = [line.number for line in window.store.case.log]
    assert kept[:100] == list(range(1, 101))
    assert kept[-100:] == list(range(901, 1001))
    assert len(kept) < 600
    assert model.n_lines == 1000
    assert resets == []


def test_nothing_is_launched_on_a_device_that_is_not_here(window, qtbot):
    launched = []
    use(window, lambda *a, **_: launched.append(a))
    window.store.add_what_if(parse("16 GiB"))
    name = window.store.case.not_here[0]
    assert not window.toolbar.launch_button.isEnabled()
    assert not window.toolbar.check_button.isEnabled()
    assert name in window.toolbar.launch_button.toolTip()
    window.launch()
    assert f"{name} is not in this machine" in window.banner.texts()[0]
    assert not window.is_running
    window.store.tick(name, False)
    assert window.toolbar.launch_button.isEnabled()
    assert launched == []


def test_a_running_launch_can_be_stopped(window, qtbot):
    def launch(config, binary, *, options, cancel, **_):
        cancel.wait(20)
        return run_of(config, options, RunOutcome.CANCELLED)

    use(window, launch)
    window.launch()
    qtbot.waitUntil(lambda: window.is_running)
    assert not window.poll.is_active()
    assert window.toolbar.launch_button.text() == "Stop"
    window.toolbar.launch_button.click()
    qtbot.waitUntil(lambda: not window.is_running)
    assert window.store.case.runs[-1].outcome == RunOutcome.CANCELLED
    assert window.toolbar.launch_button.text() == "Test launch"


def test_closing_ends_the_launch_first(window, qtbot):
    ended = []

    def launch(config, binary, *, options, cancel, **_):
        cancel.wait(20)
        ended.append(True)
        return run_of(config, options, RunOutcome.CANCELLED)

    use(window, launch)
    window.launch()
    qtbot.waitUntil(lambda: window.is_running)
    window.close()
    qtbot.waitUntil(lambda: not window.is_running)
    assert ended == [True]
    assert not window.isVisible()


def test_a_read_only_history_does_not_stop_a_launch(window, qtbot, monkeypatch):
    from kvstudio.errors import StoreError
    from kvstudio.ui import launching

    def refuse(folder, config):
        raise StoreError("history could not be written: Read-only file system", "The run is made all the same.")

    monkeypatch.setattr(launching, "begin_run", refuse)
    use(window, lambda config, binary, *, options, **_: run_of(config, options, RunOutcome.STARTED))
    window.launch()
    qtbot.waitUntil(lambda: bool(window.store.case.runs))
    assert "Read-only" in window.banner.texts()[0]


def test_a_kept_run_is_opened_again_with_its_log_checks_and_settings(window, qtbot):
    def launch(config, binary, *, options, on_lines, **_):
        on_lines((LogLine(1, "I fine", "fine", "I"),))
        return run_of(config, options, RunOutcome.VERIFIED)

    use(window, launch)
    window.launch()
    qtbot.waitUntil(lambda: len(History(history_dir()).list().entries) == 1)
    window.store.edit({"n_ctx": 512})
    window.launch()
    qtbot.waitUntil(lambda: len(window.store.case.runs) == 2 and not window.is_running)
    qtbot.waitUntil(lambda: len(History(history_dir()).list().entries) == 2)
    entry = History(history_dir()).load(1)
    window.work.launching.reopen(entry, (LogLine(1, "I kept", "kept", "I"),))
    assert window.store.case.config.n_ctx is None
    assert [run.number for run in window.store.case.runs] == [2, 1]
    assert [line.text for line in window.store.case.log] == ["I kept"]
    assert window.work.run_panel.log.model.n_lines == 1


def test_an_earlier_run_is_compared_from_the_verified_page(window, qtbot, monkeypatch):
    asked = []
    monkeypatch.setattr(window.windows, "history", lambda chosen=(): asked.append(chosen))
    use(window, lambda config, binary, *, options, **_: run_of(config, options, RunOutcome.VERIFIED))
    window.launch()
    qtbot.waitUntil(lambda: bool(window.store.case.runs))
    window.work.run_panel.compare_requested.emit(7)
    assert asked == [(7, window.store.case.runs[-1].number)]


def test_a_run_is_compared_with_the_estimate_even_after_an_earlier_one_was_measured(window, qtbot):
    given = []

    def launch(config, binary, *, options, budget, **_):
        given.append({b.provenance for b in budget.buffers})
        printed = (PrintedBuffer("CUDA0", "CUDA0", "kv", 1 << 20, 1),)
        return replace(run_of(config, options, RunOutcome.VERIFIED), buffers=printed, binary=binary)

    use(window, launch)
    for n_runs in (1, 2):
        window.launch()
        qtbot.waitUntil(lambda n_runs=n_runs: len(window.store.case.runs) == n_runs and not window.is_running)
    assert any(b.provenance is Provenance.MEASURED for b in window.store.case.budget.buffers)
    assert Provenance.MEASURED not in given[1]
