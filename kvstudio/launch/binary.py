"""A llama.cpp program on this machine: where it is and what it can do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Binary:
    """A program as it described itself.

    `build` is the upstream build number (11434), None when it does not say; `flags` every option of `--help`;
    `defaults` some defaults read from there. `env` are variables it needs (a wheel's library path).
    """

    path: str
    program: str
    version: str
    build: int | None
    commit: str | None
    compiler: str | None
    backends: tuple[str, ...]
    flags: frozenset[str]
    source: str = "path"
    env: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """`llama-server b11434`, or the version when no build is known."""
        return f"{self.program} b{self.build}" if self.build else f"{self.program} {self.version}".strip()
