"""The one window: panels wired to the store, values in, wishes out."""

import os
import time
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QMimeData, Qt, QTimer
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QGuiApplication,
    QHideEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QMainWindow,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from kvstudio.case.values import Case
from kvstudio.errors import KvStudioError
from kvstudio.ui import background, dialogs, menus, sample, theme
from kvstudio.ui.binaries import Binaries, Chosen
from kvstudio.ui.drop import DropOverlay, is_readable, paths_of
from kvstudio.ui.panels.empty_page import EmptyPage, recent_entry
from kvstudio.ui.panels.status import Banner, StatusStrip
from kvstudio.ui.panels.toolbar import ToolBar
from kvstudio.ui.preferences import Preferences
from kvstudio.ui.store import Store
from kvstudio.ui.text import plain, tr, why_no_launch
from kvstudio.ui.theme import Scheme
from kvstudio.ui.windows import Windows
from kvstudio.work import task
from kvstudio.work.device_poll import DevicePoll

if TYPE_CHECKING:
    from kvstudio.ui.work_page import WorkPage

_FIRST_SIZE = (1280, 820)
_LEAST_SIZE = (1080, 640)
_BUILD_AHEAD_MS = 400
#: Reading that is over by then needs no words.
_SAY_BUSY_MS = 400


class MainWindow(QMainWindow):
    """Wires; decides nothing that a panel or the store can decide."""

    def __init__(self, preferences: Preferences | None = None, devices_file: str | None = None) -> None:
        super().__init__()
        self.preferences = preferences if preferences is not None else Preferences()
        self.store = Store(self)
        self.binaries = Binaries(self)
        self._devices_file = devices_file
        self.windows = Windows(self)
        self.poll = DevicePoll(background.probe, self)
        self._shut = self._closing = False
        self.setWindowTitle("kvstudio")
        self.setAcceptDrops(True)
        screen = self.screen().availableGeometry()
        self.setMinimumSize(
            min(theme.px(_LEAST_SIZE[0]), screen.width()), min(theme.px(_LEAST_SIZE[1]), screen.height())
        )
        self._work: WorkPage | None = None
        self._is_working = False
        self._busy = ""
        self._busy_timer = QTimer(self)
        self._busy_timer.setSingleShot(True)
        self._busy_timer.setInterval(_SAY_BUSY_MS)
        self._half_made: WorkPage | None = None
        self._begun = self._is_making = False
        self._untold: KvStudioError | None = None
        self._build()
        self._wire()
        menus.build(self)
        self._restore()
        self._show(None, self.store.case)
        self._show_recent()

    # Building ----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.toolbar = ToolBar()
        self.banner = Banner()
        self.empty = EmptyPage()
        self.strip = StatusStrip()
        start = QWidget()
        column = _column(start)
        column.addWidget(self.empty, 1)
        column.addWidget(self.strip)
        self.pages = QStackedWidget()
        self.pages.addWidget(start)
        central = QWidget()
        column = _column(central)
        column.addWidget(self.toolbar)
        column.addWidget(self.banner)
        column.addWidget(self.pages, 1)
        # The window opens with no ring around its first button; Tab goes there.
        central.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setCentralWidget(central)
        central.setFocus()
        self._overlay = DropOverlay(central)

    @property
    def work(self) -> "WorkPage":
        """The page with the panels; building it is put off until it is wanted."""
        if self._work is None:
            while self._make_next():
                pass
            self._work, self._half_made = self._half_made, None
            assert self._work is not None
            self._work.fit(self.width(), self.height())
            self._work.show_case(None, self.store.case)
            self._show_state()
        return self._work

    def _make_next(self) -> bool:
        """Build one more part of the page with the panels; False when all are there."""
        if self._half_made is None:
            from kvstudio.ui.work_page import WorkPage

            self._half_made = WorkPage(self)
            self.pages.addWidget(self._half_made)
            return True
        return self._half_made.make_next()

    def _make_ahead(self) -> None:
        """A part in each turn of the event loop, so that none of them is long."""
        if not self._is_making and self._work is None:
            self._is_making = True
            self._make_on()

    def _make_on(self) -> None:
        if self._shut:
            return
        if self._work is None and self._make_next():
            QTimer.singleShot(0, self._make_on)
            return
        self._is_making = False
        _ = self.work
        self._show(None, self.store.case)

    @property
    def is_running(self) -> bool:
        """Whether a test launch is under way."""
        return self._work is not None and self._work.launching.running

    def _wire(self) -> None:
        store, bar, empty = self.store, self.toolbar, self.empty
        store.changed.connect(self._on_changed)
        store.failed.connect(self.banner.show_error)
        store.working_changed.connect(self._on_working)
        store.busy_changed.connect(self._on_busy)
        self._busy_timer.timeout.connect(lambda: self.banner.show_busy(self._busy))
        store.noted.connect(self.banner.show_note)
        store.opened.connect(self._on_opened)
        store.asked.connect(self.windows.ask)
        bar.open_requested.connect(self.ask_open)
        bar.recent_chosen.connect(self._open_recent)
        bar.binary_chosen.connect(self._choose_binary)
        bar.binary_browse_requested.connect(lambda: dialogs.ask_binary(self, self._choose_binary))
        bar.check_requested.connect(self.windows.check)
        bar.launch_requested.connect(self.launch)
        bar.stop_requested.connect(self.stop)
        bar.fix_requested.connect(self.windows.fix)
        bar.report_requested.connect(self.windows.report)
        bar.history_requested.connect(self.windows.history)
        bar.options_requested.connect(self.windows.launch_options)
        empty.open_requested.connect(self.ask_open)
        empty.paste_requested.connect(self.paste)
        empty.sample_requested.connect(self.try_sample)
        empty.chosen.connect(self._open_recent)
        empty.clear_requested.connect(self._clear_recent)
        self.binaries.list_changed.connect(self._show_binaries)
        self.binaries.chosen.connect(self._on_binary)
        self.binaries.failed.connect(self.banner.show_error)
        self.binaries.relisted.connect(self.poll.set_listed)
        self.poll.polled.connect(store.set_machine)
        self.poll.polled.connect(lambda _: self.binaries.on_polled())

    # Start and end -------------------------------------------------------------------------------------------------

    def begin(self, files: tuple[str, ...] = ()) -> None:
        """What may start once the window is on screen: open files, look for programs, devices and models."""
        self._begun = True
        if self.preferences.damage is not None:
            self.banner.show_error(self.preferences.damage)
        self._untold = self.preferences.damage if files else None
        self.open_paths(files)
        if self._devices_file is not None:
            task.run(
                background.load_snapshot, self._devices_file, done=self.store.set_machine, failed=self.banner.show_error
            )
        else:
            self.poll.start()
        self.binaries.look(self.preferences.binary)
        if not files:
            task.run(
                background.find_models,
                done=self._on_models,
                failed=lambda _: self.empty.show_found((), 0),
                key="discover",
            )
        self.empty.show_sample(sample.is_available())
        # By the time a file is chosen, the page it needs is there.
        task.run(
            background.import_work_page,
            done=lambda _: QTimer.singleShot(_BUILD_AHEAD_MS, self._make_ahead),
            failed=lambda _: None,
            key="import",
        )

    def shut_down(self) -> None:
        """Stop what runs; called once, at the end."""
        if not self._shut:
            self._shut = True
            self.poll.stop()
            self.preferences.geometry = self.saveGeometry()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.is_running:
            # The child ends first; then the window closes by itself.
            self.stop()
            self._closing = True
            self.hide()
            event.ignore()
            return
        self.shut_down()
        super().closeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.poll.release("hidden")

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.poll.hold("hidden")

    def _restore(self) -> None:
        kept = self.preferences.geometry
        if kept is None or not self.restoreGeometry(kept):
            available = self.screen().availableGeometry()
            width, height = (theme.px(length) for length in _FIRST_SIZE)
            self.resize(min(width, available.width()), min(height, available.height()))

    # Wishes ------------------------------------------------------------------------------------------------------

    def open_paths(self, paths: tuple[str, ...]) -> None:
        """Open files as if they had been dropped."""
        if paths:
            self.store.open_paths(paths)

    def ask_open(self) -> None:
        dialogs.ask_open(self, self.open_paths)

    def ask_model(self) -> None:
        """The model of the log on screen, whatever it is called here; without a log any file."""
        if not self.store.case.log:
            self.ask_open()
            return
        dialogs.ask_open(self, lambda paths: self.store.open_for_log(paths[0]))

    def ask_save(self) -> None:
        model = self.store.case.model
        dialogs.ask_save(self, f"{model.name if model else 'case'}.kvcase", self.store.save_case)

    def paste(self) -> None:
        """Read the clipboard: files, a command line, a log or a path."""
        self._take(QGuiApplication.clipboard().mimeData())

    def copy_command(self) -> None:
        self.work.command.copy.click()

    def edit_command(self) -> None:
        if self.pages.currentIndex() == 1:
            self.work.command.begin_edit()

    def add_what_if(self) -> None:
        if self.pages.currentIndex() == 1:
            self.work.devices_panel.begin_what_if()

    def set_scheme(self, scheme: Scheme) -> None:
        """Light, dark or the desktop's; said when the desktop does not listen."""
        self.preferences.scheme = scheme
        app = QApplication.instance()
        if isinstance(app, QApplication) and not theme.set_scheme(app, scheme):
            self.banner.show_note(tr("This desktop does not let a program choose its colour scheme"))

    def launch(self) -> None:
        """Start a test launch with the settings on screen."""
        case = self.store.case
        why_not = why_no_launch(case.binary is not None, case.not_here, self._is_working)
        if why_not:
            self.banner.show_note(why_not)
            return
        self.work.launching.start()

    def stop(self) -> None:
        """End the test launch."""
        if self.is_running:
            self.work.launching.stop()

    def try_sample(self) -> None:
        """Open the sample model with the sample server on two software devices."""
        if not sample.is_available():
            problem = KvStudioError(tr("The sample is not installed"), "pip install 'kvstudio[rig]'")
            self.banner.show_error(problem)
            return
        self.empty.show_sample(True, busy=True)
        self.banner.show_note(tr("Preparing the sample…"))
        task.run(sample.prepare, done=self._on_sample, failed=self._on_sample_failed, key="sample")

    def _on_sample(self, ready: sample.Sample) -> None:
        self.empty.show_sample(True)
        self.store.edit({"env": ready.env})
        self.binaries.choose(ready.server_path, ready.env)
        self.open_paths((ready.model_path,))

    def _on_sample_failed(self, error: KvStudioError) -> None:
        self.empty.show_sample(True)
        self.banner.show_error(error)

    def _choose_binary(self, path: str) -> None:
        self.binaries.choose(path)

    def _on_binary(self, chosen: Chosen) -> None:
        self.preferences.binary = chosen.binary.path
        self.store.set_binary(chosen.binary)
        if chosen.problem is not None:
            self.banner.show_error(chosen.problem)
        elif chosen.away:
            servers = ", ".join(f"{server} ({reason})" for server, reason in chosen.away)
            says = tr("No RPC server answers at {}").format(servers)
            self.banner.show_error(KvStudioError(says, tr("Start ggml-rpc-server there, or remove it from --rpc.")))
        if self._devices_file is None:
            self.poll.set_listed(chosen.listed)

    def _on_opened(self, what: tuple[str, str, str, str]) -> None:
        self.preferences.add_recent(*what)
        self._show_recent()
        self.banner.hide()
        if self._untold is not None:
            # The files of the command line came before anybody could read it.
            self.banner.show_error(self._untold)
            self._untold = None

    def _open_recent(self, path: str) -> None:
        self.open_paths((path,))
        task.run(os.path.exists, path, done=lambda there: None if there else self._forget(path))

    def _forget(self, path: str) -> None:
        """A file that is gone leaves the list of recent ones; opening it says so."""
        self.preferences.forget(path)
        self._show_recent()

    def _clear_recent(self) -> None:
        self.preferences.clear_recent()
        self._show_recent()

    def on_running(self, running: bool) -> None:
        """A launch began or is over."""
        (self.poll.hold if running else self.poll.release)("launch")
        if not running and self.store.case.config.rpc:
            self.binaries.list_again()  # nobody but the program itself knows what is free on a remote device
        self._show_state()
        if self._closing and not running:
            self.close()
            # Qt counts the end of visible windows only, and this one was hidden while the child ended.
            QGuiApplication.quit()

    # Drop and paste ------------------------------------------------------------------------------------------------

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if is_readable(event.mimeData()):
            event.acceptProposedAction()
            self._show_hover(True)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self._show_hover(False)

    def dropEvent(self, event: QDropEvent) -> None:
        self._show_hover(False)
        event.acceptProposedAction()
        self._take(event.mimeData())

    def _take(self, mime: QMimeData) -> None:
        paths = paths_of(mime)
        if paths:
            self.open_paths(paths)
        else:
            self.store.open_text(mime.text())

    def _show_hover(self, on: bool) -> None:
        self.empty.show_drop(on)
        self._overlay.setVisible(on and self.pages.currentIndex() == 1)
        self._overlay.resize(self.size())
        self._overlay.raise_()

    # Showing -----------------------------------------------------------------------------------------------------

    def _on_changed(self, old: Case, new: Case) -> None:
        if (new.config.env, new.config.rpc) != (old.config.env, old.config.rpc):
            self.binaries.set_env(new.config.env, new.config.rpc or ())
        self._show(old, new)

    def _on_busy(self, words: str) -> None:
        """Files that take longer to read are said to be read; most are there before a word of it could be."""
        self._busy = words
        if words:
            self._busy_timer.start()
        else:
            self._busy_timer.stop()
            self.banner.end_busy()

    def _on_working(self, working: bool) -> None:
        self._is_working = working
        self._show_state()

    def _show(self, old: Case | None, new: Case) -> None:
        empty = new.model is None and not new.log and not new.config.model_path
        if not empty and self._work is None and self._begun:
            # It is shown as soon as it is made; until then the window can be used.
            self._make_ahead()
            empty = True
        elif not empty and self._work is None:
            old = None
        if not empty:
            self.pages.setCurrentWidget(self.work)
        else:
            self.pages.setCurrentIndex(0)
        if old is not None and new.model is not None and old.model is not new.model:
            # What could not be opened before is of no matter any more; what is wrong with this one is said after it.
            self.banner.hide()
        if self._work is not None:
            self._work.show_case(old, new)
        if old is None or old.binary is not new.binary or old.machine is not new.machine:
            self.strip.show_machine(new.binary, new.machine, self.binaries.note)
        if old is None or old.model is not new.model:
            self.setWindowTitle(f"{plain(new.model.name)} – kvstudio" if new.model and new.model.name else "kvstudio")
        self._show_state()

    def _show_state(self) -> None:
        case = self.store.case
        # With a log or a result below, the next step is there.
        is_open = self._work is not None and self._work.run_panel.is_open
        why_not = why_no_launch(case.binary is not None, case.not_here, self._is_working)
        if self._work is not None:
            self._work.show_ready(case.model is not None and not why_not and not self.is_running, why_not)
        self.toolbar.show_state(
            has_model=case.model is not None,
            has_log=bool(case.log or case.runs),
            why_not=why_not,
            running=self.is_running,
            primary=not is_open,
        )

    def _show_binaries(self) -> None:
        self.toolbar.show_binaries(self.binaries.entries(), self.binaries.current, self.binaries.note)
        self.strip.show_machine(self.binaries.current, self.store.case.machine, self.binaries.note)

    def _show_recent(self) -> None:
        items = self.preferences.recent()
        self.toolbar.show_recent(tuple((item.path, f"{item.title}    {item.detail}") for item in items[:12]))
        now = time.time()
        self.empty.show_recent(tuple(recent_entry(item, now) for item in items))

    def _on_models(self, found: Any) -> None:
        entries, folders = found
        self.empty.show_found(entries, folders)

    # Size --------------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._work is not None:
            self._work.fit(self.width(), self.height())


def _column(widget: QWidget) -> QVBoxLayout:
    layout = QVBoxLayout(widget)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(0)
    return layout
