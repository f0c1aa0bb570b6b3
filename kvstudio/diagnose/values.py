"""What a log says happened."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    FAILED = "failed"
    RECOVERED = "recovered"
    OK = "ok"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    CAPACITY = "capacity"
    PLACEMENT = "placement"
    BACKEND_LIMIT = "backend_limit"
    HOST_MEMORY = "host_memory"
    OTHER_PROCESS = "other_process"
    CONFIG = "config"
    FILE = "file"
    UNSUPPORTED = "unsupported"
    REGRESSION = "regression"
    BUG = "bug"
    UNKNOWN = "unknown"


STAGES = ("weights", "kv", "rs", "compute", "output", "host", "decode", "mmproj", "draft", "lora", "fit")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A numbered line and what it says in words. `number` is None for something seen outside the log."""

    number: int | None
    says: str
    source: str = "log"


@dataclass(frozen=True, slots=True)
class KeyLine:
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class NextStep:
    """One change worth trying: LaunchConfig fields and their new values."""

    change: dict[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The one line that decided, what it means, on which evidence, and what is missing.

    `memory_class`: `memory`, `not_memory` or `unknown` (JSON key `class`). `generic_line`: the last, generic line that
    only says loading failed. `requested_bytes` is None unless a line states it; `bytes_exact` is False for rounded MiB.
    """

    outcome: Outcome
    memory_class: str
    stage: str | None
    device: str | None
    backend: str | None
    requested_bytes: int | None
    free_bytes: int | None
    limit_bytes: int | None
    cause: Cause
    key_line: KeyLine | None
    evidence: tuple[Evidence, ...]
    title: str
    summary: str
    next_steps: tuple[NextStep, ...] = ()
    missing: tuple[str, ...] = ()
    generic_line: int | None = None
    bytes_exact: bool = True
    notes: tuple[str, ...] = field(default=())
