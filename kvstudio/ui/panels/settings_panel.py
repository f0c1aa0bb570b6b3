"""All launch settings: what was typed, what it becomes, and what contradicts."""

import re
from bisect import bisect_left
from typing import Any

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QPlainTextEdit,
    QSizePolicy,
    QSlider,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from kvstudio.case.values import Case
from kvstudio.ui import icons, setting_notes, theme
from kvstudio.ui.panels.setting_row import SettingRow, effective_width, least_effective_width
from kvstudio.ui.settings_table import ADVANCED, BY_FIELD, MAIN, NOT_MARKED
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step
from kvstudio.ui.widgets.basic import Label, LinkButton, Rule, SectionLabel, Surface, scrolled, show, tab_after

_ROW_GAP = 6
_SMALLEST_MAX = 131072
#: Settings that go behind "More" first where height is short, unless they were changed.
_FOLDED_FIRST = ("main_gpu", "n_batch", "n_ubatch")
_SHORT_ROW_GAP = 4
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SettingsPanel(Surface):
    """Signals: `edited` and `dragged` carry {field: value}, `env_edited` pairs of name and value."""

    edited = Signal(object)
    dragged = Signal(object)
    drag_ended = Signal()
    env_edited = Signal(object)
    reset_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("settingsPanel")
        self._rows: dict[str, SettingRow] = {}
        self._case = Case()
        self._short = False
        self._n_advanced = self._n_changed = 0
        self._build()
        self.show_case(Case())

    def _build(self) -> None:
        self.reset = LinkButton(tr("Reset"), name="resetSettings")
        self.reset.clicked.connect(self.reset_requested)
        header = QHBoxLayout()
        header.setContentsMargins(0, 0, 0, 0)
        header.addWidget(SectionLabel(tr("Launch settings")))
        header.addStretch(1)
        header.addWidget(self.reset)
        # In its place before it is filled: Qt styles what it holds once more whenever it moves.
        content = self._content = QWidget()
        scroll = self.area = scrolled(content, self)
        scroll.setObjectName("settingsScroll")
        scroll.verticalScrollBar().rangeChanged.connect(self._on_scrollable)
        self._column = QVBoxLayout(content)
        self._column.setContentsMargins(Space.L, 0, Space.L, Space.L)
        self._column.setSpacing(_ROW_GAP)
        for setting in MAIN:
            self._column.addWidget(self._row(setting.field, content))
        self.slider = ContextSlider()
        self.slider.setObjectName("contextSlider")
        self.slider.setAccessibleName(tr("Context"))
        self.slider.dragged.connect(lambda n: self.dragged.emit({"n_ctx": n}))
        self.slider.drag_ended.connect(self.drag_ended)
        self.slider.picked.connect(lambda n: self.edited.emit({"n_ctx": n}))
        below = self._rows["n_ctx"].layout_below
        below.setContentsMargins(Space.S, Space.XS + 2, 0, 0)
        below.addWidget(self.slider)
        self._column.addSpacing(Space.S - 2)
        self._column.addWidget(Rule())
        self._build_advanced()
        self._column.addStretch(1)
        top = QVBoxLayout()
        top.setContentsMargins(Space.L, Space.S + 1, Space.L - 2, Space.S - 1)
        top.addLayout(header)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(top)
        layout.addWidget(scroll, 1)
        self.setFixedWidth(Size.SETTINGS - least_effective_width() + effective_width())

    def _on_scrollable(self, _least: int, most: int) -> None:
        # The scroll bar stands in the margin, so that no row gets narrower.
        margins = self._column.contentsMargins()
        taken = self.area.verticalScrollBar().sizeHint().width() if most > 0 else 0
        right = max(0, Space.L - taken)
        if margins.right() != right:
            margins.setRight(right)
            self._column.setContentsMargins(margins)

    def _build_advanced(self) -> None:
        self.more = QToolButton()
        self.more.setObjectName("advancedToggle")
        self.more.setText(tr("Advanced"))
        self.more.setCheckable(True)
        self.more.setProperty("disclosure", True)
        self.more.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.more.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.more.setAutoRaise(True)
        self.more.toggled.connect(self._on_more)
        self._count = Label(step=Step.SMALL, role="muted")
        row = QHBoxLayout()
        row.setContentsMargins(Space.XS, 0, 0, 0)
        row.setSpacing(Space.L)
        row.addWidget(self.more)
        row.addWidget(self._count)
        row.addStretch(1)
        self._column.addLayout(row)
        self._advanced = QWidget(self._content)
        column = QVBoxLayout(self._advanced)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(_ROW_GAP)
        self._environment: EnvironmentEditor | None = None
        self._column.addWidget(self._advanced)
        self._on_more(False)

    @property
    def rows(self) -> dict[str, SettingRow]:
        """Every row by field name."""
        self._need_advanced()
        return self._rows

    @property
    def environment(self) -> "EnvironmentEditor":
        """Where variables are written."""
        self._need_advanced()
        assert self._environment is not None
        return self._environment

    def _need_advanced(self) -> None:
        """Build the rows behind the toggle; they are many, and most windows never show them."""
        if self._environment is not None:
            return
        column = self._advanced.layout()
        assert isinstance(column, QVBoxLayout)
        for title, group in ADVANCED:
            label = SectionLabel(tr(title))
            label.setContentsMargins(0, Space.S, 0, 0)
            column.addWidget(label)
            for setting in group:
                column.addWidget(self._row(setting.field, self._advanced))
        label = SectionLabel(tr("Environment variables"))
        label.setContentsMargins(0, Space.S, 0, 0)
        column.addWidget(label)
        self._environment = EnvironmentEditor()
        self._environment.edited.connect(self.env_edited)
        column.addWidget(self._environment)
        rows = (self._rows[setting.field].control for _, group in ADVANCED for setting in group)
        tab_after(self.more, *rows, self._environment.field)
        self.show_case(self._case)

    def show_case(self, case: Case) -> None:
        """Draw every setting of the case."""
        self._case = case
        said = setting_notes.notes(case)
        advanced = {setting.field for _, group in ADVANCED for setting in group}
        changed = sum(getattr(case.config, field) is not None for field in advanced - set(NOT_MARKED))
        for field, row in self._rows.items():
            value = getattr(case.config, field)
            marked = value is not None and field not in NOT_MARKED
            row.show_value(
                value,
                setting_notes.shown_default(field, case.budget, BY_FIELD[field].default),
                setting_notes.effective(field, case.budget, value),
                said.get(field),
                marked,
            )
        self._show_slider(case)
        if self._environment is not None:
            self._environment.show_env(case.config.env)
        self._n_changed = changed + len(case.config.env)
        self._n_advanced = len(advanced) + 1
        self._show_rest()
        self.reset.setEnabled(bool(case.config.typed() or case.config.env))

    def _show_slider(self, case: Case) -> None:
        trained = case.model.n_ctx_train if case.model else 0
        now = case.budget.config.n_ctx if case.budget else case.config.n_ctx or trained
        self.slider.setEnabled(case.model is not None)
        self.slider.show_context(now or 4096, max(_SMALLEST_MAX, trained))

    def _row(self, field: str, holder: QWidget) -> SettingRow:
        row = SettingRow(BY_FIELD[field], holder)
        row.edited.connect(self.edited)
        self._rows[field] = row
        return row

    def _show_rest(self) -> None:
        """Rows that wait behind the toggle, and its words."""
        waiting = [f for f in _FOLDED_FIRST if self._short and not self._rows[f].is_marked()]
        for field in _FOLDED_FIRST:
            show(self._rows[field], field not in waiting or self.more.isChecked())
        total = tr("{} settings").format(self._n_advanced + len(waiting))
        changed = self._n_changed
        self._count.setText(f"{total}, " + (tr("{} changed").format(changed) if changed else tr("all default")))
        self.more.setText(tr("More") if self._short else tr("Advanced"))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        # The header, the slider and the line of the rest besides the rows.
        whole = (len(MAIN) + 3) * Size.CONTROL + len(MAIN) * _ROW_GAP + 2 * Space.XL
        short = event.size().height() < whole
        if short != self._short:
            self._short = short
            self._column.setSpacing(_SHORT_ROW_GAP if short else _ROW_GAP)
            self._show_rest()

    def _on_more(self, on: bool) -> None:
        if on:
            self._need_advanced()
        self._advanced.setVisible(on)
        self.more.setIcon(icons.icon("chevron-down" if on else "chevron-right"))
        self._show_rest()


