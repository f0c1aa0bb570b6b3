"""A report as it will read, with an amber token wherever something is hidden."""

import re
from dataclasses import dataclass

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import (
    QFont,
    QFontMetrics,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFrameFormat,
)
from PySide6.QtWidgets import QFrame, QTextEdit, QWidget

from kvstudio.report.excerpt import Excerpt, Gap, clean, excerpt
from kvstudio.report.redact import apply
from kvstudio.report.values import Block, BlockKind, Report
from kvstudio.ui import theme
from kvstudio.ui.theme import Space, Step, Theme, Weight

#: As much of the log as is shown; what is saved or copied has its own limit.
SHOWN_CHARS = 64_000
_LINE = 19
_PROSE_LINE = 17

#: A label and the blanks behind it: what follows is wrapped to where it began.
_LABEL = re.compile(r"[A-Z][\w, ]{2,40}: +")


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the document that is not a token, and the text it shows."""

    start: int
    text: str


class ReportPreview(QTextEdit):
    """Read only; selections can be asked for without their tokens."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("reportPreview")
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAcceptRichText(False)
        self.setUndoRedoEnabled(False)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self._report: Report | None = None
        self._headings = True
        self._pieces: list[Piece] = []

    def show_report(self, report: Report, headings: bool) -> None:
        """Show it; `headings` as Markdown has them, else as plain text has them."""
        place = self.verticalScrollBar().value()
        self._report, self._headings = report, headings
        self._fill()
        self.verticalScrollBar().setValue(place)

    def selected_texts(self) -> tuple[str, ...]:
        """What is selected, without tokens, one text per line."""
        cursor = self.textCursor()
        first, last = cursor.selectionStart(), cursor.selectionEnd()
        found = []
        for piece in self._pieces:
            text = piece.text[max(0, first - piece.start) : max(0, last - piece.start)]
            if text.strip():
                found.append(text.strip())
        return tuple(dict.fromkeys(found))

    def _fill(self) -> None:
        report = self._report
        if report is None:
            return
        document = QTextDocument(self)
        document.setUndoRedoEnabled(False)
        document.setDocumentMargin(0)
        document.setDefaultFont(theme.font(Step.SMALL))
        self._pieces = []
        self._cursor = QTextCursor(document)
        self._cursor.beginEditBlock()
        key = report.key_line.number if report.key_line else None
        log = excerpt(report.log, key, report.redactions, SHOWN_CHARS)
        for i, section in enumerate(report.sections):
            self._heading(section.title, first=i == 0)
            for j, block in enumerate(section.blocks):
                self._block(block, report, log, space_before=4 if j else 0)
        self._cursor.endEditBlock()
        self.setDocument(document)
        root = QTextFrameFormat(document.rootFrame().frameFormat())
        root.setMargin(0)
        root.setLeftMargin(Space.CANVAS_MARGIN)
        root.setRightMargin(Space.CANVAS_MARGIN)
        root.setTopMargin(Space.CANVAS_MARGIN)
        root.setBottomMargin(Space.CANVAS_MARGIN)
        document.rootFrame().setFrameFormat(root)

    def _heading(self, title: str, first: bool) -> None:
        form = _char(theme.font(Step.BODY, Weight.DemiBold), "muted")
        self._new_line(first, top=0 if first else 10, height=18)
        self._cursor.insertText(f"### {title}" if self._headings else title, form)

    def _block(self, block: Block, report: Report, log: Excerpt, space_before: int) -> None:
        if block.kind is BlockKind.LOG:
            self._log(report, log)
        elif block.kind is BlockKind.KEY:
            self._key(block.text, report)
        elif block.kind in (BlockKind.PROSE, BlockKind.MISSING):
            role = "ink" if block.kind is BlockKind.PROSE else "muted"
            self._lines(block.text, report, theme.font(Step.BODY), role, _PROSE_LINE, space_before)
        else:
            self._lines(block.text, report, theme.mono(), "ink", _LINE, space_before, hang=4)

    def _lines(
        self, text: str, report: Report, font: QFont, role: str, height: int, space_before: int, hang: int = 0
    ) -> None:
        for i, line in enumerate(text.split("\n")):
            label = _LABEL.match(line) if hang else None
            indent = label.end() if label else hang
            self._new_line(False, top=space_before if i == 0 else 0, height=height, hang=indent, font=font)
            self._spans(line, report, font, role)

    def _key(self, text: str, report: Report) -> None:
        frame = QTextFrameFormat()
        frame.setBackground(Theme.current().bad_fill)
        frame.setPadding(6)
        frame.setTopMargin(2)
        frame.setBottomMargin(0)
        self._cursor.insertFrame(frame)
        number, _, rest = text.partition(": ")
        self._shape(height=_LINE, hang=len(number) + 2, font=theme.mono(), top=0)
        self._spans(f"{number}: {rest}", report, theme.mono(), "ink")
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        # Behind a frame Qt keeps an empty line, which must not be seen.
        self._shape(height=1, hang=0, font=theme.mono(), top=0)

    def _log(self, report: Report, log: Excerpt) -> None:
        font = theme.mono()
        numbers = [item.number for item in log.items if not isinstance(item, Gap)]
        width = max(3, len(str(max(numbers, default=1))))
        by_number = {line.number: line for line in report.log}
        for item in log.items:
            if isinstance(item, Gap):
                self._new_line(False, height=_LINE, hang=0, font=font)
                self._cursor.insertText(item.words, _char(font, "muted"))
                continue
            self._new_line(False, height=_LINE, hang=width + 2, font=font)
            self._cursor.insertText(f"{item.number:>{width}}: ", _char(font, "ink"))
            source = by_number[item.number].text
            # A line that had to be cut inside is shown as it was cut; its tokens are plain words there.
            if len(source) > len(item.text) + 200:
                self._put(item.text, _char(font, "ink"))
            else:
                self._spans(source, report, font, "ink")

    def _spans(self, text: str, report: Report, font: QFont, role: str) -> None:
        plain_form, token_form = _char(font, role), _token(font)
        for span in apply(text, report.redactions):
            if span.token is None:
                self._put(clean(span.text), plain_form)
            else:
                self._cursor.insertText(f"\u00a0{span.token}\u00a0".replace(" ", "\u00a0"), token_form)

    def _put(self, text: str, form: QTextCharFormat) -> None:
        self._pieces.append(Piece(self._cursor.position(), text))
        self._cursor.insertText(text, form)

    def _new_line(
        self, first: bool, top: int = 0, height: int = _LINE, hang: int = 0, font: QFont | None = None
    ) -> None:
        if not first:
            self._cursor.insertBlock()
        self._shape(height, hang, font, top)

    def _shape(self, height: int, hang: int, font: QFont | None, top: int) -> None:
        form = QTextBlockFormat()
        form.setTopMargin(top)
        form.setLineHeight(height, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        if hang and font is not None:
            indent = QFontMetrics(font).horizontalAdvance("0") * hang
            form.setLeftMargin(indent)
            form.setTextIndent(-indent)
        self._cursor.setBlockFormat(form)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and getattr(self, "_report", None) is not None:
            self._fill()


def _char(font: QFont, role: str) -> QTextCharFormat:
    form = QTextCharFormat()
    form.setFont(font)
    form.setForeground(getattr(Theme.current(), role))
    return form


def _token(font: QFont) -> QTextCharFormat:
    bold = QFont(font)
    bold.setWeight(Weight.Medium)
    form = QTextCharFormat()
    form.setFont(bold)
    form.setForeground(Theme.current().redaction_ink)
    form.setBackground(Theme.current().redaction)
    return form
