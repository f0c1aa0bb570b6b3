"""How each kind of memory is drawn, light and dark: fill, edge, ink of its label, pattern."""

from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtGui import QColor

from kvstudio.budget.values import BufferKind
from kvstudio.ui.colours import with_alpha


class Pattern(StrEnum):
    """What is drawn over a fill so that a kind is known without its colour."""

    NONE = "none"
    DIAGONAL = "diagonal"
    DOTS = "dots"
    HORIZONTAL = "horizontal"
    VERTICAL = "vertical"
    GRID = "grid"
    HATCH = "hatch"


@dataclass(frozen=True, slots=True)
class KindStyle:
    """How one kind of memory is drawn; `tile` in logical pixels, `line` the pattern's colour with its alpha."""

    fill: QColor
    edge: QColor
    ink: QColor
    pattern: Pattern
    tile: int
    line: QColor


#: kind: light fill, edge, ink; dark ones; pattern, tile, alpha; whether its lines take the ink (light, dark).
_KINDS: dict[BufferKind, tuple[tuple[str, str, str], tuple[str, str, str], Pattern, int, float, tuple[bool, bool]]] = {
    BufferKind.OTHER_PROCESSES: (
        ("#C9CED6", "#646E7B", "#1F242B"),
        ("#5A616B", "#A3ACB8", "#FFFFFF"),
        Pattern.DIAGONAL,
        6,
        0.75,
        (False, False),
    ),
    BufferKind.OVERHEAD: (
        ("#6B7684", "#4A5563", "#FFFFFF"),
        ("#98A2AF", "#C3CBD5", "#15181C"),
        Pattern.NONE,
        0,
        0.0,
        (False, False),
    ),
    BufferKind.MODEL: (
        ("#2F67B1", "#1E4A86", "#FFFFFF"),
        ("#5A93DE", "#9CC2F2", "#0B1626"),
        Pattern.NONE,
        0,
        0.0,
        (False, False),
    ),
    BufferKind.KV: (
        ("#F2A93B", "#9A5B00", "#2A1800"),
        ("#F0AE4B", "#FFD79A", "#241500"),
        Pattern.DOTS,
        5,
        0.45,
        (False, False),
    ),
    BufferKind.RS: (
        ("#52AF9F", "#12665A", "#03201B"),
        ("#278072", "#8FDCCD", "#FFFFFF"),
        Pattern.HORIZONTAL,
        4,
        0.6,
        (True, True),
    ),
    BufferKind.COMPUTE: (
        ("#BFA2DE", "#6F4A9A", "#26113F"),
        ("#A98BD0", "#D9C8F2", "#1B0A30"),
        Pattern.VERTICAL,
        4,
        0.55,
        (False, False),
    ),
    BufferKind.OUTPUT: (
        ("#94345F", "#5E1538", "#FFFFFF"),
        ("#EDA9C8", "#FBDCEA", "#35091E"),
        Pattern.GRID,
        5,
        0.5,
        (True, False),
    ),
}


def kind_style(kind: BufferKind, dark: bool) -> KindStyle:
    """The style of one kind in a scheme."""
    light_names, dark_names, pattern, tile, alpha, takes_ink = _KINDS[kind]
    fill, edge, ink = (QColor(name) for name in (dark_names if dark else light_names))
    return KindStyle(fill, edge, ink, pattern, tile, with_alpha(ink if takes_ink[dark] else edge, alpha))
