"""What the fix wizard shows, as plain values; who fills them knows plans and runs, the pages know neither."""

from dataclasses import dataclass
from enum import StrEnum

from kvstudio.budget.values import Budget
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.equivalents import Equivalent
from kvstudio.ui.widgets_run.phase_strip import PhaseState
from kvstudio.verify.values import Check


class RunState(StrEnum):
    """How a line of the record stands."""

    NOTE = "note"
    WORKED = "worked"
    FAILED = "failed"
    NEXT = "next"
    RUNNING = "running"


class Action(StrEnum):
    """What the foot offers."""

    STOP = "stop"
    WHY_NOT = "why_not"
    BACK = "back"
    SKIP = "skip"
    UNDO = "undo"
    AGAIN = "again"
    NEXT = "next"
    KEEP = "keep"
    TRY = "try"
    PREDICT = "predict"
    CANCEL = "cancel"
    CLOSE = "close"
    REPORT = "report"
    USE = "use"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run at the left: what was changed, what came of it, and its number (`3`, `next`)."""

    title: str
    detail: str
    state: RunState
    number: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that comes later."""

    title: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """The one variable that changes, before and after as typed, and what stays."""

    before: str
    after: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Bars of one moment: `Before` with the chip `Run 1, failed` in state `bad`."""

    title: str
    chip: str
    state: str
    budget: Budget


@dataclass(frozen=True, slots=True)
class Fact:
    """A cost in three lines: what, how much, why."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunLine:
    """A row of the table of controlled runs. `sizes`: predicted, then printed, in words."""

    number: str
    change: str
    sizes: tuple[str, str]
    outcome: str
    worked: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """A try under way: its phases, its clock (`0:14`), the last thing said."""

    phases: tuple[PhaseState, ...]
    clock: str = ""
    says: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """The right side; parts that are empty are left out.

    `state` colours the heading's icon: `good`, `bad`, `neutral`; empty for no icon. `notice`: something that went
    otherwise than asked. `flags`: the typed parts of `why`. `rows`: facts one below the other. `equivalents`: the
    command for other programs, to copy.
    """

    section: str
    title: str
    state: str = ""
    change: Change | None = None
    notice: str = ""
    why_label: str = ""
    why: str = ""
    flags: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    facts: tuple[Fact, ...] = ()
    progress: Progress | None = None
    rows: tuple[Fact, ...] = ()
    checks: tuple[Check, ...] = ()
    equivalents: tuple[Equivalent, ...] = ()
    runs: tuple[RunLine, ...] = ()
    command_label: str = ""
    config: LaunchConfig | None = None


@dataclass(frozen=True, slots=True)
class WizardView:
    """The whole window at one moment. `actions` in order, STOP at the left; `primary` is filled and the default, None
    while something runs that can only be cancelled.
    """

    title: str
    wanted: str
    entries: tuple[RunEntry, ...]
    later: tuple[Step, ...]
    page: Page
    actions: tuple[Action, ...]
    primary: Action | None
    note: str = ""
