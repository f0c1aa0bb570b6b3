"""What is said in passing: a banner below the tool bar, and the strip at the foot of the empty page."""

from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from kvstudio.devices.values import Machine
from kvstudio.errors import KvStudioError
from kvstudio.launch.binary import Binary
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step, Weight
from kvstudio.ui.widgets.basic import Card, ElidedLabel, Icon, Label, Rule, Surface, icon_button
from kvstudio.units import format_bytes, format_gib

_NOTE_MS = 6000


class Banner(QWidget):
    """One sentence and a hint, without taking the window away; the next one replaces it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("banner")
        self._card = Card("bad")
        self._icon = Icon("warn", "bad")
        self._message = Label(weight=Weight.DemiBold, wrap=True)
        self._message.setObjectName("bannerMessage")
        self._hint = Label(role="muted", wrap=True)
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(self._message)
        words.addWidget(self._hint)
        self._buttons = QHBoxLayout()
        close = icon_button("close", tr("Dismiss"), name="dismissBanner")
        close.clicked.connect(self.hide)
        row = QHBoxLayout(self._card)
        row.setContentsMargins(Space.M, Space.S, Space.S, Space.S)
        row.setSpacing(Space.M)
        row.addWidget(self._icon)
        row.addLayout(words, 1)
        row.addLayout(self._buttons)
        row.addWidget(close)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.L, Space.S, Space.L, Space.S)
        layout.addWidget(self._card)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        self._is_busy = False
        self.hide()

    def show_error(self, error: KvStudioError) -> None:
        """An error and what to do next; stays until dismissed or replaced."""
        self._show("bad", "warn", error.message, error.hint, ())

    def show_note(self, text: str) -> None:
        """Something that went well; goes by itself."""
        self._show("neutral", "info", text, "", ())
        self._timer.start(_NOTE_MS)

    def show_busy(self, text: str) -> None:
        """Something that takes its time; `end_busy` takes it away."""
        self._show("neutral", "info", text, "", ())
        self._is_busy = True

    def end_busy(self) -> None:
        """It is done; what was said since stays."""
        if self._is_busy:
            self.hide()

    def ask(self, text: str, hint: str, choices: tuple[tuple[str, Callable[[], None]], ...]) -> None:
        """A question with its answers as buttons; dismissing it does nothing."""
        self._show("neutral", "info", text, hint, choices)

    def texts(self) -> tuple[str, str]:
        """Message and hint on screen; both empty when the banner is hidden."""
        return ("", "") if self.isHidden() else (self._message.text(), self._hint.text())

    def _show(
        self, state: str, icon: str, text: str, hint: str, choices: tuple[tuple[str, Callable[[], None]], ...]
    ) -> None:
        self._timer.stop()
        self._is_busy = False
        self._card.show_state(state)
        self._icon.show_icon(icon, "bad" if state == "bad" else "accent_text")
        self._message.setText(text)
        self._hint.setText(hint)
        self._hint.setVisible(bool(hint))
        while (item := self._buttons.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        for words, action in choices:
            button = QPushButton(words)
            button.clicked.connect(lambda _=False, action=action: self._answer(action))
            self._buttons.addWidget(button)
        self.show()

    def _answer(self, action: Callable[[], None]) -> None:
        self.hide()
        action()


class StatusStrip(Surface):
    """Foot of the empty page: the binary, the devices' free memory, and where help is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("statusStrip")
        self._binary = Label(step=Step.SMALL)
        self._source = Label(step=Step.SMALL, role="muted")
        self._devices = ElidedLabel(step=Step.SMALL, role="muted")
        row = QHBoxLayout()
        row.setContentsMargins(Space.L, 0, Space.L, 0)
        row.setSpacing(Space.S - 2)
        row.addWidget(Icon("chip", "muted"))
        row.addWidget(self._binary)
        row.addWidget(self._source)
        row.addSpacing(Space.L)
        row.addWidget(self._devices, 1)
        row.addWidget(Label(tr("Press F1 for help"), Step.SMALL, role="muted"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(Rule())
        layout.addLayout(row, 1)
        self.setFixedHeight(Size.STRIP - 3)

    def show_machine(self, binary: Binary | None, machine: Machine | None, note: str = "") -> None:
        """Draw what was found so far."""
        self._binary.setText(binary.title if binary else note or tr("No llama.cpp program found"))
        self._source.setText("" if binary is None and note else _where(binary))
        self._devices.setText(devices_line(machine))

    def texts(self) -> tuple[str, str, str]:
        """Binary, where it was found, devices."""
        return self._binary.text(), self._source.text(), self._devices.text()


def devices_line(machine: Machine | None) -> str:
    """`CUDA0 RTX 4090 23.6 of 24.0 GiB free` for each device; the host when there is none."""
    from kvstudio.ui.panels.devices_panel import short_description

    if machine is None:
        return tr("looking for devices…")
    parts = []
    for device in machine.devices or (machine.host,):
        name = f"{device.name} {short_description(device.description)}".strip() if machine.devices else "RAM"
        if device.free_bytes is None or device.total_bytes is None:
            parts.append(f"{name} {device.reason or tr('memory unknown')}")
        else:
            figures = tr("{} of {} free").format(format_gib(device.free_bytes), format_bytes(device.total_bytes))
            parts.append(f"{name} {figures}")
    return "      ".join(parts)


def _where(binary: Binary | None) -> str:
    if binary is None:
        return tr("estimates work without one")
    known = {"path": tr("found in PATH"), "chosen": tr("chosen"), "package": tr("from a Python package")}
    return known.get(binary.source, binary.source)