class ContextSlider(QSlider):
    """Sensible contexts only: steps of 256, wider as it grows, so that every doubling has the same room."""

    dragged = Signal(object)
    drag_ended = Signal()
    picked = Signal(object)

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._values: tuple[int, ...] = ()
        self.setFixedHeight(Size.CONTROL - 4)
        self.setPageStep(16)
        self.valueChanged.connect(self._on_value)
        self.sliderReleased.connect(self.drag_ended)

    def show_context(self, n_ctx: int, most: int) -> None:
        """Put the handle at a context; the scale ends at `most` or the context, whichever is more."""
        if self.isSliderDown():
            return
        values = contexts(max(most, n_ctx))
        self.blockSignals(True)
        if values != self._values:
            self._values = values
            self.setRange(0, len(values) - 1)
        self.setValue(min(bisect_left(values, n_ctx), len(values) - 1))
        self.blockSignals(False)

    def context(self) -> int:
        """The context under the handle."""
        return self._values[self.value()]

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def _on_value(self, index: int) -> None:
        (self.dragged if self.isSliderDown() else self.picked).emit(self._values[index])


def contexts(most: int) -> tuple[int, ...]:
    """Contexts from 256 to `most`: 32 to each doubling from 8192 on, multiples of 256 all along."""
    values = []
    n_ctx, step = 256, 256
    while n_ctx < most:
        values.append(n_ctx)
        if n_ctx >= 64 * step:
            step *= 2
        n_ctx += step
    return (*values, most)


