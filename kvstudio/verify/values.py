"""A test launch as a value: how it went, what was printed, what was checked."""

from dataclasses import dataclass
from enum import StrEnum

from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import Phase


class RunOutcome(StrEnum):
    VERIFIED = "verified"
    STARTED = "started"
    FAILED = "failed"
    CRASHED = "crashed"
    KILLED = "killed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    COULD_NOT_START = "could_not_start"


CHECKS = ("binary", "buffers", "context", "placement", "generation", "repeated")


@dataclass(frozen=True, slots=True)
class Check:
    """One of the six checks; `ok` is None when it was not reached. `lines` are log line numbers of the evidence."""

    check: str
    ok: bool | None
    evidence: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PrintedBuffer:
    """A buffer the binary printed, in bytes of the MiB it printed. `device` None for host memory."""

    name: str
    device: str | None
    kind: str
    bytes: int
    line: int


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Used bytes of each device at `time_s` after the start; `Host` is the child's RSS.

    A device whose driver counts memory shows what all programs use of it; one without a counter shows the sum of the
    buffers printed so far. `Run.counted` tells which is which.
    """

    time_s: float
    used_bytes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """No line came for `seconds` after line `line`, `at_s` after the start, in a phase that allocates or fills."""

    line: int
    at_s: float
    seconds: float
    phase: Phase


@dataclass(frozen=True, slots=True)
class Run:
    """One test launch, finished. `number` counts runs of a case; `log_path` is the kept log.

    `phases`: each phase that began with `done` or `failed`, in order, and `phase_times` when it began, in seconds after
    the start. `peak`: largest sample per device. `counted`: devices whose samples come from a driver's counter.
    `overhead`: memory of such a device that no printed buffer explains, None where it is not known. `prompts`: every
    request as (kind, ok, seconds, what came back). `pauses`: where the log stood still while memory was being filled.
    `spelled`: settings written otherwise for this binary; `lost`: those it has no option for. `message` is the
    system's word, `says` one sentence for a person.
    """

    number: int
    config: LaunchConfig
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    binary: Binary | None
    outcome: RunOutcome
    reached: Phase | None
    phases: tuple[tuple[Phase, str], ...]
    seconds: float
    started_at: float
    exit_code: int | None
    signal: int | None
    buffers: tuple[PrintedBuffer, ...]
    peak: tuple[tuple[str, int], ...]
    free_before: tuple[tuple[str, int], ...]
    samples: tuple[MemorySample, ...]
    checks: tuple[Check, ...]
    diagnosis: Diagnosis | None
    log_path: str | None
    message: str = ""
    says: str = ""
    phase_times: tuple[tuple[Phase, float], ...] = ()
    counted: tuple[str, ...] = ()
    overhead: tuple[tuple[str, int | None], ...] = ()
    prompts: tuple[tuple[str, bool, float, str], ...] = ()
    answer: str = ""
    pauses: tuple[Pause, ...] = ()
    spelled: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
