"""The verdict: fill and edge of its state, icon, the answer, the reason, and what can be done about it."""

import html
import re

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.advise.verdict import Answer, Verdict
from kvstudio.ui import text, theme
from kvstudio.ui.theme import Step, Weight
from kvstudio.ui.widgets.basic import Card, Icon, Label, make_primary, push_button, show

_LOOKS = {
    Answer.FITS: ("good", "check-circle", "good"),
    Answer.ADJUSTED: ("warn", "warn", "warn"),
    Answer.SHORT: ("bad", "cross-circle", "bad"),
    Answer.UNKNOWN: ("neutral", "info", "muted"),
}


class FlaggedText(Label):
    """Wrapped text whose typed parts are set in mono; everything else stays plain whatever it contains."""

    def __init__(self, step: Step = Step.BODY, role: str = "ink", parent: QWidget | None = None) -> None:
        super().__init__(step=step, role=role, wrap=True, parent=parent)
        self.setTextFormat(Qt.TextFormat.RichText)
        self._plain = ""

    def show_words(self, words: str, flags: tuple[str, ...] = ()) -> None:
        """Text and the parts of it that are typed."""
        self._plain = words
        mono = theme.mono()
        style = f"font-family:'{mono.family()}'; font-size:{mono.pixelSize()}px"
        # In one pass: what was put in for one flag is not searched for the next.
        either = "|".join(re.escape(flag) for flag in sorted(flags, key=len, reverse=True)) or "(?!)"
        typed = re.compile(rf"(?<![\w-])(?:{either})(?![\w-])")
        safe, end = "", 0
        for found in typed.finditer(words):
            marked = html.escape(found[0]).replace(" ", "&nbsp;")
            safe += f'{html.escape(words[end : found.start()])}<span style="{style}">{marked}</span>'
            end = found.end()
        self.setText((safe + html.escape(words[end:])).replace("\n", "<br>"))
        self.setAccessibleName(words)
        self.setVisible(bool(words))

    def words(self) -> str:
        """The text without its marks."""
        return self._plain


class VerdictCard(Card):
    """`show_verdict` in; `why_requested`, `fix_requested` and `raise_requested` out."""

    why_requested = Signal()
    fix_requested = Signal()
    raise_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("verdict")
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self._said: Verdict | None = None
        self._icon = Icon("info", "muted", 20)
        self._headline = Label(weight=Weight.DemiBold, wrap=True)
        self._detail = FlaggedText()
        self.why = push_button(text.tr("Why?"), name="why")
        self.fix = push_button(text.tr("Fix…"), "wrench", name="fix")
        self.higher = push_button(text.tr("Raise context…"), name="raise")
        self.why.clicked.connect(self.why_requested)
        self.fix.clicked.connect(self.fix_requested)
        self.higher.clicked.connect(self.raise_requested)
        self._build()
        self.show_verdict(None)

    def _build(self) -> None:
        words = QVBoxLayout()
        words.setSpacing(3)
        words.addStretch()
        words.addWidget(self._headline)
        words.addWidget(self._detail)
        words.addStretch()
        row = self._row = QHBoxLayout(self)
        self.set_close(False)
        row.setSpacing(10)
        icon = QVBoxLayout()
        icon.addWidget(self._icon)
        icon.addStretch()
        row.addLayout(icon)
        row.addLayout(words, 1)
        row.addSpacing(20)
        for button in (self.why, self.fix, self.higher):
            button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
            row.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)

    def show_verdict(self, said: Verdict | None) -> None:
        """Show the answer; None hides the card."""
        show(self, said is not None)
        if said is None or said == self._said:
            return
        self._said = said
        state, icon, role = _LOOKS[said.answer]
        self.show_state(state)
        self._icon.show_icon(icon, role)
        self._headline.setText(said.headline)
        self._detail.show_words(said.detail, said.flags)
        self.setAccessibleName(f"{said.headline} {said.detail}")
        short = said.answer in (Answer.SHORT, Answer.ADJUSTED)
        show(self.why, short)
        show(self.fix, short)
        show(self.higher, said.answer is Answer.FITS)
        self._bound()
        self.updateGeometry()

    def _bound(self) -> None:
        # A wrapped label asks for a guessed height that is far too tall: it gets what it needs at this width.
        needed = self.heightForWidth(self.width())
        if needed > 0:
            self.setMaximumHeight(needed)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._bound()

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            # Buttons and words that come or go are known to the layout only now.
            self._bound()
        return done

    def set_close(self, close: bool) -> None:
        """Less air inside where the window is low."""
        self._row.setContentsMargins(12, 7 if close else 10, 12, 7 if close else 10)
        self._bound()

    def set_fix_primary(self, primary: bool) -> None:
        """Fill the Fix button where it is the window's next step."""
        make_primary(self.fix, primary)

    def headline(self) -> str:
        return self._headline.text()

    def detail(self) -> str:
        return self._detail.words()

    def minimumSizeHint(self) -> QSize:
        return QSize(320, super().minimumSizeHint().height())
