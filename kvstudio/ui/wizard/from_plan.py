"""A walk of the fix plan -> what the wizard shows; pure, so that every page can be read in a test."""

from collections.abc import Mapping

from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import Attempt, HardLimit, Trial, TrialKind, Verdict
from kvstudio.advise.record import Record
from kvstudio.budget.values import Budget, DeviceBudget
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.equivalents import Equivalent, equivalents
from kvstudio.ui import text
from kvstudio.ui.widgets import bar_geometry
from kvstudio.ui.wizard.values import (
    Action,
    Change,
    Fact,
    Page,
    Picture,
    Progress,
    RunEntry,
    RunLine,
    RunState,
    Step,
    WizardView,
)
from kvstudio.ui.wizard.words import (
    PREDICTED,
    baseline_words,
    caption,
    change_of,
    competing_notice,
    failure_words,
    flags_in,
    lower_first,
    number_of,
    outcome_words,
    prediction_words,
    sizes,
    source_of,
    tightest,
    title_of,
    wanted_words,
)
from kvstudio.units import format_room
from kvstudio.verify.values import Check

_TITLE_STATES = {"verified": "good", "no_fit": "bad", "stopped": "neutral"}


def wizard_view(
    plan: Plan, *, can_go_back: bool = False, progress: Progress | None = None, checks: tuple[Check, ...] = ()
) -> WizardView:
    """The window for a plan; `progress` while its pending trial is running, `checks` of the run that worked."""
    primary: Action | None
    if plan.pending is not None:
        page = trial_page(plan, plan.pending, progress)
        actions, primary = _trial_actions(plan.pending, can_go_back, progress is not None)
    else:
        assert plan.verdict is not None
        page = result_page(plan, plan.verdict, checks)
        actions, primary = _result_actions(plan.verdict, can_go_back)
    return WizardView(
        title=text.tr("Fix: make this launch work"),
        wanted=wanted_words(plan),
        entries=entries(plan, progress is not None),
        later=_later(plan),
        page=page,
        actions=actions,
        primary=primary,
        note=text.tr("Every run is kept. You can close this window and go on later."),
    )


def _trial_actions(trial: Trial, can_go_back: bool, running: bool) -> tuple[tuple[Action, ...], Action | None]:
    if running:
        return (Action.CANCEL,), None
    back = (Action.BACK,) if can_go_back else ()
    skip = (Action.SKIP,) if trial.variable is not None else ()
    why = (Action.WHY_NOT,) if trial.parent is not None else ()
    return (Action.STOP, *why, *back, *skip, Action.TRY), Action.TRY


def _result_actions(verdict: Verdict, can_go_back: bool) -> tuple[tuple[Action, ...], Action]:
    back = (Action.BACK,) if can_go_back else ()
    if verdict.config is not None:
        return (*back, Action.CLOSE, Action.REPORT, Action.USE, Action.COPY), Action.COPY
    return (Action.WHY_NOT, *back, Action.CLOSE, Action.REPORT), Action.REPORT


# the left side


def entries(plan: Plan, running: bool = False) -> tuple[RunEntry, ...]:
    """The baseline, every run, and the next one."""
    done = [RunEntry(text.tr("Baseline"), baseline_words(plan), RunState.NOTE)]
    undone = [plan.attempts[i] for i in plan.undone]
    for attempt in plan.launched:
        state = RunState.WORKED if attempt.worked else RunState.FAILED
        said = outcome_words(attempt)
        if attempt in plan.cancelled:
            state = RunState.NOTE
        elif attempt in undone:
            said = text.tr("{}; undone").format(said)
        done.append(RunEntry(title_of(attempt.trial), said, state, number_of(attempt)))
    if plan.pending is not None:
        state, said = (RunState.RUNNING, text.tr("running")) if running else (RunState.NEXT, text.tr("next"))
        done.append(RunEntry(title_of(plan.pending), prediction_words(plan.pending.predicted), state, said))
    return tuple(done)


def _later(plan: Plan) -> tuple[Step, ...]:
    if plan.pending is None:
        return ()
    steps = [Step(text.tr("Verify with six checks")), Step(text.tr("Result: root cause and working command"))]
    if plan.pending.kind is not TrialKind.PUT_BACK:
        steps.insert(0, Step(text.tr("Put every other change back, one by one")))
    return tuple(steps)


# the right side


def trial_page(plan: Plan, trial: Trial, progress: Progress | None = None) -> Page:
    """One change: what, why, before, after, cost, command."""
    parent = plan.attempts[trial.parent] if trial.parent is not None else None
    change = noted_change(parent, trial) if parent is not None else None
    return Page(
        section=caption(trial.variable) if trial.variable else text.tr("First run"),
        title=title_of(trial),
        notice=competing_notice(plan) if trial.kind in (TrialKind.AS_GIVEN, TrialKind.SMALLEST) else "",
        change=change,
        why_label=text.tr("Why"),
        why=trial.why,
        flags=flags_in(trial.why),
        pictures=_pictures(parent, trial),
        facts=() if progress is not None else facts(plan, trial),
        progress=progress,
        command_label=text.tr("Command for this try"),
        config=trial.config,
    )


def noted_change(parent: Attempt, trial: Trial) -> Change:
    """The change, and the run that it is the only change from."""
    change = change_of(parent.trial.config, trial)
    note = text.tr("the only change from {}").format(lower_first(source_of(parent)))
    return Change(change.before, change.after, note)


