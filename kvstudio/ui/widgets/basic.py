"""The small parts every panel is made of: labels, chips, switches, cards, rules, buttons."""

import html

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetrics,
    QKeyEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPalette,
    QPen,
    QPixmap,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QAbstractButton,
    QButtonGroup,
    QFrame,
    QLabel,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from kvstudio.ui import icons, theme
from kvstudio.ui.theme import Radius, Size, Step, Theme, Weight


class Label(QLabel):
    """Plain text at a step of the scale, in a colour of Theme that follows the scheme."""

    def __init__(
        self,
        text: str = "",
        step: Step = Step.BODY,
        weight: QFont.Weight = Weight.Normal,
        role: str = "ink",
        mono: bool = False,
        wrap: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(theme.mono(step, weight) if mono else theme.font(step, weight))
        self.setWordWrap(wrap)
        # On a canvas Qt would paint with the role Text.
        self.setForegroundRole(QPalette.ColorRole.WindowText)
        self._role = role
        self._colour()
        self.setText(text)

    def set_role(self, role: str) -> None:
        """Another colour of Theme."""
        self._role = role
        self._colour()

    def _colour(self) -> None:
        wanted = getattr(Theme.current(), self._role)
        if self.palette().color(QPalette.ColorRole.WindowText) != wanted:
            palette = self.palette()
            palette.setColor(QPalette.ColorRole.WindowText, wanted)
            self.setPalette(palette)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_role"):
            self._colour()


def show(part: QWidget, shown: bool) -> None:
    """Show or hide a part, at no cost when nothing changes."""
    if part.isHidden() is shown:
        part.setVisible(shown)


class SectionLabel(Label):
    """The small heading above a group."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, Step.SMALL, Weight.DemiBold, "muted", parent=parent)


class ElidedLabel(Label):
    """One line that loses its end (or middle) where there is no room; the whole text is the tooltip."""

    def __init__(
        self,
        text: str = "",
        step: Step = Step.BODY,
        weight: QFont.Weight = Weight.Normal,
        role: str = "ink",
        mono: bool = False,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
        parent: QWidget | None = None,
    ) -> None:
        self._whole = ""
        self._mode = mode
        super().__init__(text, step, weight, role, mono, parent=parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def setText(self, text: str) -> None:
        self._whole = text
        super().setText(text)
        self._update_tooltip()

    def text(self) -> str:
        return self._whole

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self.font())
        return QSize(metrics.horizontalAdvance(self._whole) + 1, metrics.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, QFontMetrics(self.font()).height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._update_tooltip()

    def _update_tooltip(self) -> None:
        fits = QFontMetrics(self.font()).horizontalAdvance(self._whole) <= self.width()
        # Escaped by Qt only when it does not look like markup, so a hostile name is wrapped as plain text.
        self.setToolTip("" if fits else plain_tooltip(self._whole))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self.font())
        painter.setPen(self.palette().color(QPalette.ColorRole.WindowText))
        shown = QFontMetrics(self.font()).elidedText(self._whole, self._mode, self.width())
        painter.drawText(self.rect(), int(self.alignment() | Qt.AlignmentFlag.AlignVCenter), shown)


#: Lines up to this long are kept whole; Qt would break rich text much earlier.
_WHOLE_LINE = 72


def plain_tooltip(text: str) -> str:
    """Tooltip text that Qt will never read as markup, lines kept, only long ones broken."""
    escaped = (html.escape(line, quote=False) for line in text.split("\n"))
    lines = (f"<nobr>{line}</nobr>" if len(line) <= _WHOLE_LINE else line for line in escaped)
    return "<qt>{}</qt>".format("<br>".join(lines))


class Chip(QLabel):
    """A word on a tinted patch. `kind`: neutral, good, bad, warn, accent, redaction."""

    _MARGIN = 8

    def __init__(
        self,
        text: str = "",
        kind: str = "neutral",
        mono: bool = False,
        strike: bool = False,
        weight: QFont.Weight = Weight.Medium,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        font = theme.mono(Step.SMALL) if mono else theme.font(Step.SMALL, weight)
        font.setStrikeOut(strike)
        self.setFont(font)
        self.setContentsMargins(self._MARGIN, 3, self._MARGIN, 3)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(22)
        self.setForegroundRole(QPalette.ColorRole.WindowText)
        self._kind = kind
        self._colour()
        self.setText(text)

    def show_chip(self, text: str, kind: str) -> None:
        """Another word and state."""
        self._kind = kind
        self.setText(text)
        self._colour()
        self.update()

    @property
    def kind(self) -> str:
        return self._kind

    def _colours(self) -> tuple[QColor, QColor]:
        current = Theme.current()
        if self._kind == "redaction":
            return current.redaction_ink, current.redaction
        return current.state(self._kind)

    def _colour(self) -> None:
        wanted = self._colours()[0]
        if self.palette().color(QPalette.ColorRole.WindowText) != wanted:
            palette = self.palette()
            palette.setColor(QPalette.ColorRole.WindowText, wanted)
            self.setPalette(palette)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_kind"):
            self._colour()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._colours()[1])
        painter.drawRoundedRect(QRectF(self.rect()), Radius.CHIP, Radius.CHIP)
        painter.end()
        super().paintEvent(event)


class Icon(QLabel):
    """A state's icon beside its word, in a colour of Theme."""

    def __init__(self, name: str, role: str = "ink", size: int = 16, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name, self._role, self._size = name, role, size
        self.setFixedSize(size, size)

    def show_icon(self, name: str, role: str) -> None:
        """Another icon and colour."""
        self._name, self._role = name, role
        self.update()

    @property
    def name(self) -> str:
        return self._name

    def _picture(self) -> QPixmap:
        colour = getattr(Theme.current(), self._role)
        return icons.pixmap(self._name, colour, self._size, self.devicePixelRatioF())

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).drawPixmap(0, 0, self._picture())


class Rule(QWidget):
    """A hairline, horizontal or vertical."""

    def __init__(self, vertical: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        fixed, free = QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding
        if vertical:
            self.setFixedWidth(1)
            self.setSizePolicy(fixed, free)
        else:
            self.setFixedHeight(1)
            self.setSizePolicy(free, fixed)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), Theme.current().hairline)


