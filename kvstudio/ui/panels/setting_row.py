"""One launch setting: dot, name, flag, control, effective value, and a note below when there is something to say."""

from typing import Any

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import (
    QComboBox,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QVBoxLayout,
    QWidget,
)

from kvstudio.errors import ConfigError
from kvstudio.ui import theme
from kvstudio.ui.setting_notes import Note
from kvstudio.ui.settings_table import Kind, Setting, format_value, parse_value
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step, Theme, Weight
from kvstudio.ui.widgets.basic import ElidedLabel, Icon, Label, plain_tooltip

_CONTROL_WIDTH = 76
_EFFECTIVE_WIDTH = 56
_DOT = 10
_LONGEST = "4, unified"


def effective_width() -> int:
    """Room for what a setting becomes: as in a narrow font, more where the system's is wide."""
    metrics = QFontMetrics(theme.font(Step.SMALL))
    return max(least_effective_width(), metrics.horizontalAdvance(_LONGEST) + 2)


def least_effective_width() -> int:
    """What the width of the panel counts on."""
    return theme.px(_EFFECTIVE_WIDTH)


def _control_width() -> int:
    return theme.px(_CONTROL_WIDTH)


def _wide_control() -> int:
    return _control_width() + Space.S + effective_width()


class Dot(QWidget):
    """The mark of a changed setting."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setFixedSize(_DOT, Size.CONTROL)
        self.on = False

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.on:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(Theme.current().accent_text)
        painter.drawEllipse(1, self.height() // 2 - 2, 5, 5)


class WholeLabel(ElidedLabel):
    """A flag is shown whole or not at all; the tooltip of the row has it in any case."""

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.sizeHint().width() <= self.width() + 1:
            super().paintEvent(event)


class ShortCombo(QComboBox):
    """A combo box whose closed form shows a shorter text than its list; the wheel scrolls the panel, not the value."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.short = ""

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QStylePainter(self)
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        option.currentText = self.short or self.currentText()
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def showPopup(self) -> None:
        self.view().setMinimumWidth(self.view().sizeHintForColumn(0) + 2 * Space.M)
        super().showPopup()


