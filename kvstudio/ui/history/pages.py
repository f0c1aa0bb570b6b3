"""What is shown of chosen runs: nothing, one in full, two side by side."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QHeaderView,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from kvstudio.case.history import Comparison, Entry
from kvstudio.launch.argv import format_command
from kvstudio.ui import theme
from kvstudio.ui.history import words
from kvstudio.ui.history.models import WordsModel
from kvstudio.ui.panels.run_values import clock, notes_of
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Space, Step, Weight
from kvstudio.ui.widgets.basic import Chip, Icon, Label, SectionLabel, Surface
from kvstudio.ui.widgets.quiet_table import QuietTable
from kvstudio.ui.widgets_run.checks_page import check_name

_STATE_OF_ROLE = {"good": "good", "bad": "bad", "warn": "warn", "muted": "neutral"}
_CHECK_MARKS = {
    True: ("check-circle", "good"),
    False: ("cross-circle", "bad"),
    None: ("circle-dashed", "muted"),
}


def _page() -> tuple[QScrollArea, QVBoxLayout]:
    area = QScrollArea()
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    content = Surface(canvas=True)
    column = QVBoxLayout(content)
    column.setContentsMargins(Space.XXL, Space.XL, Space.XXL, Space.L)
    column.setSpacing(Space.S)
    area.setWidget(content)
    return area, column


def _table(model: WordsModel, name: str, title: str) -> QuietTable:
    table = QuietTable()
    table.setObjectName(name)
    table.setAccessibleName(title)
    table.setModel(model)
    table.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    table.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    return table


def _fit(table: QuietTable, shown: bool, stretched: int | None = None) -> None:
    header = table.horizontalHeader()
    if stretched is not None and header.count() > stretched:
        header.setStretchLastSection(False)
        header.setSectionResizeMode(stretched, QHeaderView.ResizeMode.Stretch)
    table.setFixedHeight(table.sizeHint().height())
    table.setVisible(shown)


def _chip_of(chip: Chip, entry: Entry) -> None:
    chip.show_chip(words.outcome_words(entry.run.outcome), _STATE_OF_ROLE[words.MARKS[entry.run.outcome][1]])


class RunPage(QWidget):
    """One run: how it ended, its checks, its sizes, its command."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        area, column = _page()
        self._chip, self._title = Chip(), Label(step=Step.TITLE, weight=Weight.DemiBold, wrap=True)
        self._about = Label(step=Step.SMALL, role="muted", wrap=True)
        self._says = Label(wrap=True)
        self._says.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._checks = QGridLayout()
        self._checks.setHorizontalSpacing(Space.S)
        self._checks.setVerticalSpacing(Space.XS)
        self._checks.setColumnStretch(2, 1)
        self._checks_title = SectionLabel(tr("Checks"))
        heads = (tr("Device"), tr("Buffer"), tr("Estimated MiB"), tr("Printed MiB"))
        self.sizes = WordsModel(heads, 2, (words.UNKNOWN,), self)
        self._sizes_title = SectionLabel(tr("Sizes"))
        self._table = _table(self.sizes, "historySizes", tr("Sizes"))
        self._command = Label(step=Step.SMALL, mono=True, wrap=True)
        self._command.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self._chip, 0, Qt.AlignmentFlag.AlignTop)
        column.addLayout(head)
        column.addWidget(self._about)
        column.addWidget(self._says)
        column.addSpacing(Space.S)
        column.addWidget(self._checks_title)
        column.addLayout(self._checks)
        column.addSpacing(Space.S)
        column.addWidget(self._sizes_title)
        column.addWidget(self._table)
        column.addSpacing(Space.S)
        column.addWidget(SectionLabel(tr("Command")))
        column.addWidget(self._command)
        column.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(area)

    def show_entry(self, entry: Entry) -> None:
        """Another run."""
        run = entry.run
        self._title.setText(tr("Run {}: {}").format(entry.number, entry.title))
        _chip_of(self._chip, entry)
        reached = tr("reached {}").format(run.reached.value) if run.reached else ""
        parts = (words.when(entry), clock(run.seconds), reached, words.binary_title(entry), entry.note)
        self._about.setText(", ".join(part for part in parts if part))
        ended = run.says or run.message or words.outcome_words(run.outcome)
        self._says.setText("\n".join((ended, *notes_of(run))))
        self._show_checks(entry)
        rows = words.run_rows(entry)
        self.sizes.show_rows(rows)
        _fit(self._table, bool(rows), 1)
        self._sizes_title.setVisible(bool(rows))
        self._command.setText(format_command(run.config, mask_secrets=True))

    def texts(self) -> tuple[str, str, str]:
        """Title, sentence and command, as a test or a screen reader sees them."""
        return self._title.text(), self._says.text(), self._command.text()

    def _show_checks(self, entry: Entry) -> None:
        while (item := self._checks.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        top = Qt.AlignmentFlag.AlignTop
        for row, check in enumerate(entry.run.checks):
            self._checks.addWidget(Icon(*_CHECK_MARKS[check.ok]), row, 0, top)
            self._checks.addWidget(Label(check_name(check.check), weight=Weight.DemiBold), row, 1, top)
            self._checks.addWidget(Label(check.evidence or tr("not reached"), role="muted", wrap=True), row, 2, top)
        self._checks_title.setVisible(bool(entry.run.checks))


class ComparePage(QWidget):
    """Two runs: what was changed on top, then sizes, then how they ended."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        area, column = _page()
        self._title = Label(step=Step.TITLE, weight=Weight.DemiBold, wrap=True)
        self.chip = Chip()
        self._says = Label(wrap=True)
        self._ends = tuple((Label(weight=Weight.DemiBold), Chip(), Label(step=Step.SMALL, role="muted", wrap=True))
                           for _ in range(2))  # fmt: skip
        self.changes = WordsModel((tr("Setting"), "", ""), 3, (tr("not set"),), self)
        self.sizes = WordsModel(("",) * 7, 2, (tr("same"), words.UNKNOWN), self)
        self._changes = _table(self.changes, "compareChanges", tr("What differs"))
        self._same = Label(tr("Nothing: settings and binary are the same."), role="muted")
        self._sizes = _table(self.sizes, "compareSizes", tr("Sizes in MiB"))
        self._no_sizes = Label(tr("Neither run came to its buffers."), role="muted")
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self.chip, 0, Qt.AlignmentFlag.AlignTop)
        column.addLayout(head)
        column.addWidget(self._says)
        column.addSpacing(Space.S)
        column.addWidget(SectionLabel(tr("What differs")))
        column.addWidget(self._changes)
        column.addWidget(self._same)
        column.addSpacing(Space.S)
        column.addWidget(SectionLabel(tr("Sizes in MiB")))
        column.addWidget(self._sizes)
        column.addWidget(self._no_sizes)
        column.addSpacing(Space.S)
        column.addWidget(SectionLabel(tr("Outcome")))
        column.addLayout(self._build_ends())
        column.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(area)

    def _build_ends(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(Space.XXL)
        for name, chip, says in self._ends:
            first = QHBoxLayout()
            first.setSpacing(Space.S)
            first.addWidget(name)
            first.addWidget(chip)
            first.addStretch(1)
            side = QVBoxLayout()
            side.setSpacing(Space.XS)
            side.addLayout(first)
            side.addWidget(says)
            side.addStretch(1)
            row.addLayout(side, 1)
        return row

    def show_comparison(self, found: Comparison) -> None:
        """Two other runs."""
        one, two = (tr("Run {}").format(entry.number) for entry in (found.before, found.after))
        self._title.setText(tr("{} and {}").format(one, two.lower()))
        self.chip.setVisible(found.regression)
        if found.regression:
            self.chip.show_chip(tr("Regression"), "bad")
        self._says.setText(found.says)
        changes, sizes = words.change_rows(found), words.size_rows(found)
        self.changes.show_rows(changes, (tr("Setting"), one, two))
        _fit(self._changes, bool(changes))
        self._same.setVisible(not changes)
        estimated, printed = tr("{} estimated"), tr("{} printed")
        heads = (estimated.format(one), printed.format(one), estimated.format(two), printed.format(two))
        self.sizes.show_rows(sizes, (tr("Device"), tr("Buffer"), *heads, tr("Difference")))
        _fit(self._sizes, bool(sizes), 1)
        self._no_sizes.setVisible(not sizes)
        for (name, chip, says), entry in zip(self._ends, (found.before, found.after), strict=True):
            name.setText(tr("Run {}").format(entry.number))
            _chip_of(chip, entry)
            says.setText(entry.run.says or entry.run.message)

    def texts(self) -> tuple[str, str]:
        """Title and sentence."""
        return self._title.text(), self._says.text()


class EmptyPage(QWidget):
    """What belongs here and what makes it appear."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        area, column = _page()
        self._icon = Icon("history", "muted", 20)
        self._title = Label(step=Step.TITLE, weight=Weight.DemiBold)
        self._text = Label(role="muted", wrap=True)
        self._title.setFont(theme.font(Step.TITLE, Weight.DemiBold))
        column.addStretch(1)
        for widget in (self._icon, self._title, self._text):
            column.addWidget(widget)
        column.addStretch(2)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(area)

    def show_words(self, title: str, text: str) -> None:
        """What is said."""
        self._title.setText(title)
        self._text.setText(text)
