"""The row of next steps above everything: open, binary, check, launch, fix, report."""

from collections.abc import Callable

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QMenu, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvstudio.launch.binary import Binary
from kvstudio.ui import icons, theme
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space
from kvstudio.ui.widgets.basic import Rule, Surface, icon_button, make_primary, plain_tooltip, push_button

_COMBO_WIDTH = 196
_CHOOSE = "\0choose"


class ToolBar(Surface):
    """Signals: wishes; the binary's path and the recent file's path as str."""

    open_requested = Signal()
    recent_chosen = Signal(str)
    binary_chosen = Signal(str)
    binary_browse_requested = Signal()
    check_requested = Signal()
    launch_requested = Signal()
    stop_requested = Signal()
    fix_requested = Signal()
    report_requested = Signal()
    history_requested = Signal()
    options_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("toolBar")
        self._running = False
        self._current = ""
        self._paths: dict[str, str] = {}
        self._build()

    def _build(self) -> None:
        self.open_button = self._tool("open", tr("Open…"), "openButton", self.open_requested.emit)
        self.recent_button = self._tool("recent", tr("Recent"), "recentButton")
        self._recent_menu = QMenu(self)
        self._recent_menu.setToolTipsVisible(True)
        self.recent_button.setMenu(self._recent_menu)
        self.recent_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.binary_box = QComboBox()
        self.binary_box.setObjectName("binaryBox")
        self.binary_box.setAccessibleName(tr("llama.cpp program"))
        self.binary_box.setFixedWidth(theme.px(_COMBO_WIDTH))
        self.binary_box.setIconSize(QSize(16, 16))
        self.binary_box.activated.connect(self._on_binary)
        self.check_button = self._tool(
            "check-circle", tr("Check with llama.cpp"), "checkButton", self.check_requested.emit
        )
        self.launch_button = push_button(tr("Test launch"), "play", primary=False, name="launchButton")
        self.launch_button.clicked.connect(self._on_launch)
        self.options_button = icon_button("settings", tr("Options of the test launch"), name="launchOptionsButton")
        self.options_button.clicked.connect(lambda _=False: self.options_requested.emit())
        self.fix_button = self._tool("wrench", tr("Fix…"), "fixButton", self.fix_requested.emit)
        self.report_button = self._tool("file", tr("Report…"), "reportButton", self.report_requested.emit)
        self.help_button = icon_button("help", tr("Help and menu"), name="helpButton")
        self.help_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)

        row = self._row = QHBoxLayout()
        row.setContentsMargins(Space.L, 0, Space.XXL + 3, 0)
        row.setSpacing(0)
        for widget, gap in (
            (self.open_button, Space.L),
            (self.recent_button, Space.L),
            (self._separator(), Space.S + 2),
            (self.binary_box, Space.S + 2),
            (self._separator(), Space.L - 1),
            (self.check_button, Space.L + 2),
            (self.launch_button, Space.XS),
            (self.options_button, Space.S),
            (self.fix_button, Space.L),
            (self.report_button, 0),
        ):
            row.addWidget(widget, 0, Qt.AlignmentFlag.AlignVCenter)
            row.addSpacing(gap)
        row.addStretch(1)
        row.addWidget(self.help_button, 0, Qt.AlignmentFlag.AlignVCenter)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(row, 1)
        layout.addWidget(Rule())
        self.setFixedHeight(Size.TOOL_BAR)
        self._foldable = (
            self.check_button,
            self.recent_button,
            self.report_button,
            self.open_button,
            self.fix_button,
        )
        self.show_binaries((), None)
        self.show_recent(())

    def show_binaries(self, found: tuple[tuple[str, str], ...], current: Binary | None, note: str = "") -> None:
        """Fill the chooser: `found` are (path, title); `note` is what is shown when there is no current one."""
        box = self.binary_box
        box.clear()
        self._current = current.path if current else ""
        chip = icons.icon("chip")
        if current is None:
            box.addItem(chip, note or tr("No llama.cpp found"), "")
        for path, title in found:
            box.addItem(chip, current.title if current and current.path == path else title, path)
            box.setItemData(box.count() - 1, plain_tooltip(path), Qt.ItemDataRole.ToolTipRole)
        if current is not None and box.findData(current.path) < 0:
            box.insertItem(0, chip, current.title, current.path)
        box.insertSeparator(box.count())
        box.addItem(tr("Choose…"), _CHOOSE)
        box.setCurrentIndex(max(0, box.findData(self._current)))
        box.setToolTip(plain_tooltip(_about(current)) if current else plain_tooltip(note))

    def show_recent(self, items: tuple[tuple[str, str], ...]) -> None:
        """Fill the recent menu with (path, title)."""
        self._recent_menu.clear()
        for path, title in items:
            # An ampersand in a file name is not a shortcut.
            action = QAction(title.replace("&", "&&"), self._recent_menu)
            action.setToolTip(plain_tooltip(path))
            action.triggered.connect(lambda _=False, path=path: self.recent_chosen.emit(path))
            self._recent_menu.addAction(action)
        if items:
            self._recent_menu.addSeparator()
        history = QAction(icons.icon("history"), tr("History of runs…"), self._recent_menu)
        history.setObjectName("historyAction")
        history.triggered.connect(lambda _=False: self.history_requested.emit())
        self._recent_menu.addAction(history)

    def show_state(self, *, has_model: bool, has_log: bool, why_not: str, running: bool, primary: bool) -> None:
        """Which steps make sense now; `primary`: Test launch is the window's filled button, `why_not` why there is no
        launching, empty where there is."""
        may = has_model and not why_not
        self._running = running
        self.check_button.setEnabled(may and not running)
        self.launch_button.setEnabled(running or may)
        self.fix_button.setEnabled(has_model and not running)
        self.report_button.setEnabled(has_log and not running)
        self.binary_box.setEnabled(not running)
        self.options_button.setEnabled(not running)
        self.launch_button.setText(tr("Stop") if running else tr("Test launch"))
        self.launch_button.setProperty("iconName", "stop" if running else "play")
        make_primary(self.launch_button, primary and may and not running)
        self.launch_button.setToolTip(why_not if not running else "")
        self.check_button.setToolTip(why_not or tr("Ask llama.cpp for its own figures, without loading the model"))

    def show_checking(self, on: bool) -> None:
        """The dry run is under way."""
        self.check_button.setText(tr("Checking…") if on else tr("Check with llama.cpp"))
        self.check_button.setEnabled(not on)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Where not all words have room some go, the longest first; tooltips have them."""
        for button in self._foldable:
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        for button in self._foldable:
            self._row.invalidate()
            if self._row.minimumSize().width() <= self.width():
                return
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonIconOnly)

    def set_menu(self, menu: QMenu) -> None:
        """The menu behind the help button."""
        self.help_button.setMenu(menu)

    def _tool(self, icon_name: str, text: str, name: str, slot: Callable[[], None] | None = None) -> QToolButton:
        button = QToolButton()
        button.setObjectName(name)
        button.setText(text)
        button.setIcon(icons.icon(icon_name))
        # Wider than the icon: the room is between it and the word.
        button.setIconSize(QSize(19, 16))
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.setFixedHeight(Size.CONTROL)
        button.setToolTip(text)
        # A word is shown whole or, when room is short, not at all.
        button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        if slot is not None:
            button.clicked.connect(lambda _=False: slot())
        return button

    @staticmethod
    def _separator() -> Rule:
        rule = Rule(vertical=True)
        rule.setFixedHeight(24)
        return rule

    def _on_launch(self) -> None:
        (self.stop_requested if self._running else self.launch_requested).emit()

    def _on_binary(self, index: int) -> None:
        chosen = self.binary_box.itemData(index)
        self.binary_box.setCurrentIndex(max(0, self.binary_box.findData(self._current)))
        if chosen == _CHOOSE:
            self.binary_browse_requested.emit()
        elif chosen and chosen != self._current:
            self.binary_chosen.emit(chosen)


def _about(binary: Binary) -> str:
    backends = ", ".join(binary.backends)
    lines = (
        binary.path,
        binary.version,
        binary.compiler or "",
        tr("Backends: {}").format(backends) if backends else "",
    )
    return "\n".join(line for line in lines if line)
