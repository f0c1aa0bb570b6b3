"""The cases before and after the one on screen: remembered, gone back to, gone forward to."""

from kvstudio.case.values import Case

_DEPTH = 200


class Steps:
    """Two piles of cases. Changes with one tag that follow each other are one step: a drag is undone as a whole."""

    def __init__(self) -> None:
        self._before: list[Case] = []
        self._after: list[Case] = []
        self._tag: str | None = None

    @property
    def is_merging(self) -> bool:
        """Whether the next change with the same tag belongs to the last step."""
        return self._tag is not None

    @property
    def can_undo(self) -> bool:
        return bool(self._before)

    @property
    def can_redo(self) -> bool:
        return bool(self._after)

    def end_merge(self) -> None:
        """The next change is a step of its own."""
        self._tag = None

    def remember(self, case: Case, tag: str | None = None) -> None:
        """Keep `case`, which is about to be replaced; nothing can be made again after that."""
        if tag is None or tag != self._tag:
            self._before.append(case)
            del self._before[:-_DEPTH]
        self._tag = tag
        self._after.clear()

    def back(self, now: Case) -> Case | None:
        """The case before `now`; None when there is none."""
        return self._move(self._before, self._after, now)

    def forward(self, now: Case) -> Case | None:
        """The case that was left by going back; None when there is none."""
        return self._move(self._after, self._before, now)

    def _move(self, source: list[Case], target: list[Case], now: Case) -> Case | None:
        self._tag = None
        if not source:
            return None
        target.append(now)
        return source.pop()
