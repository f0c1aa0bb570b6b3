"""The small parts say what they show and what was picked."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette

from kvstudio.ui.theme import Theme
from kvstudio.ui.widgets.basic import Chip, ElidedLabel, Label, icon_button, plain_tooltip
from kvstudio.ui.widgets.segmented import SegmentedSwitch


def test_the_switch_tells_which_view_was_picked(qtbot):
    switch = SegmentedSwitch((("bars", "Bars"), ("table", "Table"), ("context", "By context")))
    qtbot.addWidget(switch)
    switch.show()
    picked = []
    switch.picked.connect(picked.append)
    qtbot.mouseClick(switch.findChild(object, "context"), Qt.MouseButton.LeftButton)
    switch.choose("table")
    assert picked == ["context", "table"]
    assert switch.current() == "table"


def test_the_switch_moves_with_the_arrow_keys(qtbot):
    switch = SegmentedSwitch((("bars", "Bars"), ("table", "Table")))
    qtbot.addWidget(switch)
    switch.show()
    first = switch.findChild(object, "bars")
    first.setFocus()
    qtbot.keyClick(first, Qt.Key.Key_Right)
    assert switch.current() == "table"


def test_a_label_takes_its_colour_from_the_theme(qtbot):
    label = Label("3 places", role="muted")
    qtbot.addWidget(label)
    assert label.palette().color(QPalette.ColorRole.WindowText) == Theme.current().muted
    label.set_role("bad")
    assert label.palette().color(QPalette.ColorRole.WindowText) == Theme.current().bad


def test_hostile_names_are_shown_as_text(qtbot):
    label = ElidedLabel("<b>Qwen</b> & co")
    qtbot.addWidget(label)
    label.resize(20, 20)
    label.show()
    assert label.text() == "<b>Qwen</b> & co"
    assert "<b>" not in label.toolTip()
    assert "&lt;b&gt;" in label.toolTip()
    assert plain_tooltip("a\nb") == "<qt><nobr>a</nobr><br><nobr>b</nobr></qt>"
    assert "<nobr>" not in plain_tooltip("word " * 40)


def test_an_elided_label_has_a_tooltip_only_when_something_is_missing(qtbot):
    label = ElidedLabel("short")
    qtbot.addWidget(label)
    label.resize(400, 20)
    label.show()
    assert label.toolTip() == ""
    label.resize(10, 20)
    assert "short" in label.toolTip()


def test_a_chip_changes_word_and_state(qtbot):
    chip = Chip("Estimated")
    qtbot.addWidget(chip)
    chip.show_chip("Measured, run 6", "good")
    assert chip.text() == "Measured, run 6"
    assert chip.palette().color(QPalette.ColorRole.WindowText) == Theme.current().good


def test_an_icon_alone_has_a_name(qtbot):
    button = icon_button("copy", "Copy command", name="copy")
    qtbot.addWidget(button)
    assert button.accessibleName() == button.toolTip() == "Copy command"
