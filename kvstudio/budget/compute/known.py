"""What was followed before, remembered by the settings and the structure that decide it."""

from dataclasses import dataclass, field
from typing import Any

from kvstudio.budget.compute.program import Program
from kvstudio.budget.compute.reasons import sentence

#: Programs are large, what they come to is small.
_PROGRAMS = 24
_RESULTS = 20_000


@dataclass(frozen=True, slots=True)
class Outline:
    """A program without its events: by part the gaps that make a difference. `parts` None: the layers do not do for
    all, and `more` says whether a few more might.
    """

    parts: tuple[tuple[int, ...], ...] | None
    followed: bool = False
    more: bool = False


@dataclass(slots=True)
class Known:
    """Of one model."""

    outlines: dict[Any, Outline] = field(default_factory=dict)
    programs: dict[Any, Program] = field(default_factory=dict)
    results: dict[Any, tuple[int, str]] = field(default_factory=dict)
    survives: dict[Any, bool] = field(default_factory=dict)

    def add(self, key: Any, found: Program | Outline) -> Outline:
        """Remember a program, or that there is none."""
        outline = found if isinstance(found, Outline) else Outline(found.touched, found.followed)
        _keep(self.outlines, key, outline, _RESULTS)
        if isinstance(found, Program):
            _keep(self.programs, key, found, _PROGRAMS)
        return outline

    def measured(self, key: Any, program: Program, part: int, missing: tuple[int, ...]) -> tuple[int, str]:
        """Bytes of a part and what they are; `missing` repetitions in each of the gaps that touch it."""
        size, sums = program.parts[part].measure(missing)
        result = size, sentence(sums)
        _keep(self.results, (key, part, missing), result, _RESULTS)
        return result

    def keep_probe(self, key: Any, survives: bool) -> None:
        """Remember whether flash attention stays on."""
        _keep(self.survives, key, survives, _RESULTS)


def _keep(table: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Add to a table that forgets its oldest entries."""
    while len(table) >= most:
        table.pop(next(iter(table), None), None)
    table[key] = value
