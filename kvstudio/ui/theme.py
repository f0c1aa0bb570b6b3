"""Roles (colours, patterns, fonts, spacing) from the application's palette, and the one application style sheet."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache
from pathlib import Path

from PySide6.QtCore import QDir, Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QPushButton, QStyle, QWidget

from kvstudio.budget.values import BufferKind
from kvstudio.ui.colours import DARKER, LIGHTER, contrast, luminance, mix, until
from kvstudio.ui.kinds import KindStyle, Pattern, kind_style
from kvstudio.ui.sheet import SHEET

RESOURCES = Path(__file__).parent / "resources"

#: Contrast every text on its ground must reach, with a little to spare over WCAG AA.
_TEXT_CONTRAST = 4.6
_MUTED_CONTRAST = 5.9
#: And what the edge of a button or field must reach on the canvas.
_EDGE_CONTRAST = 3.0
#: Panels less different from the canvas than this are shaded by so much ink.
_GROUND_CONTRAST, _GROUND_SHADE = 1.08, 0.06


class Scheme(StrEnum):
    """What the user asked for; `SYSTEM` follows the desktop."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


class Space:
    """Distances, all on a grid of 4."""

    XS, S, M, L, XL, XXL, XXXL = 4, 8, 12, 16, 20, 24, 32
    MARGIN = 16
    CANVAS_MARGIN = 20
    GROUP = 12


class Radius:
    CHIP, FIELD, CARD, DROP = 4, 5, 6, 10


class _Pixels:
    """A length that is asked for by name and given as `px` makes it at that moment."""

    def __init__(self, pixels: int) -> None:
        self._pixels = pixels

    def __get__(self, _instance: object, _owner: type) -> int:
        return px(self._pixels)


class Size:
    """Heights and widths the parts share, in pixels; they grow with the system's font."""

    TOOL_BAR, STRIP, FOOT = _Pixels(48), _Pixels(40), _Pixels(60)
    CONTROL, LOG_ROW, LIST_ROW = _Pixels(28), _Pixels(20), _Pixels(52)
    LEFT, LEFT_SMALL, SETTINGS = _Pixels(248), _Pixels(232), _Pixels(312)
    DIAGNOSIS, WIZARD_SIDE = _Pixels(344), _Pixels(336)
    #: Windows narrower or lower than this use the small forms.
    SMALL_WIDTH, SMALL_HEIGHT = _Pixels(1200), _Pixels(760)


class Step(Enum):
    """Type sizes in pixels where the system's size is 13."""

    CAPTION = 11
    SMALL = 12
    BODY = 13
    TITLE = 15
    PAGE = 20


_SMALLEST_FONT = 11
_REFERENCE_FONT = 13

Weight = QFont.Weight


_ACCENT_GROUND = QColor("#FFFFFF")
_OVERFLOW = QColor("#D93025")


@dataclass(frozen=True, slots=True)
class Theme:
    """Every colour the window uses, from one palette. Names say the role, never the hue."""

    dark: bool
    ground: QColor
    canvas: QColor
    ink: QColor
    muted: QColor
    faint: QColor
    hairline: QColor
    control_edge: QColor
    control_hover: QColor
    control_pressed: QColor
    ground_hover: QColor
    accent: QColor
    accent_fill: QColor
    accent_text: QColor
    on_accent: QColor
    checked_fill: QColor
    selected_fill: QColor
    chip_fill: QColor
    track: QColor
    bad: QColor
    bad_fill: QColor
    good: QColor
    good_fill: QColor
    warn: QColor
    warn_fill: QColor
    redaction: QColor
    redaction_ink: QColor
    kinds: dict[BufferKind, KindStyle]
    overflow: KindStyle

    @staticmethod
    def current() -> "Theme":
        """The roles of the application's palette as it is now; cheap, call it while painting."""
        return _theme(QGuiApplication.palette().cacheKey())

    @staticmethod
    def of(palette: QPalette) -> "Theme":
        """The roles of any palette."""
        return _derive(palette)

    def state(self, name: str) -> tuple[QColor, QColor]:
        """Text and fill of `bad`, `good`, `warn`, `accent`, or `neutral`."""
        states = {
            "bad": (self.bad, self.bad_fill),
            "good": (self.good, self.good_fill),
            "warn": (self.warn, self.warn_fill),
            "accent": (self.accent_text, self.checked_fill),
        }
        return states.get(name, (self.muted, self.chip_fill))

    def state_edge(self, name: str) -> QColor:
        """Edge of a card in that state."""
        return mix(self.state(name)[0], self.canvas, 0.45) if name != "neutral" else self.hairline


