"""One row of the table of phrases: what it looks like, who prints it, what it means."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

#: A number as printed, also with a decimal comma.
NUM = r"[0-9]+(?:[.,][0-9]+)?"


class Kind(StrEnum):
    """What a line does for a diagnosis."""

    ALLOCATOR = "allocator"  # a backend refused memory
    BUFFER = "buffer"  # ggml says which buffer that was
    PURPOSE = "purpose"  # llama.cpp says what it was for
    FIT = "fit"  # fitting parameters to memory
    PLANNER = "planner"  # ggml's own arithmetic, not memory
    REFUSAL = "refusal"  # a decision that has nothing to do with memory
    KILLED = "killed"  # the system ended the process
    CRASH = "crash"  # a signal, an abort, an exit status
    WRAPPER = "wrapper"  # says only that it failed
    RETRY = "retry"
    SUCCESS = "success"
    HARMLESS = "harmless"
    START = "start"  # a new run begins
    STAGE = "stage"  # shows which stage the run is in
    HINT = "hint"  # explains something that another line decides


@dataclass(frozen=True, slots=True)
class Signature:
    """A phrase. `keys`: each matching line contains one of them, so that most lines are passed over cheaply.

    `rank` chooses the key line among lines of one failure: the highest wins, the first of equals. `backend`, `stage`
    and `cause` are what the phrase alone proves; `says` is its meaning, with the pattern's groups to fill in.
    """

    name: str
    kind: Kind
    keys: tuple[str, ...]
    pattern: str
    says: str
    source: str
    rank: int = 5
    backend: str | None = None
    stage: str | None = None
    cause: str | None = None

    def search(self, message: str) -> re.Match[str] | None:
        return _compiled(self.pattern).search(message)


class Pattern:
    """A regular expression that is compiled when a line first asks for it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def search(self, message: str) -> re.Match[str] | None:
        return _compiled(self._text).search(message)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when a line first asks for it: the table is loaded at start and most rows are never needed."""
    return re.compile(pattern)


def row(
    name: str,
    kind: Kind,
    keys: str | tuple[str, ...],
    pattern: str,
    says: str,
    source: str,
    *,
    rank: int = 5,
    backend: str | None = None,
    stage: str | None = None,
    cause: str | None = None,
) -> Signature:
    """A Signature from plain text."""
    keys = (keys,) if isinstance(keys, str) else keys
    return Signature(name, kind, keys, pattern, says, source, rank, backend, stage, cause)
