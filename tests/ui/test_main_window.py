"""The window: everything wired, drops and opened files read, nothing changed by what cannot be read."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, QSettings, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QFileOpenEvent, QGuiApplication
from PySide6.QtWidgets import QLabel, QLineEdit

from kvstudio.case.opening import OpenedFolder
from kvstudio.devices.values import Device, DeviceSource, Machine
from kvstudio.launch.binary import Binary
from kvstudio.ui import background, main_window
from kvstudio.ui.dialogs import CheckDialog, DefectDialog, HelpDialog, WhyDialog, why_rows
from kvstudio.ui.main_window import MainWindow
from kvstudio.ui.preferences import Preferences, when
from kvstudio.ui.theme import Scheme
from kvstudio.ui.work_page import holders, measured_in
from kvstudio.units import GIB, MIB
from tests.ui import samples

TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
CARD = Device("CUDA0", "CUDA", "RTX 4090", 24 * GIB, 23 * GIB, DeviceSource.NVML)
HOST = Device("Host", "CPU", "RAM", 64 * GIB, 50 * GIB)
MACHINE = Machine((CARD,), HOST)
BINARY = Binary("/opt/llama-server", "llama-server", "b11434", 11434, "abc", None, ("CUDA",), frozenset())


@pytest.fixture
def settings(tmp_path):
    return QSettings(str(tmp_path / "kvstudio.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def window(qtbot, inline_tasks, settings, monkeypatch):
    monkeypatch.setattr(background, "probe", lambda listed: MACHINE)
    made = MainWindow(Preferences(settings))
    qtbot.addWidget(made)
    made.resize(1280, 820)
    made.show()
    yield made
    made.shut_down()


@pytest.fixture
def opened(window):
    window.store.set_machine(MACHINE)
    window.store.set_binary(BINARY)
    window.open_paths((TINY,))
    return window


def mime_of(*paths, text=""):
    mime = QMimeData()
    if paths:
        mime.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    if text:
        mime.setText(text)
    return mime


def drop(window, mime):
    where = QPointF(600, 400)
    action, button, key = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(where.toPoint(), action, mime, button, key)
    window.dragEnterEvent(enter)
    accepted = enter.isAccepted()
    if accepted:
        window.dropEvent(QDropEvent(where, action, mime, button, key))
    return accepted


def test_it_opens_on_the_empty_page(window):
    assert window.pages.currentIndex() == 0
    assert not window.toolbar.launch_button.isEnabled()
    assert window.windowTitle() == "kvstudio"


def test_a_dropped_model_fills_every_panel(window):
    window.store.set_machine(MACHINE)
    assert drop(window, mime_of(TINY))
    assert window.pages.currentIndex() == 1
    assert dict(window.work.model_panel.rows())["Architecture"] == "llama"
    assert window.work.devices_panel.checkbox("CUDA0").isChecked()
    assert any("tiny.gguf" in word.text for word in window.work.command.words())
    assert window.windowTitle() == "Tiny llama – kvstudio"


def test_dropped_text_is_read_as_a_command(window):
    assert drop(window, mime_of(text=f"llama-server -m {TINY} -c 2048"))
    assert window.store.case.config.n_ctx == 2048
    assert window.store.case.model is not None


def test_an_option_that_llama_cpp_does_not_have_is_named_under_the_command(opened):
    command = opened.work.command
    opened.store.open_text(f"llama-server -m {TINY} --ctx-sizes 512")
    assert command.notes() == (
        "--ctx-sizes is no option of llama.cpp, which refuses to start with it. Did you mean --ctx-size?"
    )
    opened.store.set_binary(replace(BINARY, flags=frozenset({"-m", "--ctx-sizes"})))
    assert command.notes() == ""
    opened.store.set_binary(replace(BINARY, flags=frozenset({"-m"}), program="llama-cli"))
    assert "Did you mean --ctx-size?" in command.notes()


def test_nothing_readable_is_not_accepted(window):
    mime = QMimeData()
    mime.setData("application/x-other", b"1")
    assert not drop(window, mime)


def test_a_dropped_bad_file_is_said_and_changes_nothing(opened, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x09\x00\x00\x00")
    before = opened.store.case
    drop(opened, mime_of(bad))
    assert opened.store.case is before
    assert "bad.gguf" in opened.banner.texts()[0]
    assert opened.banner.texts()[1]


def test_a_file_of_the_desktop_opens(qapp, window):
    from kvstudio.ui.app import Application

    # The running application of a test is a plain one; the handler needs none of its own state.
    seen = []

    class Hearer:
        class file_opened:  # noqa: N801
            emit = staticmethod(seen.append)

    assert Application.event.__get__(Hearer())(QFileOpenEvent(QUrl.fromLocalFile(TINY)))
    assert seen == [TINY]
    window.open_paths((seen[0],))
    assert window.store.case.model is not None


def test_pasting_by_key_reads_the_clipboard(window, qtbot):
    QGuiApplication.clipboard().setText(f"llama-server -m {TINY} -np 3")
    qtbot.keyClick(window, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert window.store.case.config.n_parallel == 3


def test_a_setting_repaints_chart_and_command(opened, qtbot):
    before = opened.store.case.budget
    line = opened.work.settings.findChild(QLineEdit, "n_ctx")
    line.setFocus()
    qtbot.keyClicks(line, "2048")
    assert opened.store.case.config.n_ctx == 2048
    assert opened.store.case.budget is not before
    assert any(word.text == "-c 2048" and word.changed for word in opened.work.command.words())


def test_a_settings_file_that_is_damaged_is_kept_and_said(qtbot, inline_tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(background, "probe", lambda listed: MACHINE)
    path = tmp_path / "kvstudio.ini"
    path.write_bytes(b"\x00\xff no settings\n[[[\n")
    made = MainWindow(Preferences(QSettings(str(path), QSettings.Format.IniFormat)))
    qtbot.addWidget(made)
    made.begin((TINY,))
    qtbot.waitUntil(lambda: made.pages.currentIndex() == 1)
    assert "damaged" in made.banner.texts()[0]
    assert (tmp_path / "kvstudio.damaged").read_bytes().startswith(b"\x00\xff no settings")
    made.shut_down()
    made.close()


def test_undo_and_redo_by_key(opened, qtbot):
    opened.store.edit({"n_ctx": 2048})
    qtbot.keyClick(opened, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert opened.store.case.config.n_ctx is None
    qtbot.keyClick(opened, Qt.Key.Key_Y, Qt.KeyboardModifier.ControlModifier)
    assert opened.store.case.config.n_ctx == 2048


def test_a_projector_is_offered_for_the_open_model(opened, tmp_path):
    from tests.ui.test_store import _write_projector

    path = tmp_path / "mmproj.gguf"
    _write_projector(path)
    drop(opened, mime_of(path))
    assert "projector" in opened.banner.texts()[0]
    next(
        b for b in opened.banner.findChildren(main_window.QWidget) if getattr(b, "text", str)() == "Use with Tiny llama"
    ).click()
    assert opened.store.case.config.mmproj == str(path)


def test_a_model_and_its_projector_dropped_together(window, tmp_path):
    from tests.ui.test_store import _write_projector

    path = tmp_path / "mmproj-x.gguf"
    _write_projector(path)
    drop(window, mime_of(path, TINY))
    assert window.store.case.model.name == "Tiny llama"
    assert "projector" in window.banner.texts()[0]


def test_a_folder_asks_which(opened, qtbot):
    opened.store.asked.emit(OpenedFolder("/m", ("/m/a.gguf", "/m/b.gguf"), ("/m/x.log",)))
    dialog = opened.findChild(main_window.dialogs.ChooseDialog)
    assert dialog.list.count() == 3
    assert dialog.chosen() == "/m/a.gguf"
    dialog.reject()


def test_recent_files_are_kept_newest_first(opened, settings, tmp_path):
    opened.store.save_case(str(tmp_path / "a.kvcase"))
    assert [item.title for item in Preferences(settings).recent()] == ["a.kvcase", "tiny.gguf"]
    opened._clear_recent()
    assert Preferences(settings).recent() == ()


def test_a_recent_file_that_is_gone_leaves_the_list(window, settings):
    window.preferences.add_recent("/gone/x.gguf", "model", "x.gguf", "")
    window._open_recent("/gone/x.gguf")
    assert Preferences(settings).recent() == ()
    assert "x.gguf" in window.banner.texts()[0]


def test_damaged_preferences_count_as_none(settings, qapp):
    settings.setValue("recent", '[{"path": 1}, null')
    settings.setValue("scheme", "plaid")
    preferences = Preferences(settings)
    assert preferences.recent() == ()
    assert preferences.scheme is Scheme.SYSTEM
    assert preferences.geometry is None


@pytest.mark.parametrize(("days", "words"), [(1, "yesterday"), (3, "3 days ago")])
def test_when(days, words):
    now = 1_800_000_000
    assert when(now - days * 86400, now) == words


def test_size_is_remembered(window, settings, qtbot):
    window.resize(950, 650)
    window.close()
    again = MainWindow(Preferences(settings))
    qtbot.addWidget(again)
    # The width is bounded by the offscreen screen.
    assert again.height() == 650
    again.shut_down()


@pytest.mark.parametrize("size", [(1280, 820), (1100, 720), (900, 600)])
def test_panels_fit_at_each_size(opened, size, qtbot):
    opened.resize(*size)
    qtbot.waitUntil(lambda: opened.width() == size[0])
    right = opened.work.settings.mapTo(opened, opened.work.settings.rect().bottomRight())
    assert right.x() <= size[0]
    assert opened.toolbar.report_button.geometry().right() < opened.toolbar.help_button.geometry().left()


def test_closing_during_a_launch_stops_it_first_and_then_ends_the_program(window, monkeypatch):
    told = []
    monkeypatch.setattr(MainWindow, "is_running", property(lambda self: "over" not in told))
    monkeypatch.setattr(MainWindow, "stop", lambda self: told.append("stop"))
    monkeypatch.setattr("kvstudio.ui.main_window.QGuiApplication.quit", lambda: told.append("quit"))
    window.show()
    assert window.close() is False
    assert told == ["stop"]
    told.append("over")
    window.on_running(False)
    assert told[-1] == "quit"


def test_polling_stops_while_hidden(window):
    window.poll.start()
    assert window.poll.is_active()
    window.hide()
    assert not window.poll.is_active()
    window.show()
    assert window.poll.is_active()


def test_a_launch_holds_polling_and_offers_stop(opened):
    opened.poll.start()
    opened.on_running(True)
    assert not opened.poll.is_active()
    opened.on_running(False)
    assert opened.poll.is_active()


def test_variables_of_a_launch_list_devices_again(opened, monkeypatch):
    asked = []
    monkeypatch.setattr(opened.binaries, "set_env", lambda *what: asked.append(what))
    opened.store.edit({"env": (("CUDA_VISIBLE_DEVICES", "1"),)})
    assert asked == [((("CUDA_VISIBLE_DEVICES", "1"),), ())]


def test_rpc_servers_of_a_launch_list_devices_again(opened, monkeypatch):
    asked = []
    monkeypatch.setattr(opened.binaries, "set_env", lambda *what: asked.append(what))
    opened.work.devices_panel.rpc_added.emit(("box:50052",))
    opened.work.devices_panel.rpc_added.emit(("box:50053", "box:50052"))
    assert opened.store.case.config.rpc == ("box:50052", "box:50053")
    opened.work.devices_panel.rpc_removed.emit("RPC0[box:50052]")
    assert [rpc for _, rpc in asked] == [("box:50052",), ("box:50052", "box:50053"), ("box:50053",)]


def test_the_check_marks_the_chart_measured(opened, monkeypatch):
    from kvstudio.budget.values import Provenance
    from kvstudio.oracle.values import OracleResult, OracleRow

    budget = opened.store.case.budget
    device = budget.devices[0]
    row = OracleRow("CUDA0", "compute", device.compute_bytes + 5 * MIB, MIB, device.compute_bytes)
    monkeypatch.setattr(background, "check", lambda case: OracleResult("llama-server", (), (row,), "4 MiB low"))
    opened.windows.check()
    dialog = opened.findChild(CheckDialog)
    assert dialog.says.text() == "4 MiB low"
    dialog.reject()
    seen = opened.store.case.budget
    assert seen.devices[0].compute_bytes == device.compute_bytes + 5 * MIB
    assert any(b.provenance is Provenance.MEASURED for b in seen.buffers)
    assert measured_in(opened.store.case) == "dry run"
    opened.store.edit({"n_ctx": 1024})
    assert measured_in(opened.store.case) is None


def test_why_lists_allocations_in_order(opened):
    budget = opened.store.case.budget
    rows = why_rows(budget, budget.devices[0])
    assert [row[0] for row in rows][:3] == ["Free before", "Weights", "KV cache"]
    opened.windows.why()
    opened.findChild(WhyDialog).reject()


def test_help_opens_by_key(opened, qtbot):
    qtbot.keyClick(opened, Qt.Key.Key_F1)
    opened.findChild(HelpDialog).reject()


def test_a_defect_can_be_copied(qtbot):
    dialog = DefectDialog("Traceback: <b>x</b>")
    qtbot.addWidget(dialog)
    dialog.show()
    dialog.findChild(main_window.QWidget, "copyDefect").click()
    assert QGuiApplication.clipboard().text() == "Traceback: <b>x</b>"


def test_holders_name_the_biggest():
    from dataclasses import replace

    from kvstudio.devices.values import DeviceProcess

    busy = replace(
        CARD, processes=(DeviceProcess(1, "a", GIB), DeviceProcess(2, "b", 3 * GIB), DeviceProcess(3, "c", None))
    )
    assert holders((busy, HOST)) == {"CUDA0": "b (2) holds 3.0 GiB"}


def test_the_keyboard_goes_through_the_window_as_the_eye_does(opened):
    opened.store.add_what_if((Device("CUDA7", "CUDA", "", 8 * GIB, 8 * GIB, DeviceSource.WHAT_IF),))
    opened.store.tick("CUDA0", False)
    opened.work.settings.more.click()
    opened.work.chart.show_fixes(samples.FIXES)
    names, at = [], opened.toolbar.open_button
    for _ in range(5000):
        if at.focusPolicy() & Qt.FocusPolicy.TabFocus:
            names.append(at.objectName())
        at = at.nextInFocusChain()
        if at is opened.toolbar.open_button:
            break
    wanted = ["openButton", "helpButton", "useCUDA0", "useCUDA7", "removeCUDA7", "addWhatIf", "bars", "why", "apply0"]
    wanted += ["commandText", "n_ctx", "advancedToggle", "kv_unified", "environment", "openLog"]
    assert [name for name in names if name in wanted] == wanted


def test_fix_asks_for_the_model_of_a_log(window, tmp_path):
    path = tmp_path / "server.log"
    path.write_text(
        "srv    load_model: loading model '/elsewhere/big.gguf'\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7936.00 MiB on device 1: cudaMalloc failed: out of "
        "memory\nllama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    )
    window.open_paths((str(path),))
    card = window.work.run_panel.log.card
    assert card.fix_button.isVisible()
    card.fix_button.click()
    said = " ".join(label.text() for label in window.banner.findChildren(QLabel))
    assert "Fixes are worked out from the model" in said
    assert "big.gguf" in said
    window.store.open_for_log(TINY)
    assert window.store.case.model is not None
    assert window.store.case.log
    assert card.fix_button.isVisible()


def test_while_a_budget_is_worked_out_its_page_says_so_and_nothing_is_launched(opened):
    chart, toolbar = opened.work.chart, opened.toolbar
    assert chart.verdict.isVisible()
    assert toolbar.launch_button.isEnabled()
    opened.store.working_changed.emit(True)
    assert chart._chip.text() == "Working it out…"
    assert not chart.verdict.isVisible()
    assert not toolbar.launch_button.isEnabled()
    assert not toolbar.check_button.isEnabled()
    opened.store.working_changed.emit(False)
    assert chart._chip.text() == "Estimated"
    assert chart.verdict.isVisible()
    assert toolbar.launch_button.isEnabled()


def test_a_file_that_takes_long_to_read_is_said_to_be_read(opened, qtbot):
    opened.store.busy_changed.emit("Reading big.log…")
    assert opened.banner.texts() == ("", "")
    qtbot.waitUntil(lambda: opened.banner.texts() == ("Reading big.log…", ""))
    opened.store.busy_changed.emit("")
    assert opened.banner.texts() == ("", "")
    # What was said since stays, and what is quick is not said at all.
    opened.store.busy_changed.emit("Reading small.log…")
    opened.banner.show_note("Saved as x.kvcase")
    opened.store.busy_changed.emit("")
    assert not opened._busy_timer.isActive()
    assert opened.banner.texts() == ("Saved as x.kvcase", "")