class Surface(QWidget):
    """A plain area: `canvas` (charts, logs) or ground; both straight from the palette."""

    def __init__(self, canvas: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAutoFillBackground(True)
        self.setBackgroundRole(QPalette.ColorRole.Base if canvas else QPalette.ColorRole.Window)


class Card(QFrame):
    """A rounded frame in one of the states (`neutral`, `good`, `bad`, `warn`); lay children out inside."""

    def __init__(self, state: str = "neutral", radius: int = Radius.CARD, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._radius = radius

    def show_state(self, state: str) -> None:
        """Another state."""
        self._state = state
        self.update()

    @property
    def state(self) -> str:
        return self._state

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(current.state_edge(self._state), 1))
        painter.setBrush(current.canvas if self._state == "neutral" else current.state(self._state)[1])
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), self._radius, self._radius)


#: An icon's 16 pixels and the air before the word.
_BUTTON_ICON = QSize(20, 16)


def push_button(
    text: str, icon_name: str = "", primary: bool = False, parent: QWidget | None = None, name: str = ""
) -> QPushButton:
    """An ordinary button; `primary` for the window's next sensible step."""
    button = QPushButton(text, parent)
    button.setObjectName(name)
    button.setCursor(Qt.CursorShape.ArrowCursor)
    button.setProperty("iconName", icon_name)
    make_primary(button, primary)
    return button


def make_primary(button: QPushButton, primary: bool) -> None:
    """Fill a button made by `push_button`, or clear it, its icon's colour with it."""
    name = button.property("iconName")
    if name:
        button.setIcon(icons.icon(name, "on_accent" if primary else "ink"))
        button.setIconSize(_BUTTON_ICON)
    theme.set_primary(button, primary)


class LinkButton(QPushButton):
    """A word that does something, in accent text."""

    def __init__(self, text: str = "", parent: QWidget | None = None, name: str = "") -> None:
        super().__init__(text, parent)
        self.setObjectName(name)
        self.setProperty("link", True)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)