@lru_cache(maxsize=8)
def _theme(_cache_key: int) -> Theme:
    return _derive(QGuiApplication.palette())


def _derive(palette: QPalette) -> Theme:
    canvas = palette.color(QPalette.ColorRole.Base)
    ink = palette.color(QPalette.ColorRole.WindowText)
    ground = _apart(palette.color(QPalette.ColorRole.Window), canvas, ink)
    accent = palette.color(QPalette.ColorRole.Accent)
    dark = luminance(ink) > luminance(ground)

    def pick(light: float, dark_value: float) -> float:
        return dark_value if dark else light

    accent_fill = until(accent, DARKER, lambda c: contrast(c, _ACCENT_GROUND) >= _TEXT_CONTRAST)
    accent_text = until(accent, LIGHTER if dark else DARKER, lambda c: contrast(c, ground) >= _TEXT_CONTRAST)
    bad = QColor("#FF8F86" if dark else "#B3261E")
    warn = QColor("#F2BE5C" if dark else "#7A4F00")
    warn_fill = mix(QColor("#F2A93B"), canvas, pick(0.16, 0.18))
    overflow_fill = mix(_OVERFLOW, canvas, pick(0.14, 0.28))
    return Theme(
        dark=dark,
        ground=ground,
        canvas=canvas,
        ink=ink,
        muted=_seen(ink, ground, pick(0.64, 0.68), _MUTED_CONTRAST, ground),
        faint=mix(ink, ground, pick(0.45, 0.45)),
        hairline=mix(ink, ground, pick(0.15, 0.17)),
        control_edge=_seen(ink, ground, pick(0.43, 0.34), _EDGE_CONTRAST, canvas),
        control_hover=mix(ink, canvas, 0.05),
        control_pressed=mix(ink, canvas, 0.11),
        ground_hover=mix(ink, ground, 0.07),
        accent=accent,
        accent_fill=accent_fill,
        accent_text=accent_text,
        on_accent=QColor(_ACCENT_GROUND),
        checked_fill=mix(accent, canvas, pick(0.18, 0.34)),
        selected_fill=mix(accent, ground, pick(0.14, 0.22)),
        chip_fill=mix(ink, canvas, 0.08),
        track=mix(ink, canvas, pick(0.05, 0.08)),
        bad=bad,
        bad_fill=mix(_OVERFLOW, canvas, pick(0.09, 0.17)),
        good=QColor("#79D39A" if dark else "#1A6E38"),
        good_fill=mix(QColor("#1E8E3E"), canvas, pick(0.10, 0.20)),
        warn=warn,
        warn_fill=warn_fill,
        redaction=warn_fill if dark else QColor("#FBE7C3"),
        redaction_ink=warn if dark else QColor("#4A3000"),
        kinds={kind: kind_style(kind, dark) for kind in BufferKind},
        overflow=KindStyle(overflow_fill, bad, bad, Pattern.HATCH, 8, bad),
    )


def _apart(ground: QColor, canvas: QColor, ink: QColor) -> QColor:
    # GNOME gives both one colour, and the panels would lie on the chart without an edge.
    return ground if contrast(ground, canvas) >= _GROUND_CONTRAST else mix(ink, canvas, _GROUND_SHADE)


def _seen(ink: QColor, ground: QColor, parts: float, least: float, behind: QColor) -> QColor:
    # A palette of little contrast has less to give away.
    while parts < 1 and contrast(mix(ink, ground, parts), behind) < least:
        parts += 0.04
    return mix(ink, ground, min(parts, 1.0))


def _tabular(font: QFont) -> QFont:
    font.setFeature(QFont.Tag("tnum"), 1)
    return font


def _pixels(step: Step, base: QFont) -> int:
    return max(_SMALLEST_FONT, round(QFontInfo(base).pixelSize() * step.value / _REFERENCE_FONT))


def font(step: Step = Step.BODY, weight: QFont.Weight = Weight.Normal) -> QFont:
    """The system's font at a step of the scale, with tabular figures."""
    return QFont(_font(QApplication.font().key(), step, weight))


@lru_cache(maxsize=128)
def _font(_base_key: str, step: Step, weight: QFont.Weight) -> QFont:
    base = QApplication.font()
    made = QFont(base)
    made.setPixelSize(_pixels(step, base))
    made.setWeight(weight)
    return _tabular(made)


