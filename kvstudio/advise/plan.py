"""The fix wizard as values: from what was wanted and what was tried to the next single change, or the verdict.

Every proposal is a pure function of the record, so that going back is the earlier value, a crash loses nothing and the
terminal walks the same way as the window.
"""

from dataclasses import dataclass, replace
from typing import Self

from kvstudio.advise.beyond import beyond_settings, free_memory, may_be_the_build, other_binary
from kvstudio.advise.conclude import cannot_be_helped, needed, no_fit, only_undone, result, root_cause, stopped
from kvstudio.advise.plan_values import Attempt, Trial, TrialKind, Verdict
from kvstudio.advise.record import MAX_LAUNCHES, Record, World, changed, differs, skip_key
from kvstudio.advise.refine import best_working, edge, put_back
from kvstudio.advise.steps import again, as_given, partial_change, single_change, smallest
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.config import LaunchConfig

__all__ = [
    "MAX_LAUNCHES",
    "Plan",
    "World",
    "can_undo",
    "changed",
    "differs",
    "needed",
    "propose",
    "resume",
    "root_cause",
    "start",
]


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """A record that moves: each answer gives the next plan, the earlier one stays as it was."""

    def ran(self, attempt: Attempt) -> Self:
        """The plan after the pending trial was run."""
        return replace(self, attempts=(*self.attempts, attempt))._proposed()

    def broke_off(self, attempt: Attempt) -> Self:
        """The plan after the pending trial was launched and cancelled: one launch less, and the same next step."""
        return replace(self, cancelled=(*self.cancelled, attempt))._proposed()

    def skip(self) -> Self:
        """The plan without the pending variable; the first run cannot be skipped."""
        if self.pending is None or self.pending.variable is None:
            return self
        return replace(self, skipped=(*self.skipped, skip_key(self.pending.kind, self.pending.variable)))._proposed()

    def undo(self) -> Self:
        """The plan without the change of the last run: nothing builds on it, and its variable is not proposed again.

        Only a change can be undone; tests and the first run leave nothing behind.
        """
        if not self.attempts or not can_undo(self.attempts[-1].trial):
            return self
        last = self.attempts[-1].trial
        assert last.variable is not None
        skipped = (*self.skipped, skip_key(last.kind, last.variable))
        return replace(self, undone=(*self.undone, len(self.attempts) - 1), skipped=skipped)._proposed()

    def stop(self) -> Self:
        """The walk ended by the person; what was found so far is kept."""
        return replace(self, pending=None, verdict=stopped(self))

    def _proposed(self) -> Self:
        step = propose(self)
        if isinstance(step, Verdict):
            return replace(self, pending=None, verdict=step)
        return replace(self, pending=step, verdict=None)


def can_undo(trial: Trial) -> bool:
    """Whether a run leaves a change behind that a person may not want to keep."""
    return trial.variable is not None and trial.kind not in (TrialKind.SMALLEST, TrialKind.PUT_BACK)


def start(
    world: World,
    wanted: LaunchConfig,
    given: Diagnosis | None = None,
    max_launches: int = MAX_LAUNCHES,
    attended: bool = True,
) -> Plan:
    """A plan whose first run is the command as given; a diagnosis of that very command stands in for the run."""
    plan = Plan(world, wanted, max_launches=max_launches, attended=attended)
    first = as_given(plan)
    if given is None:
        return replace(plan, pending=first)
    return replace(plan, pending=first).ran(Attempt(first, False, "failed", given))


def resume(record: Record) -> Plan:
    """A kept record, to go on with: the next step is worked out again."""
    plan = Plan(
        record.world, record.wanted, record.attempts, record.skipped, max_launches=record.max_launches,
        attended=record.attended, undone=record.undone, cancelled=record.cancelled,
    )  # fmt: skip
    return plan._proposed()


def propose(plan: Record) -> Trial | Verdict:
    """The next run, or the end: the whole logic of the wizard."""
    if not plan.attempts:
        return as_given(plan)
    if plan.attempts[0].worked:
        return Verdict("verified", "The command works as it was given; nothing was changed.", plan.wanted, None)
    best = best_working(plan)
    if best is not None and not _is_only_a_test(plan, best):
        step = (put_back(plan, best) or edge(plan, best)) if plan.launches_left > 0 else None
        return step or result(plan, best)
    return _towards_a_working_run(plan)


def _is_only_a_test(plan: Record, best: int) -> bool:
    """Whether what works is the smallest run, and what costs nothing has not been tried."""
    test = plan.attempts[best].trial.kind is TrialKind.SMALLEST
    return test and plan.launches_left > 0 and beyond_settings(plan) is not None


def _towards_a_working_run(plan: Record) -> Trial | Verdict:
    """What changes nothing goes first, then size, then what lies outside the settings, then the settings."""
    hopeless = cannot_be_helped(plan.first.diagnosis)
    left = plan.launches_left
    if left <= 0:
        working = [i for i, attempt in enumerate(plan.attempts) if attempt.worked]
        if working:
            return result(plan, working[-1])
        return stopped(plan, f"{plan.max_launches} launches were made and none worked as it should.")
    if hopeless is not None:
        build = other_binary(plan) if may_be_the_build(plan) else None
        return build or Verdict("no_fit", hopeless, None, None)
    step = (
        free_memory(plan)
        or smallest(plan)
        or beyond_settings(plan)
        or again(plan)
        or single_change(plan)
        or partial_change(plan)
        or smallest(plan, whatever_the_numbers_say=True)
        or (other_binary(plan) if may_be_the_build(plan) else None)
    )
    return step or only_undone(plan) or no_fit(plan)
