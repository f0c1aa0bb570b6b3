"""What came of one try: predicted beside printed, what was said, and whether the change is kept."""

from dataclasses import dataclass, replace

from kvstudio.advise.plan import Plan, can_undo
from kvstudio.advise.plan_values import Attempt, TrialKind
from kvstudio.advise.steps import base_of
from kvstudio.case.evolve import measured
from kvstudio.ui import text
from kvstudio.ui.widgets_run.checks_page import shown_evidence
from kvstudio.ui.wizard.from_plan import noted_change, wizard_view
from kvstudio.ui.wizard.values import Action, Fact, Page, Picture, WizardView
from kvstudio.ui.wizard.words import caption, failure_words, sizes
from kvstudio.units import format_room
from kvstudio.verify.values import Check, Run


@dataclass(frozen=True, slots=True)
class Ended:
    """A try that ended: the plan before it, what it teaches, and the run itself."""

    before: Plan
    attempt: Attempt
    run: Run


def outcome_view(ended: Ended, after: Plan | None) -> WizardView:
    """The page of a try that ended; `after` is the plan that follows, None while it is worked out."""
    attempt = ended.attempt
    shown = after or replace(ended.before, attempts=(*ended.before.attempts, attempt))
    # The record as it is now: what comes next is not shown before the person has decided.
    view = wizard_view(replace(shown, pending=attempt.trial, verdict=None))
    actions = _actions(after)
    return replace(view, entries=view.entries[:-1], page=outcome_page(ended), actions=actions, primary=actions[-1])


def _actions(after: Plan | None) -> tuple[Action, ...]:
    """Nothing can be stopped, kept or undone before the plan that follows is there."""
    if after is None:
        return (Action.NEXT,)
    decide: tuple[Action, ...] = (Action.UNDO, Action.KEEP) if may_keep(after) else (Action.NEXT,)
    return decide if after.verdict is not None else (Action.STOP, *decide)


def may_keep(plan: Plan) -> bool:
    """Whether the last change is what the walk would build on, so that there is something to undo."""
    last = len(plan.attempts) - 1
    attempt = plan.attempts[last]
    return can_undo(attempt.trial) and (attempt.worked or base_of(plan) == last)


def outcome_page(ended: Ended) -> Page:
    """The right side."""
    attempt, trial = ended.attempt, ended.attempt.trial
    parent = ended.before.attempts[trial.parent] if trial.parent is not None else None
    if attempt.worked:
        title = text.tr("It works")
    else:
        title = text.tr("It fails: {}").format(failure_words(attempt.diagnosis, attempt.outcome))
    return Page(
        section=caption(trial.variable) if trial.variable else text.tr("First run"),
        title=title,
        state="good" if attempt.worked else "bad",
        change=noted_change(parent, trial) if parent is not None else None,
        why_label=text.tr("What happened"),
        why=_what_happened(ended),
        pictures=_pictures(ended),
        facts=_facts(ended),
        checks=shown_checks(ended.run) if attempt.worked else (),
    )


def shown_checks(run: Run) -> tuple[Check, ...]:
    """The checks as a page has room for them; the log is in the main window, so there are no links to its lines."""
    return tuple(replace(check, evidence=shown_evidence(check, run), lines=()) for check in run.checks)


def _what_happened(ended: Ended) -> str:
    attempt = ended.attempt
    if not attempt.worked:
        return attempt.diagnosis.summary if attempt.diagnosis is not None else ended.run.says or ended.run.message
    if attempt.trial.kind is TrialKind.SMALLEST:
        return text.tr("The smallest run works, so size is the reason. It was only a test; milder changes come next.")
    return text.tr("It loaded, answered, and answered again.")


def _pictures(ended: Ended) -> tuple[Picture, ...]:
    """Predicted beside printed for a run that loaded; of one that did not, only what was predicted is whole."""
    predicted = ended.attempt.trial.predicted
    if predicted is None:
        return ()
    words = text.tr("fits") if predicted.fits else text.tr("is too large")
    if predicted.fits is None:
        words = text.tr("not known whether it fits")
    found = [Picture(text.tr("Predicted"), text.capital(words), "neutral", predicted)]
    if ended.attempt.worked and ended.run.buffers:
        chip = text.tr("Printed by llama.cpp, run {}").format(ended.run.number)
        found.append(Picture(text.tr("Measured"), chip, "good", measured(predicted, ended.run)))
    return tuple(found)


def _facts(ended: Ended) -> tuple[Fact, ...]:
    attempt, run = ended.attempt, ended.run
    found = [Fact(text.tr("Took"), text.tr("{} s").format(round(attempt.seconds)), text.tr("start to end"))]
    asked = attempt.diagnosis
    if not attempt.worked and asked is not None and asked.requested_bytes:
        where = text.tr("on {}").format(asked.device) if asked.device else ""
        found.append(Fact(text.tr("Asked for"), format_room(asked.requested_bytes), where))
    if attempt.printed_bytes:
        label = text.tr("Printed") if attempt.worked else text.tr("Allocated before")
        total = sum(attempt.printed_bytes.values())
        found.append(Fact(label, format_room(total), sizes(dict(attempt.printed_bytes))))
    peak = max(run.peak, key=lambda each: each[1], default=None)
    if peak is not None:
        found.append(Fact(text.tr("Peak"), format_room(peak[1]), text.tr("on {}").format(peak[0])))
    left = ended.before.launches_left - 1
    found.append(
        Fact(
            text.tr("Launches"),
            text.tr("{} left").format(left),
            text.tr("of {} in one walk").format(ended.before.max_launches),
        )
    )
    return tuple(found)
