"""The settings as the command line they are: shown, copied, pasted, edited; and as other programs' equivalents."""

from PySide6.QtCore import QEvent, QObject, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFontMetricsF,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from kvstudio.errors import KvStudioError
from kvstudio.launch.config import LaunchConfig
from kvstudio.ui import theme
from kvstudio.ui.command_words import Word, command_text, equivalent_names, equivalent_text, words_of
from kvstudio.ui.text import said, tr
from kvstudio.ui.theme import Radius, Size, Space, Step, Theme, Weight
from kvstudio.ui.widgets.basic import Label, SectionLabel, icon_button, push_button

_LINE_HEIGHT = 16
_PAD_X, _PAD_Y = 12, 7
#: A longer command would push the chart away; copying and editing give it whole.
_MOST_LINES = 8


def _line() -> int:
    return theme.px(_LINE_HEIGHT)


class CommandPanel(QWidget):
    """Signals: `config_edited` carries a LaunchConfig, `paste_requested` asks for the clipboard's text."""

    config_edited = Signal(object)
    paste_requested = Signal()
    copied = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("commandPanel")
        self._config = LaunchConfig()
        self._target = "llama-server"
        self._context: tuple[str, int | None] = ("", None)
        self._doubts: tuple[str, ...] = ()
        self._build()

    def _build(self) -> None:
        self._target_box = QComboBox()
        self._target_box.setObjectName("showFor")
        self._target_box.setAccessibleName(tr("Show for"))
        self._target_box.addItem("llama-server")
        self._target_box.setFixedWidth(theme.px(128))
        self._target_box.activated.connect(lambda _: self._on_target(self._target_box.currentText()))
        header = QHBoxLayout()
        header.setContentsMargins(0, 0, 0, 0)
        header.addWidget(SectionLabel(tr("Command")))
        header.addStretch(1)
        self._show_for = Label(tr("Show for"), Step.SMALL, role="muted")
        header.addWidget(self._show_for)
        header.addSpacing(Space.XS)
        header.addWidget(self._target_box)
        self.header = QWidget()
        self.header.setLayout(header)

        self._box = _CommandBox()
        self._box.copy_requested.connect(self._on_copy)
        self.copy = icon_button("copy", tr("Copy command"), name="copyCommand")
        self.paste = icon_button("paste", tr("Paste command"), name="pasteCommand")
        self.edit = icon_button("edit", tr("Edit command"), name="editCommand")
        self.copy.clicked.connect(self._on_copy)
        self.paste.clicked.connect(self.paste_requested)
        self.edit.clicked.connect(self.begin_edit)
        row = QHBoxLayout(self._box)
        row.setContentsMargins(0, 0, Space.S + 2, 0)
        row.setSpacing(Space.XS)
        row.addStretch(1)
        for button in (self.copy, self.paste, self.edit):
            row.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
        self._box.reserve_right = 3 * Size.CONTROL + 2 * Space.XS + Space.S + 2 + Space.S

        self._build_editor()
        self._notes = Label(step=Step.SMALL, role="muted", wrap=True)
        self._notes.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(Space.M)
        layout.addWidget(self.header)
        layout.addWidget(self._box)
        layout.addWidget(self._editor)
        layout.addWidget(self._notes)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)

    def _build_editor(self) -> None:
        self.field = QPlainTextEdit()
        self.field.setObjectName("commandField")
        self.field.setProperty("field", True)
        self.field.setAccessibleName(tr("Command"))
        self.field.setFont(theme.mono(Step.SMALL))
        self.field.setFixedHeight(4 * _line() + 2 * Space.S)
        self.field.setTabChangesFocus(True)
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._on_text)
        self._error = Label(step=Step.SMALL, role="bad", wrap=True)
        self._apply = push_button(tr("Apply"), "check", name="applyCommand")
        self._apply.clicked.connect(self.commit)
        cancel = QPushButton(tr("Cancel"))
        cancel.clicked.connect(self.end_edit)
        foot = QHBoxLayout()
        foot.addWidget(self._error, 1)
        foot.addWidget(cancel)
        foot.addWidget(self._apply)
        self._editor = QWidget()
        column = QVBoxLayout(self._editor)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.S - 2)
        column.addWidget(self.field)
        column.addLayout(foot)
        self._editor.hide()

    def show_config(
        self, config: LaunchConfig, model_name: str = "", n_ctx: int | None = None, doubts: tuple[str, ...] = ()
    ) -> None:
        """Draw the command of these settings; `n_ctx` is the effective context, for other programs' equivalents.

        `doubts`: what of it llama.cpp would not take, a sentence each.
        """
        self._config, self._context, self._doubts = config, (model_name, n_ctx), doubts
        self._fill_targets()
        self._draw()

    def show_header(self, on: bool) -> None:
        """The heading with the choice of program; small windows go without."""
        self.header.setVisible(on)

    def words(self) -> tuple[Word, ...]:
        """What is on screen, piece by piece."""
        return self._box.words

    def notes(self) -> str:
        """What is said below the command."""
        return self._notes.text()

    def error(self) -> str:
        """What is said while a command is edited."""
        return self._error.text()

    def is_editing(self) -> bool:
        return not self._editor.isHidden()

    def begin_edit(self) -> None:
        """Turn the command into a field, secrets readable."""
        if self._target != "llama-server":
            self._target_box.setCurrentIndex(0)
            self._on_target("llama-server")
        self.field.setPlainText(command_text(self._config))
        self._error.setText("")
        self._box.hide()
        self._editor.show()
        self.field.setFocus()
        self.field.selectAll()

    def end_edit(self) -> None:
        """Back to the command as it was."""
        self._editor.hide()
        self._box.show()
        self.edit.setFocus()

    def commit(self) -> None:
        """Take over what was written; what cannot be understood is said in place and nothing changes."""
        config = self._parse()
        if config is not None:
            self.end_edit()
            self.config_edited.emit(config)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() == Qt.Key.Key_Escape:
                self.end_edit()
                return True
            plain = not event.modifiers() & Qt.KeyboardModifier.ShiftModifier
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and plain:
                self.commit()
                return True
        return super().eventFilter(watched, event)

    def _on_text(self) -> None:
        if self.is_editing():
            self._parse()

    def _parse(self) -> LaunchConfig | None:
        from kvstudio.launch.argv import parse_argv, split_command

        try:
            config = parse_argv(split_command(self.field.toPlainText()))
        except KvStudioError as error:
            self._error.setText(said(error.message, error.hint))
            self._apply.setEnabled(False)
            return None
        self._error.setText("")
        self._apply.setEnabled(True)
        return config

    def _on_copy(self) -> None:
        text = self._box.whole or command_text(self._config)
        QGuiApplication.clipboard().setText(text)
        self.copied.emit()

    def _on_target(self, target: str) -> None:
        self._target = target
        self._draw()

    def _fill_targets(self) -> None:
        program = self._config.program or "llama-server"
        names = (program, *equivalent_names())
        shown = tuple(self._target_box.itemText(i) for i in range(self._target_box.count()))
        if shown != names:
            self._target_box.clear()
            self._target_box.addItems(list(names))
        if self._target not in names:
            self._target = names[0]
        self._target_box.setCurrentIndex(max(0, self._target_box.findText(self._target)))

    def _draw(self) -> None:
        native = self._target_box.currentIndex() <= 0
        self.paste.setEnabled(native)
        self.edit.setEnabled(native)
        if native:
            self._box.show_words(words_of(self._config), "")
            notes = self._doubts
        else:
            text, shown, notes = equivalent_text(self._target, self._config, *self._context)
            self._box.show_words(tuple(Word(line) for line in shown.splitlines()), text)
        self._notes.set_role("warn" if native else "muted")
        self._notes.setText("\n".join(notes))
        self._notes.setVisible(bool(notes))


