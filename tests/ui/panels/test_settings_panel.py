"""Settings: what is typed goes out, what it becomes and what contradicts is shown, and empty means not typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QLineEdit

from kvstudio.case.values import Case
from kvstudio.devices.values import Device, Machine
from kvstudio.errors import ConfigError
from kvstudio.launch.config import NOT_SETTINGS, LaunchConfig
from kvstudio.ui import setting_notes
from kvstudio.ui.panels.settings_panel import SettingsPanel, contexts
from kvstudio.ui.settings_table import ALL, BY_FIELD, Kind, format_value, parse_value
from kvstudio.units import GIB
from tests.ui import samples

CARDS = tuple(Device(f"CUDA{i}", "CUDA", "", 24 * GIB, 20 * GIB) for i in range(2))
CASE = Case(
    config=samples.CONFIG,
    budget=samples.FAILS,
    machine=Machine(CARDS, Device("Host", "CPU")),
    chosen=("CUDA0", "CUDA1"),
)


@pytest.fixture
def panel(qtbot):
    made = SettingsPanel()
    qtbot.addWidget(made)
    made.resize(312, 700)
    made.show()
    # Rows behind the toggle are built when they are asked for.
    assert made.rows
    return made


def field(panel, name) -> QLineEdit:
    return panel.findChild(QLineEdit, name)


def combo(panel, name) -> QComboBox:
    return panel.findChild(QComboBox, name)


def test_every_setting_has_its_row(panel):
    settings = set(LaunchConfig.__dataclass_fields__) - set(NOT_SETTINGS)
    assert set(panel.rows) == settings
    assert len(ALL) == len(settings)


def test_typed_default_and_effective_values(panel):
    panel.show_case(CASE)
    assert field(panel, "n_ctx").text() == "65536"
    assert field(panel, "n_batch").text() == ""
    assert field(panel, "n_batch").placeholderText() == "2048"
    assert panel.rows["n_parallel"].effective() == "4, unified"
    assert panel.rows["n_gpu_layers"].effective() == "65 of 65"
    assert panel.rows["tensor_split"].effective() == "33 : 32"
    assert panel.rows["flash_attn"].effective() == "on"


def test_changed_settings_are_marked_and_others_not(panel):
    panel.show_case(CASE)
    marked = {name for name, row in panel.rows.items() if row.is_marked()}
    assert marked == {"n_ctx", "n_gpu_layers", "tensor_split"}


def test_typing_a_number_goes_out_at_once(panel, qtbot):
    panel.show_case(CASE)
    with qtbot.waitSignal(panel.edited) as got:
        field(panel, "n_ubatch").setFocus()
        qtbot.keyClicks(field(panel, "n_ubatch"), "7")
    assert got.args == [{"n_ubatch": 7}]


def test_clearing_a_field_means_not_typed(panel, qtbot):
    panel.show_case(CASE)
    line = field(panel, "n_gpu_layers")
    line.setFocus()
    line.selectAll()
    with qtbot.waitSignal(panel.edited) as got:
        qtbot.keyClick(line, Qt.Key.Key_Delete)
    assert got.args == [{"n_gpu_layers": None}]


def test_nonsense_is_said_in_place_and_does_not_go_out(panel, qtbot):
    panel.show_case(CASE)
    with qtbot.assertNotEmitted(panel.edited):
        qtbot.keyClicks(field(panel, "tensor_split"), "x")
        qtbot.keyClick(field(panel, "tensor_split"), Qt.Key.Key_Return)
    assert "expected" in panel.rows["tensor_split"].note()
    qtbot.keyClick(field(panel, "tensor_split"), Qt.Key.Key_Escape)
    assert field(panel, "tensor_split").text() == "1,1"


def test_choosing_the_default_means_not_typed(panel, qtbot):
    panel.show_case(Case(config=LaunchConfig(cache_type_k="q8_0")))
    box = combo(panel, "cache_type_k")
    assert box.currentData() == "q8_0"
    with qtbot.waitSignal(panel.edited) as got:
        box.activated.emit(0)
    assert got.args == [{"cache_type_k": None}]


def test_a_switch_has_three_states(panel):
    box = combo(panel, "kv_offload")
    for value, text in ((None, "on"), (True, "on"), (False, "off")):
        panel.show_case(Case(config=LaunchConfig(kv_offload=value)))
        assert box.currentData() is value
        assert box.short == text


def test_a_value_that_is_not_offered_is_shown_all_the_same(panel):
    panel.show_case(Case(config=LaunchConfig(n_parallel=77, load_mode="odd")))
    assert combo(panel, "n_parallel").currentData() == 77
    assert combo(panel, "load_mode").short == "odd"


def test_dragging_the_slider_is_told_apart_from_keys(panel, qtbot):
    from kvstudio.case.opening import read_model
    from tests.ui.test_store import TINY

    panel.show_case(Case(model=read_model(TINY), config=LaunchConfig(n_ctx=2048)))
    slider = panel.slider
    assert slider.context() == 2048
    slider.setSliderDown(True)
    with qtbot.waitSignal(panel.dragged) as got:
        slider.setValue(slider.value() + 3)
    assert got.args == [{"n_ctx": 2816}]
    with qtbot.waitSignal(panel.drag_ended):
        slider.setSliderDown(False)
    with qtbot.waitSignal(panel.edited) as got:
        qtbot.keyClick(slider, Qt.Key.Key_Left)
    assert got.args == [{"n_ctx": 2560}]


@given(st.integers(256, 2**24))
def test_contexts_are_sensible(most):
    values = contexts(most)
    assert values[-1] == most
    assert all(v % 256 == 0 for v in values[:-1])
    assert list(values) == sorted(set(values))
    assert len(values) < 1000


def test_contexts_hold_the_usual_ones():
    assert {4096, 8192, 32768, 65536, 131072} <= set(contexts(1 << 20))


def test_environment_is_read_line_by_line(panel, qtbot):
    editor = panel.environment
    editor.field.setPlainText("CUDA_VISIBLE_DEVICES=0,1\nexport LLAMA_ARG_CTX_SIZE=4096\n\n")
    with qtbot.waitSignal(panel.env_edited) as got:
        editor.commit()
    assert got.args == [(("CUDA_VISIBLE_DEVICES", "0,1"), ("LLAMA_ARG_CTX_SIZE", "4096"))]


def test_a_bad_variable_is_said_in_place(panel, qtbot):
    editor = panel.environment
    editor.field.setPlainText("NO EQUALS")
    with qtbot.assertNotEmitted(panel.env_edited):
        editor.commit()
    assert "NO EQUALS" in editor.error()


def test_advanced_unfolds(panel, qtbot):
    assert not panel.rows["swa_full"].isVisible()
    qtbot.mouseClick(panel.more, Qt.MouseButton.LeftButton)
    assert panel.rows["swa_full"].isVisibleTo(panel)


def test_reset_is_a_wish(panel, qtbot):
    panel.show_case(CASE)
    with qtbot.waitSignal(panel.reset_requested):
        panel.reset.click()


@pytest.mark.parametrize(
    ("changes", "field_name", "state", "words"),
    [
        ({"cache_type_v": "q4_0", "flash_attn": "off"}, "cache_type_v", "warn", "flash attention"),
        ({"tensor_split": (1.0, 1.0)}, "tensor_split", "info", "-fit"),
        ({"tensor_split": (1.0, 1.0, 1.0)}, "tensor_split", "warn", "3 shares for 2"),
        ({"tensor_split": (1.0,)}, "tensor_split", "warn", "1 shares for 2"),
        ({"split_mode": "row"}, "split_mode", "warn", "CUDA"),
        ({"main_gpu": 5}, "main_gpu", "warn", "2 devices"),
        ({"n_ubatch": 4096}, "n_ubatch", "info", "2048"),
    ],
)
def test_contradictions_are_said_at_the_control(panel, changes, field_name, state, words):
    case = CASE.replace(config=LaunchConfig(**changes), budget=None)
    assert setting_notes.notes(case)[field_name][0] == state
    panel.show_case(case)
    assert words in panel.rows[field_name].note()


def test_no_contradiction_no_note():
    assert setting_notes.notes(CASE.replace(config=LaunchConfig(), budget=None)) == {}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n_gpu_layers", "all", -2),
        ("n_gpu_layers", "auto", -1),
        ("n_gpu_layers", "40", 40),
        ("tensor_split", "3,1", (3.0, 1.0)),
        ("tensor_split", "3/1", (3.0, 1.0)),
        ("device", "CUDA0,CUDA1", ("CUDA0", "CUDA1")),
        ("override_tensor", "blk\\.1=CPU,exps=CUDA0", (("blk\\.1", "CPU"), ("exps", "CUDA0"))),
        ("fit_target", "512,1024", (512, 1024)),
        ("cache_ram", "-1", -1),
        ("n_ctx", "  ", None),
    ],
)
def test_text_and_value(name, text, value):
    assert parse_value(BY_FIELD[name], text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("n_ctx", "-1"), ("n_ctx", "many"), ("n_ctx", "99999999999"), ("tensor_split", "0,0"), ("tensor_split", "nan,1"),
     ("override_tensor", "exps"), ("n_gpu_layers", "-5"), ("n_batch", "0")],
)  # fmt: skip
def test_bad_text_is_refused(name, text):
    with pytest.raises(ConfigError):
        parse_value(BY_FIELD[name], text)


@given(st.sampled_from([s for s in ALL if s.kind in (Kind.INT, Kind.LAYERS)]), st.integers(1, 2**31 - 1))
def test_numbers_come_back(setting, value):
    assert parse_value(setting, format_value(setting, value)) == value


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_ratios_come_back(shares):
    setting = BY_FIELD["tensor_split"]
    assert parse_value(setting, format_value(setting, tuple(map(float, shares)))) == tuple(map(float, shares))


def test_rows_behind_the_toggle_are_built_with_their_values(qtbot, opened_case):
    made = SettingsPanel()
    qtbot.addWidget(made)
    made.show_case(opened_case)
    assert made.findChild(QComboBox, "swa_full") is None
    made.more.click()
    assert made.findChild(QComboBox, "swa_full").currentData() is True
    assert made.environment.field.toPlainText() == "GGML_X=1"


@pytest.fixture
def opened_case():
    return Case(config=LaunchConfig(swa_full=True, env=(("GGML_X", "1"),)))


def test_a_low_panel_puts_rows_behind_more_and_keeps_changed_ones(panel):
    panel.show_case(Case(config=LaunchConfig(n_batch=1024)))
    panel.resize(312, 400)
    hidden = [name for name in ("main_gpu", "n_batch", "n_ubatch") if not panel.rows[name].isVisibleTo(panel)]
    assert hidden == ["main_gpu", "n_ubatch"]
    assert panel.more.text() == "More"
    panel.more.click()
    assert panel.rows["n_ubatch"].isVisibleTo(panel)
    panel.more.click()
    panel.resize(312, 700)
    assert panel.rows["n_ubatch"].isVisibleTo(panel)
    assert panel.more.text() == "Advanced"
