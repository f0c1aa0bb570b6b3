"""The chart panel shows values and says wishes."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton

from kvstudio.advise.by_context import by_context
from kvstudio.advise.verdict import Answer, Verdict, verdict
from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.values import Provenance
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.ui.panels.chart_panel import BARS, CONTEXT, TABLE, ChartPanel, source_words
from kvstudio.ui.theme import Theme
from kvstudio.ui.widgets.fit_row import TYPED
from tests.ui import samples

PYTHON = Device("CUDA1", "CUDA", processes=(DeviceProcess(4182, "python3", samples.CUDA1_OTHER),))


@pytest.fixture
def panel(qtbot):
    made = ChartPanel()
    qtbot.addWidget(made)
    made.resize(718, 560)
    made.show_budget(samples.FAILS, holders=samples.HOLDERS)
    made.show_verdict(verdict(samples.FAILS, samples.CONFIG, (PYTHON,)))
    made.show_fixes(samples.FIXES)
    made.show()
    return made


@pytest.fixture
def view():
    return by_context(samples.estimate, samples.CONFIG, samples.FAILS, 40960, samples.largest)


def click(qtbot, parent, name):
    qtbot.mouseClick(parent.findChild(QPushButton, name), Qt.MouseButton.LeftButton)


def test_the_verdict_is_said_in_full(panel):
    assert panel.verdict.headline() == "Does not fit: CUDA1 is 0.9 GiB short for the KV cache."
    assert "-ts 1,1 puts half of the layers on CUDA1" in panel.verdict.detail()
    assert panel.verdict.state == "bad"
    assert panel.verdict.isVisible()


def test_why_and_fix_are_wishes(qtbot, panel):
    with qtbot.waitSignal(panel.why_requested):
        click(qtbot, panel, "why")
    with qtbot.waitSignal(panel.fix_requested):
        click(qtbot, panel, "fix")


def test_apply_hands_over_the_fix(qtbot, panel):
    with qtbot.waitSignal(panel.fix_applied) as said:
        click(qtbot, panel, "apply1")
    assert said.args == [samples.FIXES[1]]


def test_at_most_three_fixes_are_offered(panel):
    panel.show_fixes(samples.FIXES + samples.FIXES)
    assert panel.fixes.fixes() == samples.FIXES
    panel.show_fixes(())
    assert not panel.fixes.isVisible()


def test_bars_table_and_context_take_turns(qtbot, panel, view):
    seen = []
    panel.view_changed.connect(seen.append)
    panel.show_context(view)
    for name, shown in ((TABLE, panel.table), (CONTEXT, panel.context), (BARS, panel.bars)):
        panel.show_view(name)
        assert shown.isVisible()
        assert [w.isVisible() for w in (panel.bars, panel.table, panel.context)].count(True) == 1
        assert panel.verdict.isVisible() is (name != CONTEXT)
    assert seen == [TABLE, CONTEXT, BARS]


def test_what_fits_offers_to_raise_the_context(qtbot, panel, view):
    panel.show_verdict(verdict(samples.FITS))
    panel.show_context(view)
    assert panel.verdict.state == "good"
    assert not panel.verdict.fix.isVisible()
    click(qtbot, panel, "raise")
    assert panel.view() == CONTEXT


def test_the_largest_context_can_be_used(qtbot, panel, view):
    panel.show_context(view)
    panel.show_view(CONTEXT)
    with qtbot.waitSignal(panel.context_picked) as said:
        click(qtbot, panel, "use")
    assert said.args == [view.largest]


def test_without_a_model_nothing_is_claimed(panel):
    panel.show_budget(None)
    assert not panel.verdict.isVisible()
    assert not panel.bars.isVisible()
    assert not panel.fixes.isVisible()


def test_the_chip_says_where_the_sizes_come_from(panel):
    assert source_words(samples.FAILS, None) == ("Estimated", "neutral")
    assert source_words(samples.FAILS, "run 6") == ("Measured, run 6", "good")
    printed = tuple(samples.replace(b, provenance=Provenance.MEASURED) for b in samples.FAILS.buffers)
    assert source_words(samples.replace(samples.FAILS, buffers=printed), None) == ("Measured", "good")


def test_the_fixes_make_room_for_an_open_run(panel):
    panel.set_open_run(True)
    assert not panel.fixes.isVisible()
    panel.set_open_run(False)
    assert panel.fixes.isVisible()


def test_names_of_processes_are_never_markup(panel):
    panel.show_verdict(Verdict(Answer.SHORT, "Does not fit.", "On it <img src=x> & -ts 1,1 hold 2 GiB.", ("-ts 1,1",)))
    assert panel.verdict.detail() == "On it <img src=x> & -ts 1,1 hold 2 GiB."
    shown = panel.verdict._detail.text()
    assert "<img" not in shown
    assert "font-family" in shown


def test_bars_scroll_when_there_are_too_many_devices(panel):
    many = tuple(samples.replace(samples.FITS.devices[0], name=f"CUDA{i}") for i in range(12))
    panel.show_budget(samples.replace(samples.FITS, devices=many))
    panel.resize(718, 420)
    assert panel.bars.height() > 420
    assert panel.verdict.isVisible()
    assert panel.verdict.geometry().bottom() <= 420


def test_all_of_the_context_page_is_shown_where_there_is_room(qtbot, panel, view):
    panel.resize(718, 900)
    panel.show_view(CONTEXT)
    panel.show_context(view)
    page = panel.context
    qtbot.waitUntil(lambda: page.visibleRegion().boundingRect().height() >= page.sizeHint().height() > 400)


def test_only_one_button_is_filled(panel):
    panel.set_fix_primary(True)
    assert panel.verdict.fix.property("primary") is True
    assert Theme.current() is not None


LAUNCHED_BUDGET = replace(samples.FITS, offloaded_layers=(40, 65))
FITTED = FitResult("changed", "", samples.CONFIG, (("n_gpu_layers", 40),), LAUNCHED_BUDGET)


def used(panel):
    return [row.values.used_bytes for row in panel.bars.layout_shown().rows]


def test_what_fit_launches_is_shown_first_and_what_was_typed_on_demand(qtbot, panel):
    typed = used(panel)
    assert not panel.fit.isVisible()
    panel.show_budget(samples.FAILS, fitted=FITTED, holders=samples.HOLDERS)
    assert panel.fit.isVisible()
    launched = used(panel)
    assert launched != typed
    assert panel.fit.words().startswith("after -fit: n_ctx ")
    assert "40 of 65 layers" in panel.fit.words()
    panel.fit.switch.choose(TYPED)
    qtbot.waitUntil(lambda: used(panel) == typed)
    assert panel.fit.words().startswith("before -fit: n_ctx ")
    panel.show_budget(samples.FAILS, fitted=FITTED, holders=samples.HOLDERS)
    assert used(panel) == typed, "what was chosen stays chosen"
    panel.show_view(TABLE)
    assert panel.fit.isVisible()
    panel.show_view(CONTEXT)
    assert not panel.fit.isVisible()


def test_the_switch_stays_while_the_next_answer_is_worked_out(panel):
    panel.show_budget(samples.FAILS, fit_follows=True)
    assert not panel.fit.isVisible(), "there was none before"
    panel.show_budget(samples.FAILS, fitted=FITTED)
    panel.show_budget(samples.FAILS, fit_follows=True)
    assert panel.fit.isVisible()
    assert not panel.fit.switch.isEnabled()
    panel.show_budget(samples.FAILS)
    assert not panel.fit.isVisible()


def test_a_fit_that_changes_nothing_needs_no_switch(panel):
    panel.show_budget(samples.FITS, fitted=FitResult("unchanged", "", samples.CONFIG))
    assert not panel.fit.isVisible()


@pytest.mark.parametrize(
    ("has_log", "named", "says"),
    [
        (False, "", "Open a model to see"),
        (True, "", "names no model file"),
        (True, "qwen3.gguf", "This log is of qwen3.gguf"),
        (False, "qwen3.gguf", "qwen3.gguf is not on this machine"),
    ],
)
def test_without_a_model_it_says_which_to_open_and_offers_to(panel, qtbot, has_log, named, says):
    panel.show_budget(None)
    panel.show_missing(has_log, named)
    assert any(says in label.text() for label in panel.findChildren(QLabel) if label.isVisible())
    with qtbot.waitSignal(panel.open_requested, timeout=500):
        click(qtbot, panel, "openModel")
    panel.show_budget(samples.FAILS)
    assert not panel.open_button.isVisible()
