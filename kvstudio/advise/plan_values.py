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
    FREE = "free"  # the person ends another process; nothing of the command changes
    BACKEND = "backend"  # the same command on the same card through another backend
    BINARY = "binary"  # the same command with another build


@dataclass(frozen=True, slots=True)
class Trial:
    """A run to be made: exactly one variable differs from the run `parent` (index into the attempts), None at first.

    `freed` are the processes, by pid, whose memory the person has given back by the time of this run.
    """

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
    freed: tuple[int, ...] = ()

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
class Competitor:
    """Another process that holds memory of a device."""

    device: str
    pid: int
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class HardLimit:
    """What a launch that cannot fit would need, in bytes.

    `needed_bytes` is all that the command as given asks of devices and host together, `least_bytes` the same with
    every cache and batch at its smallest, `available_bytes` what there is. `file_type` names the largest common
    quantization of this model that would fit, `bits_per_weight` its density; `weights_bytes` is what weights may take.
    """

    needed_bytes: int
    least_bytes: int
    available_bytes: int
    weights_bytes: int
    file_type: str | None = None
    bits_per_weight: float | None = None
    n_params: int | None = None

    @property
    def short_bytes(self) -> int:
        return max(0, self.least_bytes - self.available_bytes)


@dataclass(frozen=True, slots=True)
class NotOffered:
    """A variable that is not proposed, and why."""

    variable: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a walk. `outcome`: verified, no_fit, stopped. `not_separated`: variables no two runs tell apart.

    `predicted`: nothing was launched; `config` then fits by the budget alone, which is no proof.
    """

    outcome: str
    says: str
    config: LaunchConfig | None
    root_cause: RootCause | None
    not_separated: tuple[str, ...] = ()
    hard_limit: HardLimit | None = None
    predicted: bool = False
