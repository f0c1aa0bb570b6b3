"""Memory by context: the chart, the largest context in a sentence, the limits per memory size, what a context costs."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from kvstudio.advise.by_context import ContextView
from kvstudio.ui import text
from kvstudio.ui.theme import Step, Weight
from kvstudio.ui.widgets.basic import ElidedLabel, Icon, Label, Rule, SectionLabel, push_button, show
from kvstudio.ui.widgets.choice_chart import ChoiceChart
from kvstudio.ui.widgets.context_chart import ContextChart
from kvstudio.units import format_gib, format_room

_ROW = 22


def largest_words(view: ContextView) -> tuple[str, str]:
    """The answer and what decides it."""
    devices = view.curves[0].points[0].devices
    where = text.tr(" on both") if len(devices) == 2 else text.tr(" on all") if len(devices) > 2 else ""
    click = text.tr("Click a curve to set the context.")
    if view.largest is None:
        return text.tr("No context fits{}.").format(where), text.tr("The model itself needs more than there is.")
    if view.largest >= view.n_ctx_max:
        return text.tr("Every context up to {} fits{}.").format(view.n_ctx_max, where), click
    decides = text.tr("{} decides.").format(view.deciding) if view.deciding and len(devices) > 1 else ""
    return text.tr("Largest that fits{}: {}.").format(where, view.largest), f"{decides} {click}".strip()


class _Grid(QWidget):
    """A heading and rows of figures, the first column words."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        heading = SectionLabel(title)
        heading.setFixedHeight(_ROW)
        column.addWidget(heading)
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(0)
        column.addLayout(self._grid)
        self._note = Label("", Step.SMALL, role="muted", wrap=True)
        self._note.setMinimumHeight(_ROW)
        column.addWidget(self._note)
        column.addStretch()

    def add_row(self, cells: tuple[str, ...], weight: QFont.Weight = Weight.Normal, role: str = "ink") -> None:
        """One more line."""
        row = self._grid.rowCount()
        self._grid.setRowMinimumHeight(row, _ROW)
        for i, cell in enumerate(cells):
            label = Label(cell, Step.SMALL, weight, role)
            side = Qt.AlignmentFlag.AlignRight if i else Qt.AlignmentFlag.AlignLeft
            self._grid.addWidget(label, row, i, side | Qt.AlignmentFlag.AlignVCenter)
        self._grid.setColumnStretch(0, 1)

    def set_note(self, words: str) -> None:
        """A line below the figures."""
        self._note.setText(words)
        self._note.setVisible(bool(words))


def limit_text(n_ctx: int | None, view: ContextView) -> str:
    """`21760`; `98304*` past the trained context; a dash where the model does not fit."""
    if n_ctx is None:
        return "–"
    return f"{n_ctx}*" if is_beyond(n_ctx, view) else str(n_ctx)


def is_beyond(n_ctx: int | None, view: ContextView) -> bool:
    """Whether a context is longer than the model was trained for."""
    return n_ctx is not None and 0 < view.n_ctx_trained < n_ctx


def limits_grid(view: ContextView) -> _Grid:
    """Largest context per memory size and type."""
    grid = _Grid(text.tr("Largest context, split by free memory"))
    grid.add_row((text.tr("K and V type"), *view.limit_types), Weight.DemiBold, "muted")
    for row in view.limits:
        weight = Weight.DemiBold if row.is_this_machine else Weight.Normal
        label = text.tr("This machine") if row.is_this_machine else row.label
        grid.add_row((label, *(limit_text(n, view) for n in row.n_ctx)), weight)
    notes = []
    if any(n is None for row in view.limits for n in row.n_ctx):
        notes.append(text.tr("–  the weights alone need {} on the card").format(format_room(view.weights_bytes)))
    if any(is_beyond(n, view) for row in view.limits for n in row.n_ctx):
        notes.append(text.tr("*  past the trained {}: llama.cpp warns, a slot uses no more").format(view.n_ctx_trained))
    grid.set_note("\n".join(notes))
    return grid


