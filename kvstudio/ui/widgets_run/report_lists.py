"""Left and right of the report: which fields are filled, and what is hidden."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QCheckBox, QFrame, QGridLayout, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from kvstudio.report.values import Field, Redaction, Report
from kvstudio.ui import colours
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Space, Step, Theme
from kvstudio.ui.widgets.basic import (
    Chip,
    ElidedLabel,
    Icon,
    Label,
    Rule,
    SectionLabel,
    Surface,
    plain_tooltip,
    push_button,
)

_FIELD_ROW = 22
_LEFT, _RIGHT = 256, 304


def places(n: int) -> str:
    """`1 place`, `3 places`."""
    return tr("1 place") if n == 1 else tr("{} places").format(n)


class FieldRow(QWidget):
    """A field and its state; the tooltip has its value, or what would tell it."""

    def __init__(self, field: Field, value: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = field
        self.setFixedHeight(_FIELD_ROW)
        collected = field.collected
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.S - 1)
        row.addWidget(Icon("check-circle" if collected else "ring", "good" if collected else "muted", 14))
        row.addWidget(ElidedLabel(field.label, Step.SMALL, role="ink" if collected else "muted"), 1)
        word = tr("collected") if collected else tr("not collected")
        self.setAccessibleName(f"{field.label}: {word}")
        said = value if collected else tr("Not collected. Would tell: {}").format(field.how)
        self.setToolTip(plain_tooltip(said[:600]))


class FieldList(Surface):
    """Every field a maintainer asks for."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("fieldList")
        self.setFixedWidth(_LEFT)
        self._count = Label(step=Step.SMALL, role="muted")
        self._rows: list[FieldRow] = []
        head = QHBoxLayout()
        head.addWidget(SectionLabel(tr("Fields")))
        head.addStretch(1)
        head.addWidget(self._count)
        self._note = Label(
            tr("Missing fields say which command would tell. Two binaries in History can find the older commit."),
            Step.SMALL,
            role="muted",
            wrap=True,
        )
        self._column = QVBoxLayout()
        self._column.setSpacing(0)
        content = Surface()
        column = QVBoxLayout(content)
        column.setContentsMargins(Space.CANVAS_MARGIN, 0, Space.L, Space.L)
        column.setSpacing(0)
        column.addLayout(self._column)
        column.addSpacing(Space.S)
        column.addWidget(Rule())
        column.addSpacing(Space.S + 1)
        column.addWidget(self._note)
        column.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, Space.M, 0, 0)
        layout.setSpacing(Space.S - 2)
        heading = QWidget()
        heading.setLayout(head)
        head.setContentsMargins(Space.CANVAS_MARGIN, 0, Space.L, 0)
        layout.addWidget(heading)
        layout.addWidget(_scroll(content), 1)

    def show_fields(self, report: Report, values: tuple[str, ...]) -> None:
        """Rows in the report's order; `values` as they may be shown."""
        self._count.setText(tr("{} of {} collected").format(report.n_collected, len(report.fields)))
        if [r.field for r in self._rows] == list(report.fields):
            for row, value in zip(self._rows, values):
                if row.field.collected:
                    row.setToolTip(plain_tooltip(value[:600]))
            return
        for row in self._rows:
            self._column.removeWidget(row)
            row.deleteLater()
        self._rows = [FieldRow(field, value) for field, value in zip(report.fields, values)]
        for row in self._rows:
            self._column.addWidget(row)
        missing = report.n_collected < len(report.fields)
        self._note.setVisible(missing)

    @property
    def rows(self) -> tuple[FieldRow, ...]:
        return tuple(self._rows)


class _TokenChip(Chip):
    """A token; what is shown anyway is grey, and this list stands on ground."""

    def _colours(self) -> tuple[QColor, QColor]:
        if self.kind == "neutral":
            current = Theme.current()
            return current.muted, colours.mix(current.ink, current.ground, 0.09)
        return super()._colours()


