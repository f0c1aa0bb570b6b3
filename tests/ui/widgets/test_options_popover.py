"""Options of a test launch: shown, edited, reset, remembered."""

import pytest
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QPushButton

from kvstudio.ui.preferences import Preferences, read_options
from kvstudio.ui.widgets_run.options_popover import OptionsPopover
from kvstudio.verify.options import DEFAULT_PROMPT, LaunchOptions

OPTIONS = LaunchOptions("Hello", 8, 5, 2, 0.5, 60.0, 30.0)


@pytest.fixture
def popover(qtbot):
    made = OptionsPopover()
    qtbot.addWidget(made)
    made.said = []
    made.edited.connect(made.said.append)
    return made


def test_what_is_shown_is_told_to_nobody(popover):
    popover.show_options(OPTIONS)
    assert popover.said == []
    assert (popover.prompt.text(), popover.fill.value(), popover.timeout.text()) == ("Hello", 50, "60 s")


def test_each_edit_goes_out_whole(popover):
    popover.show_options(OPTIONS)
    popover.repeat.setValue(7)
    popover.concurrent.setValue(-1)
    popover.phase_timeout.setValue(0)
    popover.prompt.setText("  ")
    popover.prompt.editingFinished.emit()
    assert popover.said[0] == LaunchOptions("Hello", 8, 7, 2, 0.5, 60.0, 30.0)
    assert popover.said[-1] == LaunchOptions(DEFAULT_PROMPT, 8, 7, None, 0.5, 60.0, None)
    assert popover.concurrent.text() == "one per slot"


def test_reset_goes_back_to_the_usual(popover):
    popover.show_options(OPTIONS)
    popover.findChild(QPushButton, "optionReset").click()
    assert popover.said == [LaunchOptions()]
    assert popover.prompt.text() == DEFAULT_PROMPT


def test_options_are_remembered(tmp_path):
    def settings():
        return Preferences(QSettings(str(tmp_path / "s.ini"), QSettings.Format.IniFormat))

    assert settings().launch_options == LaunchOptions()
    settings().launch_options = OPTIONS
    assert settings().launch_options == OPTIONS


@pytest.mark.parametrize(
    "kept", [{"repeat": -1}, {"repeat": "3"}, {"repeat": True}, {"fill_context": 2.0}, {"prompt": 3}, {"timeout_s": 0}]
)
def test_what_is_damaged_takes_the_default(kept):
    assert read_options(kept) == LaunchOptions()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null"])
def test_a_damaged_setting_counts_as_not_set(tmp_path, text):
    settings = QSettings(str(tmp_path / "s.ini"), QSettings.Format.IniFormat)
    settings.setValue("launchOptions", text)
    assert Preferences(settings).launch_options == LaunchOptions()
