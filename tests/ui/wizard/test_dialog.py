"""The wizard's window says what was pressed and shows what it is given."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocumentFragment

from kvstudio.ui.theme import Theme
from kvstudio.ui.widgets.budget_bars import BudgetBars
from kvstudio.ui.widgets.verdict_card import FlaggedText
from kvstudio.ui.widgets_run.phase_strip import PhaseStrip
from kvstudio.ui.wizard.dialog import WizardWindow
from kvstudio.ui.wizard.from_plan import wizard_view
from kvstudio.ui.wizard.values import Action, Progress
from tests.ui import wizard_samples


@pytest.fixture
def window(qtbot):
    made = WizardWindow()
    qtbot.addWidget(made)
    made.resize(1180, 800)
    made.show_view(wizard_samples.story())
    made.show()
    return made


def test_each_button_is_a_wish(qtbot, window):
    seen = []
    window.action_requested.connect(seen.append)
    for action in window.offered():
        qtbot.mouseClick(window.button(action), Qt.MouseButton.LeftButton)
    assert seen == [Action.STOP, Action.BACK, Action.SKIP, Action.TRY]
    assert not window.button(Action.COPY).isVisible()


def test_enter_means_the_primary_button(qtbot, window):
    assert window.button(Action.TRY).property("primary") is True
    assert window.button(Action.TRY).isDefault()
    with qtbot.waitSignal(window.action_requested) as said:
        qtbot.keyClick(window, Qt.Key.Key_Return)
    assert said.args == [Action.TRY]


def test_before_and_after_share_a_scale(window):
    before, after = window.page.findChildren(BudgetBars)
    assert before.layout_shown().rows[0].capacity_x == after.layout_shown().rows[0].capacity_x
    assert [row.values.name for row in before.layout_shown().rows] == ["CUDA0", "CUDA1"]


def test_the_record_follows_the_walk(window):
    assert [row.entry().number for row in window.side.rows()] == ["", "1", "2", "3", "next"]
    window.show_view(wizard_view(wizard_samples.walked()))
    assert [row.entry().number for row in window.side.rows()] == ["", "1", "2", "3"]


def test_progress_moves_without_building_the_page_anew(window):
    plan = wizard_samples.walking()
    window.show_view(wizard_view(plan, progress=wizard_samples.PROGRESS))
    strip = window.page.findChild(PhaseStrip)
    later = Progress(wizard_samples.PROGRESS.phases, "0:20", "Loaded.")
    window.show_view(wizard_view(plan, progress=later))
    assert window.page.findChild(PhaseStrip) is strip
    assert window.offered() == (Action.CANCEL,)


def test_the_command_is_the_try_with_its_secret_hidden(window):
    words = " ".join(word.text for word in window.page.command().words())
    assert "-ts" not in words
    assert "secret-key" not in words
    assert not window.page.command().edit.isVisible()


def test_the_result_offers_the_command(qtbot, window):
    window.show_view(wizard_view(wizard_samples.walked(), checks=wizard_samples.CHECKS))
    assert window.button(Action.COPY).isDefault()
    assert window.page.command() is not None


def test_escape_asks_before_the_walk_is_stopped(qtbot, window):
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert window.isVisible()
    heard = []
    window.action_requested.connect(heard.append)
    qtbot.keyClick(window.question(), Qt.Key.Key_Escape)
    assert (heard, window.question()) == ([], None)
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    qtbot.keyClick(window.question(), Qt.Key.Key_Return)
    assert heard == [Action.STOP]


def test_closing_is_said(qtbot, window):
    window.show_view(wizard_view(wizard_samples.walked()))
    with qtbot.waitSignal(window.left):
        qtbot.keyClick(window, Qt.Key.Key_Escape)


def test_the_page_stands_on_the_canvas(window):
    shown = window.page.grab().toImage()
    assert shown.pixelColor(4, 4) == Theme.current().canvas
    assert window.side.grab().toImage().pixelColor(4, 4) == Theme.current().ground


def test_typed_parts_of_a_sentence_stay_whole(window):
    text = FlaggedText()
    text.show_words("Without -fa and -f, <b>a-f</b> goes.", ("-f", "-fa"))
    plain = QTextDocumentFragment.fromHtml(text.text()).toPlainText()
    assert plain == text.words() == "Without -fa and -f, <b>a-f</b> goes."
    assert text.text().count("<span") == 2
