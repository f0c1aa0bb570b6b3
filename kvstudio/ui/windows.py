"""The windows above the main one: the fix wizard, the report, llama.cpp's own figures, why, help, and choices."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QBuffer, QObject, Qt
from PySide6.QtWidgets import QDialog

from kvstudio.case import opening
from kvstudio.case.values import Checked
from kvstudio.errors import KvStudioError
from kvstudio.oracle.values import OracleResult
from kvstudio.ui import background, dialogs
from kvstudio.ui.text import tr
from kvstudio.verify.options import LaunchOptions
from kvstudio.work import task

if TYPE_CHECKING:
    from kvstudio.ui.main_window import MainWindow


class Windows(QObject):
    """Opens them with the case on screen and takes back what they decide."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self._window = window
        self._store = window.store
        self._walk: Any = None

    @staticmethod
    def open(dialog: QDialog) -> None:
        """Show a window that goes when it is closed."""
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def check(self) -> None:
        """Ask llama.cpp for its own figures, without loading the model."""
        case, window = self._store.case, self._window
        if case.model is None or case.binary is None or case.not_here or window.is_running:
            return
        window.toolbar.show_checking(True)

        def on_done(result: OracleResult) -> None:
            window.toolbar.show_checking(False)
            if result.ok:
                self._store.replace(checked=Checked(case.config, case.chosen, result))
            self.open(dialogs.CheckDialog(result, window))

        def on_failed(error: KvStudioError) -> None:
            window.toolbar.show_checking(False)
            window.banner.show_error(error)

        task.run(background.check, case, done=on_done, failed=on_failed, key="check")

    def fix(self) -> None:
        """The fix wizard; it goes on where it was closed as long as the settings are the same."""
        from kvstudio.ui.wizard.wizard import FixWizard

        case, earlier, window = self._store.case, self._walk, self._window
        if window.is_running:
            return
        if case.model is None:
            self._ask_for_model()
            return
        same = earlier is not None and earlier.wanted == case.config and earlier.world.devices == case.chosen_devices
        launching = window.work.launching
        wizard = FixWizard(
            case, window, plan=earlier if same else None, folder=launching.folder, options=launching.options
        )
        wizard.run_finished.connect(launching.take_over)
        wizard.config_chosen.connect(self._store.set_config)
        wizard.report_requested.connect(self.report)
        wizard.plan_changed.connect(self._on_walked)
        self.open(wizard)

    def _ask_for_model(self) -> None:
        """Every fix is worked out from the model, which a log only names."""
        case, window = self._store.case, self._window
        if not case.log:
            return
        name = case.config.model_path.replace("\\", "/").rpartition("/")[2]
        named = tr("The log is of {}.").format(name) if name else tr("The log does not name it.")
        window.banner.ask(tr("Fixes are worked out from the model"), named, ((tr("Open model…"), window.ask_model),))

    def _on_walked(self, plan: Any) -> None:
        self._walk = plan

    def report(self) -> None:
        """The filled report with the chart as it is on screen."""
        from kvstudio.ui.report_dialog import ReportDialog

        case, walk = self._store.case, self._walk
        mine = walk is not None and walk.attempts and walk.world.model is case.model
        dialog = ReportDialog(case, self._window, walk=walk if mine else None)
        dialog.show_picture(self._chart_picture())
        self.open(dialog)

    def _chart_picture(self) -> bytes:
        """A PNG."""
        data = QBuffer()
        data.open(QBuffer.OpenModeFlag.WriteOnly)
        self._window.work.chart.grab().save(data, "PNG")
        return bytes(data.data().data())

    def launch_options(self) -> None:
        """How a test launch asks and waits, below its button; remembered."""
        from kvstudio.ui.widgets_run.options_popover import OptionsPopover

        popover = OptionsPopover(self._window)
        popover.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        popover.show_options(self._window.work.launching.options)
        popover.edited.connect(self._on_options)
        popover.open_below(self._window.toolbar.launch_button)

    def _on_options(self, options: LaunchOptions) -> None:
        self._window.work.launching.options = options
        self._window.preferences.launch_options = options

    def history(self, chosen: tuple[int, ...] = ()) -> None:
        """Kept runs; two chosen ones side by side."""
        from kvstudio.ui.history.dialog import HistoryDialog

        launching = self._window.work.launching
        dialog = HistoryDialog(launching.folder, self._window)
        dialog.run_opened.connect(launching.reopen)
        dialog.load(chosen)
        self.open(dialog)

    def compare_with(self, number: int) -> None:
        """The last run beside an earlier one."""
        runs = self._store.case.runs
        self.history((number, runs[-1].number) if runs else (number,))

    def why(self) -> None:
        """The allocations of the device that fails, one after the other."""
        budget = self._store.case.budget
        if budget is not None:
            self.open(dialogs.WhyDialog(budget, self._window))

    def help(self) -> None:
        self.open(dialogs.HelpDialog(self._window))

    def ask(self, what: object) -> None:
        """What an opened file leaves open: whose projector it is, which file of a folder."""
        if isinstance(what, opening.OpenedProjector):
            name = Path(what.path).name
            model = self._store.case.model
            self._window.banner.ask(
                tr("{} is a multimodal projector").format(name),
                tr("It is loaded beside a model and takes memory of its own."),
                (
                    (
                        tr("Use with {}").format(model.name if model else ""),
                        lambda: self._store.use_projector(what.path),
                    ),
                ),
            )
        elif isinstance(what, opening.OpenedFolder):
            self._ask_folder(what)

    def _ask_folder(self, what: opening.OpenedFolder) -> None:
        window = self._window
        rows = tuple((path, os.path.relpath(path, what.path)) for path in what.models + what.logs)
        dialog = dialogs.ChooseDialog(tr("Open from {}").format(Path(what.path).name), rows, window)
        dialog.accepted.connect(lambda: window.open_paths((dialog.chosen(),) if dialog.chosen() else ()))
        self.open(dialog)