def icon_button(icon_name: str, text: str, parent: QWidget | None = None, name: str = "") -> QToolButton:
    """An icon alone (copy, paste, edit, help): the word is its tooltip and its accessible name."""
    button = QToolButton(parent)
    button.setObjectName(name)
    button.setIcon(icons.icon(icon_name))
    button.setIconSize(QSize(16, 16))
    button.setToolTip(text)
    button.setAccessibleName(text)
    button.setFixedSize(Size.CONTROL, Size.CONTROL)
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button


class _Segment(QAbstractButton):
    """One choice of a SegmentedSwitch; corners are round only at the ends."""

    _PADDING = 18

    stepped = Signal(int)

    def __init__(self, text: str, first: bool, last: bool, parent: QWidget) -> None:
        super().__init__(parent)
        self.setText(text)
        self.setCheckable(True)
        self._first, self._last = first, last

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        if event.key() in steps:
            self.stepped.emit(steps[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(theme.font(Step.BODY, Weight.DemiBold))
        return QSize(metrics.horizontalAdvance(self.text()) + 2 * self._PADDING, Size.CONTROL)

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        checked, enabled = self.isChecked(), self.isEnabled()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        edge = (current.accent_text if checked else current.control_edge) if enabled else current.hairline
        width = 2.0 if self.hasFocus() and enabled else 1.0
        painter.setPen(QPen(current.accent_text if width > 1 else edge, width))
        painter.setBrush(
            current.checked_fill
            if checked
            else current.control_hover
            if self.underMouse() and enabled
            else current.canvas
        )
        half = width / 2
        box = QRectF(self.rect()).adjusted(half, half, -half, -half)
        painter.drawPath(_rounded(box, self._first, self._last))
        painter.setFont(theme.font(Step.BODY, Weight.DemiBold if checked else Weight.Normal))
        painter.setPen(current.ink if enabled else current.faint)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self.text())


def _rounded(box: QRectF, left: bool, right: bool) -> QPainterPath:
    radius = float(Radius.FIELD)
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.WindingFill)
    path.addRoundedRect(box, radius, radius)
    if not left:
        path.addRect(QRectF(box.left(), box.top(), radius, box.height()))
    if not right:
        path.addRect(QRectF(box.right() - radius, box.top(), radius, box.height()))
    return path.simplified()


class SegmentedSwitch(QWidget):
    """One of a few views. `picked` carries the key of the choice; keys and words are given as pairs."""

    picked = Signal(str)

    def __init__(self, choices: tuple[tuple[str, str], ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._group = QButtonGroup(self)
        last = len(choices) - 1
        self._buttons = {key: _Segment(words, i == 0, i == last, self) for i, (key, words) in enumerate(choices)}
        for key, button in self._buttons.items():
            button.setObjectName(key)
            self._group.addButton(button)
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            button.stepped.connect(self._on_stepped)
            button.toggled.connect(lambda on, key=key: self._on_toggled(key, on))
        next(iter(self._buttons.values())).setChecked(True)

    def current(self) -> str:
        """The key that is chosen."""
        return next(key for key, button in self._buttons.items() if button.isChecked())

    def choose(self, key: str) -> None:
        """Choose as if the user had."""
        self._buttons[key].setChecked(True)

    def set_choice_enabled(self, key: str, enabled: bool) -> None:
        """Offer a choice or not."""
        self._buttons[key].setEnabled(enabled)

    def _on_stepped(self, step: int) -> None:
        keys = [key for key, button in self._buttons.items() if button.isEnabled()]
        at = keys.index(self.current()) + step
        if 0 <= at < len(keys):
            self.choose(keys[at])
            self._buttons[keys[at]].setFocus()

    def _on_toggled(self, key: str, on: bool) -> None:
        # One stop in the tab order, as for radio buttons; the arrows move inside.
        self._buttons[key].setFocusPolicy(Qt.FocusPolicy.StrongFocus if on else Qt.FocusPolicy.NoFocus)
        if on:
            self._buttons[key].raise_()
            self.picked.emit(key)

    def sizeHint(self) -> QSize:
        widths = [button.sizeHint().width() for button in self._buttons.values()]
        return QSize(sum(widths) - (len(widths) - 1), Size.CONTROL)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        x = 0
        for button in self._buttons.values():
            # Neighbours share one edge; the chosen one is on top and shows its own.
            button.setGeometry(x, 0, button.sizeHint().width(), Size.CONTROL)
            x += button.width() - 1
