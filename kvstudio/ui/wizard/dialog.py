"""The fix wizard's window: the record at the left, one page at the right, what can be done at the foot."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QMessageBox, QPushButton, QWidget

from kvstudio.ui import text
from kvstudio.ui.theme import Size, Space
from kvstudio.ui.widgets.basic import Surface, make_primary, push_button
from kvstudio.ui.widgets.dialog_frame import fill
from kvstudio.ui.wizard.page import PageView
from kvstudio.ui.wizard.side import Side
from kvstudio.ui.wizard.values import Action, WizardView

_MOST_SIDE = 0.34
_ICONS = {
    Action.BACK: "chevron-left",
    Action.UNDO: "undo",
    Action.KEEP: "check",
    Action.TRY: "play",
    Action.PREDICT: "chevron-right",
    Action.NEXT: "chevron-right",
    Action.CANCEL: "stop",
    Action.REPORT: "file",
    Action.COPY: "copy",
    Action.USE: "check",
}


def action_words(action: Action) -> str:
    """What a button of the foot says."""
    words = {
        Action.STOP: text.tr("Stop here"),
        Action.WHY_NOT: text.tr("Why not…?"),
        Action.AGAIN: text.tr("Begin again"),
        Action.NEXT: text.tr("Go on"),
        Action.UNDO: text.tr("Undo"),
        Action.KEEP: text.tr("Keep"),
        Action.BACK: text.tr("Back"),
        Action.SKIP: text.tr("Skip"),
        Action.TRY: text.tr("Try it"),
        Action.PREDICT: text.tr("Predict the rest"),
        Action.CANCEL: text.tr("Cancel this try"),
        Action.REPORT: text.tr("Report…"),
        Action.USE: text.tr("Use these settings"),
        Action.COPY: text.tr("Copy command"),
        Action.CLOSE: text.tr("Close"),
    }
    return words[action]


class WizardWindow(QDialog):
    """`show_view` in; `action_requested` (an Action) out. Closing says so by `left`; nothing is lost by it."""

    action_requested = Signal(object)
    left = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(text.tr("Fix"))
        self.setObjectName("fixWizard")
        self.resize(1180, 800)
        self.setMinimumSize(900, 560)
        self.side = Side()
        self.page = PageView()
        self._buttons: dict[Action, QPushButton] = {}
        self._question: QMessageBox | None = None
        self._shown: tuple[tuple[Action, ...], Action | None] | None = None
        fill(self, self.side, self.page, self._build_foot())

    def _build_foot(self) -> QWidget:
        foot = Surface()
        foot.setFixedHeight(Size.FOOT)
        row = QHBoxLayout(foot)
        row.setContentsMargins(Space.XXL, 0, Space.XXL, 0)
        row.setSpacing(Space.S)
        for action in Action:
            button = push_button(action_words(action), _ICONS.get(action, ""), name=action.value)
            button.setAutoDefault(False)
            button.clicked.connect(lambda _=False, action=action: self.action_requested.emit(action))
            self._buttons[action] = button
            row.addWidget(button)
            if action is Action.WHY_NOT:
                row.addStretch(1)
        return foot

    def show_view(self, view: WizardView) -> None:
        """Show a moment of the walk; the primary button has the focus whenever the choice changes."""
        self.side.show_view(view)
        self.page.show_page(view.page)
        now = (view.actions, view.primary)
        if now == self._shown:
            return
        self._shown = now
        for action, button in self._buttons.items():
            button.setVisible(action in view.actions)
            button.setDefault(action is view.primary)
            make_primary(button, action is view.primary)
        self._buttons[view.primary or view.actions[-1]].setFocus(Qt.FocusReason.OtherFocusReason)

    def button(self, action: Action) -> QPushButton:
        """A button of the foot."""
        return self._buttons[action]

    def offered(self) -> tuple[Action, ...]:
        """What is offered now."""
        return self._shown[0] if self._shown else ()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() != Qt.Key.Key_Escape:
            super().keyPressEvent(event)
        elif Action.CANCEL in self.offered():
            self._ask(Action.CANCEL, text.tr("Cancel this try? The runs before it are kept."))
        elif Action.STOP in self.offered():
            self._ask(Action.STOP, text.tr("Stop here? What was found so far is kept."))
        else:
            self.close()

    def question(self) -> QMessageBox | None:
        """The question that is open, if any."""
        return self._question

    def _ask(self, action: Action, words: str) -> None:
        box = QMessageBox(QMessageBox.Icon.NoIcon, text.tr("Fix"), words, parent=self)
        box.setObjectName("fixQuestion")
        box.setWindowModality(Qt.WindowModality.WindowModal)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        sure = box.addButton(action_words(action), QMessageBox.ButtonRole.AcceptRole)
        stay = box.addButton(text.tr("Go on"), QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(sure)
        box.setEscapeButton(stay)
        self._question = box

        def on_finished() -> None:
            self._question = None
            if box.clickedButton() is sure and action in self.offered():
                self.action_requested.emit(action)

        box.finished.connect(on_finished)
        box.open()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The record never takes more than its share, whatever the font: the page is what is read."""
        self.side.setFixedWidth(min(Size.WIZARD_SIDE, round(self.width() * _MOST_SIDE)))
        super().resizeEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.left.emit()
        super().closeEvent(event)
