"""What can be dropped on the window, and the frame over everything while it is held above."""

from PySide6.QtCore import QMimeData, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from kvstudio.ui import colours, theme
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Radius, Space, Step, Theme, Weight


def is_readable(mime: QMimeData) -> bool:
    """Whether there is a local file or a text in it."""
    return bool(paths_of(mime)) or mime.hasText()


def paths_of(mime: QMimeData) -> tuple[str, ...]:
    """Local files in it."""
    return tuple(url.toLocalFile() for url in mime.urls() if url.isLocalFile())


class DropOverlay(QWidget):
    """A dashed frame and a word over the work page."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), colours.with_alpha(current.canvas, 0.75))
        pen = QPen(current.accent_text, 2)
        pen.setDashPattern([5, 3.5])
        painter.setPen(pen)
        inset = Space.S
        frame = QRectF(self.rect()).adjusted(inset, inset, -inset, -inset)
        painter.drawRoundedRect(frame, Radius.DROP, Radius.DROP)
        painter.setFont(theme.font(Step.PAGE, Weight.Medium))
        painter.setPen(current.ink)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, tr("Drop to open"))
