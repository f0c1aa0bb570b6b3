"""The right side of the wizard: one change, why, before and after, what it costs, the command; or the result."""

from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLayout, QScrollArea, QVBoxLayout, QWidget

from kvstudio.budget.values import BufferKind
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.equivalents import Equivalent
from kvstudio.ui import text, theme
from kvstudio.ui.panels.command_panel import CommandPanel
from kvstudio.ui.theme import Space, Step, Weight
from kvstudio.ui.widgets.bar_geometry import shared_scale
from kvstudio.ui.widgets.basic import Chip, ElidedLabel, Icon, Label, Rule, SectionLabel, Surface, push_button
from kvstudio.ui.widgets.budget_bars import BudgetBars
from kvstudio.ui.widgets.legend import Legend, kinds_of
from kvstudio.ui.widgets.verdict_card import FlaggedText
from kvstudio.ui.widgets_run.checks_page import CheckRow
from kvstudio.ui.widgets_run.phase_strip import PhaseStrip
from kvstudio.ui.wizard.values import Change, Fact, Page, Picture, Progress, RunLine

_ICONS = {"good": "check-circle", "bad": "cross-circle", "neutral": "info"}
_SIDE = Space.XXXL
_LABEL_WIDTH = 70
_FACTS = 4
_CELL_AIR = 5
_HELD = "\u00a0"


