"""The controlled runs of a fix walk as a section of the report: one changed variable per row, sizes, outcome."""

from typing import Any

from kvstudio.advise.plan_values import Attempt
from kvstudio.advise.record import Record
from kvstudio.report.values import Block, BlockKind, Section
from kvstudio.units import format_bytes

_HEADINGS = ("run", "changed", "predicted need", "printed", "outcome")


def controlled_runs(walk: Record | None) -> tuple[Section, ...]:
    """The section, or nothing where no walk was made."""
    if walk is None or not walk.launched:
        return ()
    rows = [_HEADINGS, *(_row(walk, attempt, i) for i, attempt in enumerate(walk.launched))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    table = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
    blocks = [Block(BlockKind.CODE, table)]
    if walk.verdict is not None:
        blocks.insert(0, Block(BlockKind.PROSE, walk.verdict.says))
    return (Section("Controlled runs", tuple(blocks)),)


def _row(walk: Record, attempt: Attempt, index: int) -> tuple[str, ...]:
    trial = attempt.trial
    number = str(attempt.run_number if attempt.run_number is not None else index + 1)
    changed = ", ".join(f"{name}: {_word(old)} -> {_word(new)}" for name, (old, new) in trial.change.items())
    if changed and trial.parent is not None and trial.parent != 0:
        parent = walk.attempts[trial.parent]
        changed += f" (from run {parent.run_number if parent.run_number is not None else trial.parent + 1})"
    places = (*trial.predicted.devices, trial.predicted.host) if trial.predicted else ()
    predicted = {place.name: place.need_bytes for place in places}
    outcome = attempt.outcome.replace("_", " ")
    if attempt.diagnosis is not None and not attempt.worked:
        outcome = f"{outcome}: {attempt.diagnosis.title or attempt.diagnosis.summary}"
    return number, changed or "as given", _sizes(predicted), _sizes(dict(attempt.printed_bytes)), outcome


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items() if size) or "-"


def _word(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, tuple):
        return ",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in value)
    return str(value)
