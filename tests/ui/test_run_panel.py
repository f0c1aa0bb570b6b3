"""The run area in each of its states, and the wishes it sends."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, QObject, QRect
from PySide6.QtGui import QGuiApplication, QPaintEvent
from pytestqt.qtbot import QtBot

from kvstudio.budget.values import BufferKind
from kvstudio.diagnose.values import Cause, Diagnosis, Evidence, KeyLine, Outcome
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.ui.models.log_model import Filter, Mark
from kvstudio.ui.panels.run_panel import RunPanel
from kvstudio.ui.panels.run_values import (
    ComparisonRow,
    clock,
    comparison_rows,
    fill_phases,
    line_range,
    marks_of,
    phases_of,
)
from kvstudio.ui.widgets_run.comparison_table import difference_words
from kvstudio.ui.widgets_run.phase_strip import PhaseState, PhaseStrip
from kvstudio.ui.widgets_run.running_card import MemoryTrace
from kvstudio.units import GIB, MIB
from kvstudio.verify.values import Check, MemorySample, Pause, PrintedBuffer, Run, RunOutcome

LINES = tuple(LogLine(i, f"line {i}", f"line {i}", "I", i / 10) for i in range(1, 201))
DIAGNOSIS = Diagnosis(
    outcome=Outcome.FAILED,
    memory_class="memory",
    stage="kv",
    device="CUDA1",
    backend="CUDA",
    requested_bytes=7936 * MIB,
    free_bytes=None,
    limit_bytes=None,
    cause=Cause.PLACEMENT,
    key_line=KeyLine(168, "line 168"),
    evidence=(
        Evidence(168, "CUDA1 refused it"),
        Evidence(161, "the weights"),
        Evidence(None, "python3", "NVML"),
    ),
    title="The KV cache did not fit on CUDA1",
    summary="It asked for 7.8 GiB.",
    generic_line=200,
)
CHECKS = (
    Check("binary", True, "llama-server b11434", (1,)),
    Check("buffers", True, "KV 16.0 GiB", (167, 171)),
    Check("repeated", None, ""),
)


def run_of(outcome: RunOutcome = RunOutcome.FAILED, **changes: object) -> Run:
    run = Run(
        number=1,
        config=LaunchConfig(),
        argv=(),
        env=(),
        binary=None,
        outcome=outcome,
        reached=Phase.KV,
        phases=((Phase.FIT, "done"), (Phase.WEIGHTS, "done"), (Phase.KV, "failed")),
        seconds=4.2,
        started_at=0.0,
        exit_code=1,
        signal=None,
        buffers=(),
        peak=(("CUDA0", 20 * GIB), ("CUDA1", 17 * GIB), ("Host", GIB)),
        free_before=(),
        samples=(),
        checks=(),
        diagnosis=DIAGNOSIS if outcome is RunOutcome.FAILED else None,
        log_path="/somewhere/run.log",
    )
    return replace(run, **changes)  # type: ignore[arg-type]


@pytest.fixture
def panel(qtbot: QtBot) -> RunPanel:
    made = RunPanel()
    qtbot.addWidget(made)
    made.resize(1280, 372)
    made.show()
    qtbot.waitExposed(made)
    return made


def states(panel: RunPanel) -> dict[Phase, str]:
    return {p.phase: p.state for p in panel.strip.phases}


def figures(panel: RunPanel) -> list[tuple[str, str]]:
    return [(f.words, f.value) for f in panel.strip.figures]


def test_before_any_run_it_asks_for_a_launch_or_a_log(panel: RunPanel, qtbot: QtBot) -> None:
    assert panel.idle.isVisible() and not panel.is_open
    with qtbot.waitSignal(panel.launch_requested):
        panel.idle.launch_button.click()
    with qtbot.waitSignal(panel.open_log_requested):
        panel.idle.open_button.click()
    panel.show_ready(False, "No binary")
    assert not panel.idle.launch_button.isEnabled()
    tall = panel.sizeHint().height()
    panel.fold(True)
    assert panel.sizeHint().height() < tall


def test_a_running_launch_shows_phases_lines_memory_and_can_be_cancelled(panel: RunPanel, qtbot: QtBot) -> None:
    with qtbot.waitSignal(panel.opened):
        panel.show_running(3, has_rs=False, title="Run 3", totals=(("CUDA0", 24 * GIB), ("CUDA1", None)))
    panel.append_lines(LINES)
    panel.show_phase(Phase.FIT, "done", 0.4)
    panel.show_phase(Phase.WEIGHTS, "running", 0.5)
    panel.show_sample(MemorySample(1.0, (("CUDA0", 9 * GIB),)))
    panel.show_sample(MemorySample(1.2, (("CUDA0", 8 * GIB),)))
    qtbot.waitUntil(lambda: panel.log.model.rowCount() == 200, timeout=3000)

    assert states(panel)[Phase.FIT] == "done" and states(panel)[Phase.WEIGHTS] == "running"
    assert Phase.RS not in states(panel) and states(panel)[Phase.KV] == "todo"
    assert figures(panel)[0][0] == "Run 3" and ("Peak CUDA0", "9.0 GiB") in figures(panel)
    assert panel.log.view.following
    panel.grab()
    with qtbot.waitSignal(panel.cancel_requested):
        panel.log.running.cancel_button.click()
    assert not panel.log.running.cancel_button.isEnabled()


def test_a_failed_run_is_scrolled_to_its_key_line_and_explained(panel: RunPanel, qtbot: QtBot) -> None:
    panel.show_run(run_of(), LINES, try_first="Split by free memory")

    assert states(panel)[Phase.KV] == "failed" and states(panel)[Phase.COMPUTE] == "todo"
    assert figures(panel) == [("Run 1, failed after", "0:04"), ("Peak CUDA1", "17.0 GiB")]
    here = panel.log.view.currentIndex()
    assert panel.log.model.line(here.row()).number == 168
    assert panel.log.view.viewport().rect().contains(panel.log.view.visualRect(here))
    assert panel.log.count_text == "200 lines, kept in History"
    words = panel.log.card.text()
    assert "The KV cache did not fit on CUDA1" in words and "NVML: python3" in words
    assert "Try first: split by free memory" in words
    for signal, button in (
        (panel.fix_requested, panel.log.card.fix_button),
        (panel.report_requested, panel.log.card.report_button),
    ):
        with qtbot.waitSignal(signal):
            button.click()
    panel.log.card.copy_button.click()
    assert QGuiApplication.clipboard().text() == words


def test_an_evidence_link_goes_to_its_line_whatever_hides_it(panel: RunPanel) -> None:
    panel.show_run(run_of(), LINES)
    panel.log.search.setText("no such text")
    panel.log.search.returnPressed.emit()
    assert panel.log.model.rowCount() == 0

    panel.log.card.links[1].click()

    here = panel.log.view.currentIndex()
    assert panel.log.model.line(here.row()).number == 161
    assert panel.log.search.text() == ""


def test_another_log_of_the_same_length_is_another_log(panel: RunPanel) -> None:
    panel.show_log(LINES, None, "one.log")
    others = tuple(LogLine(n.number, f"other {n.number}", f"other {n.number}") for n in LINES)
    panel.show_log(others, None, "two.log")

    assert panel.log.model.line(0).message == "other 1"


def test_the_filter_combo_and_the_search_are_obeyed(panel: RunPanel, qtbot: QtBot) -> None:
    panel.show_run(run_of(), LINES)
    panel.log.filter.setCurrentIndex(panel.log.filter.findData(Filter.MEMORY))
    assert panel.log.count_text == "3 of 200 lines, kept in History"
    panel.log.filter.setCurrentIndex(panel.log.filter.findData(Filter.ALL))
    panel.log.search.setText("line 19")
    qtbot.waitUntil(lambda: panel.log.model.rowCount() == 11, timeout=3000)


def test_a_run_that_only_started_is_to_be_reported_rather_than_copied(panel: RunPanel) -> None:
    panel.show_run(run_of(RunOutcome.STARTED, checks=CHECKS), LINES, ())
    assert panel.checks.report_button.property("primary") is True
    assert panel.checks.copy_button.property("primary") is not True


def test_a_verified_run_shows_its_checks_and_what_was_measured(panel: RunPanel, qtbot: QtBot) -> None:
    done = tuple((p, "done") for p in Phase if p is not Phase.RS)
    run = run_of(RunOutcome.VERIFIED, checks=CHECKS, phases=done, number=6)
    rows = (
        ComparisonRow("CUDA0", (BufferKind.MODEL,), 10 * GIB, 10 * GIB + 5),
        ComparisonRow("CUDA0", (BufferKind.COMPUTE,), 482 * MIB, 484 * MIB),
    )
    panel.show_run(run, LINES, rows, compare_with=1)

    assert panel.checks.isVisible() and panel.checks.title == "Verified: this command works"
    assert panel.checks.copy_button.property("primary") is True
    assert panel.checks.report_button.property("primary") is not True
    assert [r.evidence.text() for r in panel.checks.rows] == ["llama-server b11434", "KV 16.0 GiB", "not reached"]
    assert set(states(panel).values()) == {"done"}
    assert figures(panel) == [("Run 6", "0:04"), ("Peak CUDA0", "20.0 GiB"), ("CUDA1", "17.0 GiB")]
    model = panel.comparison.model
    assert [model.index(r, 4).data() for r in range(2)] == ["exact", "+2.0 (0.4 %)"]
    assert [model.index(r, 0).data() for r in range(2)] == ["CUDA0", ""]
    with qtbot.waitSignal(panel.copy_requested):
        panel.checks.copy_button.click()
    with qtbot.waitSignal(panel.compare_requested) as asked:
        panel.checks.compare_button.click()
    assert asked.args == [1]

    link = panel.checks.rows[1].link
    assert link is not None and link.text() == "lines 167–171"
    link.click()
    assert panel.log.isVisible() and panel.log.model.line(panel.log.view.currentIndex().row()).number == 167
    panel.log.checks_button.click()
    assert panel.checks.isVisible()


def test_a_foreign_log_is_named_and_offers_the_report_first(panel: RunPanel) -> None:
    panel.show_log(LINES, DIAGNOSIS, "/elsewhere/server <b>.log", can_fix=False)

    assert panel.source.isVisible() and not panel.strip.isVisible()
    assert panel.log.count_text == "200 lines"
    assert not panel.log.card.fix_button.isVisible()
    assert panel.log.card.report_button.property("primary")
    panel.show_idle()
    assert panel.idle.isVisible() and not panel.is_open


@pytest.mark.parametrize("outcome", list(RunOutcome))
def test_every_outcome_has_a_face(panel: RunPanel, outcome: RunOutcome) -> None:
    panel.show_run(run_of(outcome, says="It ended so.", checks=CHECKS, diagnosis=None), LINES[:5])

    panel.grab()
    assert figures(panel)[0][0].startswith("Run 1")
    assert "It ended so." in panel.log.card.text()


def test_phases_passed_over_are_skipped_and_what_ran_at_the_end_failed() -> None:
    seen = {
        p.phase: p.state for p in fill_phases({Phase.WEIGHTS: "done", Phase.COMPUTE: "running"}, True, finished=True)
    }

    assert seen[Phase.FIT] == seen[Phase.KV] == seen[Phase.RS] == "skipped"
    assert seen[Phase.COMPUTE] == "failed" and seen[Phase.REPEAT] == "todo"
    assert Phase.RS in {p.phase for p in phases_of(run_of(phases=((Phase.RS, "done"),)), False)}


def test_while_a_launch_runs_the_step_after_the_last_one_done_is_under_way() -> None:
    seen = {p.phase: p.state for p in fill_phases({Phase.FIT: "done"}, False)}
    assert (seen[Phase.FIT], seen[Phase.WEIGHTS], seen[Phase.KV]) == ("done", "running", "todo")
    failed = {p.phase: p.state for p in fill_phases({Phase.KV: "failed"}, False)}
    assert "running" not in failed.values()


def test_without_devices_the_host_is_told_kind_by_kind() -> None:
    buffers = (PrintedBuffer("CPU", None, "model", 10 * MIB, 2), PrintedBuffer("CPU", None, "kv", 5 * MIB, 3))
    rows = comparison_rows(None, run_of(buffers=buffers))
    assert [(r.device, r.kinds) for r in rows] == [("Host", (BufferKind.MODEL,)), ("Host", (BufferKind.KV,))]


def test_marks_let_the_key_line_win() -> None:
    assert marks_of(DIAGNOSIS) == {161: Mark.EVIDENCE, 168: Mark.KEY, 200: Mark.GENERIC}
    assert marks_of(None) == {}
    assert Mark.KEY not in marks_of(replace(DIAGNOSIS, outcome=Outcome.OK)).values()


def test_comparison_rows_come_per_device_with_overhead_at_its_end_and_one_row_for_the_host() -> None:
    buffers = (
        PrintedBuffer("CUDA0", "CUDA0", "model", 100 * MIB, 1),
        PrintedBuffer("CPU", None, "model", 10 * MIB, 2),
        PrintedBuffer("CUDA_Host", None, "compute", 5 * MIB, 3),
    )
    rows = comparison_rows(None, run_of(buffers=buffers, overhead=(("CUDA0", 44 * MIB), ("CUDA1", None))))

    assert [(r.device, r.kinds, r.measured) for r in rows] == [
        ("CUDA0", (BufferKind.MODEL,), 100 * MIB),
        ("CUDA0", (BufferKind.OVERHEAD,), 44 * MIB),
        ("Host", (BufferKind.MODEL, BufferKind.COMPUTE), 15 * MIB),
    ]
    assert difference_words(rows[1]) == "learned"


def test_differences_in_words() -> None:
    kv = (BufferKind.KV,)
    assert difference_words(ComparisonRow("A", kv, 100 * MIB, 90 * MIB)) == "-10.0 (10.0 %)"
    assert difference_words(ComparisonRow("A", kv, 100 * MIB, None)) == "not printed"
    assert difference_words(ComparisonRow("A", (BufferKind.OVERHEAD,), 468 * MIB, 512 * MIB, True)) == "+44, learned"


def test_clock_and_ranges() -> None:
    assert [clock(s) for s in (4.9, 750, 3723)] == ["0:04", "12:30", "1:02:03"]
    assert [line_range(n) for n in ((), (5,), (9, 5, 7))] == ["", "5", "5–9"]


#: What each end is called beside the run's number, and whether it shows the checks.
_ENDS = {
    RunOutcome.VERIFIED: ("Run 1", True),
    RunOutcome.STARTED: ("Run 1, started in", True),
    RunOutcome.FAILED: ("Run 1, failed after", False),
    RunOutcome.CRASHED: ("Run 1, crashed after", False),
    RunOutcome.KILLED: ("Run 1, killed after", False),
    RunOutcome.TIMED_OUT: ("Run 1, timed out after", False),
    RunOutcome.CANCELLED: ("Run 1, cancelled after", False),
    RunOutcome.COULD_NOT_START: ("Run 1, could not start", False),
}


@pytest.mark.parametrize("outcome", list(RunOutcome))
def test_each_end_is_told_in_the_strip_and_on_its_page(qtbot: QtBot, outcome: RunOutcome) -> None:
    panel = RunPanel()
    qtbot.addWidget(panel)
    panel.resize(1100, 400)
    panel.show()
    words, has_checks = _ENDS[outcome]
    run = run_of(outcome, checks=CHECKS if has_checks else (), diagnosis=None, says=f"It ended: {outcome}.")
    panel.show_run(run, LINES)
    assert panel.checks.isVisible() is has_checks
    assert panel.log.card.isVisible() is not has_checks
    assert any(figure.words == words for figure in panel.strip.figures)
    said = panel.checks.title if has_checks else panel.log.card.text()
    assert ("Verified" if outcome is RunOutcome.VERIFIED else f"It ended: {outcome}.") in said


def test_pauses_and_other_spellings_are_told_on_both_pages(qtbot: QtBot) -> None:
    panel = RunPanel()
    qtbot.addWidget(panel)
    more = {
        "pauses": (Pause(12, 1.0, 2.34, Phase.WEIGHTS),),
        "spelled": ("-lm none is --no-mmap in llama-server b6000",),
        "lost": ("--swa-full was left out: llama-server b6000 has no such option",),
    }
    panel.show_run(run_of(RunOutcome.VERIFIED, checks=CHECKS, **more), LINES)
    for said in (panel.checks.notes, panel.log.card.text()):
        assert "Nothing was printed for 2.3 s after line 12: loading the weights" in said
        assert "-lm none is --no-mmap" in said
        assert "--swa-full was left out: llama-server b6000 has no such option; it was passed as typed" in said


def test_what_does_not_change_is_not_painted_again(qtbot: QtBot) -> None:
    strip, trace = PhaseStrip(), MemoryTrace()
    for shown in (strip, trace):
        qtbot.addWidget(shown)
        shown.show()
    phases = (PhaseState(Phase.WEIGHTS, "running"), PhaseState(Phase.KV, "todo"))
    strip.show_phases(phases)
    trace.add(MemorySample(1.0, (("CUDA0", GIB),)))
    qtbot.wait(50)
    painted = []
    seen = Painted(painted)
    for shown in (strip, trace):
        shown.installEventFilter(seen)

    strip.show_phases(phases)
    trace.add(MemorySample(1.25, (("CUDA0", GIB),)))
    qtbot.wait(20)
    assert trace not in painted
    # What turns beside a running phase is painted alone, where the style moves things at all.
    assert all(rect.width() < 40 for rect in seen.rects)
    trace.add(MemorySample(1.5, (("CUDA0", 2 * GIB),)))
    qtbot.waitUntil(lambda: trace in painted)
    strip.show_phases((PhaseState(Phase.WEIGHTS, "done"), PhaseState(Phase.KV, "running")))
    qtbot.waitUntil(lambda: any(rect.width() == strip.width() for rect in seen.rects))


class Painted(QObject):
    """Who was painted, and where."""

    def __init__(self, painted: list[QObject]) -> None:
        super().__init__()
        self.painted, self.rects = painted, list[QRect]()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent):
            self.painted.append(watched)
            self.rects.append(event.rect())
        return False
