"""The report before it leaves: shown, switched, edited, copied and saved."""

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication, QTextCursor
from pytestqt.qtbot import QtBot

from kvstudio.case.values import Case
from kvstudio.diagnose.values import Cause, Diagnosis, KeyLine, Outcome
from kvstudio.launch.argv import parse_argv
from kvstudio.report.build import build
from kvstudio.report.values import Identity, Report
from kvstudio.runlog.values import LogLine
from kvstudio.ui.report_dialog import MARKDOWN, TEXT, ZIP, ReportDialog

pytestmark = pytest.mark.usefixtures("inline_tasks")

LOG = (
    "build: 11434 (4f1c2a97) with GCC 13.3.0 for x86_64-linux-gnu",
    "load_model: loading model '/home/alice/models/big.gguf'",
    "ggml_backend: allocating 7936.00 MiB on device 1: cudaMalloc failed: out of memory",
    "```<b>not markup</b> *really*",
)
LINES = tuple(LogLine(i, t, t) for i, t in enumerate(LOG, start=1))
COMMAND = "-m /home/alice/models/big.gguf -c 65536 --host 192.168.1.20 --api-key sesame-street"
CONFIG = parse_argv(("llama-server", *COMMAND.split()))
DIAGNOSIS = Diagnosis(
    Outcome.FAILED, "memory", "kv", "CUDA1", "CUDA", None, None, None, Cause.CAPACITY, KeyLine(3, LOG[2]), (),
    "The KV cache did not fit on CUDA1", "It asked for 7.8 GiB.",
)  # fmt: skip


@pytest.fixture
def report() -> Report:
    case = Case(config=CONFIG, log=LINES, diagnosis=DIAGNOSIS, log_source="server.log")
    return build(case, identity=Identity("/home/alice", "alice"))


@pytest.fixture
def dialog(qtbot: QtBot, report: Report) -> ReportDialog:
    made = ReportDialog()
    qtbot.addWidget(made)
    made.show_report(report, {"config": {"host": "192.168.1.20"}})
    made.show()
    qtbot.waitExposed(made)
    return made


def test_preview_fields_and_redactions_tell_the_same_story(dialog: ReportDialog, report: Report) -> None:
    shown = dialog.preview.toPlainText()

    assert "### Name and Version" in shown and "3: ggml_backend: allocating 7936.00 MiB" in shown
    assert "alice" not in shown and "192.168.1.20" not in shown and "sesame" not in shown
    assert " HOME /models/big.gguf" in shown
    assert "```<b>not markup</b> *really*" in shown
    assert [r.token for r in dialog.redactions.rows] == [r.token for r in report.redactions]
    assert [r.field.id for r in dialog.fields.rows] == [f.id for f in report.fields]
    assert dialog.said().startswith("4 log lines attached whole, ")


def test_unticking_shows_a_value_again_everywhere(dialog: ReportDialog) -> None:
    row = next(r for r in dialog.redactions.rows if r.token == "IP 1")
    row.box.click()

    assert "--host 192.168.1.20" in dialog.preview.toPlainText()
    assert "--host 192.168.1.20" in dialog.text()
    row.box.click()
    assert "192.168.1.20" not in dialog.text()


def select(dialog: ReportDialog, words: str) -> None:
    cursor = dialog.preview.document().find(words)
    assert not cursor.isNull()
    dialog.preview.setTextCursor(cursor)


def test_a_selection_can_be_hidden_and_shown_again(dialog: ReportDialog) -> None:
    assert not dialog.redactions.hide_button.isEnabled()
    select(dialog, "GCC 13.3.0")
    assert dialog.redactions.hide_button.isEnabled()
    dialog.redactions.hide_button.click()

    assert "GCC 13.3.0" not in dialog.text() and "[HIDDEN 1]" in dialog.text()
    row = dialog.redactions.rows[-1]
    assert row.token == "HIDDEN 1"
    row.box.click()
    assert "GCC 13.3.0" in dialog.text()


