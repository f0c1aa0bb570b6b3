"""The bars answer pointer and keyboard with the numbers they show."""

import pytest
from PySide6.QtCore import QPoint, Qt

from kvstudio.budget.values import BufferKind, FirstFailure
from kvstudio.ui.widgets.bar_geometry import BAR_HEIGHT
from kvstudio.ui.widgets.budget_bars import BudgetBars, bracket_words, room_words
from kvstudio.ui.widgets.legend import Legend, kinds_of
from kvstudio.units import GIB
from tests.ui import samples


@pytest.fixture
def bars(qtbot):
    widget = BudgetBars()
    qtbot.addWidget(widget)
    widget.resize(678, 240)
    widget.show_budget(samples.FAILS, holders=samples.HOLDERS)
    widget.show()
    return widget


def middle(bars, row, kind):
    shown = bars.layout_shown().rows[row]
    segment = next(s for s in shown.segments if s.kind is kind)
    return QPoint(round(segment.x + segment.width / 2), round(shown.y + BAR_HEIGHT / 2))


def test_the_pointer_finds_a_segment_with_formula_and_provenance(qtbot, bars):
    seen = []
    bars.segment_hovered.connect(seen.append)
    qtbot.mouseMove(bars, middle(bars, 1, BufferKind.KV))
    piece = seen[-1]
    assert (piece.device, piece.kind, piece.bytes) == ("CUDA1", BufferKind.KV, samples.mib(7936))
    assert "8\u202f321\u202f499\u202f136 bytes" in piece.words()
    assert "31 layers x 65536 cells" in piece.words()
    assert "exact" in piece.words()
    qtbot.mouseMove(bars, QPoint(2, 2))
    assert seen[-1] is None


def test_other_processes_are_named(bars):
    piece = bars.piece((1, 0))
    assert piece.kind is BufferKind.OTHER_PROCESSES
    assert "python3 (4182)" in piece.words()


def test_the_overflow_says_how_much_is_too_much(bars):
    last = len(bars.layout_shown().rows[1].segments) - 1
    piece = bars.piece((1, last))
    assert piece.kind is None
    assert "1.3 GiB more than it has" in piece.words()


def test_left_and_right_go_through_all_segments(qtbot, bars):
    bars.setFocus(Qt.FocusReason.TabFocusReason)
    seen = []
    bars.segment_hovered.connect(seen.append)
    for _ in range(40):
        qtbot.keyClick(bars, Qt.Key.Key_Right)
    expected = [(row.values.name, segment.kind) for row in bars.layout_shown().rows for segment in row.segments]
    assert [(p.device, p.kind) for p in seen] == expected
    qtbot.keyClick(bars, Qt.Key.Key_Left)
    assert (seen[-1].device, seen[-1].kind) == expected[-2]
    qtbot.keyClick(bars, Qt.Key.Key_Up)
    assert seen[-1].device == "CUDA1"
    assert "CUDA1" in bars.accessibleDescription()


def test_the_figures_are_said_for_those_who_cannot_see_the_bars(bars):
    assert "CUDA0: 18.5 / 24.0 GiB" in bars.accessibleDescription()


def test_nothing_to_show_draws_nothing(qtbot, bars):
    bars.show_budget(None)
    assert bars.layout_shown().rows == ()
    bars.grab()
    assert bars.piece((0, 0)) is None


def test_a_glide_ends_at_the_new_budget(qtbot, bars):
    bars.show_budget(samples.FITS, glide=True)
    qtbot.waitUntil(lambda: bars.layout_shown().rows[1].values.used_bytes < 23 * GIB, timeout=3000)
    qtbot.waitUntil(lambda: bars.layout_shown().rows[0].values.amounts[2].bytes == samples.mib(10805.8), timeout=3000)


def test_room_is_said_in_words():
    assert room_words(5.5 * GIB) == "5.5 GiB free"
    assert room_words(-1.3 * GIB) == "1.3 GiB over"
    assert room_words(-12 * 1024**2) == "12.0 MiB over"
    assert room_words(None) == "capacity unknown"


def test_the_bracket_says_what_was_asked_and_what_was_there(bars):
    row = bars.layout_shown().rows[1]
    assert bracket_words(BufferKind.KV, row) == "KV cache asks for 7.8 GiB, 6.9 GiB are free"
    assert bracket_words(BufferKind.MODEL, row) == "Weights ask for 7.8 GiB, 6.9 GiB are free"


def test_the_bracket_says_when_it_is_a_limit_of_the_backend(qtbot):
    failure = FirstFailure("CUDA1", BufferKind.KV, 5 * GIB, GIB, None, 4 * GIB)
    bars = BudgetBars()
    qtbot.addWidget(bars)
    bars.show_budget(samples.replace(samples.FAILS, first_failure=failure))
    row = bars.layout_shown().rows[1]
    assert bracket_words(BufferKind.KV, row) == "KV cache asks for 5.0 GiB, one allocation may be 4.0 GiB"


def test_the_legend_names_only_what_is_there(qtbot):
    legend = Legend()
    qtbot.addWidget(legend)
    legend.show_kinds(kinds_of(samples.FAILS))
    assert BufferKind.RS not in legend.kinds()
    assert legend.accessibleName().startswith("Other processes, Overhead, Weights, KV cache")
    assert legend.heightForWidth(200) > legend.heightForWidth(700)
    assert BufferKind.OUTPUT not in kinds_of(samples.FAILS, host=False)
    assert kinds_of(None) == ()
