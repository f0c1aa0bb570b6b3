"""What the run area is told: a launch under way, and the rows of measured against estimate; pure, without a window."""

from dataclasses import dataclass

from kvstudio.budget.values import Budget, BufferKind
from kvstudio.diagnose.values import Diagnosis, Outcome
from kvstudio.runlog.values import Phase
from kvstudio.ui.models.log_model import Mark
from kvstudio.ui.text import tr
from kvstudio.ui.widgets_run.phase_strip import PhaseState
from kvstudio.verify.compare import HOST, PRINTED_STEP, compare
from kvstudio.verify.values import Run, RunOutcome
from kvstudio.verify.watch import PHASE_NAMES

#: The order of a launch; the recurrent state only for models that keep one.
PHASES = (
    Phase.FIT,
    Phase.WEIGHTS,
    Phase.KV,
    Phase.RS,
    Phase.COMPUTE,
    Phase.WARMUP,
    Phase.LISTENING,
    Phase.GENERATE,
    Phase.REPEAT,
)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One kind of memory on one device, in bytes; None where that side does not know it.

    `learned`: what no buffer explains, kept for this device from now on.
    """

    device: str
    kinds: tuple[BufferKind, ...]
    estimated: int | None
    measured: int | None
    learned: bool = False

    @property
    def difference(self) -> int | None:
        if self.estimated is None or self.measured is None:
            return None
        return self.measured - self.estimated

    @property
    def exact(self) -> bool:
        difference = self.difference
        return difference is not None and abs(difference) < PRINTED_STEP


def comparison_rows(budget: Budget | None, run: Run) -> tuple[ComparisonRow, ...]:
    """Rows per device in order, what no buffer explains at each device's end; the host is one row, last."""
    sizes = compare(budget, run)
    overhead = dict(run.overhead)
    estimated_overhead = {d.name: d.overhead_bytes for d in budget.devices} if budget else {}
    rows: list[ComparisonRow] = []
    for device in dict.fromkeys(s.device for s in sizes if s.device != HOST):
        rows += [
            ComparisonRow(device, (BufferKind(s.kind),), s.estimated, s.measured) for s in sizes if s.device == device
        ]
        if overhead.get(device) is not None:
            learned = ComparisonRow(
                device, (BufferKind.OVERHEAD,), estimated_overhead.get(device), overhead[device], True
            )
            rows.append(learned)
    host = [s for s in sizes if s.device == HOST]
    if not rows:  # nothing but the host: then its kinds are what is looked for
        return tuple(ComparisonRow(HOST, (BufferKind(s.kind),), s.estimated, s.measured) for s in host)
    if host:
        kinds = tuple(BufferKind(s.kind) for s in host)
        rows.append(ComparisonRow(HOST, kinds, _sum([s.estimated for s in host]), _sum([s.measured for s in host])))
    return tuple(rows)


def _sum(values: list[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def phases_of(run: Run, has_rs: bool) -> tuple[PhaseState, ...]:
    """The strip of a finished run: what it did not come to is still to come, what it passed over was skipped."""
    said = dict(run.phases)
    return fill_phases(said, has_rs, finished=True, all_done=run.outcome is RunOutcome.VERIFIED)


def fill_phases(
    said: dict[Phase, str], has_rs: bool, finished: bool = False, all_done: bool = False
) -> tuple[PhaseState, ...]:
    """Every phase of a launch with its state, from those heard of; while it runs, the next one is under way."""
    wanted = [p for p in PHASES if p is not Phase.RS or has_rs or Phase.RS in said]
    reached = [i for i, p in enumerate(wanted) if p in said]
    last = len(wanted) if all_done else (reached[-1] if reached else -1)
    states = []
    for i, phase in enumerate(wanted):
        state = said.get(phase)
        if state is None:
            state = "skipped" if i < last else "todo"
        elif state == "running" and finished:
            state = "failed" if not all_done else "done"
        states.append(PhaseState(phase, state))
    if not finished and not any(s.state == "running" for s in states):
        now = next((i for i, s in enumerate(states) if s.state == "todo"), None)
        if now is not None and not any(s.state == "failed" for s in states):
            states[now] = PhaseState(states[now].phase, "running")
    return tuple(states)


def marks_of(diagnosis: Diagnosis | None) -> dict[int, Mark]:
    """What lines mean: evidence first, then the generic line, then the key line, each over the one before."""
    if diagnosis is None:
        return {}
    marks = {e.number: Mark.EVIDENCE for e in diagnosis.evidence if e.number is not None}
    if diagnosis.generic_line is not None:
        marks[diagnosis.generic_line] = Mark.GENERIC
    if diagnosis.key_line is not None and diagnosis.outcome is not Outcome.OK:
        marks[diagnosis.key_line.number] = Mark.KEY
    return marks


def clock(seconds: float) -> str:
    """`0:04`, `12:30`, `1:02:03`."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, seconds_left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds_left:02d}" if hours else f"{minutes}:{seconds_left:02d}"


def line_range(lines: tuple[int, ...]) -> str:
    """`line 203`, `lines 164–165`: the range that holds the evidence."""
    if not lines:
        return ""
    first, last = min(lines), max(lines)
    return str(first) if first == last else f"{first}–{last}"


def notes_of(run: Run) -> tuple[str, ...]:
    """What a launch did otherwise than typed, and where its log stood still."""
    lost = tuple(tr("{}; it was passed as typed").format(note) for note in run.lost)
    pauses = tuple(
        tr("Nothing was printed for {} s after line {}: {}").format(
            f"{pause.seconds:.1f}", pause.line, PHASE_NAMES.get(pause.phase, pause.phase.value)
        )
        for pause in run.pauses
    )
    return (*lost, *run.spelled, *pauses)
