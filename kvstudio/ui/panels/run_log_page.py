"""The log with its search, filter, follow and key line, and beside it what it means."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QSizePolicy,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from kvstudio.runlog.values import LogLine
from kvstudio.ui import icons
from kvstudio.ui.models.log_model import Filter, LogModel, Mark
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step
from kvstudio.ui.widgets.basic import ElidedLabel, Rule, Surface
from kvstudio.ui.widgets_run.diagnosis_card import DiagnosisCard
from kvstudio.ui.widgets_run.log_view import LogView
from kvstudio.ui.widgets_run.running_card import RunningCard

_SEARCH_MS = 150
_HEAD = 40


class RunLogPage(QWidget):
    """`checks_requested` when the user wants the checks of this run again."""

    checks_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = LogModel(self)
        self.card = DiagnosisCard()
        self.running = RunningCard()
        self._kept = False
        self._key: int | None = None
        self._build()
        self.model.changed.connect(self._on_changed)
        self.card.line_requested.connect(self.jump_to)

    def _build(self) -> None:
        head = Surface()
        head.setFixedHeight(_HEAD)
        row = QHBoxLayout(head)
        row.setContentsMargins(Space.M, 0, Space.L, 0)
        row.setSpacing(Space.S)
        self.search = QLineEdit()
        self.search.setObjectName("logSearch")
        self.search.setPlaceholderText(tr("Search the log"))
        self.search.setAccessibleName(tr("Search the log"))
        self.search.setClearButtonEnabled(True)
        self.search.setFixedHeight(Size.CONTROL)
        self.search.setMinimumWidth(110)
        self.search.setMaximumWidth(200)
        glass = QAction(icons.icon("search", "muted"), "", self.search)
        self.search.addAction(glass, QLineEdit.ActionPosition.LeadingPosition)
        self._search_timer = QTimer(self)
        self._search_timer.setSingleShot(True)
        self._search_timer.setInterval(_SEARCH_MS)
        self._search_timer.timeout.connect(self._on_search_due)
        self.search.textChanged.connect(lambda _: self._search_timer.start())
        self.search.returnPressed.connect(self._on_search_due)
        self.filter = QComboBox()
        self.filter.setObjectName("logFilter")
        self.filter.setAccessibleName(tr("Which lines are shown"))
        self.filter.setFixedHeight(Size.CONTROL)
        self.filter.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        for wanted in (Filter.NO_METADATA, Filter.MEMORY, Filter.ALL):
            self.filter.addItem("", wanted)
        self.filter.currentIndexChanged.connect(self._on_filter)
        self.follow = self._tool("follow", tr("Follow"), "logFollow")
        self.follow.setCheckable(True)
        self.key_button = self._tool("target", tr("Key line"), "logKeyLine")
        self.key_button.clicked.connect(self.jump_to_key)
        self.checks_button = self._tool("check-circle", tr("Checks"), "logChecks")
        self.checks_button.clicked.connect(self.checks_requested)
        self.checks_button.hide()
        self._count = ElidedLabel(step=Step.SMALL, role="muted")
        self._count.setAlignment(Qt.AlignmentFlag.AlignRight)
        for widget in (self.search, self.filter, self.follow, self.key_button, self.checks_button):
            row.addWidget(widget)
            if widget is self.filter:
                row.addSpacing(Space.XS)
        row.setStretch(0, 100)
        row.addWidget(self._count, 1)

        self.view = LogView()
        self.view.setModel(self.model)
        self.follow.setChecked(True)
        self.follow.toggled.connect(self.view.set_following)
        self.view.following_changed.connect(self.follow.setChecked)
        left = QWidget()
        column = QVBoxLayout(left)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(head)
        column.addWidget(Rule())
        column.addWidget(self.view, 1)
        left.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        self._side = QStackedWidget()
        self._side.setFixedWidth(Size.DIAGNOSIS)
        self._side.addWidget(self.card)
        self._side.addWidget(self.running)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(left, 1)
        layout.addWidget(Rule(vertical=True))
        layout.addWidget(self._side)
        find = QShortcut(QKeySequence(QKeySequence.StandardKey.Find), self)
        find.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        find.activated.connect(self.search.setFocus)
        self._on_changed()

    def _tool(self, icon: str, words: str, name: str) -> QToolButton:
        button = QToolButton()
        button.setObjectName(name)
        button.setIcon(icons.icon(icon))
        button.setIconSize(QSize(22, 16))  # room between icon and word
        button.setText(words)
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setFixedHeight(Size.CONTROL)
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return button

    def start(self) -> None:
        """An empty log that will grow, with the running card beside it."""
        self._kept, self._key = False, None
        self.model.show_lines(())
        self.view.set_following(True)
        self._side.setCurrentWidget(self.running)
        self.checks_button.hide()
        self._on_changed()

    def append(self, lines: Sequence[LogLine]) -> None:
        """More lines of the launch that runs."""
        self.model.append(lines)

    def show_lines(self, lines: Sequence[LogLine], marks: dict[int, Mark], kept: bool, has_checks: bool) -> None:
        """A whole log, its marks, whether History has it; scrolled to the key line, else to the end."""
        self._kept = kept
        self.model.flush()
        if not self.model.holds(lines):
            self.model.show_lines(lines)
        self.model.mark(marks)
        self._key = next((number for number, mark in marks.items() if mark is Mark.KEY), None)
        self.checks_button.setVisible(has_checks)
        self._side.setCurrentWidget(self.card)
        self._on_changed()
        if self._key is None:
            self.view.set_following(True)
        else:
            self.jump_to_key()

    def jump_to_key(self) -> None:
        """Scroll to the line that decided."""
        if self._key is not None:
            self.jump_to(self._key)

    def jump_to(self, number: int | None) -> None:
        """Scroll to a line; a search or a filter that hides it is taken back."""
        if number is None or self.view.jump_to(number):
            return
        self._search_timer.stop()
        self.search.clear()
        self._search_timer.stop()
        self.model.set_search("")
        if not self.view.jump_to(number):
            self.filter.setCurrentIndex(self.filter.findData(Filter.ALL))
            self.view.jump_to(number)

    @property
    def count_text(self) -> str:
        return self._count.text()

    def _on_search_due(self) -> None:
        self._search_timer.stop()
        self.model.set_search(self.search.text().strip())

    def _on_filter(self, _: int) -> None:
        here = self.view.currentIndex()
        number = self.model.line(here.row()).number if here.isValid() else None
        self.model.set_filter(Filter(self.filter.currentData()))
        row = self.model.row_of(number) if number is not None else None
        if row is not None:
            self.view.jump_to(number or 0)

    def _on_changed(self) -> None:
        hidden = self.model.n_metadata
        words = tr("All but metadata lines")
        if hidden:
            words = tr("All but 1 metadata line") if hidden == 1 else tr("All but {} metadata lines").format(hidden)
        for i, text in enumerate((words, tr("Memory lines"), tr("All lines"))):
            if self.filter.itemText(i) != text:
                self.filter.setItemText(i, text)
        self.key_button.setEnabled(self._key is not None)
        total = self.model.n_lines + self.model.dropped
        if self.model.filter is Filter.MEMORY or self.search.text().strip():
            said = tr("{} of {} lines").format(self.model.rowCount(), total)
        else:
            said = tr("1 line") if total == 1 else tr("{} lines").format(total)
        self._count.setText(tr("{}, kept in History").format(said) if self._kept else said)
        searched = bool(self.search.text().strip())
        nothing = "" if self.model.scanning else tr("No line has this text") if searched else tr("No lines yet")
        self.view.say_when_empty(nothing)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "view"):
            self.view.viewport().update()
