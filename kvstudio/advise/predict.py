"""A plan walked through by the budget alone: what would be launched, and what is expected to fit; proves nothing."""

from dataclasses import replace

from kvstudio.advise.conclude import no_fit
from kvstudio.advise.further import longer_context
from kvstudio.advise.hard_limit import says as limit_says
from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import Attempt, Trial, Verdict
from kvstudio.advise.record import differs_from_wanted, typed_difference, with_typed
from kvstudio.advise.refusal import refusal
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome

FITS, DOES_NOT_FIT, UNKNOWN = "predicted to fit", "predicted not to fit", "unknown"
REFUSED = "predicted to be refused"
_PROVES_NOTHING = "Nothing was launched, so nothing is proven."


def predict(plan: Plan) -> Plan:
    """The plan as it would go if the budget were the world. Its verdict is never `verified`."""
    while plan.pending is not None:
        attempt = _expected(plan.pending)
        if attempt.outcome == UNKNOWN:
            says = f"The memory of a device is not known, so the budget cannot say what fits. {_PROVES_NOTHING}"
            return replace(plan, pending=None, verdict=Verdict("stopped", says, None, None, predicted=True))
        plan = plan.ran(attempt)
    if plan.verdict is None or any(a.worked and a.run_number is not None for a in plan.attempts):
        return plan  # real runs came before, and one of them is the result
    return replace(plan, verdict=_expectation(plan, plan.verdict))


def _expected(trial: Trial) -> Attempt:
    budget = trial.predicted
    if budget is not None and budget.config.errors:
        return Attempt(trial, False, REFUSED, _refused_settings(budget.config.errors))
    if budget is None or budget.fits is None:
        return Attempt(trial, False, UNKNOWN)
    if budget.fits:
        return Attempt(trial, True, FITS)
    return Attempt(trial, False, DOES_NOT_FIT, refusal(budget))


def _refused_settings(errors: tuple[str, ...]) -> Diagnosis:
    """As a log would say that settings are refused, whatever the memory."""
    return Diagnosis(
        Outcome.FAILED, "not_memory", None, None, None, None, None, None, Cause.CONFIG, None, (),
        "The settings are the problem", " ".join(errors),
    )  # fmt: skip


def _expectation(plan: Plan, verdict: Verdict) -> Verdict:
    """The verdict of the walk in words that claim no launch."""
    if verdict.config is None:
        limit = no_fit(plan).hard_limit
        nothing = "By the budget, nothing the plan may change makes this launch fit."
        if verdict.outcome == "stopped":
            nothing = f"By the budget, {plan.max_launches} launches would not be enough to come to one that fits."
        says = nothing if limit is None else f"{nothing} {limit_says(limit, plan)}"
        return Verdict(verdict.outcome, f"{says} {_PROVES_NOTHING}", None, None, hard_limit=limit, predicted=True)
    if not differs_from_wanted(plan, verdict.config):
        says = "as it is"
    else:
        gone, come = typed_difference(plan.wanted, verdict.config)
        says = with_typed(come, gone) + (f" instead of {gone}" if gone and come else "")
    ended = [rival.name for rival in plan.world.competitors() if rival.pid in plan.freed]
    once = f" once {' and '.join(ended)} has ended" if ended else ""
    says = f"By the budget this command fits {says}{once}.{longer_context(plan, verdict.config)} {_PROVES_NOTHING}"
    return Verdict("stopped", says, verdict.config, None, predicted=True)
