"""The command: in pieces, secrets hidden, copied whole, edited in place."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from kvstudio.launch.argv import parse_argv, split_command
from kvstudio.launch.config import LaunchConfig
from kvstudio.ui.command_words import Word, words_of
from kvstudio.ui.panels.command_panel import CommandPanel

LINE = "llama-server -m /m/q.gguf -c 65536 -ngl 99 -ts 1,1 --host 192.168.1.20 --port 8080 --api-key s3cret"


def config_of(text: str) -> LaunchConfig:
    return parse_argv(split_command(text))


@pytest.fixture
def panel(qtbot):
    made = CommandPanel()
    qtbot.addWidget(made)
    made.resize(680, 120)
    made.show()
    made.show_config(config_of(LINE), "Q", 65536)
    return made


def test_pieces_and_marks(panel):
    assert panel.words() == (
        Word("llama-server"),
        Word("-m /m/q.gguf"),
        Word("-c 65536", True),
        Word("-ngl 99", True),
        Word("-ts 1,1", True),
        Word("--host 192.168.1.20"),
        Word("--port 8080"),
        Word("--api-key ••••••••"),
    )


def test_variables_come_first_and_secrets_among_them_are_hidden():
    words = words_of(config_of("GGML_VK_VISIBLE_DEVICES=0,0 LLAMA_API_KEY=abc llama-server -m a.gguf"))
    assert [w.text for w in words][:3] == ["GGML_VK_VISIBLE_DEVICES=0,0", "LLAMA_API_KEY=••••••••", "llama-server"]


def test_unknown_flags_stay_where_they_were():
    words = words_of(config_of("llama-server --frobnicate 7 -m a.gguf --jinja -c 512"))
    assert [w.text for w in words] == ["llama-server", "--frobnicate 7", "-m a.gguf", "--jinja", "-c 512"]


def test_names_with_spaces_are_quoted():
    assert Word("-m '/my models/a.gguf'") in words_of(LaunchConfig(model_path="/my models/a.gguf"))


def test_copy_gives_the_real_command(panel):
    panel.copy.click()
    assert QGuiApplication.clipboard().text() == LINE


def test_editing_fills_the_settings(panel, qtbot):
    panel.edit.click()
    assert panel.field.toPlainText() == LINE
    panel.field.setPlainText("llama-server -m /m/q.gguf -c 4096 --unknown 1")
    with qtbot.waitSignal(panel.config_edited) as got:
        qtbot.keyClick(panel.field, Qt.Key.Key_Return)
    assert got.args[0].n_ctx == 4096
    assert not panel.is_editing()


def test_what_cannot_be_understood_is_said_in_place(panel, qtbot):
    panel.edit.click()
    with qtbot.assertNotEmitted(panel.config_edited):
        panel.field.setPlainText("llama-server -c many")
        qtbot.keyClick(panel.field, Qt.Key.Key_Return)
    assert panel.is_editing()
    assert "many" in panel.error()
    panel.field.setPlainText("llama-server -c 4096")
    assert panel.error() == ""


def test_escape_leaves_everything_as_it_was(panel, qtbot):
    panel.edit.click()
    panel.field.setPlainText("llama-server")
    with qtbot.assertNotEmitted(panel.config_edited):
        qtbot.keyClick(panel.field, Qt.Key.Key_Escape)
    assert not panel.is_editing()


def test_paste_is_a_wish(panel, qtbot):
    with qtbot.waitSignal(panel.paste_requested):
        panel.paste.click()


def test_lines_break_between_pieces_only(panel):
    box = panel._box
    lines = box._lines(420)
    assert len(lines) > 1
    assert tuple(word for line in lines for word in line) == panel.words()


@pytest.mark.parametrize("program", ["Ollama", "LM Studio", "vLLM"])
def test_other_programs_hide_the_secret_and_copy_their_own_text(panel, program, qtbot):
    panel.show_config(config_of(LINE), "Qwen", 65536)
    box = panel._target_box
    box.setCurrentIndex(box.findText(program))
    box.activated.emit(box.currentIndex())
    shown = " ".join(w.text for w in panel.words())
    assert "65536" in shown or "16384" in shown
    assert "s3cret" not in shown
    assert not panel.edit.isEnabled()
    panel.copy.click()
    copied = QGuiApplication.clipboard().text()
    assert copied != LINE
    assert "65536" in copied or "16384" in copied


def test_what_llama_cpp_would_not_take_is_said_below_the_command_alone(panel):
    assert panel.notes() == ""
    panel.show_config(config_of("llama-server -m a.gguf --frobnicate 5"), "a", 512, ("--frobnicate is no option.",))
    box = panel._target_box
    for program, said in (("llama-server", True), ("vLLM", False), ("llama-server", True)):
        box.setCurrentIndex(box.findText(program))
        box.activated.emit(box.currentIndex())
        assert ("--frobnicate is no option." in panel.notes()) is said
    panel.show_config(config_of(LINE), "Q", 65536)
    assert panel.notes() == ""
