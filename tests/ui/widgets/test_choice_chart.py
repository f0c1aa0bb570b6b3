"""ui.widgets.choice_chart: every step can be pointed at, read and taken."""

import pytest
from PySide6.QtCore import QPoint, Qt

from kvstudio.advise.choices import Choice, Step
from kvstudio.ui.widgets.choice_chart import ChoiceChart, step_words
from kvstudio.units import GIB

CHOICES = (
    Choice(
        "n_ctx",
        "Longer context",
        "slower",
        (
            Step("4096", (("n_ctx", 4096),), 2 * GIB, True),
            Step("8192", (("n_ctx", 8192),), -GIB, False, beyond=True),
        ),
    ),
    Choice("n_parallel", "More slots", "own context", (Step("1", (("n_parallel", 1),), None, False),)),
)


@pytest.fixture
def chart(qtbot):
    made = ChoiceChart()
    qtbot.addWidget(made)
    made.resize(640, 100)
    made.show_choices(CHOICES)
    made.show()
    return made


def test_words_say_what_stays():
    assert [step_words(step) for step in CHOICES[0].steps] == ["2.0 GiB free", "1.0 GiB over"]
    assert step_words(CHOICES[1].steps[0]) == "unknown"


def test_a_click_takes_a_step_and_the_present_one_is_left_alone(chart, qtbot):
    taken = []
    chart.picked.connect(taken.append)
    for at in ((0, 0), (0, 1)):
        centre = chart.box(*at).center().toPoint()
        assert chart.hit(centre.x(), centre.y()) == at
        qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=centre)
    assert taken == [{"n_ctx": 8192}]
    assert chart.hit(1, 1) is None
    qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=QPoint(1, 1))
    assert len(taken) == 1


def test_arrows_and_enter_do_the_same(chart, qtbot):
    chart.setFocus()
    with qtbot.waitSignal(chart.picked) as sent:
        for key in (Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_Return):
            qtbot.keyClick(chart, key)
    assert sent.args == [{"n_ctx": 8192}]
    assert "RoPE" in chart.accessibleDescription()
    qtbot.keyClick(chart, Qt.Key.Key_Down)
    assert "More slots" in chart.accessibleDescription()


def test_nothing_to_choose_takes_no_room(chart):
    chart.show_choices(())
    assert chart.height() == 1
