"""The history's window: a list of kept runs, one in full, two side by side, and what goes out of it."""

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QLabel, QPushButton

from kvstudio.case.history import History
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import Phase
from kvstudio.ui.history import words
from kvstudio.ui.history.dialog import HistoryDialog
from kvstudio.ui.history.models import RunsModel, WordsModel
from kvstudio.units import MIB
from kvstudio.verify.values import Check, PrintedBuffer, Run, RunOutcome

OLD = Binary("/opt/llama-server", "llama-server", "10434", 10434, "7e4c0a9", None, ("Vulkan",), frozenset({"-lv"}))
NEW = replace(OLD, version="11434", build=11434, commit="abcdef0")


def run_of(outcome=RunOutcome.VERIFIED, binary=OLD, kv=36 * MIB, log_path=None, **config):
    return Run(
        number=0, config=LaunchConfig(model_path="/models/a.gguf", **config), argv=(), env=(), binary=binary,
        outcome=outcome, reached=Phase.REPEAT, phases=(), seconds=12.4, started_at=1000.0, exit_code=0, signal=None,
        buffers=(PrintedBuffer("Vulkan0", "Vulkan0", "kv", kv, 12),), peak=(), free_before=(), samples=(),
        checks=(Check("context", True, "n_ctx 4096", (3,)),), diagnosis=None, log_path=log_path, says="It worked.",
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("0.00.001.000 I first\nsecond\n")
    history = History(tmp_path / "history")
    history.add(run_of(n_ctx=4096, log_path=str(log)), model_name="Gemma")
    history.add(run_of(n_ctx=8192, kv=72 * MIB, api_key="secret"), model_name="Gemma")
    history.add(run_of(RunOutcome.CRASHED, NEW, n_ctx=4096), model_name="Gemma")
    return tmp_path / "history"


@pytest.fixture
def dialog(qtbot, inline_tasks, folder):
    made = HistoryDialog(folder)
    qtbot.addWidget(made)
    made.show()
    made.load()
    yield made
    made.close()


def test_the_list_is_a_model_newest_first(qtmodeltester, dialog):
    model = RunsModel()
    qtmodeltester.check(model)
    model.show_entries(tuple(dialog.model.entry(row) for row in (2, 1, 0)))
    qtmodeltester.check(model)
    assert [model.entry(row).number for row in range(3)] == [3, 2, 1]
    model.forget((2,))
    assert [model.entry(row).number for row in range(model.rowCount())] == [3, 1]
    assert "Run 3" in model.data(model.index(0), 11)


def test_tables_of_words_are_models(qtmodeltester):
    model = WordsModel(("a", "b"), 1, ("same",))
    qtmodeltester.check(model)
    model.show_rows((("x", "1"), ("y", "same")))
    qtmodeltester.check(model)
    assert model.index(1, 1).data() == "same"


def test_the_newest_run_is_shown_first_in_full(dialog):
    title, says, command = dialog.run_page.texts()
    assert title == "Run 3: Gemma"
    assert says == "It worked."
    assert "-c 4096" in command
    dialog.choose(2)
    assert dialog.run_page.texts()[0] == "Run 2: Gemma"
    assert "secret" not in dialog.run_page.texts()[2]
    assert dialog.run_page.sizes.index(0, 3).data() == "72.0"


def test_two_runs_stand_side_by_side_with_what_differs_on_top(dialog):
    dialog.choose(1, 2)
    assert dialog.pages.currentWidget() is dialog.compare_page
    page = dialog.compare_page
    changes = [tuple(page.changes.index(0, c).data() for c in range(3))]
    assert changes == [("n_ctx", "4096", "8192")]
    assert [page.sizes.index(0, c).data() for c in (0, 1, 3, 5, 6)] == ["Vulkan0", "KV", "36.0", "72.0", "+36.0"]
    assert page.chip.isHidden()


def test_another_binary_that_fails_on_the_same_settings_is_named_a_regression(dialog):
    dialog.choose(3, 1)
    page = dialog.compare_page
    assert not page.chip.isHidden()
    assert page.chip.text() == "Regression"
    assert "work with llama-server b10434" in page.texts()[1]
    assert page.changes.index(0, 0).data() == "binary"


def test_opening_a_run_gives_it_with_its_log(qtbot, dialog):
    dialog.choose(1)
    with qtbot.waitSignal(dialog.run_opened) as said:
        dialog.findChild(QPushButton, "historyOpen").click()
    entry, lines = said.args
    assert entry.number == 1
    assert [line.text for line in lines] == ["0.00.001.000 I first", "second"]
    assert not dialog.isVisible()


def test_deleting_asks_once_and_leaves_the_others(qtbot, dialog, folder):
    dialog.choose(2)
    button = dialog.findChild(QPushButton, "historyDelete")
    button.click()
    assert button.text() == "Really delete run 2"
    dialog.choose(1)
    assert button.text() == "Delete"
    button.click()
    with qtbot.waitSignal(dialog.removed) as said:
        button.click()
    assert said.args == [(1,)]
    assert [entry.number for entry in History(folder).list().entries] == [2, 3]
    assert dialog.model.rowCount() == 2
    assert dialog.chosen()[0].number == 3


def test_an_empty_history_says_what_will_be_there(qtbot, inline_tasks, tmp_path):
    dialog = HistoryDialog(tmp_path / "none")
    qtbot.addWidget(dialog)
    dialog.load()
    assert dialog.pages.currentWidget() is dialog.empty
    assert not dialog.open_button.isEnabled()


def test_a_damaged_run_is_said_and_not_in_the_way(qtbot, inline_tasks, folder):
    (folder / "000002" / "run.json").write_text("{")
    dialog = HistoryDialog(folder)
    qtbot.addWidget(dialog)
    dialog.load((3, 1))
    assert [entry.number for entry in dialog.chosen()] == [1, 3]
    assert any("run 2 is damaged" in label.text() for label in dialog.findChildren(QLabel))


@pytest.mark.parametrize("outcome", list(RunOutcome))
def test_every_outcome_has_its_word_and_mark(outcome):
    assert words.outcome_words(outcome)
    assert words.MARKS[outcome]
