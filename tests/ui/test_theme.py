"""Roles keep their promises of contrast for any palette, and the sheet and icons follow them."""

import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QColor, QIcon, QPalette
from PySide6.QtWidgets import QApplication, QPushButton

from kvstudio.budget.values import BufferKind
from kvstudio.ui import colours, icons, theme
from kvstudio.ui.kinds import Pattern
from kvstudio.ui.theme import Theme


def palette(window: str, base: str, text: str, accent: str = "#308CC6") -> QPalette:
    made = QPalette()
    for role, name in (
        (QPalette.ColorRole.Window, window),
        (QPalette.ColorRole.Base, base),
        (QPalette.ColorRole.WindowText, text),
        (QPalette.ColorRole.Accent, accent),
    ):
        made.setColor(role, QColor(name))
    return made


LIGHT = palette("#EFEFEF", "#FFFFFF", "#000000")
DARK = palette("#323232", "#242424", "#F0F0F0")
#: As GNOME gives it: panels and canvas in one colour.
FLAT = palette("#FAF9F8", "#FAF9F8", "#2E3436")
SANDY = palette("#F5ECD8", "#FFF9EC", "#2B2416", "#C77800")


@pytest.mark.parametrize("given", [LIGHT, DARK, SANDY, FLAT], ids=["light", "dark", "sandy", "flat"])
def test_text_can_be_read_on_what_it_stands_on(given):
    roles = Theme.of(given)
    assert colours.contrast(roles.muted, roles.ground) >= 5.5
    assert colours.contrast(roles.accent_text, roles.ground) >= 4.5
    assert colours.contrast(roles.on_accent, roles.accent_fill) >= 4.6
    assert colours.contrast(roles.muted, roles.selected_fill) >= 4.5
    for name in ("bad", "good", "warn"):
        ink, fill = roles.state(name)
        assert colours.contrast(ink, fill) >= 4.5, name
    for kind, style in roles.kinds.items():
        assert colours.contrast(style.ink, style.fill) >= 4.5, kind


@pytest.mark.parametrize("given", [LIGHT, DARK, FLAT], ids=["light", "dark", "flat"])
def test_an_edge_can_be_seen_on_the_canvas(given):
    roles = Theme.of(given)
    assert colours.contrast(roles.control_edge, roles.canvas) >= 3
    for kind, style in roles.kinds.items():
        assert colours.contrast(style.edge, roles.canvas) >= 4.9, kind


@pytest.mark.parametrize("given", [LIGHT, DARK, SANDY, FLAT], ids=["light", "dark", "sandy", "flat"])
def test_panels_stand_out_from_the_canvas(given):
    roles = Theme.of(given)
    assert colours.contrast(roles.ground, roles.canvas) >= 1.1


def test_a_palette_that_tells_them_apart_keeps_its_ground():
    assert Theme.of(SANDY).ground == QColor("#F5ECD8")


def test_dark_is_told_from_the_palette_alone():
    assert not Theme.of(LIGHT).dark
    assert Theme.of(DARK).dark


def test_every_kind_but_the_two_plain_ones_has_its_own_pattern():
    patterns = [style.pattern for style in Theme.of(LIGHT).kinds.values()]
    drawn = [p for p in patterns if p is not Pattern.NONE]
    assert len(patterns) == len(BufferKind)
    assert len(drawn) == len(set(drawn)) == len(BufferKind) - 2


def test_the_sheet_and_the_roles_follow_a_new_palette(qapp: QApplication):
    theme.apply(qapp)
    before, old = qapp.styleSheet(), qapp.palette()
    try:
        qapp.setPalette(DARK)
        assert Theme.current().dark
        assert qapp.styleSheet() != before
        assert Theme.current().canvas.name() in qapp.styleSheet()
    finally:
        qapp.setPalette(old)
    assert qapp.styleSheet() == before


def test_a_scheme_that_the_platform_ignores_is_reported(qapp: QApplication):
    wanted = theme.Scheme.LIGHT if Theme.current().dark else theme.Scheme.DARK
    followed = theme.set_scheme(qapp, wanted)
    assert followed is (Theme.current().dark is (wanted is theme.Scheme.DARK))
    theme.set_scheme(qapp, theme.Scheme.SYSTEM)


def test_fonts_never_go_below_eleven_pixels(qapp: QApplication):
    sizes = [theme.font(step).pixelSize() for step in theme.Step]
    assert sizes == sorted(sizes)
    assert min(sizes) >= 11
    assert theme.mono().pixelSize() >= 11


@pytest.mark.parametrize("name", icons.names())
def test_an_icon_draws_something_in_the_colour_asked_for(qapp: QApplication, name: str):
    image = icons.icon(name, "bad").pixmap(QSize(32, 32)).toImage()
    seen = {image.pixelColor(x, y).name() for x in range(32) for y in range(32) if image.pixelColor(x, y).alpha() > 200}
    assert Theme.current().bad.name() in seen
    assert "#000000" not in seen


def test_a_disabled_icon_is_fainter(qapp: QApplication):
    picture = icons.icon("play")
    enabled = picture.pixmap(QSize(16, 16), QIcon.Mode.Normal).toImage()
    disabled = picture.pixmap(QSize(16, 16), QIcon.Mode.Disabled).toImage()
    assert enabled != disabled


def test_unknown_icons_and_roles_are_refused_at_once(qapp: QApplication):
    with pytest.raises(OSError):
        icons.icon("no-such-icon")
    with pytest.raises(AttributeError):
        icons.icon("play", "no-such-role")


def test_only_one_look_at_a_time_for_a_primary_button(qapp: QApplication):
    button = QPushButton("Test launch")
    theme.set_primary(button)
    assert button.property("primary") is True
    theme.set_primary(button, False)
    assert button.property("primary") is False


def test_sizes_grow_with_the_font_and_never_shrink(qapp: QApplication):
    before = qapp.font()
    try:
        for pixels, expected in ((13, 28), (26, 56), (11, 28)):
            font = qapp.font()
            font.setPixelSize(pixels)
            qapp.setFont(font)
            control = theme.Size.CONTROL
            assert control == expected
            assert theme.px(100) == round(100 * max(pixels, 13) / 13)
            assert f"max-height: {theme.px(20)}px" in theme.style_sheet(Theme.current())
    finally:
        qapp.setFont(before)
