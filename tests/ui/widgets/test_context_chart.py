"""The curves answer a click with a context."""

import pytest
from PySide6.QtCore import QPoint, Qt

from kvstudio.advise.by_context import by_context
from kvstudio.ui.widgets.basic import Label
from kvstudio.ui.widgets.context_chart import ContextChart
from kvstudio.ui.widgets.context_geometry import spread, value_at
from kvstudio.ui.widgets.context_page import ContextPage, largest_words, limit_text, limits_grid
from tests.ui import samples


@pytest.fixture(scope="module")
def view():
    return by_context(samples.estimate, samples.CONFIG, samples.FAILS, 40960, samples.largest)


@pytest.fixture
def chart(qtbot, view):
    made = ContextChart()
    qtbot.addWidget(made)
    made.resize(678, 300)
    made.show_context(view)
    made.show()
    return made


def test_a_click_sets_the_context_below_the_pointer(qtbot, chart, view):
    plot = chart.frames()[0]
    where = QPoint(round(plot.x(32768)), round(plot.box.bottom() - 10))
    with qtbot.waitSignal(chart.context_picked) as said:
        qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=where)
    assert said.args[0] % 256 == 0
    assert abs(said.args[0] - 32768) <= 256


def test_a_click_near_the_mark_means_the_mark(chart, view):
    plot = chart.frames()[1]
    end = view.curves[0].fits[1]
    total = view.curves[0].points[0].devices[1].total_bytes
    assert chart.picked_at(plot.x(end) + 4, plot.y(total) - 3) == end
    assert chart.picked_at(2, 2) is None


def test_the_arrows_move_and_enter_picks(qtbot, chart, view):
    chart.setFocus()
    picked = []
    chart.context_picked.connect(picked.append)
    qtbot.keyClick(chart, Qt.Key.Key_Left)
    qtbot.keyClick(chart, Qt.Key.Key_Left)
    qtbot.keyClick(chart, Qt.Key.Key_Return)
    assert picked == [65536 - 2048]
    assert "Context 63488" in chart.accessibleDescription()


def test_the_words_of_a_context_name_every_type(chart):
    words = chart.words_at(65536)
    assert words.splitlines()[0] == "Context 65536"
    assert "CUDA1: f16 25.3, q8_0 " in words


def test_values_lie_between_the_points(view):
    curve = view.curves[0]
    low, high = value_at(curve, 0, 4096), value_at(curve, 0, 131072)
    assert low < value_at(curve, 0, 50000) < high


def test_names_at_the_end_are_pushed_apart():
    placed = spread([100, 104, 90, 200], 14)
    assert sorted(placed) == [90, 104, 118, 200]
    assert placed[2] < placed[0] < placed[1] < placed[3]


def test_the_answer_in_words(view):
    headline, detail = largest_words(view)
    assert headline == f"Largest that fits on both: {view.largest}."
    assert detail.startswith("CUDA1 decides.")
    all_fit = samples.replace(view, largest=view.n_ctx_max)
    assert largest_words(all_fit)[0] == "Every context up to 131072 fits on both."
    assert largest_words(samples.replace(view, largest=None))[0] == "No context fits on both."


def test_limits_beyond_the_trained_context_are_marked(view):
    assert limit_text(40960, view) == "40960"
    assert limit_text(41216, view) == "41216*"
    assert limit_text(81920, samples.replace(view, streams=2)) == "81920", "40960 in each of two slots"
    assert limit_text(131072, samples.replace(view, n_ctx_train=0)) == "131072"
    assert limit_text(None, view) == "–"


@pytest.mark.parametrize(("trained", "marked"), [(40960, True), (1 << 20, False)])
def test_the_mark_is_explained_where_it_stands(qtbot, view, trained, marked):
    grid = limits_grid(samples.replace(view, n_ctx_train=trained))
    qtbot.addWidget(grid)
    notes = [label.text() for label in grid.findChildren(Label) if "past the trained" in label.text()]
    assert [f"past the trained {trained}" in note for note in notes] == [True] * marked


def test_a_page_is_replaced_by_the_next(qtbot, view):
    page = ContextPage()
    qtbot.addWidget(page)
    page.show()
    page.show_context(view)
    page.show_context(samples.replace(view, largest=view.n_ctx_now))
    assert not page.findChild(object, "use").isVisible(), "it is in use already"
    page.show_context(None)
    assert not page.chart.isVisible()