class EnvironmentEditor(QWidget):
    """Variables for the child, one NAME=value per line; what is wrong is said below."""

    edited = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.field = QPlainTextEdit()
        self.field.setObjectName("environment")
        self.field.setProperty("field", True)
        self.field.setAccessibleName(tr("Environment variables"))
        self.field.setPlaceholderText("CUDA_VISIBLE_DEVICES=0,1")
        self.field.setFont(theme.mono(Step.SMALL))
        self.field.setTabChangesFocus(True)
        self.field.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.field.setFixedHeight(theme.px(68))
        self.field.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.field.installEventFilter(self)
        self._says = Label(step=Step.SMALL, role="warn", wrap=True)
        self._says.hide()
        self._shown: tuple[tuple[str, str], ...] = ()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(Space.XS)
        layout.addWidget(self.field)
        layout.addWidget(self._says)

    def show_env(self, env: tuple[tuple[str, str], ...]) -> None:
        """Draw the variables, unless the user is writing some."""
        if env == self._shown:
            return
        self._shown = env
        self.field.setPlainText("\n".join(f"{name}={value}" for name, value in env))

    def error(self) -> str:
        """What is said below the field."""
        return "" if self._says.isHidden() else self._says.text()

    def commit(self) -> None:
        """Read what was written."""
        pairs = []
        for line in filter(None, (part.strip() for part in self.field.toPlainText().splitlines())):
            name, equals, value = line.removeprefix("export ").partition("=")
            if not equals or not _VARIABLE.fullmatch(name):
                self._say(tr("NAME=value is expected: {}").format(line))
                return
            pairs.append((name, value.strip("'\"")))
        self._say("")
        if tuple(pairs) != self._shown:
            self._shown = tuple(pairs)
            self.edited.emit(tuple(pairs))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusOut:
            self.commit()
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            if enter and event.modifiers() & Qt.KeyboardModifier.ControlModifier:
                self.commit()
                return True
        return super().eventFilter(watched, event)

    def _say(self, text: Any) -> None:
        self._says.setText(text)
        self._says.setVisible(bool(text))