class _CommandBox(QWidget):
    """Frame and text; lines break only between pieces."""

    copy_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.words: tuple[Word, ...] = ()
        self.whole = ""
        self.reserve_right = 0
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setObjectName("commandText")
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def show_words(self, words: tuple[Word, ...], whole: str) -> None:
        """Draw pieces; `whole` is what is copied when that is not the settings' own command."""
        self.words, self.whole = words, whole
        self.setAccessibleName(" ".join(w.text for w in words))
        self.updateGeometry()
        self.update()

    def heightForWidth(self, width: int) -> int:
        lines = len(self._lines(width))
        return max(theme.px(48), lines * _line() + 2 * _PAD_Y + 2)

    def sizeHint(self) -> QSize:
        return QSize(400, self.heightForWidth(self.width() or 400))

    def minimumSizeHint(self) -> QSize:
        return QSize(200, self.heightForWidth(self.width()) if self.width() > 200 else 48)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self.updateGeometry()

    def _lines(self, width: int) -> list[list[Word]]:
        metrics = QFontMetricsF(theme.mono(Step.SMALL))
        room = width - _PAD_X - self.reserve_right
        lines: list[list[Word]] = [[]]
        used = 0.0
        space = metrics.horizontalAdvance(" ")
        for word in self.words:
            needs = metrics.horizontalAdvance(word.text) + (space if lines[-1] else 0)
            if lines[-1] and (used + needs > room or self.whole):
                lines.append([])
                used, needs = 0.0, metrics.horizontalAdvance(word.text)
            lines[-1].append(word)
            used += needs
        rest = len(lines) - _MOST_LINES + 1
        if rest > 1:
            lines[_MOST_LINES - 1 :] = [[Word(tr("… and {} more lines").format(rest), False)]]
        return lines

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        focus = self.hasFocus()
        painter.setPen(QPen(current.accent_text if focus else current.control_edge, 2 if focus else 1))
        painter.setBrush(current.canvas)
        inset = 1.0 if focus else 0.5
        frame = QRectF(self.rect()).adjusted(inset, inset, -inset, -inset)
        painter.drawRoundedRect(frame, Radius.CARD, Radius.CARD)
        plain, strong = theme.mono(Step.SMALL), theme.mono(Step.SMALL, Weight.Bold)
        metrics = QFontMetricsF(plain)
        lines = self._lines(self.width())
        top = (self.height() - len(lines) * _line()) / 2
        room = self.width() - _PAD_X - self.reserve_right
        for number, line in enumerate(lines):
            x = float(_PAD_X)
            baseline = top + number * _line() + (_line() + metrics.ascent() - metrics.descent()) / 2
            for word in line:
                painter.setFont(strong if word.changed else plain)
                painter.setPen(current.accent_text if word.changed else current.ink)
                text = word.text
                if metrics.horizontalAdvance(text) > room:
                    text = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, room)
                painter.drawText(QPointF(x, baseline), text)
                x += QFontMetricsF(painter.font()).horizontalAdvance(text + " ")

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_requested.emit()
            return
        super().keyPressEvent(event)
