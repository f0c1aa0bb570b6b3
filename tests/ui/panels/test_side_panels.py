"""Model, devices, tool bar, banner, strip and empty page: values in, words read back, wishes out."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit, QToolButton, QWidget

from kvstudio.budget.estimate import estimate
from kvstudio.case.opening import read_model
from kvstudio.devices.values import Device, DeviceProcess, DeviceSource, Machine
from kvstudio.errors import KvStudioError
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.ui.panels.devices_panel import DevicesPanel, second_line, short_description
from kvstudio.ui.panels.empty_page import EmptyPage, Entry
from kvstudio.ui.panels.model_panel import ModelPanel
from kvstudio.ui.panels.status import Banner, StatusStrip
from kvstudio.ui.panels.toolbar import ToolBar
from kvstudio.ui.text import why_no_launch
from kvstudio.units import GIB

TINY = str(Path(__file__).parents[2] / "data" / "headers" / "tiny.gguf")
CARD = Device("CUDA0", "CUDA", "NVIDIA GeForce RTX 4090", 24 * GIB, int(16.4 * GIB), DeviceSource.NVML)
HOST = Device("Host", "CPU", "RAM", 64 * GIB, 51 * GIB)
BINARY = Binary("/opt/llama-server", "llama-server", "b11434", 11434, "abc", None, ("CUDA",), frozenset())


def shown(qtbot, widget):
    qtbot.addWidget(widget)
    widget.show()
    return widget


def test_model_facts(qtbot):
    panel = shown(qtbot, ModelPanel())
    model = read_model(TINY)
    panel.show_model(model, estimate(model, LaunchConfig(), (CARD,)))
    rows = dict(panel.rows())
    assert rows["Architecture"] == "llama"
    assert rows["Layers"] == "4 + output"
    assert rows["Heads"] == "4, KV 2"
    # 4 layers x 2 x 2 heads x 16 wide x 2 bytes
    assert rows["KV per token"] == "512 B"
    assert rows["Trained context"] == "4096"
    assert "Experts" not in rows
    assert "Window" not in rows


def test_a_model_that_is_not_here_is_named(qtbot):
    panel = shown(qtbot, ModelPanel())
    panel.show_model(None, None, "/elsewhere/big.gguf")
    assert panel.rows() == ()
    assert "big.gguf" in [label.text() for label in panel.findChildren(type(panel._file))]


def test_device_rows(qtbot):
    panel = shown(qtbot, DevicesPanel())
    busy = replace(CARD, processes=(DeviceProcess(4182, "python3", int(7.6 * GIB)),))
    panel.show_devices(Machine((busy,), HOST), (), ("CUDA0",))
    assert panel.row_texts("CUDA0") == ("CUDA0 RTX 4090 16.4 free", "python3 (4182) 7.6 GiB")
    assert panel.row_texts("Host") == ("Host RAM 51.0 free", "of 64.0 GiB")
    assert panel.checkbox("CUDA0").isChecked()


def test_ticking_goes_out_and_showing_does_not(qtbot):
    panel = shown(qtbot, DevicesPanel())
    with qtbot.assertNotEmitted(panel.ticked):
        panel.show_devices(Machine((CARD,), HOST), (), ("CUDA0",))
        panel.show_devices(Machine((CARD,), HOST), (), ())
    with qtbot.waitSignal(panel.ticked) as got:
        panel.checkbox("CUDA0").click()
    assert got.args == ["CUDA0", True]


def test_an_unknown_device_says_why():
    gone = replace(CARD, total_bytes=None, free_bytes=None, reason="driver and library versions differ")
    assert second_line(gone) == "driver and library versions differ"


def test_several_processes_are_summed():
    busy = replace(
        CARD,
        processes=(
            DeviceProcess(1, "Xorg", int(0.3 * GIB)),
            DeviceProcess(2, "a", int(0.1 * GIB)),
            DeviceProcess(3, "b", None),
        ),
    )
    assert second_line(busy) == "Xorg 0.3, 2 more 0.1"


def test_maker_names_are_shortened():
    assert short_description("NVIDIA GeForce RTX 4090") == "RTX 4090"
    assert short_description("AMD Radeon RX 7900 XTX") == "RX 7900 XTX"


def test_a_what_if_device_is_typed_in_place(qtbot):
    panel = shown(qtbot, DevicesPanel())
    panel.show_devices(Machine((), HOST), (), ())
    panel.findChild(QToolButton, "addWhatIf").click()
    line = panel.findChild(QLineEdit, "whatIf")
    qtbot.keyClicks(line, "2 x 24 GiB")
    with qtbot.waitSignal(panel.what_if_added) as got:
        qtbot.keyClick(line, Qt.Key.Key_Return)
    assert [d.total_bytes for d in got.args[0]] == [24 * GIB, 24 * GIB]
    assert not line.isVisible()


def test_a_bad_what_if_device_is_said_in_place(qtbot):
    panel = shown(qtbot, DevicesPanel())
    panel.begin_what_if()
    line = panel.findChild(QLineEdit, "whatIf")
    qtbot.keyClicks(line, "a big one")
    with qtbot.assertNotEmitted(panel.what_if_added):
        qtbot.keyClick(line, Qt.Key.Key_Return)
    assert panel.editor.error()
    qtbot.keyClick(line, Qt.Key.Key_Escape)
    assert not line.isVisible()


def test_rpc_servers_are_typed_in_place(qtbot):
    panel = shown(qtbot, DevicesPanel())
    panel.begin_rpc()
    panel.rpc_editor.field.setText("box")
    qtbot.keyClick(panel.rpc_editor.field, Qt.Key.Key_Return)
    assert "box is not the address" in panel.rpc_editor.error()
    panel.rpc_editor.field.setText("box:50052")
    with qtbot.waitSignal(panel.rpc_added) as said:
        qtbot.keyClick(panel.rpc_editor.field, Qt.Key.Key_Return)
    assert said.args == [("box:50052",)]
    assert panel.rpc_editor.isHidden()


def test_a_remote_device_shows_its_server_and_can_be_removed(qtbot):
    panel = shown(qtbot, DevicesPanel())
    remote = Device("RPC0[box:50052]", "RPC", "box:50052", 24 * GIB, 20 * GIB, DeviceSource.RPC)
    panel.show_devices(Machine((remote,), HOST), (), (remote.name,))
    assert panel.row_texts(remote.name)[0] == "RPC0 box:50052 20.0 free"
    with qtbot.waitSignal(panel.rpc_removed) as said:
        panel.findChild(QToolButton, f"remove{remote.name}").click()
    assert said.args == [remote.name]


def test_what_if_devices_can_be_removed(qtbot):
    panel = shown(qtbot, DevicesPanel())
    extra = replace(CARD, name="CUDA1", source=DeviceSource.WHAT_IF)
    panel.show_devices(Machine((CARD,), HOST), (extra,), ("CUDA1",))
    with qtbot.waitSignal(panel.what_if_removed) as got:
        panel.findChild(QToolButton, "removeCUDA1").click()
    assert got.args == ["CUDA1"]


@pytest.mark.parametrize("name", ["<b>bold</b>.gguf", "a & b %s {0}", "\u202egnp.gguf"])
def test_hostile_names_stay_text(qtbot, name):
    panel = shown(qtbot, DevicesPanel())
    panel.show_devices(Machine((replace(CARD, description=name),), HOST), (), ())
    assert short_description(name) in panel.row_texts("CUDA0")[0]


def test_tool_bar_states(qtbot):
    bar = shown(qtbot, ToolBar())
    bar.show_state(has_model=False, has_log=False, why_not="", running=False, primary=True)
    assert not bar.launch_button.isEnabled()
    bar.show_state(has_model=True, has_log=False, why_not="", running=False, primary=True)
    assert bar.launch_button.property("primary") is True
    with qtbot.waitSignal(bar.launch_requested):
        bar.launch_button.click()
    bar.show_state(has_model=True, has_log=False, why_not="", running=True, primary=True)
    assert bar.launch_button.property("primary") is False
    with qtbot.waitSignal(bar.stop_requested):
        bar.launch_button.click()
    assert not bar.report_button.isEnabled()


def test_binary_chooser(qtbot):
    bar = shown(qtbot, ToolBar())
    bar.show_binaries((("/opt/llama-server", "llama-server"), ("/old/llama-server", "llama-server b4000")), BINARY)
    assert bar.binary_box.currentText() == "llama-server b11434"
    with qtbot.waitSignal(bar.binary_chosen) as got:
        bar.binary_box.activated.emit(1)
    assert got.args == ["/old/llama-server"]
    with qtbot.waitSignal(bar.binary_browse_requested):
        bar.binary_box.activated.emit(bar.binary_box.count() - 1)
    assert bar.binary_box.currentText() == "llama-server b11434"


def test_no_binary_is_said(qtbot):
    bar = shown(qtbot, ToolBar())
    bar.show_binaries((), None)
    why_not = why_no_launch(False, ())
    bar.show_state(has_model=True, has_log=False, why_not=why_not, running=False, primary=True)
    assert not bar.launch_button.isEnabled()
    assert "choose one" in bar.launch_button.toolTip()
    assert bar.binary_box.currentText() == "No llama.cpp found"


def test_banner_says_message_and_hint_until_dismissed(qtbot):
    banner = shown(qtbot, Banner())
    banner.show_error(KvStudioError("a.gguf: not a GGUF", "Choose another file."))
    assert banner.texts() == ("a.gguf: not a GGUF", "Choose another file.")
    banner.findChild(QToolButton, "dismissBanner").click()
    assert banner.texts() == ("", "")


def test_banner_asks(qtbot):
    banner, said = shown(qtbot, Banner()), []
    banner.ask("m is a projector", "It takes memory.", (("Use it", lambda: said.append("yes")),))
    from PySide6.QtWidgets import QPushButton

    next(b for b in banner.findChildren(QPushButton) if b.text() == "Use it").click()
    assert said == ["yes"]
    assert banner.texts() == ("", "")


def test_status_strip(qtbot):
    strip = shown(qtbot, StatusStrip())
    strip.show_machine(BINARY, Machine((CARD,), HOST))
    assert strip.texts() == ("llama-server b11434", "found in PATH", "CUDA0 RTX 4090 16.4 of 24.0 GiB free")
    strip.show_machine(None, Machine((), HOST))
    assert strip.texts()[0] == "No llama.cpp program found"
    assert strip.texts()[2] == "RAM 51.0 of 64.0 GiB free"


ENTRIES = tuple(Entry(f"/m/{n}.gguf", f"Model {n}", "Q4_K_M, 1.0 GiB", "Ollama") for n in range(11))


def test_found_models_fold_and_unfold(qtbot):
    page = shown(qtbot, EmptyPage())
    page.show_found(ENTRIES, 4)
    assert page.found.titles()[-1] == "Show 7 more"
    qtbot.mouseClick(page.found.row(4), Qt.MouseButton.LeftButton)
    assert len(page.found.titles()) == 11


def test_a_row_opens_by_mouse_and_by_key(qtbot):
    page = shown(qtbot, EmptyPage())
    page.show_recent(ENTRIES[:3])
    with qtbot.waitSignal(page.chosen) as got:
        qtbot.mouseClick(page.recent.row(1), Qt.MouseButton.LeftButton)
    assert got.args == ["/m/1.gguf"]
    with qtbot.waitSignal(page.chosen) as got:
        qtbot.keyClick(page.recent.row(2), Qt.Key.Key_Return)
    assert got.args == ["/m/2.gguf"]


def test_the_sample_is_offered_only_where_it_is(qtbot):
    page = shown(qtbot, EmptyPage())
    page.show_sample(False)
    assert not page.sample_button.isEnabled()
    assert "kvstudio[rig]" in page.sample_button.toolTip()
    page.show_sample(True)
    with qtbot.waitSignal(page.sample_requested):
        page.sample_button.click()


def test_a_narrow_tool_bar_folds_words_away_and_keeps_every_step(qtbot):
    window = QWidget()
    bar = ToolBar(window)
    qtbot.addWidget(window)
    window.show()
    icon_only = Qt.ToolButtonStyle.ToolButtonIconOnly
    for width in (1600, 700, 1600):
        bar.setGeometry(0, 0, width, bar.height())
        buttons = [b for b in bar.findChildren(QToolButton) if b.text()]
        assert all(b.toolTip() for b in buttons)
        folded = {b.objectName() for b in buttons if b.toolButtonStyle() is icon_only}
        assert ("checkButton" in folded) is (width < 1000)
        assert width < 1000 or not folded & {"openButton", "recentButton", "fixButton", "reportButton"}
