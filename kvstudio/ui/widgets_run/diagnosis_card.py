"""What happened: cause, title, one sentence, numbered evidence, what to try first."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.diagnose.values import Cause, Diagnosis, Evidence, Outcome
from kvstudio.ui import theme
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step, Weight
from kvstudio.ui.widgets.basic import Chip, Label, LinkButton, Rule, SectionLabel, Surface, make_primary, push_button

_NUMBER_WIDTH = 36


def cause_name(cause: Cause) -> str:
    """The word on the chip."""
    names = {
        Cause.CAPACITY: tr("Capacity"),
        Cause.PLACEMENT: tr("Placement"),
        Cause.BACKEND_LIMIT: tr("Backend limit"),
        Cause.HOST_MEMORY: tr("Host memory"),
        Cause.OTHER_PROCESS: tr("Other process"),
        Cause.CONFIG: tr("Settings"),
        Cause.FILE: tr("File"),
        Cause.UNSUPPORTED: tr("Unsupported"),
        Cause.REGRESSION: tr("Regression"),
        Cause.BUG: tr("Bug"),
        Cause.UNKNOWN: tr("Cause unknown"),
    }
    return names[cause]


class DiagnosisCard(Surface):
    """The page beside the log. `line_requested` carries a line's number."""

    line_requested = Signal(object)
    fix_requested = Signal()
    report_requested = Signal()
    copy_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(canvas=True, parent=parent)
        self.setObjectName("diagnosisCard")
        self.setFixedWidth(Size.DIAGNOSIS)
        self._links: list[LinkButton] = []
        self._shown: tuple[Evidence, ...] = ()
        self._build()

    def _build(self) -> None:
        self._chip = Chip()
        head = QHBoxLayout()
        head.addWidget(SectionLabel(tr("What happened")))
        head.addStretch(1)
        head.addWidget(self._chip)
        self._title = Label(step=Step.TITLE, weight=Weight.DemiBold, wrap=True)
        self._sentence = Label(step=Step.BODY, wrap=True)
        for label in (self._title, self._sentence):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._evidence_title = SectionLabel(tr("Evidence"))
        self._evidence = QGridLayout()
        self._evidence.setContentsMargins(0, 0, 0, 0)
        self._evidence.setHorizontalSpacing(10)
        self._evidence.setVerticalSpacing(0)
        self._evidence.setColumnStretch(1, 1)
        self._evidence.setColumnMinimumWidth(0, _NUMBER_WIDTH)
        self._missing = Label(step=Step.SMALL, role="muted", wrap=True)

        content = Surface(canvas=True)
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, Space.XS, Space.S)
        column.setSpacing(0)
        column.addWidget(self._title)
        column.addSpacing(Space.XS + 2)
        column.addWidget(self._sentence)
        column.addSpacing(Space.S + 2)
        column.addWidget(self._evidence_title)
        column.addSpacing(Space.XS)
        column.addLayout(self._evidence)
        column.addSpacing(Space.S)
        column.addWidget(self._missing)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(content)
        scroll.viewport().setBackgroundRole(self.backgroundRole())

        self._try_first = Label(step=Step.SMALL, role="muted", wrap=True)
        self.fix_button = push_button(tr("Fix…"), "wrench", primary=True, name="cardFix")
        self.report_button = push_button(tr("Report…"), "file", name="cardReport")
        self.copy_button = push_button(tr("Copy"), "copy", name="cardCopy")
        self.fix_button.clicked.connect(self.fix_requested)
        self.report_button.clicked.connect(self.report_requested)
        self.copy_button.clicked.connect(self.copy_requested)
        buttons = QHBoxLayout()
        buttons.setSpacing(Space.S)
        for button in (self.fix_button, self.report_button, self.copy_button):
            buttons.addWidget(button)
        buttons.addStretch(1)

        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.L, 10, Space.L, Space.M)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addSpacing(Space.XS)
        layout.addWidget(scroll, 1)
        layout.addWidget(Rule())
        layout.addSpacing(Space.S)
        layout.addWidget(self._try_first)
        layout.addSpacing(Space.XS + 1)
        layout.addLayout(buttons)

    def show_diagnosis(
        self,
        diagnosis: Diagnosis | None,
        says: str = "",
        try_first: str = "",
        can_fix: bool = True,
        notes: tuple[str, ...] = (),
    ) -> None:
        """The card of a diagnosis; `says` is the sentence where there is none. `try_first`: the first fix's title.

        `notes`: what else there is to say about the launch.
        """
        self._show_chip(diagnosis)
        self._title.setText(diagnosis.title if diagnosis is not None and diagnosis.title else tr("No cause found"))
        sentence = diagnosis.summary if diagnosis is not None else says
        self._sentence.setText(sentence or says or tr("No line of the log says why."))
        self._show_evidence(diagnosis.evidence if diagnosis is not None else ())
        missing = list(diagnosis.missing) + list(diagnosis.notes) if diagnosis is not None else []
        missing += notes
        self._missing.setText("\n".join(missing))
        self._missing.setVisible(bool(missing))
        self._try_first.setText(tr("Try first: {}").format(_lower_first(try_first)) if try_first else "")
        self._try_first.setVisible(bool(try_first))
        self.fix_button.setVisible(can_fix)
        make_primary(self.fix_button, can_fix)
        make_primary(self.report_button, not can_fix)

    def _show_chip(self, diagnosis: Diagnosis | None) -> None:
        if diagnosis is None:
            self._chip.show_chip(tr("Cause unknown"), "neutral")
        elif diagnosis.outcome is Outcome.RECOVERED:
            self._chip.show_chip(tr("Recovered"), "good")
        elif diagnosis.outcome is Outcome.OK:
            self._chip.show_chip(tr("No failure"), "good")
        else:
            self._chip.show_chip(cause_name(diagnosis.cause), "neutral" if diagnosis.cause is Cause.UNKNOWN else "bad")

    def _show_evidence(self, evidence: tuple[Evidence, ...]) -> None:
        while (item := self._evidence.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self._links, self._shown = [], evidence
        for row, piece in enumerate(evidence):
            self._evidence.addWidget(self._mark(piece), row, 0, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop)
            words = Label(piece.says, Step.SMALL, wrap=True)
            words.setContentsMargins(0, 1, 0, 1)
            words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
            self._evidence.addWidget(words, row, 1)
        self._evidence_title.setVisible(bool(evidence))

    def _mark(self, piece: Evidence) -> QWidget:
        """The line's number as a link, or who else saw it."""
        if piece.number is None:
            source = Label(piece.source if piece.source != "log" else "–", Step.SMALL, Weight.Medium, "accent_text")
            source.setContentsMargins(0, 1, 3, 1)
            return source
        link = LinkButton(str(piece.number), name=f"evidence{piece.number}")
        link.setFont(theme.font(Step.SMALL, Weight.Medium))
        link.setFixedHeight(18)
        link.setAccessibleName(tr("Line {}: {}").format(piece.number, piece.says))
        link.clicked.connect(lambda _=False, number=piece.number: self.line_requested.emit(number))
        self._links.append(link)
        return link

    @property
    def links(self) -> tuple[LinkButton, ...]:
        """Links to lines, in order."""
        return tuple(self._links)

    def text(self) -> str:
        """The card in words, for the clipboard."""
        parts = [self._title.text(), self._sentence.text()]
        parts += [f"{e.source if e.number is None else e.number}: {e.says}" for e in self._shown]
        return "\n".join(part for part in (*parts, self._missing.text(), self._try_first.text()) if part)


def _lower_first(title: str) -> str:
    """`Split by free memory` inside a sentence; names such as `K and V type` keep their letters."""
    second = title[1:2]
    return title[:1].lower() + title[1:] if second.islower() else title
