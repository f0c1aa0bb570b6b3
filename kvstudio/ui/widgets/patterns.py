"""Fills with their patterns, drawn from tiles made for one pixel ratio, so that lines stay one pixel thin."""

from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPixmap

from kvstudio.ui.kinds import KindStyle, Pattern

_HATCH_WIDTH = 2.2
_DOT_RADIUS = 0.85


def _diagonals(painter: QPainter, tile: int) -> None:
    # The two corner strokes make the tile join without gaps.
    for shift in (-tile, 0, tile):
        painter.drawLine(QPointF(shift - 1, tile + 1), QPointF(shift + tile + 1, -1))


def _draw(painter: QPainter, pattern: Pattern, tile: int, line: QColor) -> None:
    painter.setPen(QPen(line, _HATCH_WIDTH if pattern is Pattern.HATCH else 1.0))
    if pattern in (Pattern.DIAGONAL, Pattern.HATCH):
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        _diagonals(painter, tile)
    elif pattern is Pattern.DOTS:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(line)
        painter.drawEllipse(QPointF(tile / 2, tile / 2), _DOT_RADIUS, _DOT_RADIUS)
    else:
        if pattern in (Pattern.HORIZONTAL, Pattern.GRID):
            painter.fillRect(QRectF(0, tile - 1, tile, 1), line)
        if pattern in (Pattern.VERTICAL, Pattern.GRID):
            # In a grid the crossing is drawn once, or it would be twice as strong.
            painter.fillRect(QRectF(tile - 1, 0, 1, tile - (pattern is Pattern.GRID)), line)


@lru_cache(maxsize=128)
def _tile(pattern: Pattern, tile: int, rgba: int, ratio: float) -> QPixmap:
    side = max(1, round(tile * ratio))
    picture = QPixmap(side, side)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    # Scaled to the rounded side, so that a tile of a fractional ratio still joins.
    painter.scale(side / tile, side / tile)
    _draw(painter, pattern, tile, QColor.fromRgba(rgba))
    painter.end()
    picture.setDevicePixelRatio(ratio)
    return picture


def fill(painter: QPainter, box: QRectF, style: KindStyle, alpha: float = 1.0) -> None:
    """Fill a box in the colour and pattern of a kind, the pattern starting at its corner."""
    before = painter.opacity()
    painter.setOpacity(before * alpha)
    painter.fillRect(box, style.fill)
    if style.pattern is not Pattern.NONE:
        device = painter.device()
        tile = _tile(style.pattern, style.tile, style.line.rgba(), device.devicePixelRatio() if device else 1.0)
        painter.drawTiledPixmap(box, tile)
    painter.setOpacity(before)


def outline(painter: QPainter, box: QRectF, color: QColor, width: float = 1.0) -> None:
    """A sharp edge inside a box."""
    for side in (
        QRectF(box.left(), box.top(), box.width(), width),
        QRectF(box.left(), box.bottom() - width, box.width(), width),
        QRectF(box.left(), box.top() + width, width, box.height() - 2 * width),
        QRectF(box.right() - width, box.top() + width, width, box.height() - 2 * width),
    ):
        painter.fillRect(side, color)


def framed(painter: QPainter, box: QRectF, style: KindStyle) -> None:
    """A box of a kind as bars and legends show it: fill, pattern, one pixel of edge."""
    fill(painter, box, style)
    outline(painter, box, style.edge)