class SettingRow(QWidget):
    """Signal `edited` carries {field: value}; a value of None means not typed."""

    edited = Signal(object)

    def __init__(self, setting: Setting, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setting = setting
        self.setObjectName(f"row_{setting.field}")
        self._value: Any = None
        self._default = setting.default
        self._shown: tuple[Any, ...] | None = None
        self._touched = False
        self._build()

    def _build(self) -> None:
        setting = self.setting
        self.dot = Dot(self)
        self._name = Label(tr(setting.caption), parent=self)
        self._flag = WholeLabel(setting.flag, Step.SMALL, role="muted", mono=True, parent=self)
        self._flag.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.control = self._make_control()
        self.control.setObjectName(setting.field)
        self.control.setAccessibleName(f"{setting.caption} {setting.flag}".strip())
        self._name.setBuddy(self.control)
        self._effective = ElidedLabel(step=Step.SMALL, role="muted", parent=self)
        tip = plain_tooltip(f"{setting.flag}\n{setting.help}".strip())
        for widget in (self._name, self._flag, self.control):
            widget.setToolTip(tip)
        grid = QGridLayout()
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(0)
        grid.setColumnStretch(2, 1)
        grid.addWidget(self.dot, 0, 0)
        grid.addWidget(self._name, 0, 1)
        grid.addWidget(self._flag, 0, 2)
        grid.setColumnMinimumWidth(3, Space.S)
        grid.addWidget(self.control, 0, 4)
        if not self._is_wide():
            grid.setColumnMinimumWidth(5, Space.S)
            self._effective.setFixedWidth(effective_width())
            grid.setColumnMinimumWidth(6, effective_width())
            grid.addWidget(self._effective, 0, 6)
        self._note_row = QWidget(self)
        self._note_row.hide()
        self._note_icon = Icon("info", "muted", 12, self._note_row)
        self._note = Label(step=Step.SMALL, role="muted", wrap=True, parent=self._note_row)
        note = QHBoxLayout(self._note_row)
        note.setContentsMargins(Space.L, Space.S - 2, 0, 0)
        note.setSpacing(Space.XS + 3)
        note.addWidget(self._note_icon)
        note.addWidget(self._note, 1)
        self.layout_below = QVBoxLayout()
        self.layout_below.setContentsMargins(0, 0, 0, 0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(grid)
        layout.addLayout(self.layout_below)
        layout.addWidget(self._note_row)

    def _is_wide(self) -> bool:
        return self.setting.kind in (Kind.NAMES, Kind.PAIRS, Kind.SECRET) or (
            self.setting.kind is Kind.TEXT and self.setting.field != "host"
        )

    def _make_control(self) -> QLineEdit | ShortCombo:
        if self.setting.kind in (Kind.CHOICE, Kind.SWITCH):
            box = ShortCombo(self)
            box.setFixedSize(_control_width(), Size.CONTROL)
            box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            values = (True, False) if self.setting.kind is Kind.SWITCH else self.setting.choices
            box.addItem("", None)
            for value in values:
                box.addItem(format_value(self.setting, value), value)
            box.activated.connect(self._on_chosen)
            return box
        field = QLineEdit(self)
        field.setFixedSize(_wide_control() if self._is_wide() else _control_width(), Size.CONTROL)
        if self.setting.kind is Kind.SECRET:
            field.setEchoMode(QLineEdit.EchoMode.Password)
        field.editingFinished.connect(self._on_finished)
        field.textEdited.connect(self._on_typed)
        field.installEventFilter(self)
        return field

    def show_value(self, value: Any, default: str, effective: str, note: Note | None, marked: bool) -> None:
        """Draw the typed value (or the default when there is none), what it becomes, and a note."""
        shown = (value, default, effective, note, marked)
        if shown == self._shown and not self._touched:
            return
        self._shown, self._touched = shown, False
        self._value, self._default = value, default
        self.dot.on = marked
        self.dot.update()
        weight = Weight.DemiBold if marked else Weight.Normal
        if self._name.font().weight() != weight:
            font = self._name.font()
            font.setWeight(weight)
            self._name.setFont(font)
        self._effective.setText(effective)
        self._show_control()
        self._say(note)

    def effective(self) -> str:
        """The muted text at the right."""
        return self._effective.text()

    def note(self) -> str:
        """What is said below the control; empty when nothing is."""
        return "" if self._note_row.isHidden() else self._note.text()

    def is_marked(self) -> bool:
        """Whether the setting is shown as changed."""
        return self.dot.on

    def _show_control(self) -> None:
        text = format_value(self.setting, self._value)
        if isinstance(self.control, ShortCombo):
            self._show_combo(text)
            return
        # A field the user is typing in is left alone, unless what it means has changed elsewhere.
        if self.control.hasFocus() and self._typed_value() == self._value:
            return
        self.control.setPlaceholderText(self._default)
        if self.control.text() != text:
            self.control.setText(text)
            self.control.setCursorPosition(0)

    def _show_combo(self, text: str) -> None:
        box = self.control
        assert isinstance(box, ShortCombo)
        box.setItemText(0, tr("Default: {}").format(self._default))
        index = 0 if self._value is None else _index_of(box, self._value)
        if index < 0:
            box.addItem(text, self._value)
            index = box.count() - 1
        box.setCurrentIndex(index)
        box.short = text or self._default
        box.update()

    def _typed_value(self) -> Any:
        assert isinstance(self.control, QLineEdit)
        try:
            return parse_value(self.setting, self.control.text())
        except ConfigError:
            return object()

    def _on_chosen(self, index: int) -> None:
        assert isinstance(self.control, ShortCombo)
        self._touched = True
        self.edited.emit({self.setting.field: self.control.itemData(index)})

    def _on_typed(self, text: str) -> None:
        self._touched = True
        try:
            value = parse_value(self.setting, text)
        except ConfigError as error:
            self._say(("warn", error.message))
            return
        # Figures repaint the chart while they are typed; names and paths wait until they are whole.
        if self.setting.kind in (Kind.INT, Kind.LAYERS) and value != self._value:
            self.edited.emit({self.setting.field: value})

    def _on_finished(self) -> None:
        assert isinstance(self.control, QLineEdit)
        try:
            value = parse_value(self.setting, self.control.text())
        except ConfigError as error:
            self._say(("warn", error.message))
            return
        if value != self._value:
            self.edited.emit({self.setting.field: value})

    def _say(self, note: Note | None) -> None:
        self._note_row.setVisible(note is not None)
        if note is not None:
            warn = note[0] == "warn"
            self._note_icon.show_icon("warn" if warn else "info", "warn" if warn else "muted")
            self._note.set_role("warn" if warn else "muted")
            self._note.setText(note[1])

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            assert isinstance(self.control, QLineEdit)
            self.control.setText(format_value(self.setting, self._value))
            self._say(None)
            return True
        return super().eventFilter(watched, event)


def _index_of(box: QComboBox, value: Any) -> int:
    # Not findData: 1 and True are equal to Qt and to Python.
    for index in range(1, box.count()):
        data = box.itemData(index)
        if data == value and isinstance(data, bool) == isinstance(value, bool):
            return index
    return -1