class PageView(QScrollArea):
    """`show_page` in; draws every part a page has, in one order."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._page: Page | None = None
        self._strip: PhaseStrip | None = None
        self._says: Label | None = None
        self._command: CommandPanel | None = None

    def command(self) -> CommandPanel | None:
        """The command as shown, if the page has one."""
        return self._command

    def show_page(self, page: Page) -> None:
        """Show a page; only the progress of the same page is updated in place."""
        if page == self._page:
            return
        same = self._page is not None and replace(page, progress=None) == replace(self._page, progress=None)
        if same and page.progress is not None and self._strip is not None:
            self._page = page
            self._show_progress(page.progress)
            return
        self._page = page
        self._strip = self._says = self._command = None
        content = Surface(canvas=True)
        column = QVBoxLayout(content)
        column.setContentsMargins(_SIDE, Space.XL, _SIDE, Space.XL)
        column.setSpacing(0)
        self._fill(column, page)
        column.addStretch()
        self.setWidget(content)

    def _fill(self, column: QVBoxLayout, page: Page) -> None:
        column.addWidget(SectionLabel(page.section))
        column.addSpacing(8)
        column.addWidget(_heading(page))
        if page.notice:
            column.addSpacing(12)
            column.addWidget(_notice(page.notice))
        if page.change is not None:
            column.addSpacing(16)
            column.addWidget(_change(page.change))
        if page.why:
            column.addSpacing(14)
            if page.why_label:
                column.addWidget(SectionLabel(page.why_label))
                column.addSpacing(10)
            why = FlaggedText()
            why.show_words(page.why, page.flags)
            column.addWidget(why)
        if page.progress is not None:
            column.addSpacing(12)
            self._add_progress(column, page.progress)
        if page.pictures:
            column.addSpacing(16)
            _add_pictures(column, page.pictures)
        if page.rows:
            column.addSpacing(16)
            column.addWidget(_rows(page.rows))
        if page.facts:
            column.addSpacing(14)
            column.addWidget(Rule())
            column.addSpacing(14)
            column.addWidget(_facts(page.facts))
        if page.checks:
            column.addSpacing(14)
            for check in page.checks:
                column.addWidget(CheckRow(check))
        if page.runs:
            column.addSpacing(18)
            column.addWidget(_runs(page.runs))
        if page.config is not None:
            column.addSpacing(18)
            self._add_command(column, page.command_label, page.config)
        if page.equivalents:
            column.addSpacing(12)
            column.addWidget(self._equivalents(page.equivalents))

    def _add_progress(self, column: QVBoxLayout, progress: Progress) -> None:
        self._strip = PhaseStrip()
        self._strip.set_margin(0)
        self._says = Label("", Step.SMALL, role="muted", wrap=True)
        column.addWidget(self._strip)
        column.addWidget(self._says)
        self._show_progress(progress)

    def _show_progress(self, progress: Progress) -> None:
        if self._strip is not None and self._says is not None:
            self._strip.show_phases(progress.phases, progress.clock)
            self._says.setText(progress.says)

    def _add_command(self, column: QVBoxLayout, label: str, config: LaunchConfig) -> None:
        column.addWidget(SectionLabel(label))
        column.addSpacing(10)
        self._command = CommandPanel()
        self._command.show_header(False)
        # A try is what the wizard says it is: it can be copied, not edited.
        self._command.paste.hide()
        self._command.edit.hide()
        self._command.show_config(config)
        column.addWidget(self._command)

    def _equivalents(self, equivalents: tuple[Equivalent, ...]) -> QWidget:
        """A button for each program that takes these settings in its own words, two in a row."""
        area = QWidget()
        grid = QGridLayout(area)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(Space.S)
        grid.setVerticalSpacing(Space.S)
        grid.addWidget(Label(text.tr("Copy for"), role="muted"), 0, 0)
        for i, each in enumerate(equivalents):
            button = push_button(_short_name(each, equivalents), "copy", name=f"copy {each.program} {each.where}")
            button.setAutoDefault(False)
            button.setToolTip("\n".join((each.where, "", each.text.rstrip(), *each.notes)))
            button.clicked.connect(lambda _=False, words=each.text: QGuiApplication.clipboard().setText(words))
            grid.addWidget(button, i // 2, 1 + i % 2)
        grid.setColumnStretch(3, 1)
        return area


def _short_name(one: Equivalent, every: tuple[Equivalent, ...]) -> str:
    """The program, and what the text is where it takes more than one."""
    alone = sum(each.program == one.program for each in every) == 1
    return one.program if alone else f"{one.program} {one.where.split()[0]}"


def _rows(facts: tuple[Fact, ...]) -> QWidget:
    """Facts one below the other: name, value, and what is to be said of it."""
    area = QWidget()
    grid = QGridLayout(area)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(Space.L)
    grid.setVerticalSpacing(0)
    for i, fact in enumerate(facts):
        grid.addWidget(Rule(), 2 * i, 0, 1, 2)
        words = QVBoxLayout()
        words.setContentsMargins(0, 7, 0, 7)
        words.setSpacing(1)
        words.addWidget(Label(fact.value, wrap=True))
        if fact.note:
            words.addWidget(Label(fact.note, Step.SMALL, role="muted", wrap=True))
        name = Label(fact.label, weight=Weight.DemiBold, wrap=True)
        name.setContentsMargins(0, 7, 0, 7)
        grid.addWidget(name, 2 * i + 1, 0, Qt.AlignmentFlag.AlignTop)
        grid.addLayout(words, 2 * i + 1, 1)
    grid.setColumnStretch(0, 1)
    grid.setColumnStretch(1, 4)
    return area


def _heading(page: Page) -> QWidget:
    area = QWidget()
    row = QHBoxLayout(area)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(10)
    if page.state in _ICONS:
        role = "muted" if page.state == "neutral" else page.state
        row.addWidget(Icon(_ICONS[page.state], role, 20))
    row.addWidget(Label(page.title, Step.PAGE, Weight.DemiBold, wrap=True), 1)
    return area


def _notice(words: str) -> QWidget:
    area = QWidget()
    row = QHBoxLayout(area)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(8)
    row.addWidget(Icon("warn", "warn"), 0, Qt.AlignmentFlag.AlignTop)
    row.addWidget(Label(words, role="warn", wrap=True), 1)
    return area


def _change(change: Change) -> QWidget:
    area = QWidget()
    row = QHBoxLayout(area)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(8)
    label = SectionLabel(text.tr("Change"))
    label.setFixedWidth(theme.px(_LABEL_WIDTH - 8))
    row.addWidget(label)
    row.addWidget(Chip(change.before, "bad", mono=True, strike=True))
    row.addWidget(Icon("chevron-right", "muted"))
    row.addWidget(Chip(change.after, "good", mono=True))
    row.addWidget(ElidedLabel(change.note, role="muted"), 1)
    return area


def _add_pictures(column: QVBoxLayout, pictures: tuple[Picture, ...]) -> None:
    scale = shared_scale(*(p.budget for p in pictures))
    kinds: set[BufferKind] = set()
    for i, picture in enumerate(pictures):
        host = not picture.budget.devices
        if i:
            column.addSpacing(16)
        column.addLayout(_picture_title(picture))
        column.addSpacing(4)
        bars = BudgetBars()
        bars.set_gap(True)
        bars.set_scope(host, scale)
        bars.show_budget(picture.budget)
        column.addWidget(bars)
        kinds |= set(kinds_of(picture.budget, host))
    legend = Legend()
    legend.show_kinds(tuple(kind for kind in BufferKind if kind in kinds))
    column.addSpacing(8)
    column.addWidget(legend)


def _picture_title(picture: Picture) -> QLayout:
    row = QHBoxLayout()
    row.setSpacing(8)
    row.addWidget(Label(picture.title, weight=Weight.DemiBold))
    row.addWidget(Chip(picture.chip, picture.state))
    row.addStretch()
    return row


def _facts(facts: tuple[Fact, ...]) -> QWidget:
    area = QWidget()
    grid = QGridLayout(area)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(Space.M)
    grid.setVerticalSpacing(1)
    for i, fact in enumerate(facts):
        grid.addWidget(SectionLabel(fact.label), 0, i)
        grid.addWidget(ElidedLabel(fact.value, Step.BODY, Weight.DemiBold), 1, i)
        grid.addWidget(Label(fact.note, Step.SMALL, role="muted", wrap=True), 2, i, Qt.AlignmentFlag.AlignTop)
    for i in range(max(len(facts), _FACTS)):
        grid.setColumnStretch(i, 1)
    return area


def _runs(runs: tuple[RunLine, ...]) -> QWidget:
    area = QWidget()
    grid = QGridLayout(area)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(Space.L)
    grid.setVerticalSpacing(0)
    headings = (text.tr("Run"), text.tr("Changed"), text.tr("Predicted"), text.tr("Printed"), text.tr("Outcome"))
    for i, heading in enumerate(headings):
        grid.addWidget(SectionLabel(heading), 0, i)
    grid.setRowMinimumHeight(0, 24)
    for number, run in enumerate(runs):
        row = 2 * number + 1
        grid.addWidget(Rule(), row, 0, 1, len(headings))
        grid.setRowMinimumHeight(row + 1, 30)
        grid.addWidget(Label(run.number, role="muted"), row + 1, 0)
        # Where a row breaks, a figure stays with its device, and a value with its flag.
        cells = [Label(_breaking(run.change, " → "), weight=Weight.DemiBold, wrap=True)]
        cells += [Label(_breaking(size, ", "), Step.SMALL, wrap=True) for size in run.sizes]
        for i, cell in enumerate(cells):
            cell.setContentsMargins(0, _CELL_AIR, 0, _CELL_AIR)
            grid.addWidget(cell, row + 1, 1 + i)
        grid.addLayout(_outcome(run), row + 1, 4)
    for column, stretch in ((1, 3), (2, 3), (3, 3), (4, 4)):
        grid.setColumnStretch(column, stretch)
    return area


def _breaking(words: str, at: str) -> str:
    """Words that a line may only break at one kind of place."""
    return at.join(piece.replace(" ", _HELD) for piece in words.split(at))


def _outcome(run: RunLine) -> QLayout:
    row = QHBoxLayout()
    row.setSpacing(6)
    row.addWidget(Icon("check-circle", "good") if run.worked else Icon("cross-circle", "bad"))
    words = Label(run.outcome, role="good" if run.worked else "bad", wrap=True)
    words.setContentsMargins(0, _CELL_AIR, 0, _CELL_AIR)
    row.addWidget(words, 1)
    return row
