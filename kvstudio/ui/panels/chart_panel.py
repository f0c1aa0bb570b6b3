"""Memory per device: the bars, the same as a table, or against the context; the verdict and single changes below."""

from collections.abc import Mapping

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.advise.by_context import ContextView
from kvstudio.advise.values import Fix
from kvstudio.advise.verdict import Verdict
from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.values import Budget, BufferKind, Provenance
from kvstudio.ui import text
from kvstudio.ui.models.budget_table import BudgetTableModel
from kvstudio.ui.theme import Space, Step, Weight
from kvstudio.ui.widgets.basic import Chip, Label, Surface, push_button, show
from kvstudio.ui.widgets.budget_bars import BudgetBars
from kvstudio.ui.widgets.context_page import ContextPage
from kvstudio.ui.widgets.fit_row import LAUNCHED, FitRow
from kvstudio.ui.widgets.fix_rows import FixRows
from kvstudio.ui.widgets.legend import Legend, kinds_of
from kvstudio.ui.widgets.quiet_table import QuietTable
from kvstudio.ui.widgets.segmented import SegmentedSwitch
from kvstudio.ui.widgets.verdict_card import VerdictCard

BARS, TABLE, CONTEXT = "bars", "table", "context"


class FitScroll(QScrollArea):
    """Asks for all the height its content needs, and scrolls only where it gets less."""

    def __init__(self, content: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidget(content)
        content.setAutoFillBackground(False)
        content.installEventFilter(self)
        self.viewport().setAutoFillBackground(False)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        # Parts that were just added are counted only once Qt shows them, a moment later.
        if event.type() == QEvent.Type.LayoutRequest and watched is self.widget():
            self.fit()
        return super().eventFilter(watched, event)

    def sizeHint(self) -> QSize:
        content = self.widget()
        layout = content.layout() if content else None
        if layout is None:
            return super().sizeHint()
        width = max(self.viewport().width(), 200)
        height = layout.heightForWidth(width) if layout.hasHeightForWidth() else layout.sizeHint().height()
        return QSize(layout.sizeHint().width(), height)

    def minimumSizeHint(self) -> QSize:
        content = self.widget()
        width = content.minimumSizeHint().width() if content else 200
        return QSize(width, min(self.sizeHint().height(), 96))

    def fit(self) -> None:
        """Take over a new height of the content."""
        height = max(1, self.sizeHint().height())
        if height != self.maximumHeight():
            self.setMaximumHeight(height)
            self.updateGeometry()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.fit()


class Air(QWidget):
    """Air between two parts that comes and goes with them."""

    def __init__(self, height: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.set_height(height)

    def set_height(self, height: int) -> None:
        self.setFixedHeight(height)


def source_words(budget: Budget, measured_in: str | None) -> tuple[str, str]:
    """Word and state of the chip beside the title."""
    if measured_in:
        return text.tr("Measured, {}").format(measured_in), "good"
    if budget.buffers and all(b.provenance is Provenance.MEASURED for b in budget.buffers):
        return text.tr("Measured"), "good"
    return text.tr("Estimated"), "neutral"


class ChartPanel(Surface):
    """Values in by `show_…`; wishes out by signals.

    `open_requested` asks for the model, `fix_applied` carries a Fix, `context_picked` an n_ctx, `choice_picked`
    {field: value}, `view_changed` one of BARS, TABLE, CONTEXT: the window then computes what the view needs.
    """

    open_requested = Signal()
    why_requested = Signal()
    fix_requested = Signal()
    fix_applied = Signal(object)
    context_picked = Signal(object)
    choice_picked = Signal(object)
    view_changed = Signal(str)
    segment_hovered = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(canvas=True, parent=parent)
        self._typed: Budget | None = None
        self._fitted: FitResult | None = None
        self._measured_in: str | None = None
        self._holders: Mapping[str, str] | None = None
        self._verdict: Verdict | None = None
        self._working = False
        self._open_run = False
        self._small = False
        self._build()
        self._connect()
        self.show_budget(None)

    def _build(self) -> None:
        self._title = Label(text.tr("Memory per device"), Step.TITLE, Weight.DemiBold)
        self._chip = Chip(text.tr("Estimated"))
        self.switch = SegmentedSwitch(
            ((BARS, text.tr("Bars")), (TABLE, text.tr("Table")), (CONTEXT, text.tr("By context")))
        )
        self.fit = FitRow()
        self._has_fit = False
        self.legend = Legend()
        self.bars = BudgetBars()
        self.table = QuietTable()
        self._model = BudgetTableModel(self)
        self.table.setModel(self._model)
        self.table.setAccessibleName(text.tr("Memory per device, as a table"))
        self.context = ContextPage()
        self.verdict = VerdictCard()
        self.fixes = FixRows()
        self._nothing = self._nothing_page()
        self._scroll = FitScroll(self._bars_page())
        self._context_scroll = FitScroll(self.context)
        self._rows = QVBoxLayout(self)
        self._rows.setSpacing(0)
        self._rows.addLayout(self._header())
        self._under_title = Air(10)
        self._rows.addWidget(self._under_title)
        self._rows.addWidget(self.fit)
        self._under_fit = Air(6)
        self._rows.addWidget(self._under_fit)
        self._rows.addWidget(self._legend_row())
        for page in (self._scroll, self.table, self._context_scroll, self._nothing):
            self._rows.addWidget(page)
        self._over_verdict = Air(16)
        self._rows.addWidget(self._over_verdict)
        self._rows.addWidget(self.verdict)
        self._over_fixes = Air(12)
        self._rows.addWidget(self._over_fixes)
        self._rows.addWidget(self.fixes)
        self._rows.addStretch()
        self._margins()

    def _bars_page(self) -> QWidget:
        page = QWidget()
        self._bars_column = QVBoxLayout(page)
        self._bars_column.setSpacing(0)
        self._bars_column.addWidget(self.bars)
        return page

    def _nothing_page(self) -> QWidget:
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.M)
        self._nothing_says = Label(role="muted", wrap=True)
        self.open_button = push_button(text.tr("Open model…"), "open", name="openModel")
        self.open_button.clicked.connect(self.open_requested)
        column.addWidget(self._nothing_says)
        column.addWidget(self.open_button, 0, Qt.AlignmentFlag.AlignLeft)
        self.show_missing(False)
        return page

    def _legend_row(self) -> QWidget:
        self._legend_area = QWidget()
        row = QHBoxLayout(self._legend_area)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.legend, 1)
        self._areas = Label("", Step.SMALL, role="muted")
        self._areas.setFixedHeight(20)
        row.addWidget(self._areas, 0, Qt.AlignmentFlag.AlignTop)
        return self._legend_area

    def _header(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(Space.M)
        row.addWidget(self._title)
        row.addWidget(self._chip)
        row.addStretch()
        row.addWidget(self.switch)
        return row

    def _connect(self) -> None:
        self.switch.picked.connect(self._on_view_picked)
        self.fit.picked.connect(lambda _: self._draw(glide=True))
        self.verdict.why_requested.connect(self.why_requested)
        self.verdict.fix_requested.connect(self.fix_requested)
        self.verdict.raise_requested.connect(lambda: self.show_view(CONTEXT))
        self.fixes.fix_applied.connect(self.fix_applied)
        self.context.context_picked.connect(self.context_picked)
        self.context.choice_picked.connect(self.choice_picked)
        self.bars.segment_hovered.connect(self.segment_hovered)

    # values in

    def show_budget(
        self,
        budget: Budget | None,
        *,
        fitted: FitResult | None = None,
        fit_follows: bool = False,
        measured_in: str | None = None,
        holders: Mapping[str, str] | None = None,
        glide: bool = False,
    ) -> None:
        """Show a Budget, or that there is none.

        `fitted` is what `-fit` makes of it: that is shown first, with a switch to the settings as typed. With
        `fit_follows` it is being worked out. `measured_in` names the run that printed the sizes (`run 6`), `holders`
        who holds memory per device name; `glide` lets the bars move to their new widths, for a change that is no drag.
        """
        self._typed, self._measured_in, self._holders = budget, measured_in, holders
        self._fitted = fitted if fitted is not None and fitted.budget is not None else None
        # The row stays while it is worked out anew: it would come and go with every change.
        self._has_fit = budget is not None and (self._fitted is not None or (fit_follows and self._has_fit))
        self._draw(glide)

    @property
    def _budget(self) -> Budget | None:
        """What is shown: the launch after `-fit`, unless the user asked for it as typed."""
        launched = self._fitted.budget if self._fitted is not None else None
        return launched if launched is not None and self.fit.chosen() == LAUNCHED else self._typed

    def _draw(self, glide: bool) -> None:
        budget = self._budget
        self.bars.show_budget(budget, holders=self._holders, glide=glide)
        self._fill_table()
        self._show_kinds()
        self._show_source()
        if budget is not None:
            self.fit.show_fit(budget, self._fitted)
        self._scroll.fit()
        self._arrange()

    def _show_source(self) -> None:
        if self._working:
            self._chip.show_chip(text.tr("Working it out…"), "neutral")
        elif self._budget is not None:
            self._chip.show_chip(*source_words(self._budget, self._measured_in))

    def show_coming(self) -> None:
        """Say that a model's sizes are being worked out for the first time."""
        self._nothing_says.setText(text.tr("Working out what it needs on each device…"))
        show(self.open_button, False)

    def show_missing(self, has_log: bool, named: str = "") -> None:
        """What to open while no model is; `named`: the file that the log on screen, or the command, is about."""
        show(self.open_button, True)
        if named and has_log:
            says = text.tr("This log is of {}. Open that file to see what it needs on each device, and to fix it.")
        elif named:
            says = text.tr("{} is not on this machine. Open it to see what it needs on each device.")
        elif has_log:
            says = text.tr("This log names no model file. Open the one it is of to see what it needs on each device.")
        else:
            says = text.tr("Open a model to see what it needs on each device.")
        self._nothing_says.setText(says.format(named))

    def show_working(self, on: bool) -> None:
        """Say that what is shown is that of earlier settings, for as long as the new sizes take."""
        self._working = on
        self.bars.set_stale(on)
        self._show_source()
        self._arrange()

    def show_verdict(self, said: Verdict | None) -> None:
        """Show whether it fits, or nothing."""
        self._verdict = said
        self.verdict.show_verdict(said)
        self._arrange()

    def show_fixes(self, fixes: tuple[Fix, ...]) -> None:
        """Show single changes that would fit."""
        self.fixes.show_fixes(fixes)
        self._arrange()

    def show_context(self, view: ContextView | None) -> None:
        """Show memory against context; None while it is being computed."""
        self.context.show_context(view)
        self._areas.setText(text.tr("GiB, areas for {}").format(view.curves[0].cache_type) if view is not None else "")
        self._context_scroll.fit()

    def show_view(self, view: str) -> None:
        """Switch to BARS, TABLE or CONTEXT as if the user had."""
        self.switch.choose(view)

    def view(self) -> str:
        return self.switch.current()

    def set_open_run(self, is_open: bool) -> None:
        """Move together while the run area is open: the fixes are in its diagnosis then."""
        self._open_run = is_open
        self.bars.set_gap(is_open)
        self._margins()
        self._arrange()

    def set_small(self, small: bool) -> None:
        """Smaller margins below a window width of 1200."""
        self._small = small
        self._margins()

    def set_fix_primary(self, primary: bool) -> None:
        """Fill the Fix button where it is the next step."""
        self.verdict.set_fix_primary(primary)

    # inside

    def _margins(self) -> None:
        close = self._open_run or self._small
        side = Space.MARGIN if self._small else Space.CANVAS_MARGIN
        self._rows.setContentsMargins(side, 8 if self._open_run else 10 if self._small else 12, side, 0)
        self._under_title.set_height(6 if close else 10)
        self._bars_column.setContentsMargins(0, 8 if self._open_run else 12 if self._small else 15, 0, 0)
        self._over_verdict.set_height(6 if self._open_run else 8 if self._small else 16)
        self._over_fixes.set_height(4 if self._small else 12)
        self.verdict.set_close(close)
        self._scroll.fit()

    def _show_kinds(self) -> None:
        kinds = kinds_of(self._budget)
        if self.view() == CONTEXT:
            kinds = tuple(kind for kind in kinds if kind is not BufferKind.OUTPUT)
        self.legend.show_kinds(kinds)

    def _fill_table(self) -> None:
        # A drag repaints the bars sixty times a second; the table waits until it is looked at.
        if self.view() == TABLE or self._budget is None:
            self._model.show_budget(self._budget)
            self.table.updateGeometry()

    def _on_view_picked(self, view: str) -> None:
        self._fill_table()
        self._show_kinds()
        self._arrange()
        self.view_changed.emit(view)

    def _arrange(self) -> None:
        view, some = self.view(), self._budget is not None
        about = some and view != CONTEXT
        has_verdict = about and self._verdict is not None and not self._working
        has_fixes = about and not self._open_run and not self._working and bool(self.fixes.fixes())
        self.switch.setEnabled(some)
        for part, shown in (
            (self._nothing, not some),
            (self._chip, some),
            (self.fit, about and self._has_fit),
            (self._under_fit, about and self._has_fit),
            (self._legend_area, some and view != TABLE),
            (self._areas, view == CONTEXT),
            (self._scroll, some and view == BARS),
            (self.table, some and view == TABLE),
            (self._context_scroll, some and view == CONTEXT),
            (self.verdict, has_verdict),
            (self._over_verdict, has_verdict),
            (self.fixes, has_fixes),
            (self._over_fixes, has_fixes),
        ):
            show(part, shown)
