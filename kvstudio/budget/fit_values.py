"""What llama.cpp's own `--fit` does to a launch, as a value."""

from dataclasses import dataclass
from typing import Any

from kvstudio.budget.values import Budget
from kvstudio.launch.config import LaunchConfig


@dataclass(frozen=True, slots=True)
class FitResult:
    """What `--fit` does: `status` is `off`, `unknown`, `unchanged`, `changed` or `blocked`.

    `config` is what is launched in the end, `changes` its settings that differ from the typed ones and `budget` what it
    asks for; None where nothing differs. A blocked fit may have lowered the context before it gave up.
    """

    status: str
    why: str
    config: LaunchConfig
    changes: tuple[tuple[str, Any], ...] = ()
    budget: Budget | None = None
