"""What the history says of runs: outcomes, times, one line each; pure, without a window."""

import time
from typing import Any

from kvstudio.budget.values import BufferKind
from kvstudio.case.history import Comparison, Entry, SizeRow
from kvstudio.ui.text import device_names, kind_name, tr
from kvstudio.units import MIB
from kvstudio.verify.compare import HOST, PRINTED_STEP
from kvstudio.verify.values import RunOutcome

UNKNOWN = "–"
#: Icon and colour role of each outcome.
MARKS = {
    RunOutcome.VERIFIED: ("check-circle", "good"),
    RunOutcome.STARTED: ("warn", "warn"),
    RunOutcome.FAILED: ("cross-circle", "bad"),
    RunOutcome.CRASHED: ("cross-circle", "bad"),
    RunOutcome.KILLED: ("stop", "bad"),
    RunOutcome.TIMED_OUT: ("recent", "warn"),
    RunOutcome.CANCELLED: ("circle-dashed", "muted"),
    RunOutcome.COULD_NOT_START: ("warn", "bad"),
}


def outcome_words(outcome: RunOutcome) -> str:
    """`Verified`, `Timed out`..."""
    words = {
        RunOutcome.VERIFIED: tr("Verified"),
        RunOutcome.STARTED: tr("Started, not verified"),
        RunOutcome.FAILED: tr("Failed"),
        RunOutcome.CRASHED: tr("Crashed"),
        RunOutcome.KILLED: tr("Killed"),
        RunOutcome.TIMED_OUT: tr("Timed out"),
        RunOutcome.CANCELLED: tr("Cancelled"),
        RunOutcome.COULD_NOT_START: tr("Could not start"),
    }
    return words[outcome]


def detail(entry: Entry) -> str:
    """The line under a run's name: `Verified after 12 s, b10434, n_ctx 4096`."""
    run = entry.run
    took = tr("{} after {}").format(outcome_words(run.outcome), f"{run.seconds:.0f} s")
    if run.outcome is RunOutcome.COULD_NOT_START:
        took = outcome_words(run.outcome)
    n_ctx, build = run.config.n_ctx, run.binary.build if run.binary else None
    parts = (took, f"b{build}" if build else "", f"n_ctx {n_ctx}" if n_ctx else "")
    return ", ".join(part for part in parts if part)


def binary_title(entry: Entry) -> str:
    """`llama-server b10434`, empty when none was found."""
    return entry.run.binary.title if entry.run.binary else ""


def when(entry: Entry) -> str:
    """`23:10` of today, else `30 Nov 23:10`, in the person's own time."""
    day, now = time.localtime(entry.run.started_at), time.localtime()
    if day[:3] == now[:3]:
        return time.strftime("%H:%M", day)
    return f"{day.tm_mday} {time.strftime('%b %H:%M', day)}"


def value_words(value: Any) -> str:
    """A setting as it would be typed."""
    if value is None:
        return tr("not set")
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    return ", ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)


def change_rows(found: Comparison) -> tuple[tuple[str, ...], ...]:
    """(setting, before, after) of everything that differs."""
    return tuple((name, value_words(old), value_words(new)) for name, old, new in found.changes)


def size_rows(found: Comparison) -> tuple[tuple[str, ...], ...]:
    """(device, buffer, estimated, printed, estimated, printed, difference of what was printed)."""
    rows, last = [], ""
    names = device_names(row.device for row in found.sizes)
    for row in found.sizes:
        rows.append(("" if row.device == last else names[row.device], *_size_words(row)))
        last = row.device
    return tuple(rows)


def _size_words(row: SizeRow) -> tuple[str, ...]:
    name = kind_name(BufferKind(row.kind), short=True)
    sizes = (row.before_estimated, row.before_printed, row.after_estimated, row.after_printed)
    return (name if name.isupper() else name.lower(), *map(mib, sizes), difference(row))


def mib(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / MIB:.1f}"


def difference(row: SizeRow) -> str:
    """What the second run printed more, in MiB; `same` where there is none."""
    if row.before_printed is None or row.after_printed is None:
        return UNKNOWN
    more = row.after_printed - row.before_printed
    return tr("same") if abs(more) < PRINTED_STEP else f"{more / MIB:+.1f}"


def run_rows(entry: Entry) -> tuple[tuple[str, ...], ...]:
    """(device, buffer, estimated, printed) of one run."""
    from kvstudio.verify.compare import compare

    rows, last = [], ""
    sizes = compare(entry.budget, entry.run)
    names = device_names(row.device for row in sizes) | {HOST: tr("Host")}
    for row in sizes:
        name = kind_name(BufferKind(row.kind), short=True)
        device = names[row.device]
        words = name if name.isupper() else name.lower()
        rows.append(("" if device == last else device, words, mib(row.estimated), mib(row.measured)))
        last = device
    return tuple(rows)
