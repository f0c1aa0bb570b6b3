"""What is shown before anything is open: what can be dropped, what was open, and what is on this machine."""

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QRectF, Qt, Signal
from PySide6.QtGui import QEnterEvent, QKeyEvent, QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.ui.preferences import RecentItem, when
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Radius, Size, Space, Step, Theme, Weight
from kvstudio.ui.widgets.basic import (
    Card,
    ElidedLabel,
    Icon,
    Label,
    LinkButton,
    Rule,
    Surface,
    make_primary,
    plain_tooltip,
    push_button,
    scrolled,
)

_COLUMN_WIDTH = 1040
_DROP_HEIGHT = 268
_SHOWN_AT_FIRST = 4
_TEXT_INDENT = 45
_RECENT_ICONS = {"model": "chip", "log": "file", "case": "recent"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a list: what it opens, how it is called, what is said about it, and at the right where or when."""

    path: str
    title: str
    detail: str
    side: str = ""
    icon: str = "file"
    role: str = "muted"


class EmptyPage(Surface):
    """Signals: wishes, and `chosen` with the path of a row."""

    open_requested = Signal()
    paste_requested = Signal()
    sample_requested = Signal()
    chosen = Signal(str)
    clear_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("emptyPage")
        self._build()
        self.show_recent(())
        self.show_found(None, 0)

    def _build(self) -> None:
        self.drop = _DropTarget()
        self.open_button = push_button(tr("Open file…"), "open", primary=True, name="openFile")
        self.paste_button = push_button(tr("Paste command"), "paste", name="pasteFile")
        self.sample_button = push_button(tr("Try the sample"), "play", name="sample")
        self.open_button.clicked.connect(self.open_requested)
        self.paste_button.clicked.connect(self.paste_requested)
        self.sample_button.clicked.connect(self.sample_requested)
        self.drop.add_buttons(self.open_button, self.paste_button, self.sample_button)

        self._recent_title = Label(tr("Recent"), weight=Weight.DemiBold)
        self.clear = LinkButton(tr("Clear"), name="clearRecent")
        self.clear.clicked.connect(self.clear_requested)
        self.recent = EntryList(tr("Nothing yet. What you open here is listed by name."))
        self.recent.chosen.connect(self.chosen)
        self._found_title = Label(tr("Found on this machine"), weight=Weight.DemiBold)
        self._found_count = Label(step=Step.SMALL, role="muted")
        # As high as the link, which is not always there, so that both lists begin in one line.
        for title in (self._recent_title, self._found_title):
            title.setMinimumHeight(self.clear.sizeHint().height())
        self.found = EntryList(tr("Looking in the usual folders…"))
        self.found.chosen.connect(self.chosen)

        lists = QHBoxLayout()
        lists.setSpacing(Space.XXL)
        lists.addLayout(_column(self._recent_title, self.clear, self.recent), 1)
        lists.addLayout(_column(self._found_title, self._found_count, self.found), 1)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, Space.XL)
        column.setSpacing(Space.XXL + 2)
        column.addWidget(self.drop)
        column.addLayout(lists)
        column.addStretch(1)
        content.setMaximumWidth(_COLUMN_WIDTH)
        content.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        centred = QWidget()
        row = QHBoxLayout(centred)
        row.setContentsMargins(Space.XXL, Space.XXXL, Space.XXL, 0)
        row.addStretch(1)
        row.addWidget(content, 1000)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(scrolled(centred))

    def show_recent(self, entries: tuple[Entry, ...]) -> None:
        """Fill the left list."""
        self.recent.show_entries(entries)
        self.clear.setVisible(bool(entries))

    def show_found(self, entries: tuple[Entry, ...] | None, folders: int) -> None:
        """Fill the right list; None while the search is under way."""
        if entries is None:
            self.found.show_entries(())
            self._found_count.setText("")
            return
        self.found.say_when_empty(tr("No model in the folders of Hugging Face, LM Studio, Ollama and llama.cpp."))
        self.found.show_entries(entries)
        models = tr("1 model") if len(entries) == 1 else tr("{} models").format(len(entries))
        places = tr("1 folder") if folders == 1 else tr("{} folders").format(folders)
        self._found_count.setText(tr("{} in {}").format(models, places) if entries else "")

    def show_sample(self, available: bool, busy: bool = False) -> None:
        """Offer the sample or say what it needs."""
        self.sample_button.setEnabled(available and not busy)
        reason = tr("Needs the sample model and server: pip install kvstudio[rig]")
        self.sample_button.setToolTip(tr("A small real model on two software devices") if available else reason)

    def show_drop(self, hovering: bool) -> None:
        """Something is held over the window."""
        self.drop.show_hover(hovering)

    def make_primary(self, primary: bool) -> None:
        make_primary(self.open_button, primary)


def _column(title: Label, side: QWidget, content: QWidget) -> QVBoxLayout:
    head = QHBoxLayout()
    head.setContentsMargins(0, 0, 0, 0)
    head.addWidget(title)
    head.addStretch(1)
    head.addWidget(side)
    column = QVBoxLayout()
    column.setSpacing(Space.S - 1)
    column.addLayout(head)
    column.addWidget(content)
    column.addStretch(1)
    return column


class _DropTarget(QWidget):
    """The dashed frame: what can be dropped, and buttons for those who would rather not."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("dropTarget")
        self._hover = False
        centre = Qt.AlignmentFlag.AlignHCenter
        title = Label(tr("Drop a model, a log or a command line"), Step.PAGE, Weight.Medium)
        what = Label(
            tr(
                "A GGUF or any shard of it, an mmproj, a folder, a saved case, "
                "a log from llama.cpp, Ollama, LM Studio or koboldcpp."
            ),
            role="muted",
            wrap=True,
        )
        calm = Label(tr("Nothing is loaded or run until you say so."), role="muted")
        for label in (title, what, calm):
            label.setAlignment(centre)
        self._buttons = QHBoxLayout()
        self._buttons.setSpacing(Space.S)
        self._buttons.addStretch(1)
        self._buttons.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.XXL, Space.XXL, Space.XXL, Space.XXL)
        layout.setSpacing(0)
        layout.addStretch(2)
        layout.addWidget(Icon("drop", "accent_text", 40), 0, centre)
        layout.addSpacing(Space.M)
        layout.addWidget(title)
        layout.addSpacing(Space.S)
        layout.addWidget(what)
        layout.addSpacing(Space.S)
        layout.addWidget(calm)
        layout.addSpacing(Space.XL)
        layout.addLayout(self._buttons)
        layout.addStretch(3)
        self.setMinimumHeight(_DROP_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def add_buttons(self, *buttons: QWidget) -> None:
        for button in buttons:
            self._buttons.insertWidget(self._buttons.count() - 1, button)

    def show_hover(self, on: bool) -> None:
        self._hover = on
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(current.accent_text if self._hover else current.control_edge, 2 if self._hover else 1.5)
        pen.setDashPattern([5, 3.5])
        painter.setPen(pen)
        painter.setBrush(current.checked_fill if self._hover else current.canvas)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), Radius.DROP, Radius.DROP)


