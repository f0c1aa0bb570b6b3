"""Arithmetic of colours: mixtures, luminance and contrast as WCAG defines them."""

from collections.abc import Callable

from PySide6.QtGui import QColor

#: One step of `until`, up or down.
LIGHTER = 1.04
DARKER = 1 / LIGHTER


def mix(a: QColor, b: QColor, t: float) -> QColor:
    """`t` parts of `a` over `1 - t` parts of `b`, opaque."""
    one = (a.red(), a.green(), a.blue())
    two = (b.red(), b.green(), b.blue())
    return QColor(*(round(x * t + y * (1 - t)) for x, y in zip(one, two)))


def with_alpha(color: QColor, alpha: float) -> QColor:
    """The colour at `alpha` of 0 to 1."""
    seen = QColor(color)
    seen.setAlphaF(alpha)
    return seen


def luminance(color: QColor) -> float:
    """Relative luminance as WCAG defines it, 0 to 1."""

    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) + 0.0722 * linear(color.blueF())


def contrast(a: QColor, b: QColor) -> float:
    """WCAG contrast of two opaque colours, 1 to 21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def until(color: QColor, factor: float, enough: Callable[[QColor], bool]) -> QColor:
    """Scale a colour step by step until it is enough, or until it no longer changes."""
    seen = color
    while not enough(seen):
        channels = (seen.red(), seen.green(), seen.blue())
        moved = QColor(*(min(255, round(c * factor)) for c in channels))
        if moved == seen:
            break
        seen = moved
    return seen
