"""The budget of the case on screen: of most settings it is there in a moment, of some it takes seconds."""

from PySide6.QtCore import QObject, QTimer, Signal

from kvstudio.case import evolve as evolving
from kvstudio.case.values import Case
from kvstudio.errors import KvStudioError
from kvstudio.work import task

#: What takes less is not said: the page would flicker with every change.
_SAY_WORKING_MS = 250


class Budgets(QObject):
    """`arrived` carries the Case with a budget that came later, `failed` why there is none.

    `working_changed`: whether it takes so long that it has to be said.
    """

    arrived = Signal(object)
    failed = Signal(object)
    working_changed = Signal(bool)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._working = self._said = False
        self._soon = task.Soon(evolving.with_budget, self._on_done, self._on_failed)
        self.destroyed.connect(self._soon.drop)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_SAY_WORKING_MS)
        self._timer.timeout.connect(lambda: self._say(True))

    @property
    def is_working(self) -> bool:
        """Whether the newest case asked for has no budget yet."""
        return self._working

    def ask(self, case: Case) -> task.Early | None:
        """Work out a case's budget: the Case with it or the error, or None where `arrived` or `failed` follows."""
        early = self._soon.ask(case)
        if early is None or early.error is None:
            self._set(early is None)
        return early

    def drop(self) -> None:
        """Nobody wants what is under way any more."""
        self._soon.drop()
        self._set(False)

    def _on_done(self, case: Case) -> None:
        self._set(False)
        self.arrived.emit(case)

    def _on_failed(self, error: KvStudioError) -> None:
        self._set(False)
        self.failed.emit(error)

    def _set(self, working: bool) -> None:
        self._working = working
        if not working:
            self._timer.stop()
            self._say(False)
        elif not self._said and not self._timer.isActive():
            self._timer.start()

    def _say(self, working: bool) -> None:
        if working is not self._said:
            self._said = working
            self.working_changed.emit(working)
