"""The left side of the wizard: what was wanted, the runs so far, what comes after."""

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from kvstudio.ui import text, theme
from kvstudio.ui.theme import Radius, Size, Space, Step, Theme, Weight
from kvstudio.ui.widgets.basic import ElidedLabel, Icon, Label, Rule, SectionLabel, Surface
from kvstudio.ui.wizard.values import RunEntry, RunState, WizardView
from kvstudio.ui.wizard.values import Step as LaterStep

_ICONS = {
    RunState.NOTE: ("info", "muted"),
    RunState.WORKED: ("check-circle", "good"),
    RunState.FAILED: ("cross-circle", "bad"),
    RunState.NEXT: ("circle", "accent_text"),
    RunState.RUNNING: ("recent", "accent_text"),
}
_ENTRY_HEIGHT = 49


class EntryRow(QWidget):
    """One run; the next one is outlined."""

    def __init__(self, entry: RunEntry, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._entry = entry
        self.setFixedHeight(theme.px(_ENTRY_HEIGHT))
        self.setAccessibleName(f"{entry.title}: {entry.detail}")
        row = QHBoxLayout(self)
        row.setContentsMargins(10, 6, 11, 6)
        row.setSpacing(10)
        icon = QVBoxLayout()
        icon.setContentsMargins(0, 2, 0, 0)
        icon.addWidget(Icon(*_ICONS[entry.state]))
        icon.addStretch()
        row.addLayout(icon)
        row.addLayout(self._words(entry), 1)

    def entry(self) -> RunEntry:
        return self._entry

    def _words(self, entry: RunEntry) -> QVBoxLayout:
        first = QHBoxLayout()
        first.setSpacing(8)
        first.addWidget(ElidedLabel(entry.title, weight=Weight.DemiBold), 1)
        first.addWidget(Label(entry.number, Step.SMALL, role="muted"))
        role = "bad" if entry.state is RunState.FAILED else "muted"
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addLayout(first)
        words.addWidget(ElidedLabel(entry.detail, Step.SMALL, role=role))
        words.addStretch()
        return words

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._entry.state not in (RunState.NEXT, RunState.RUNNING):
            return
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(current.accent_text, 1))
        painter.setBrush(current.selected_fill)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), Radius.CARD, Radius.CARD)


class Side(Surface):
    """`show_view` in; nothing out: it is a record."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setFixedWidth(Size.WIZARD_SIDE)
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.XL, Space.XL, Space.XL, Space.L)
        column.setSpacing(0)
        self._title = Label("", Step.TITLE, Weight.DemiBold, wrap=True)
        self._wanted = Label("", role="muted", wrap=True)
        self._note = Label("", Step.SMALL, role="muted", wrap=True)
        self._scroll = QScrollArea()
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setWidgetResizable(True)
        self._scroll.viewport().setAutoFillBackground(False)
        column.addWidget(self._title)
        column.addSpacing(8)
        column.addWidget(self._wanted)
        column.addSpacing(16)
        column.addWidget(SectionLabel(text.tr("Runs so far")))
        column.addSpacing(8)
        column.addWidget(self._scroll, 1)
        column.addSpacing(8)
        column.addWidget(self._note)
        self._rows: tuple[EntryRow, ...] = ()

    def rows(self) -> tuple[EntryRow, ...]:
        """The runs as shown."""
        return self._rows

    def show_view(self, view: WizardView) -> None:
        """Show the record."""
        self._title.setText(view.title)
        self._wanted.setText(view.wanted)
        self._note.setText(view.note)
        self._note.setVisible(bool(view.note))
        self._rows = tuple(EntryRow(entry) for entry in view.entries)
        content = QWidget()
        content.setAutoFillBackground(False)
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        for row in self._rows:
            column.addWidget(row)
        if view.later:
            column.addSpacing(14)
            column.addWidget(Rule())
            column.addSpacing(14)
            column.addWidget(SectionLabel(text.tr("After this")))
            column.addSpacing(1)
            for step in view.later:
                column.addWidget(_later_row(step))
        column.addStretch()
        self._scroll.setWidget(content)
        content.setAutoFillBackground(False)
        if self._rows:
            # Once laid out, so that the newest run of a long record is in sight.
            last = self._rows[-1]
            self._scroll.ensureWidgetVisible(last)


def _later_row(step: LaterStep) -> QWidget:
    area = QWidget()
    row = QHBoxLayout(area)
    row.setContentsMargins(11, 3, 0, 3)
    row.setSpacing(10)
    icon = Icon("check-circle", "good") if step.done else Icon("circle", "muted")
    row.addWidget(icon, 0, Qt.AlignmentFlag.AlignTop)
    row.addWidget(Label(step.title, role="muted", wrap=True), 1)
    return area