class EntryList(Card):
    """A card of rows, the first few shown and the rest behind one more row."""

    chosen = Signal(str)

    def __init__(self, empty: str) -> None:
        super().__init__()
        self._all: tuple[Entry, ...] = ()
        self._limit = _SHOWN_AT_FIRST + 1
        self._empty = Label(empty, role="muted", wrap=True)
        self._empty.setContentsMargins(Space.L, Space.L, Space.L, Space.L)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(1, 1, 1, 1)
        self._column.setSpacing(0)
        self._column.addWidget(self._empty)
        self._rows: list[QWidget] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)

    def say_when_empty(self, text: str) -> None:
        self._empty.setText(text)

    def show_entries(self, entries: tuple[Entry, ...]) -> None:
        """Fill the list again."""
        self._all = entries
        self._fill()

    def titles(self) -> tuple[str, ...]:
        """Titles of the rows on screen."""
        return tuple(row.entry.title for row in self._rows if isinstance(row, EntryRow))

    def row(self, index: int) -> "EntryRow":
        """A row on screen."""
        return [row for row in self._rows if isinstance(row, EntryRow)][index]

    def show_all(self) -> None:
        """Unfold the rest."""
        self._limit = len(self._all)
        self._fill()

    def _fill(self) -> None:
        for row in self._rows:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self._rows = []
        self._empty.setVisible(not self._all)
        fold = len(self._all) > self._limit
        shown = self._all[: _SHOWN_AT_FIRST if fold else None]
        for index, entry in enumerate(shown):
            if index:
                self._add(_IndentedRule())
            row = EntryRow(entry)
            row.chosen.connect(self.chosen)
            self._add(row)
        if fold:
            self._add(_IndentedRule())
            rest = len(self._all) - len(shown)
            more = EntryRow(Entry("", tr("Show {} more").format(rest), "", icon="chevron-down"), link=True)
            more.chosen.connect(lambda _: self.show_all())
            self._add(more)

    def _add(self, widget: QWidget) -> None:
        self._rows.append(widget)
        self._column.addWidget(widget)


class _IndentedRule(QWidget):
    def __init__(self) -> None:
        super().__init__()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(_TEXT_INDENT - 1, 0, 0, 0)
        layout.addWidget(Rule())


class EntryRow(QWidget):
    """One row; Enter, Space or a click opens it."""

    chosen = Signal(str)

    def __init__(self, entry: Entry, link: bool = False) -> None:
        super().__init__()
        self.entry = entry
        self._link = link
        self._over = False
        self.setFixedHeight(Size.LIST_ROW)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(f"{entry.title}, {entry.detail}" if entry.detail else entry.title)
        self.setToolTip(plain_tooltip(entry.path) if entry.path else "")
        title = ElidedLabel(entry.title, weight=Weight.Medium, role="accent_text" if link else "ink")
        title.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addStretch(1)
        words.addWidget(title)
        if entry.detail:
            detail = ElidedLabel(entry.detail, Step.SMALL, role="muted")
            detail.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            words.addWidget(detail)
        words.addStretch(1)
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.L, 0, Space.L, 0)
        row.setSpacing(Space.M + 1)
        row.addWidget(Icon(entry.icon, entry.role))
        row.addLayout(words, 1)
        if entry.side:
            row.addWidget(Label(entry.side, Step.SMALL, role="muted"))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self.chosen.emit(self.entry.path)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.chosen.emit(self.entry.path)
            return
        super().keyPressEvent(event)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._over = True
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self._over = False
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        current = Theme.current()
        if not self._over and not self.hasFocus():
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(self.rect()).adjusted(2, 2, -2, -2)
        path = QPainterPath()
        path.addRoundedRect(box, Radius.CHIP, Radius.CHIP)
        if self._over:
            painter.fillPath(path, current.control_hover)
        if self.hasFocus():
            painter.setPen(QPen(current.accent_text, 2))
            painter.drawPath(path)


def recent_entry(item: RecentItem, now: float) -> Entry:
    """A row for something opened before; `now` in seconds since the epoch."""
    failed = item.kind == "log" and any(word in item.detail for word in ("not fit", "fail", "refus", "short"))
    icon, role = ("warn", "bad") if failed else (_RECENT_ICONS.get(item.kind, "file"), "muted")
    return Entry(item.path, item.title, item.detail, when(item.opened_at, now), icon, role)
