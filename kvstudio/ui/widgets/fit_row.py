"""The switch between the launch as typed and what `-fit` makes of it, with the settings of the one that is shown."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from kvstudio.advise.verdict import fit_words
from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.values import Budget
from kvstudio.ui import text
from kvstudio.ui.theme import Space, Step
from kvstudio.ui.widgets.basic import Label
from kvstudio.ui.widgets.segmented import SegmentedSwitch

LAUNCHED, TYPED = "launched", "typed"


class FitRow(QWidget):
    """`show_fit` in, `picked` (LAUNCHED or TYPED) out; what was chosen stays chosen for the next launch."""

    picked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.switch = SegmentedSwitch(((LAUNCHED, text.tr("As launched")), (TYPED, text.tr("As typed"))))
        self.switch.setAccessibleName(text.tr("Settings that are shown"))
        self._words = Label("", Step.SMALL, role="muted")
        self._words.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.M)
        row.addWidget(self.switch)
        row.addWidget(self._words, 1, Qt.AlignmentFlag.AlignVCenter)
        self.switch.picked.connect(self.picked)

    def chosen(self) -> str:
        """What the user wants to see."""
        return self.switch.current()

    def show_fit(self, shown: Budget, fitted: FitResult | None) -> None:
        """Say what is shown; `fitted` None while it is being worked out, when there is nothing to choose yet."""
        self.switch.setEnabled(fitted is not None)
        if fitted is None:
            self._words.setText(text.tr("what -fit changes is being worked out"))
            return
        on_devices, layers = shown.offloaded_layers
        where = text.tr("{} of {} layers on devices").format(on_devices, layers)
        if not shown.devices:
            where = text.tr("all layers in RAM")
        when = text.tr("after -fit: n_ctx {}, {}")
        if self.chosen() != LAUNCHED:
            when = text.tr("before -fit: n_ctx {}, {}")
        self._words.setText(when.format(shown.config.n_ctx, where))
        self._words.setToolTip(f"-fit {fit_words(fitted, layers)}")
        self.switch.setAccessibleDescription(f"-fit {fit_words(fitted, layers)}")

    def words(self) -> str:
        return self._words.text()