def costs_grid(view: ContextView) -> _Grid:
    """What the cache takes per context and type."""
    grid = _Grid(text.tr("KV cache, GiB"))
    grid.add_row((text.tr("Context"), *view.cost_types), Weight.DemiBold, "muted")
    for row in view.costs:
        weight = Weight.DemiBold if row.n_ctx == view.n_ctx_now else Weight.Normal
        grid.add_row((str(row.n_ctx), *(format_gib(size) for size in row.kv_bytes)), weight)
    beyond = view.n_ctx_train > 0 and any(row.n_ctx > view.n_ctx_train for row in view.costs)
    grid.set_note(text.tr("Above {} needs RoPE scaling").format(view.n_ctx_train) if beyond else "")
    return grid


class ContextPage(QWidget):
    """`show_context` in, `context_picked` (an n_ctx) and `choice_picked` ({field: value}) out."""

    context_picked = Signal(object)
    choice_picked = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view: ContextView | None = None
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 8, 0, 0)
        self._column.setSpacing(0)
        self.chart = ContextChart()
        self.chart.context_picked.connect(self.context_picked)
        self._waiting = Label(text.tr("Working out the curves…"), role="muted")
        self._answer = self._answer_row()
        self._rule = Rule()
        self._tables: QWidget | None = None
        self._column.addWidget(self._waiting)
        self._column.addWidget(self.chart)
        self._column.addSpacing(14)
        self._column.addWidget(self._answer)
        self._column.addSpacing(12)
        self._column.addWidget(self._rule)
        self._column.addSpacing(8)
        self._place = QVBoxLayout()
        self._column.addLayout(self._place)
        self._choices = self._choice_area()
        self._column.addWidget(self._choices)
        self.show_context(None)

    def _choice_area(self) -> QWidget:
        area = QWidget()
        column = QVBoxLayout(area)
        column.setContentsMargins(0, 12, 0, 8)
        column.setSpacing(8)
        column.addWidget(Rule())
        column.addWidget(SectionLabel(text.tr("The choice: what each step leaves on the tightest device")))
        self.choice = ChoiceChart()
        self.choice.picked.connect(self.choice_picked)
        column.addWidget(self.choice)
        self._beyond = Label("", Step.SMALL, role="muted", wrap=True)
        column.addWidget(self._beyond)
        return area

    def _answer_row(self) -> QWidget:
        area = QWidget()
        row = QHBoxLayout(area)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        self._headline = Label(weight=Weight.DemiBold)
        self._detail = ElidedLabel(role="muted")
        self._use = push_button("", name="use")
        self._use.clicked.connect(self._on_use)
        row.addWidget(Icon("target", "accent_text"))
        row.addWidget(self._headline)
        row.addWidget(self._detail, 1)
        row.addWidget(self._use)
        return area

    def show_context(self, view: ContextView | None) -> None:
        """Show a view; None says that it is being worked out."""
        if view is self._view and view is not None:
            return
        self._view = view
        self._waiting.setVisible(view is None)
        for part in (self.chart, self._answer, self._rule):
            part.setVisible(view is not None)
        self.chart.show_context(view)
        if self._tables is not None:
            self._place.removeWidget(self._tables)
            self._tables.setParent(None)
            self._tables.deleteLater()
            self._tables = None
        if view is not None:
            self._show_answer(view)
            self._tables = self._tables_of(view)
            self._place.addWidget(self._tables)
        self._show_choices(view)
        self.updateGeometry()

    def _show_choices(self, view: ContextView | None) -> None:
        found = view.choices if view is not None else ()
        show(self._choices, bool(found))
        self.choice.show_choices(found)
        beyond = view is not None and any(step.beyond for choice in found for step in choice.steps)
        trained = view.n_ctx_train if view is not None else 0
        self._beyond.setText(text.tr("*  longer than the trained context, {}: needs RoPE scaling").format(trained))
        show(self._beyond, beyond)

    def _show_answer(self, view: ContextView) -> None:
        headline, detail = largest_words(view)
        self._headline.setText(headline)
        self._detail.setText(detail)
        usable = view.largest is not None and view.largest < view.n_ctx_max and view.largest != view.n_ctx_now
        self._use.setVisible(usable)
        self._use.setText(text.tr("Use {}").format(view.largest))

    def _on_use(self) -> None:
        if self._view is not None and self._view.largest is not None:
            self.context_picked.emit(self._view.largest)

    def _tables_of(self, view: ContextView) -> QWidget:
        area = QWidget(self)
        row = QHBoxLayout(area)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(21)
        if view.limits:
            row.addWidget(limits_grid(view), 3)
            row.addWidget(Rule(vertical=True))
        row.addWidget(costs_grid(view), 2)
        return area