def _pictures(parent: Attempt | None, trial: Trial) -> tuple[Picture, ...]:
    found = []
    if parent is not None and parent.trial.predicted is not None:
        said, state = (text.tr("worked"), "good") if parent.worked else (text.tr("failed"), "bad")
        chip = f"{source_of(parent)}, {said}"
        found.append(Picture(text.tr("Before"), chip, state, parent.trial.predicted))
    if trial.predicted is not None:
        fits = trial.predicted.fits
        state = "neutral" if fits is None else "good" if fits else "bad"
        title = text.tr("After") if found else text.tr("As given")
        said = text.capital(prediction_words(trial.predicted))
        found.append(Picture(title, said, state, trial.predicted))
    return tuple(found)


def facts(plan: Plan, trial: Trial) -> tuple[Fact, ...]:
    """What a change costs, what it leaves, how long the try takes."""
    found = []
    if trial.cost:
        found.append(Fact(text.tr("Cost"), text.capital(trial.cost), text.tr("of this change alone")))
    tight = tightest(trial.predicted)
    if tight is not None and tight.room_bytes is not None:
        room = tight.room_bytes
        which = text.tr("on {}, the tighter device") if len(plan.world.devices) > 1 else text.tr("on {}")
        words = text.tr("{} over").format(format_room(-room)) if room < 0 else format_room(room)
        found.append(Fact(text.tr("Room left"), words, which.format(tight.name)))
    seconds = max((a.seconds for a in plan.attempts), default=0.0)
    if seconds > 0:
        about = text.tr("About {} s").format(max(5, round(seconds / 5) * 5))
        found.append(Fact(text.tr("This try"), about, text.tr("as long as the longest so far")))
    left = text.tr("{} left").format(plan.launches_left)
    found.append(Fact(text.tr("Launches"), left, text.tr("of {} in one walk").format(plan.max_launches)))
    return tuple(found)


def result_page(plan: Plan, verdict: Verdict, checks: tuple[Check, ...] = ()) -> Page:
    """The end: root cause, runs, command."""
    titles = {
        "verified": text.tr("Verified: this command works"),
        "no_fit": text.tr("This launch cannot be made to fit"),
        "stopped": text.tr("Stopped before the end"),
    }
    by_budget = verdict.predicted and verdict.config is not None
    label = text.tr("Command that is predicted to fit") if by_budget else text.tr("Command that works")
    return Page(
        section=text.tr("Result"),
        title=text.tr("Predicted: this command fits") if by_budget else titles.get(verdict.outcome, verdict.outcome),
        state=_TITLE_STATES.get(verdict.outcome, "neutral"),
        why_label=text.tr("Root cause") if verdict.root_cause is not None else "",
        why=verdict.says,
        flags=flags_in(verdict.says),
        checks=checks,
        runs=tuple(_run_line(plan, a) for a in plan.launched),
        command_label=label if verdict.config is not None else "",
        config=verdict.config,
        # Where nothing works, where it is short is what is left to see.
        pictures=_as_given(plan) if verdict.config is None else (),
        facts=_limit_facts(verdict.hard_limit),
        equivalents=_equivalents(plan, verdict.config) if verdict.config is not None else (),
    )


def _as_given(plan: Plan) -> tuple[Picture, ...]:
    return _pictures(None, plan.attempts[0].trial) if plan.attempts else ()


def _equivalents(plan: Record, config: LaunchConfig) -> tuple[Equivalent, ...]:
    """The working command for other programs; the context of a slot as the working run predicted it."""
    predicted = next((a.trial.predicted for a in plan.attempts if a.worked and a.trial.config == config), None)
    name = plan.world.model.name if plan.world.model is not None else ""
    return equivalents(config, name, predicted.config.n_ctx_seq if predicted is not None else None)


def _limit_facts(limit: HardLimit | None) -> tuple[Fact, ...]:
    """What would be needed, in numbers."""
    if limit is None:
        return ()
    found = [
        Fact(text.tr("As given"), format_room(limit.needed_bytes), text.tr("asked for in all")),
        Fact(text.tr("At least"), format_room(limit.least_bytes), text.tr("shortest context, one slot")),
        Fact(text.tr("Free"), format_room(limit.available_bytes), text.tr("on everything together")),
    ]
    if limit.file_type is not None:
        bits = text.tr("{} bits per weight").format(limit.bits_per_weight)
        found.append(Fact(text.tr("Would fit"), limit.file_type, bits))
    elif limit.weights_bytes > 0:
        found.append(Fact(text.tr("Weights up to"), format_room(limit.weights_bytes), text.tr("a smaller model")))
    return tuple(found)


def _run_line(plan: Plan, attempt: Attempt) -> RunLine:
    trial = attempt.trial
    changed = text.tr("as given")
    if trial.parent is not None:
        change = change_of(plan.attempts[trial.parent].trial.config, trial)
        changed = f"{change.before} → {change.after}"
    predicted = _worth_a_word({d.name: d.need_bytes for d in _places(trial.predicted)})
    printed = _worth_a_word(attempt.printed_bytes)
    outcome = text.tr("works") if attempt.worked else failure_words(attempt.diagnosis, attempt.outcome)
    if attempt.outcome in PREDICTED:
        outcome = outcome_words(attempt)
    return RunLine(number_of(attempt), changed, (sizes(predicted), sizes(printed)), outcome, attempt.worked)


def _places(budget: Budget | None) -> tuple[DeviceBudget, ...]:
    return (*budget.devices, budget.host) if budget is not None else ()


def _worth_a_word(of: Mapping[str, int]) -> dict[str, int]:
    """The devices, and the host where it carries more than any of them."""
    most = max((size for name, size in of.items() if name != bar_geometry.HOST), default=0)
    return {name: size for name, size in of.items() if name != bar_geometry.HOST or size > most}
