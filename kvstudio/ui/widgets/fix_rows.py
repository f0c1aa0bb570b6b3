"""One change that would fit: at most three, each with the room it leaves, what it costs, and Apply."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.advise.values import Fix
from kvstudio.ui import text
from kvstudio.ui.theme import Step
from kvstudio.ui.widgets.basic import ElidedLabel, Icon, Label, LinkButton, SectionLabel, tab_inside
from kvstudio.units import format_room

MOST = 3
_ROW = 28
_TITLE, _ICON, _ROOM, _COST, _APPLY = range(5)


def room_words(fix: Fix) -> str:
    """`fits, 1.8 GiB to spare`."""
    if fix.room_bytes is None:
        return text.tr("fits, as far as is known")
    return text.tr("fits, {} to spare").format(format_room(fix.room_bytes))


class FixRows(QWidget):
    """`show_fixes` in, `fix_applied` (a Fix) out; hidden when there is none."""

    fix_applied = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._fixes: tuple[Fix, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        self._title = SectionLabel(text.tr("One change that would fit"))
        self._title.setFixedHeight(24)
        outer.addWidget(self._title)
        self._area: QWidget | None = None
        self.hide()

    def fixes(self) -> tuple[Fix, ...]:
        return self._fixes

    def show_fixes(self, fixes: tuple[Fix, ...]) -> None:
        """Show the first three."""
        shown = fixes[:MOST]
        if shown == self._fixes:
            return
        self._fixes = shown
        if self._area is not None:
            self._area.setParent(None)
            self._area.deleteLater()
        self._area = self._rows(shown)
        layout = self.layout()
        assert layout is not None
        layout.addWidget(self._area)
        tab_inside(self, *self._area.findChildren(LinkButton))
        self.setVisible(bool(shown))

    def _rows(self, fixes: tuple[Fix, ...]) -> QWidget:
        area = QWidget(self)
        grid = QGridLayout(area)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(6)
        grid.setVerticalSpacing(0)
        grid.setColumnStretch(_COST, 1)
        for i, fix in enumerate(fixes):
            grid.setRowMinimumHeight(i, _ROW)
            title = Label(fix.title)
            title.setMinimumWidth(138)
            title.setToolTip("")
            grid.addWidget(title, i, _TITLE)
            grid.addWidget(Icon("check-circle", "good", 14), i, _ICON)
            room = Label(room_words(fix))
            room.setMinimumWidth(136)
            grid.addWidget(room, i, _ROOM)
            grid.addWidget(ElidedLabel(fix.cost, Step.SMALL, role="muted"), i, _COST)
            grid.addWidget(self._apply(fix, i), i, _APPLY, Qt.AlignmentFlag.AlignRight)
        return area

    def _apply(self, fix: Fix, i: int) -> LinkButton:
        link = LinkButton(text.tr("Apply"), name=f"apply{i}")
        link.setAccessibleName(text.tr("Apply: {}").format(fix.title))
        link.setToolTip(fix.why)
        link.clicked.connect(lambda: self.fix_applied.emit(fix))
        return link