def test_a_selection_across_a_token_hides_what_is_around_it(dialog: ReportDialog) -> None:
    document = dialog.preview.document()
    start, end = document.find("--host"), document.find("--api-key")
    cursor = QTextCursor(document)
    cursor.setPosition(start.selectionStart())
    cursor.setPosition(end.selectionEnd(), QTextCursor.MoveMode.KeepAnchor)
    dialog.preview.setTextCursor(cursor)

    assert dialog.preview.selected_texts() == ("--host", "--api-key")


def test_formats_change_text_and_buttons(dialog: ReportDialog) -> None:
    dialog.switch.choose(TEXT)
    assert dialog.copy_button.text() == "Copy text"
    assert "###" not in dialog.text() and "###" not in dialog.preview.toPlainText()
    dialog.switch.choose(ZIP)
    assert {name for name, _ in dialog.files.files} >= {"report.md", "llama.log", "case.json", "environment.txt"}
    assert dialog.copy_button.text() == "Save zip…" and not dialog.edit_button.isVisible()
    dialog.switch.choose(MARKDOWN)
    assert dialog.copy_button.text() == "Copy Markdown"


def test_copying_puts_the_shown_text_on_the_clipboard(dialog: ReportDialog) -> None:
    dialog.copy_button.click()

    assert QGuiApplication.clipboard().text() == dialog.text()
    assert dialog.said().startswith("Copied, ")


def test_text_can_be_edited_and_edits_discarded(dialog: ReportDialog) -> None:
    before = dialog.text()
    dialog.edit_button.click()
    assert dialog.editing and dialog.edit_button.text() == "Discard edits"
    assert not dialog.redactions.rows[0].box.isEnabled()
    dialog.editor.setPlainText("mine, twice mine")
    cursor = dialog.editor.document().find("mine")
    dialog.editor.setTextCursor(cursor)
    dialog.redactions.hide_button.click()
    assert dialog.text() == "[HIDDEN], twice [HIDDEN]"
    dialog.copy()
    assert QGuiApplication.clipboard().text() == "[HIDDEN], twice [HIDDEN]"

    dialog.edit_button.click()
    assert not dialog.editing and dialog.text() == before


def test_saving_writes_the_file_and_says_so(dialog: ReportDialog, tmp_path: Path, qtbot: QtBot) -> None:
    path = tmp_path / "report.md"
    with qtbot.waitSignal(dialog.saved) as saved:
        dialog.save_to(str(path))
    assert saved.args == [str(path)]
    assert path.read_text(encoding="utf-8") == dialog.text()
    assert dialog.said() == f"Saved as {path}"

    dialog.switch.choose(ZIP)
    dialog.show_picture(b"PNG")
    dialog.save_to(str(tmp_path / "report.zip"))
    with zipfile.ZipFile(tmp_path / "report.zip") as packed:
        assert packed.read("chart.png") == b"PNG"
        assert b"192.168.1.20" not in packed.read("case.json")


def test_a_file_that_cannot_be_saved_is_said(dialog: ReportDialog, tmp_path: Path) -> None:
    dialog.save_to(str(tmp_path / "no such folder" / "report.md"))

    assert "report.md could not be saved: No such file or directory." in dialog.said()
    assert dialog.save_button.isEnabled()


def test_a_case_is_made_into_a_report_with_this_machine_hidden(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    home = os.path.expanduser("~")
    monkeypatch.setenv("USER", "zoe")
    line = LogLine(1, f"loading {home}/x.gguf for zoe", "loading")
    made = ReportDialog(Case(config=replace(CONFIG, model_path=""), log=(line,), log_source="x.log"))
    qtbot.addWidget(made)

    assert made.report is not None
    assert home not in made.text() and "zoe" not in made.text()
    assert "[HOME]/x.gguf for [USER]" in made.text()


def test_closing_drops_what_is_under_way(qtbot: QtBot, report: Report) -> None:
    made = ReportDialog()
    qtbot.addWidget(made)
    made.show_report(report)
    made.reject()
    assert not made.isVisible()
