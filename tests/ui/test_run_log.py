"""The log as rows: appended, filtered, searched, marked, followed and jumped in."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractItemView
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from kvstudio.runlog.values import LogLine
from kvstudio.ui.models import log_model
from kvstudio.ui.models.log_model import Filter, LogModel, Mark, Role, is_about_memory, is_metadata
from kvstudio.ui.widgets_run.log_line import elapsed
from kvstudio.ui.widgets_run.log_view import LogView


def line(number: int, message: str, level: str | None = "I") -> LogLine:
    return LogLine(number, f"0.00.001.000 {level} {message}", message, level, 0.001)


def numbered(first: int, last: int) -> tuple[LogLine, ...]:
    return tuple(line(i, f"srv update: id {i}") for i in range(first, last + 1))


MIXED = (
    line(1, "llama_model_loader: - kv   0: general.architecture str = qwen3"),
    line(2, "print_info: n_embd = 640"),
    line(3, "load_tensors: offloaded 65/65 layers to GPU"),
    line(4, "load_tensors:        CUDA0 model buffer size =  9169.13 MiB"),
    line(5, "srv start: binding port"),
    line(6, "ggml_backend: allocating 7936.00 MiB on device 1: cudaMalloc failed: out of memory", "E"),
)


def shown(model: LogModel) -> list[int]:
    return [model.line(row).number for row in range(model.rowCount())]


def test_rows_are_lines_and_metadata_is_left_out(qtbot: QtBot, qtmodeltester: ModelTester) -> None:
    model = LogModel()
    model.show_lines(MIXED)

    qtmodeltester.check(model)
    assert shown(model) == [3, 4, 5, 6]
    assert model.n_metadata == 2 and model.n_lines == 6
    assert model.data(model.index(0), Role.LINE) is MIXED[2]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [(Filter.ALL, [1, 2, 3, 4, 5, 6]), (Filter.MEMORY, [3, 4, 6]), (Filter.NO_METADATA, [3, 4, 5, 6])],
)
def test_filters(qtbot: QtBot, wanted: Filter, numbers: list[int]) -> None:
    model = LogModel()
    model.show_lines(MIXED)
    model.set_filter(wanted)

    assert shown(model) == numbers


def test_marked_lines_pass_every_filter_and_know_what_they_mean(qtbot: QtBot) -> None:
    model = LogModel()
    model.show_lines(MIXED)
    model.set_filter(Filter.MEMORY)
    model.mark({2: Mark.EVIDENCE, 6: Mark.KEY})

    assert shown(model) == [2, 3, 4, 6]
    assert model.data(model.index(0), Role.MARK) is Mark.EVIDENCE
    assert model.data(model.index(3), Role.MARK) is Mark.KEY
    assert model.row_of(6) == 3 and model.row_of(5) is None


def test_a_search_finds_any_case_and_takes_nothing_for_a_pattern(qtbot: QtBot) -> None:
    model = LogModel()
    model.show_lines((*MIXED, line(7, "weird (.*) [line")))
    model.set_search("CUDAMALLOC")
    assert shown(model) == [6]
    model.set_search("(.*) [")
    assert shown(model) == [7]
    model.set_search("")
    assert shown(model) == [3, 4, 5, 6, 7]


def test_appended_lines_become_rows_in_one_batch(qtbot: QtBot) -> None:
    model = LogModel()
    inserted: list[tuple[int, int]] = []
    model.rowsInserted.connect(lambda _, first, last: inserted.append((first, last)))
    for i in range(1, 301):
        model.append((line(i, f"line {i}"),))
    assert model.rowCount() == 0 and model.n_lines == 300

    qtbot.waitUntil(lambda: model.rowCount() == 300, timeout=3000)
    assert inserted == [(0, 299)]


def test_a_flood_becomes_rows_slice_by_slice(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_model, "SLICE", 100)
    model = LogModel()
    model.set_filter(Filter.ALL)
    model.append(numbered(1, 350))
    model.flush()
    assert model.rowCount() == 100
    qtbot.waitUntil(lambda: model.rowCount() == 350, timeout=5000)
    assert shown(model) == list(range(1, 351))


def test_a_long_log_is_filtered_in_slices(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_model, "SCAN_STEP", 100)
    monkeypatch.setattr(log_model, "SCAN_S", 0.0)
    model = LogModel()
    model.show_lines((*numbered(1, 349), MIXED[0]))

    assert model.scanning and model.rowCount() == 100
    with qtbot.waitSignal(model.changed, check_params_cb=None, timeout=5000):
        qtbot.waitUntil(lambda: not model.scanning, timeout=5000)
    assert model.rowCount() == 349 and model.n_metadata == 1


def test_of_a_log_without_end_the_head_and_the_newest_lines_stay(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_model, "MAX_LINES", 100)
    monkeypatch.setattr(log_model, "HEAD_LINES", 10)
    monkeypatch.setattr(log_model, "DROP_STEP", 50)
    model = LogModel()
    for first in range(1, 401, 20):
        model.append(numbered(first, first + 19))
        model.flush()
    qtbot.waitUntil(lambda: not model.scanning, timeout=5000)

    numbers = shown(model)
    assert numbers[:10] == list(range(1, 11)) and numbers[-1] == 400
    assert len(numbers) <= 100 and model.dropped + model.n_lines == 400
    assert model.row_of(400) == len(numbers) - 1


@pytest.mark.parametrize(
    ("text", "metadata", "memory"),
    [
        ("llama_model_loader: - type q4_K:   27 tensors", True, False),
        ("load: special tokens cache size = 6414", True, False),
        ("load_tensors: offloaded 19/19 layers to GPU", False, True),
        ("llama_context: n_ctx = 65536", False, True),
        ("srv  update_slots: all slots are idle", False, False),
        ("x" * 5_000_000, False, False),
    ],
)
def test_what_a_line_is_about(text: str, metadata: bool, memory: bool) -> None:
    assert is_metadata(line(1, text)) is metadata
    assert is_about_memory(line(1, text)) is memory


def test_hostile_lines_are_text(qtbot: QtBot) -> None:
    model = LogModel()
    model.show_lines((LogLine(1, "\x1b[31m<b>red</b>\x00\u202e", "\x1b[31m<b>red</b>\x00\u202e"),))

    assert model.data(model.index(0)) == "<b>red</b>\\x00\\x202e"


def test_elapsed_keeps_to_five_characters() -> None:
    assert [elapsed(t) for t in (None, 0.402, 75.31, 100.314, 12345.6)] == ["", "0.402", "75.31", "100.3", "12346"]


@pytest.fixture
def view(qtbot: QtBot) -> LogView:
    model = LogModel()
    model.set_filter(Filter.ALL)
    seen = LogView()
    model.setParent(seen)
    seen.setModel(model)
    qtbot.addWidget(seen)
    seen.resize(900, 205)
    seen.show()
    qtbot.waitExposed(seen)
    model.show_lines(numbered(1, 500))
    return seen


def model_of(view: LogView) -> LogModel:
    model = view.model()
    assert isinstance(model, LogModel)
    return model


def test_it_follows_the_end_until_it_is_scrolled_away(view: LogView, qtbot: QtBot) -> None:
    bar = view.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    model_of(view).append(numbered(501, 600))
    model_of(view).flush()
    assert bar.value() == bar.maximum()

    with qtbot.waitSignal(view.following_changed) as changed:
        bar.setValue(100)
    assert changed.args == [False] and not view.following
    model_of(view).append(numbered(601, 700))
    model_of(view).flush()
    assert bar.value() == 100

    view.set_following(True)
    assert bar.value() == bar.maximum()


def test_jumping_puts_a_line_in_the_middle_and_keeps_it_there(view: LogView) -> None:
    assert view.jump_to(250)
    assert not view.following
    assert view.currentIndex().row() == 249
    middle = view.visualRect(view.currentIndex()).center().y()
    assert abs(middle - view.viewport().height() / 2) <= 20
    view.resize(900, 405)
    assert abs(view.visualRect(view.currentIndex()).center().y() - view.viewport().height() / 2) <= 20
    assert not view.jump_to(9999)


def test_rows_are_found_where_they_are_seen(view: LogView) -> None:
    view.jump_to(100)
    index = view.currentIndex()
    box = view.visualRect(index)
    assert view.indexAt(box.center()) == index
    assert not view.indexAt(QPoint(5, 10_000_000)).isValid()


def test_keys_move_and_copy(view: LogView, qtbot: QtBot) -> None:
    view.jump_to(10)
    qtbot.keyClick(view, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    assert view.rows_selected() == [9, 10]
    qtbot.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text().splitlines() == [model_of(view).line(r).text for r in (9, 10)]
    qtbot.keyClick(view, Qt.Key.Key_End)
    assert view.currentIndex().row() == 499
    qtbot.keyClick(view, Qt.Key.Key_PageUp)
    assert view.currentIndex().row() < 499


def test_a_click_selects_the_row_under_it(view: LogView, qtbot: QtBot) -> None:
    view.jump_to(300)
    box = view.visualRect(model_of(view).index(298))
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=box.center())
    assert view.rows_selected() == [298]


def test_every_kind_of_row_is_painted(view: LogView) -> None:
    model = model_of(view)
    model.show_lines((*MIXED, line(7, "srv main: exiting", "E"), line(8, "debug", "D"), line(9, "raw", None)))
    model.mark({6: Mark.KEY, 4: Mark.EVIDENCE, 7: Mark.GENERIC})
    view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
    view.selectAll()
    picture = view.grab().toImage()
    colours = {picture.pixelColor(1, y).name() for y in range(0, picture.height(), 4)}
    assert len(colours) >= 3  # key bar, evidence bar, gutter


def test_the_gutter_grows_with_the_numbers(view: LogView) -> None:
    narrow = view.gutter()
    model_of(view).show_lines((line(123_456_789, "far"),))
    assert view.gutter() > narrow == 48
