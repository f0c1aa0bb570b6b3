"""How a test launch asks and waits: prompt, tokens, repeats, requests at once, fill, timeouts; a popover."""

from dataclasses import replace

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QFormLayout, QFrame, QLineEdit, QSpinBox, QVBoxLayout, QWidget

from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step
from kvstudio.ui.widgets.basic import Label, LinkButton, SectionLabel
from kvstudio.verify.options import DEFAULT_PROMPT, LaunchOptions

_WIDTH = 480
_MOST = 10_000
_LONGEST_S = 7 * 24 * 3600


class OptionsPopover(QFrame):
    """`show_options` in; `edited` carries a LaunchOptions with each change."""

    edited = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setObjectName("launchOptions")
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setFixedWidth(_WIDTH)
        self._options = LaunchOptions()
        self._build()

    def _build(self) -> None:
        self.prompt = QLineEdit()
        self.prompt.setObjectName("optionPrompt")
        self.prompt.setFixedHeight(Size.CONTROL)
        self.prompt.setPlaceholderText(DEFAULT_PROMPT)
        self.prompt.editingFinished.connect(self._on_prompt)
        self.n_predict = self._number("n_predict", 1, _MOST)
        self.repeat = self._number("repeat", 0, _MOST)
        self.concurrent = self._number("concurrent", -1, 256, special=tr("one per slot"))
        self.fill = self._number("fill_context", 0, 100, suffix=" %", special=tr("off"))
        self.timeout = self._number("timeout_s", 0, _LONGEST_S, suffix=" s", special=tr("none"))
        self.phase_timeout = self._number("phase_timeout_s", 0, _LONGEST_S, suffix=" s", special=tr("none"))
        form = QFormLayout()
        form.setHorizontalSpacing(Space.L)
        form.setVerticalSpacing(6)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for words, field in (
            (tr("Prompt"), self.prompt),
            (tr("Tokens per answer"), self.n_predict),
            (tr("Repeated requests"), self.repeat),
            (tr("Requests at once"), self.concurrent),
            (tr("Fill of a slot's context"), self.fill),
            (tr("Time for the whole launch"), self.timeout),
            (tr("Time for each step and answer"), self.phase_timeout),
        ):
            label = Label(words)
            label.setBuddy(field)
            form.addRow(label, field)
        self.reset = LinkButton(tr("Reset"), name="optionReset")
        self.reset.clicked.connect(lambda: self._take(LaunchOptions()))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.L, Space.M, Space.L, Space.M)
        layout.setSpacing(Space.S)
        layout.addWidget(SectionLabel(tr("Test launch")))
        layout.addLayout(form)
        note = tr("They never change what is launched, only how it is tried and watched.")
        layout.addWidget(Label(note, Step.SMALL, role="muted", wrap=True))
        layout.addWidget(self.reset)

    def _number(self, name: str, least: int, most: int, suffix: str = "", special: str = "") -> QSpinBox:
        box = QSpinBox()
        box.setObjectName(f"option_{name}")
        box.setRange(least, most)
        box.setSuffix(suffix)
        box.setSpecialValueText(special)
        box.setFixedHeight(Size.CONTROL)
        box.setKeyboardTracking(False)
        box.valueChanged.connect(self._on_number)
        return box

    def show_options(self, options: LaunchOptions) -> None:
        """Other values, told to nobody."""
        self._options = options
        values = (
            (self.n_predict, options.n_predict),
            (self.repeat, options.repeat),
            (self.concurrent, -1 if options.concurrent is None else options.concurrent),
            (self.fill, round(options.fill_context * 100)),
            (self.timeout, round(options.timeout_s or 0)),
            (self.phase_timeout, round(options.phase_timeout_s or 0)),
        )
        for box, value in values:
            box.blockSignals(True)
            box.setValue(value)
            box.blockSignals(False)
        self.prompt.setText(options.prompt)
        self.prompt.setCursorPosition(0)

    def open_below(self, anchor: QWidget) -> None:
        """Show under a button, inside its screen."""
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(0, anchor.height() + Space.XS))
        room = anchor.screen().availableGeometry()
        self.move(min(corner.x(), room.right() - self.width()), min(corner.y(), room.bottom() - self.height()))
        self.show()
        self.prompt.setFocus()

    def _on_prompt(self) -> None:
        self._take(replace(self._options, prompt=self.prompt.text().strip() or DEFAULT_PROMPT))

    def _on_number(self, _: int) -> None:
        concurrent = self.concurrent.value()
        self._take(
            replace(
                self._options,
                n_predict=self.n_predict.value(),
                repeat=self.repeat.value(),
                concurrent=None if concurrent < 0 else concurrent,
                fill_context=self.fill.value() / 100,
                timeout_s=float(self.timeout.value()) or None,
                phase_timeout_s=float(self.phase_timeout.value()) or None,
            )
        )

    def _take(self, options: LaunchOptions) -> None:
        if options != self._options:
            self.show_options(options)
            self.edited.emit(options)