class RedactionRow(QWidget):
    """A tick, the token, how often, and why."""

    toggled = Signal(str, bool)

    def __init__(self, redaction: Redaction, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.token = redaction.token
        self.box = QCheckBox()
        self.box.setObjectName(f"redaction_{redaction.token}")
        self.box.setChecked(redaction.hidden)
        self.box.setAccessibleName(tr("Hide {}: {}").format(redaction.token, redaction.reason))
        self.box.setFixedWidth(16)
        self._chip = _TokenChip(redaction.token)
        self._places = Label(step=Step.SMALL, role="muted")
        reason = Label(redaction.reason, Step.SMALL, role="muted", wrap=True)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, Space.S + 1)
        grid.setHorizontalSpacing(Space.S)
        grid.setVerticalSpacing(1)
        grid.setColumnStretch(2, 1)
        grid.addWidget(self.box, 0, 0)
        grid.addWidget(self._chip, 0, 1, Qt.AlignmentFlag.AlignLeft)
        grid.addWidget(self._places, 0, 2, Qt.AlignmentFlag.AlignRight)
        grid.addWidget(reason, 1, 1, 1, 2)
        self.show_redaction(redaction)
        self.box.toggled.connect(lambda on: self.toggled.emit(self.token, on))

    def show_redaction(self, redaction: Redaction) -> None:
        """Another state or count of the same one."""
        self._chip.show_chip(redaction.token, "redaction" if redaction.hidden else "neutral")
        self._places.setText(places(redaction.places) if redaction.hidden else tr("not hidden"))
        self.box.blockSignals(True)
        self.box.setChecked(redaction.hidden)
        self.box.blockSignals(False)


class RedactionList(Surface):
    """What is hidden and how to hide more. `switched` carries a token and whether to hide it."""

    switched = Signal(str, bool)
    hide_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("redactionList")
        self.setFixedWidth(_RIGHT)
        self._rows: list[RedactionRow] = []
        self._count = Label(step=Step.SMALL, role="muted")
        head = QHBoxLayout()
        head.setContentsMargins(Space.L, 0, Space.CANVAS_MARGIN, 0)
        head.addWidget(SectionLabel(tr("Redactions")))
        head.addStretch(1)
        head.addWidget(self._count)
        self._none = Label(tr("Nothing was found that tells on you."), Step.SMALL, role="muted", wrap=True)
        note = Label(
            tr("Untick to show a value again. Select text in the preview and press Hide for anything missed."),
            Step.SMALL,
            role="muted",
            wrap=True,
        )
        self.hide_button = push_button(tr("Hide selection"), name="hideSelection")
        self.hide_button.setEnabled(False)
        self.hide_button.clicked.connect(self.hide_requested)
        self._column = QVBoxLayout()
        self._column.setSpacing(0)
        content = Surface()
        column = QVBoxLayout(content)
        column.setContentsMargins(Space.L, 0, Space.CANVAS_MARGIN, Space.L)
        column.setSpacing(0)
        column.addWidget(self._none)
        column.addLayout(self._column)
        column.addSpacing(Space.S)
        column.addWidget(Rule())
        column.addSpacing(Space.M)
        column.addWidget(note)
        column.addSpacing(Space.XS)
        column.addWidget(self.hide_button, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        heading = QWidget()
        heading.setLayout(head)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, Space.M, 0, 0)
        layout.setSpacing(Space.S)
        layout.addWidget(heading)
        layout.addWidget(_scroll(content), 1)

    def show_redactions(self, report: Report) -> None:
        """The report's list, in its order."""
        self._count.setText(places(report.places))
        self._none.setVisible(not report.redactions)
        if [r.token for r in self._rows] != [r.token for r in report.redactions]:
            for row in self._rows:
                self._column.removeWidget(row)
                row.deleteLater()
            self._rows = [RedactionRow(redaction) for redaction in report.redactions]
            for row in self._rows:
                row.toggled.connect(self.switched)
                self._column.addWidget(row)
            return
        for row, redaction in zip(self._rows, report.redactions):
            row.show_redaction(redaction)

    def set_switchable(self, on: bool) -> None:
        """Whether the ticks can be changed (not while the text is edited by hand)."""
        for row in self._rows:
            row.box.setEnabled(on)

    @property
    def rows(self) -> tuple[RedactionRow, ...]:
        return tuple(self._rows)


def _scroll(content: QWidget) -> QScrollArea:
    scroll = QScrollArea()
    scroll.setFrameShape(QFrame.Shape.NoFrame)
    scroll.setWidgetResizable(True)
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(content)
    return scroll
