"""The history's window: kept runs at the left, one or two of them at the right, what can be done at the foot."""

from pathlib import Path

from PySide6.QtCore import QItemSelection, QItemSelectionModel, Qt, Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from kvstudio.case.history import Entry, History, Listing, compare
from kvstudio.errors import KvStudioError
from kvstudio.runlog.values import LogLine
from kvstudio.ui.history.models import RunsModel
from kvstudio.ui.history.pages import ComparePage, EmptyPage, RunPage
from kvstudio.ui.history.runs_view import RunsView
from kvstudio.ui.text import said, tr
from kvstudio.ui.theme import Size, Space, Step
from kvstudio.ui.widgets.basic import Label, SectionLabel, Surface, make_primary, push_button
from kvstudio.ui.widgets.dialog_frame import fill
from kvstudio.work import task


class HistoryDialog(QDialog):
    """`run_opened` carries an Entry and its log's lines; `removed` the numbers of runs that are gone."""

    run_opened = Signal(object, object)
    removed = Signal(object)

    def __init__(self, folder: Path, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("History"))
        self.setObjectName("historyDialog")
        self.resize(1240, 760)
        self.setMinimumSize(860, 480)
        self._folder = folder
        self._wanted: tuple[int, ...] = ()
        self._sure = False
        self._build()
        self._runs.selectionModel().selectionChanged.connect(self._on_selected)
        self._runs.doubleClicked.connect(lambda _: self._on_open())
        self._show_chosen()

    def _build(self) -> None:
        self.model = RunsModel(self)
        self._runs = RunsView()
        self._runs.setModel(self.model)
        self._notes = Label(step=Step.SMALL, role="muted", wrap=True)
        self._notes.setContentsMargins(Space.L, Space.S, Space.L, Space.S)
        self._notes.hide()
        side = Surface(canvas=True)
        side.setFixedWidth(Size.WIZARD_SIDE + 24)
        title = SectionLabel(tr("Kept runs"))
        title.setContentsMargins(Space.L, Space.L, Space.L, Space.S)
        left = QVBoxLayout(side)
        left.setContentsMargins(0, 0, 0, 0)
        left.setSpacing(0)
        for widget in (title, self._runs, self._notes):
            left.addWidget(widget, 1 if widget is self._runs else 0)
        self.empty, self.run_page, self.compare_page = EmptyPage(), RunPage(), ComparePage()
        self.pages = QStackedWidget()
        for page in (self.empty, self.run_page, self.compare_page):
            self.pages.addWidget(page)
        fill(self, side, self.pages, self._build_foot())

    def _build_foot(self) -> QWidget:
        foot = Surface()
        foot.setFixedHeight(Size.FOOT)
        self.delete_button = push_button(tr("Delete"), "trash", name="historyDelete")
        self.open_button = push_button(tr("Open run"), "open", name="historyOpen")
        self.close_button = push_button(tr("Close"), name="historyClose")
        self._hint = Label(tr("Choose two runs with Ctrl to compare them"), Step.SMALL, role="muted")
        self.delete_button.clicked.connect(self._on_delete)
        self.open_button.clicked.connect(self._on_open)
        self.close_button.clicked.connect(self.reject)
        make_primary(self.open_button, True)
        row = QHBoxLayout(foot)
        row.setContentsMargins(Space.L, 0, Space.XXL, 0)
        row.setSpacing(Space.S)
        row.addWidget(self.delete_button)
        row.addSpacing(Space.S)
        row.addWidget(self._hint)
        row.addStretch(1)
        row.addWidget(self.close_button)
        row.addWidget(self.open_button)
        for button in (self.delete_button, self.open_button, self.close_button):
            button.setAutoDefault(False)
        return foot

    def load(self, chosen: tuple[int, ...] = ()) -> None:
        """Read the history in the background, then choose the runs of these numbers, else the newest."""
        self._wanted = chosen
        self.empty.show_words(tr("Reading the history…"), "")
        task.run(_list, self._folder, done=self.show_listing, failed=self._on_failed, key="history")

    def show_listing(self, listing: Listing) -> None:
        """Runs, and what was to say about those that could not be read."""
        self.model.show_entries(listing.entries)
        self._notes.setText("\n".join(listing.notes))
        self._notes.setVisible(bool(listing.notes))
        rows = [row for number in self._wanted if (row := self.model.row_of(number)) is not None]
        self._choose(rows or ([0] if listing.entries else []))
        self._show_chosen()

    def chosen(self) -> tuple[Entry, ...]:
        """The chosen runs, older first."""
        rows = sorted((index.row() for index in self._runs.selectionModel().selectedIndexes()), reverse=True)
        return tuple(self.model.entry(row) for row in rows)

    def choose(self, *numbers: int) -> None:
        """Choose as if the user had."""
        self._choose([row for number in numbers if (row := self.model.row_of(number)) is not None])

    def _choose(self, rows: list[int]) -> None:
        selection = QItemSelection()
        for row in rows:
            selection.select(self.model.index(row), self.model.index(row))
        self._runs.selectionModel().select(selection, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if rows:
            flag = QItemSelectionModel.SelectionFlag.NoUpdate
            self._runs.selectionModel().setCurrentIndex(self.model.index(rows[-1]), flag)

    def _on_selected(self) -> None:
        self._sure = False
        self._show_chosen()

    def _show_chosen(self) -> None:
        entries = self.chosen()
        if len(entries) == 1:
            self.run_page.show_entry(entries[0])
            self.pages.setCurrentWidget(self.run_page)
        elif len(entries) == 2:
            self.compare_page.show_comparison(compare(*entries))
            self.pages.setCurrentWidget(self.compare_page)
        else:
            self._say_nothing(len(entries))
            self.pages.setCurrentWidget(self.empty)
        self.open_button.setEnabled(len(entries) == 1)
        self.delete_button.setEnabled(bool(entries))
        self._hint.setVisible(self.model.rowCount() > 1)
        self._show_delete()

    def _say_nothing(self, n_chosen: int) -> None:
        if n_chosen > 2:
            self.empty.show_words(tr("{} runs chosen").format(n_chosen), tr("Two can be compared."))
        elif self.model.rowCount():
            self.empty.show_words(tr("No run chosen"), tr("Choose one to see it, two to compare them."))
        else:
            self.empty.show_words(tr("No run was kept yet"), tr("Every test launch is kept here with its log."))

    def _show_delete(self) -> None:
        entries = self.chosen()
        if not self._sure:
            self.delete_button.setText(tr("Delete"))
        elif len(entries) == 1:
            self.delete_button.setText(tr("Really delete run {}").format(entries[0].number))
        else:
            self.delete_button.setText(tr("Really delete {} runs").format(len(entries)))

    def _on_delete(self) -> None:
        """The first click asks, the second deletes; choosing something else takes the question back."""
        if not self._sure:
            self._sure = True
            self._show_delete()
            return
        self._sure = False
        numbers = tuple(entry.number for entry in self.chosen())
        task.run(_remove, self._folder, numbers, done=self._on_removed, failed=self._on_failed)

    def _on_removed(self, numbers: tuple[int, ...]) -> None:
        self.model.forget(numbers)
        if self.model.rowCount() and not self.chosen():
            self._choose([0])
        self._show_chosen()
        self.removed.emit(numbers)

    def _on_open(self) -> None:
        entries = self.chosen()
        if len(entries) == 1:
            entry = entries[0]

            def on_read(lines: tuple[LogLine, ...]) -> None:
                self.run_opened.emit(entry, lines)
                self.accept()

            task.run(_read_lines, entry.run.log_path, done=on_read, failed=self._on_failed, key="history-log")

    def _on_failed(self, error: KvStudioError) -> None:
        self._notes.setText(said(error.message, error.hint))
        self._notes.show()
        self._notes.setAlignment(Qt.AlignmentFlag.AlignLeft)


def _list(folder: Path) -> Listing:
    return History(folder).list()


def _remove(folder: Path, numbers: tuple[int, ...]) -> tuple[int, ...]:
    for number in numbers:
        History(folder).remove(number)
    return numbers


def _read_lines(path: str | None) -> tuple[LogLine, ...]:
    """The kept log, bounded; a log that is gone is no reason not to show the run."""
    if path is None or not Path(path).is_file():
        return ()
    from kvstudio.diagnose.read import read_log

    return tuple(read_log(path).lines)
