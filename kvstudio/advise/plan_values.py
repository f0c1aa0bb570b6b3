"""Values of the fix wizard: a trial, what came of it, the root cause and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvstudio.budget.values import Budget
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.config import LaunchConfig


class TrialKind(StrEnum):
    """Why a run is made."""

    AS_GIVEN = "as_given"
    SMALLEST = "smallest"
    CHANGE = "change"
    EDGE = "edge"
    PUT_BACK = "put_back"


@dataclass(frozen=True, slots=True)
class Trial:
    """A run to be made: exactly one variable differs from the run `parent` (index into the attempts), None at first."""

    kind: TrialKind
    config: LaunchConfig
    parent: int | None
    variable: str | None
    before: Any
    after: Any
    title: str
    why: str
    cost: str
    predicted: Budget | None

    @property
    def change(self) -> dict[str, tuple[Any, Any]]:
        """`{variable: (before, after)}`, empty for the first run."""
        return {} if self.variable is None else {self.variable: (self.before, self.after)}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A trial that was run. `printed_bytes`: per device (and `Host`) the sum of buffers the binary said it got."""

    trial: Trial
    worked: bool
    outcome: str
    diagnosis: Diagnosis | None = None
    printed_bytes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    run_number: int | None = None


@dataclass(frozen=True, slots=True)
class RootCause:
    """The variable that made the difference in a pair of runs, and the sentence that says so."""

    variable: str
    says: str
    failed_attempt: int
    worked_attempt: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a walk. `outcome`: verified, no_fit, stopped. `not_separated`: variables no two runs tell apart."""

    outcome: str
    says: str
    config: LaunchConfig | None
    root_cause: RootCause | None
    not_separated: tuple[str, ...] = ()
