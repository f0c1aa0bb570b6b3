"""Line icons by name, tinted with the colours of the moment whenever they are painted."""

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QIconEngine, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from kvstudio.ui.theme import RESOURCES, Theme

_DRAWN_IN = "#000000"
_FOLDER = RESOURCES / "icons"


def names() -> tuple[str, ...]:
    """Every icon there is."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.svg")))


@lru_cache(maxsize=64)
def _source(name: str) -> str:
    return (_FOLDER / f"{name}.svg").read_text(encoding="utf-8")


@lru_cache(maxsize=512)
def _tinted(name: str, rgb: str, width: int, height: int, ratio: float) -> QPixmap:
    image = QPixmap(round(width * ratio), round(height * ratio))
    image.setDevicePixelRatio(ratio)
    image.fill(Qt.GlobalColor.transparent)
    renderer = QSvgRenderer(QByteArray(_source(name).replace(_DRAWN_IN, rgb).encode()))
    painter = QPainter(image)
    # Where more width is asked for than height, the rest is air before the word that follows.
    side = min(width, height)
    renderer.render(painter, QRectF(0, (height - side) / 2, side, side))
    painter.end()
    return image


def pixmap(name: str, color: QColor, size: int = 16, ratio: float | None = None) -> QPixmap:
    """One icon in one colour, `size` device-independent pixels wide, for painting by hand.

    Raises: OSError when there is no such icon.
    """
    return _tinted(name, color.name(), size, size, ratio or QGuiApplication.primaryScreen().devicePixelRatio())


class _Engine(QIconEngine):
    """Renders on demand from the current theme, so a new palette needs no new icons."""

    def __init__(self, name: str, role: str) -> None:
        super().__init__()
        self._name = name
        self._role = role

    def _color(self, mode: QIcon.Mode) -> QColor:
        theme = Theme.current()
        color: QColor = getattr(theme, self._role)
        return theme.faint if mode == QIcon.Mode.Disabled else color

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        ratio = painter.device().devicePixelRatio() if painter.device() else 1.0
        image = _tinted(self._name, self._color(mode).name(), rect.width(), rect.height(), ratio)
        painter.drawPixmap(rect.topLeft(), image)

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        return self.scaledPixmap(size, mode, state, 1.0)

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float) -> QPixmap:
        # The size is in logical pixels, whatever the ratio (Qt 6.8 and newer).
        return QPixmap(_tinted(self._name, self._color(mode).name(), size.width(), size.height(), scale))

    def clone(self) -> QIconEngine:
        return _Engine(self._name, self._role)


def icon(name: str, role: str = "ink") -> QIcon:
    """A 16 px line icon that follows the scheme; `role` is a colour of Theme (`ink`, `muted`, `bad`, `on_accent`...).

    Raises: OSError when there is no such icon, AttributeError when there is no such role.
    """
    _source(name)
    if role not in Theme.__slots__:
        raise AttributeError(role)
    return QIcon(_Engine(name, role))
