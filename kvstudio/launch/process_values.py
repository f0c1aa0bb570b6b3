"""What a watched process is started with and how it ended, as values."""

from dataclasses import dataclass
from enum import StrEnum


class EndKind(StrEnum):
    """Why a process is over. `stopped` was asked for, `signalled` came from elsewhere (a crash, the system)."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    STOPPED = "stopped"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    COULD_NOT_START = "could_not_start"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A program to start, never through a shell.

    `env` is the whole environment. `address_space_limit_bytes` caps the process's virtual memory where the system can
    (RLIMIT_AS), so that allocations really fail; device memory mapped by a software driver counts too.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    address_space_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How the system says a child ended; both None when nobody could tell."""

    exit_code: int | None
    signal: int | None
    peak_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The one terminal event of a process. `message` says what a person should know: a timeout, a full disk."""

    kind: EndKind
    exit_code: int | None
    signal: int | None
    seconds: float
    peak_rss_bytes: int | None = None
    forced: bool = False
    message: str = ""
    hint: str = ""
    log_bytes: int = 0