def mono(step: Step = Step.SMALL, weight: QFont.Weight = Weight.Normal) -> QFont:
    """The system's fixed font at a step; contextual alternates off, so that `--host` is no ligature."""
    app = QApplication.instance()
    name = app.property("monoFamily") if app is not None else None
    return QFont(_mono(name or "", QApplication.font().key(), step, weight))


@lru_cache(maxsize=128)
def _mono(name: str, _base_key: str, step: Step, weight: QFont.Weight) -> QFont:
    made = QFont(name) if name else QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    made.setPixelSize(_pixels(step, QApplication.font()))
    made.setWeight(weight)
    made.setFeature(QFont.Tag("calt"), 0)
    return _tabular(made)


def px(pixels: int) -> int:
    """A length of the pictures, drawn with a font of 13 px, for the font there is; a smaller font shrinks nothing."""
    if QApplication.instance() is None:
        return pixels
    return round(pixels * _growth(QApplication.font().key()))


@lru_cache(maxsize=8)
def _growth(_base_key: str) -> float:
    return max(1.0, QFontInfo(QApplication.font()).pixelSize() / _REFERENCE_FONT)


def reduced_motion(widget: QWidget) -> bool:
    """Whether the platform asks for no animation."""
    return widget.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration, None, widget) == 0


def set_scheme(app: QApplication, scheme: Scheme) -> bool:
    """Ask the desktop for a colour scheme; False where the platform ignores it (bare X11, offscreen)."""
    hints = app.styleHints()
    if scheme is Scheme.SYSTEM:
        hints.unsetColorScheme()
        return True
    wanted = Qt.ColorScheme.Dark if scheme is Scheme.DARK else Qt.ColorScheme.Light
    hints.setColorScheme(wanted)
    return Theme.current().dark is (scheme is Scheme.DARK)


def apply(app: QApplication, scheme: Scheme = Scheme.SYSTEM, *, family: str = "", mono_family: str = "") -> bool:
    """Give the application its style, fonts and sheet, and keep the sheet in step with the palette.

    `family` and `mono_family` replace the system's fonts (13 px), for pictures. Returns what `set_scheme` says.
    """
    QDir.setSearchPaths("kvstudio", [str(RESOURCES)])
    app.setStyle("Fusion")
    followed = set_scheme(app, scheme)
    # After the scheme: a desktop theme that changes puts its own fonts back.
    base = QFont(family) if family else QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    if family:
        base.setPixelSize(_REFERENCE_FONT)
    app.setFont(_tabular(base))
    if mono_family:
        app.setProperty("monoFamily", mono_family)
    app.setStyleSheet(style_sheet(Theme.current()))
    # Once only: the property remembers, so that applying again does not add a second connection.
    if not app.property("followsPalette"):
        app.paletteChanged.connect(_on_palette_changed)
        app.setProperty("followsPalette", True)
    return followed


def _on_palette_changed(_palette: QPalette) -> None:
    app = QApplication.instance()
    sheet = style_sheet(Theme.current())
    if isinstance(app, QApplication) and app.styleSheet() != sheet:
        app.setStyleSheet(sheet)


def set_primary(button: QPushButton, primary: bool = True) -> None:
    """Make a button the window's one filled button, or an ordinary one again."""
    if button.property("primary") == primary:
        return
    button.setProperty("primary", primary)
    repolish(button)


def repolish(widget: QWidget) -> None:
    """Have the sheet look at a widget's properties again."""
    widget.style().unpolish(widget)
    widget.style().polish(widget)
    widget.update()


def _names(theme: Theme) -> dict[str, str]:
    colours = {name: getattr(theme, name) for name in Theme.__slots__}
    named = {name: value.name() for name, value in colours.items() if isinstance(value, QColor)}
    return named | {
        "knob": (mix(theme.ink, theme.canvas, 0.95) if theme.dark else theme.canvas).name(),
        "scroll": mix(theme.ink, theme.ground, 0.28).name(),
        "scheme": "dark" if theme.dark else "light",
        "line": f"{px(20)}px",
        "button_line": f"{px(16)}px",
        "primary_hover": mix(theme.ink if theme.dark else QColor("#000000"), theme.accent_fill, 0.12).name(),
        "primary_pressed": mix(QColor("#000000"), theme.accent_fill, 0.25).name(),
    }


def style_sheet(theme: Theme) -> str:
    """The application's one sheet: finish for the native widgets, never function."""
    return SHEET.format_map(_names(theme))
