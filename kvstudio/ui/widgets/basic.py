"""The small parts every panel is made of: labels, chips, switches, cards, rules, buttons."""

import html
from collections.abc import Callable
from itertools import pairwise

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetrics,
    QHelpEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QPen,
    QPixmap,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QFrame,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QToolTip,
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

    def _ink(self) -> QColor:
        colour: QColor = getattr(Theme.current(), self._role)
        return colour

    def _colour(self) -> None:
        wanted = self._ink()
        if self.palette().color(QPalette.ColorRole.WindowText) != wanted:
            palette = self.palette()
            palette.setColor(QPalette.ColorRole.WindowText, wanted)
            self.setPalette(palette)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        # Qt sends one while the label is still being made.
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


def show_tooltip(widget: QWidget, event: QEvent, words_at: Callable[[float, float], str]) -> bool:
    """Answer a tooltip's event with what is said of the place below the pointer; False for any other event."""
    if event.type() != QEvent.Type.ToolTip or not isinstance(event, QHelpEvent):
        return False
    words = words_at(event.pos().x(), event.pos().y())
    if words:
        QToolTip.showText(event.globalPos(), plain_tooltip(words), widget)
    else:
        QToolTip.hideText()
    return True


def tab_after(start: QWidget, *late: QWidget) -> None:
    """Widgets made after the others stand last in the tab order; put them behind `start`, where they are seen."""
    for one, next_one in pairwise((start, *late)):
        QWidget.setTabOrder(one, next_one)


def tab_inside(holder: QWidget, *late: QWidget) -> None:
    """As `tab_after`, behind whatever the keyboard reaches before it comes to `holder`."""
    start: QWidget | None = holder.previousInFocusChain()
    while start is not None and start is not holder:
        if start not in late and start.focusPolicy() & Qt.FocusPolicy.TabFocus:
            tab_after(start, *late)
            return
        start = start.previousInFocusChain()


def scrolled(content: QWidget, parent: QWidget | None = None) -> QScrollArea:
    """What may be higher than there is room, without a frame; the keyboard goes to what is inside."""
    area = scroll_area(parent)
    area.setWidget(content)
    return area


def scroll_area(parent: QWidget | None = None) -> QScrollArea:
    """As `scrolled`, for what is made inside its `viewport()` and then set."""
    area = QScrollArea(parent)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return area


class Chip(Label):
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
        self._kind = kind
        super().__init__(text, Step.SMALL, Weight.Normal if mono else weight, mono=mono, parent=parent)
        if strike:
            font = self.font()
            font.setStrikeOut(True)
            self.setFont(font)
        self.setContentsMargins(self._MARGIN, 3, self._MARGIN, 3)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(22)

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

    def _ink(self) -> QColor:
        return self._colours()[0]

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
    """A plain area: `canvas` (charts, logs) or ground."""

    def __init__(self, canvas: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._canvas = canvas

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        QPainter(self).fillRect(event.rect(), current.canvas if self._canvas else current.ground)


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
