"""The six checks with their evidence, and what to do with a run that passed them."""

from pathlib import PurePath

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.ui import theme
from kvstudio.ui.panels.run_values import line_range, notes_of
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Space, Step, Weight
from kvstudio.ui.widgets.basic import (
    ElidedLabel,
    Icon,
    Label,
    LinkButton,
    Rule,
    Surface,
    make_primary,
    plain_tooltip,
    push_button,
)
from kvstudio.verify.values import Check, Run, RunOutcome

_ROW = 32
_NAME_WIDTH = 168


def check_name(check: str) -> str:
    """What a check is called."""
    names = {
        "binary": tr("Binary and version"),
        "buffers": tr("Buffers allocated"),
        "context": tr("Context and slots"),
        "placement": tr("Placement"),
        "generation": tr("Generation"),
        "repeated": tr("Repeated requests"),
    }
    return names.get(check, check)


def shown_evidence(check: Check, run: Run) -> str:
    """The evidence with the program by its name: where it lies is in the tooltip and in the report."""
    path = run.binary.path if run.binary is not None else ""
    return check.evidence.replace(path, PurePath(path).name) if path else check.evidence


class CheckRow(QWidget):
    """One check: icon, name, evidence, link to the lines."""

    line_requested = Signal(object)

    def __init__(self, check: Check, evidence: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(theme.px(_ROW))
        icon, role, word = {
            True: ("check-circle", "good", tr("passed")),
            False: ("cross-circle", "bad", tr("failed")),
            None: ("circle-dashed", "muted", tr("not reached")),
        }[check.ok]
        name = Label(check_name(check.check), weight=Weight.DemiBold)
        name.setFixedWidth(theme.px(_NAME_WIDTH))
        self.evidence = ElidedLabel(evidence or check.evidence or word, role="ink" if check.ok is not None else "muted")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.S)
        row.addWidget(Icon(icon, role))
        row.addWidget(name)
        row.addWidget(self.evidence, 1)
        self.link: LinkButton | None = None
        if check.lines:
            words = tr("line {}") if len(set(check.lines)) == 1 else tr("lines {}")
            self.link = LinkButton(words.format(line_range(check.lines)), name=f"lines_{check.check}")
            self.link.setFont(theme.font(Step.SMALL, Weight.Medium))
            first = min(check.lines)
            self.link.clicked.connect(lambda: self.line_requested.emit(first))
            row.addWidget(self.link)
        self.setAccessibleName(f"{check_name(check.check)}: {word}. {check.evidence}")


class ChecksPage(Surface):
    """A run that started: what was proved, line by line."""

    line_requested = Signal(object)
    copy_requested = Signal()
    report_requested = Signal()
    compare_requested = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(canvas=True, parent=parent)
        self.setObjectName("checksPage")
        self._rows: list[CheckRow] = []
        self._compare_with: int | None = None
        self._icon = Icon("check-circle", "good", 18)
        self._title = Label(step=Step.TITLE, weight=Weight.DemiBold, wrap=True)
        head = QHBoxLayout()
        head.setSpacing(10)
        head.addWidget(self._icon)
        head.addWidget(self._title, 1)
        self._notes = Label(step=Step.SMALL, role="muted", wrap=True)
        self._list = QVBoxLayout()
        self._list.setSpacing(0)
        self.copy_button = push_button(tr("Copy command"), "copy", name="checksCopy")
        self.report_button = push_button(tr("Report…"), "file", name="checksReport")
        self.compare_button = push_button("", "history", name="checksCompare")
        self.log_button = push_button(tr("Log"), "terminal", name="checksLog")
        self.copy_button.clicked.connect(self.copy_requested)
        self.report_button.clicked.connect(self.report_requested)
        self.compare_button.clicked.connect(self._on_compare)
        self.log_button.clicked.connect(lambda: self.line_requested.emit(None))
        foot = QHBoxLayout()
        foot.setSpacing(Space.S)
        for button in (self.copy_button, self.report_button, self.compare_button):
            foot.addWidget(button)
        foot.addStretch(1)
        foot.addWidget(self.log_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.L + 1, 10, Space.L, Space.S)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addSpacing(6)
        layout.addLayout(self._list)
        layout.addSpacing(Space.S)
        layout.addWidget(self._notes)
        layout.addStretch(1)
        layout.addWidget(Rule())
        layout.addSpacing(Space.S)
        layout.addLayout(foot)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_run(self, run: Run, compare_with: int | None = None) -> None:
        """Title and rows; `compare_with` is the number of an earlier run worth comparing."""
        verified = run.outcome is RunOutcome.VERIFIED
        self._icon.show_icon("check-circle" if verified else "warn", "good" if verified else "warn")
        # A command that was not verified is not one to take away yet.
        make_primary(self.copy_button, verified)
        make_primary(self.report_button, not verified)
        self._title.setText(
            tr("Verified: this command works") if verified else run.says or tr("Started, but not verified")
        )
        while (item := self._list.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self._rows = []
        for i, check in enumerate(run.checks):
            if i:
                self._list.addWidget(Rule())
            row = CheckRow(check, shown_evidence(check, run))
            row.evidence.setToolTip(plain_tooltip(check.evidence))
            row.line_requested.connect(self.line_requested)
            self._rows.append(row)
            self._list.addWidget(row)
        notes = notes_of(run)
        self._notes.setText("\n".join(notes))
        self._notes.setVisible(bool(notes))
        self._compare_with = compare_with
        self.compare_button.setVisible(compare_with is not None)
        self.compare_button.setText(tr("Compare with run {}").format(compare_with))

    @property
    def rows(self) -> tuple[CheckRow, ...]:
        return tuple(self._rows)

    @property
    def notes(self) -> str:
        """What else there is to say about the launch."""
        return self._notes.text()

    @property
    def title(self) -> str:
        return self._title.text()

    def _on_compare(self) -> None:
        self.compare_requested.emit(self._compare_with)
