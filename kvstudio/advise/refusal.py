"""What a log would say of a budget that does not fit: a refusal to plan with, without a launch."""

from kvstudio.advise.situation import KIND_OF_STAGE
from kvstudio.advise.verdict import noun
from kvstudio.budget.values import Budget
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome
from kvstudio.units import format_bytes

_STAGE_OF_KIND = {kind: stage for stage, kind in reversed(KIND_OF_STAGE.items())}


def refusal(budget: Budget) -> Diagnosis | None:
    """The predicted first failure as a Diagnosis without lines; None when the budget names none."""
    failure = budget.first_failure
    if failure is None:
        return None
    stage = _STAGE_OF_KIND.get(failure.kind, "host")
    what, asked = noun(failure.kind), format_bytes(failure.bytes)
    short = f"is {format_bytes(failure.short_bytes)} short for"
    if failure.limit_bytes:
        short = f"takes at most {format_bytes(failure.limit_bytes)} in one allocation, too little for"
    return Diagnosis(
        outcome=Outcome.FAILED,
        memory_class="memory",
        stage=stage,
        device="CPU" if failure.device == budget.host.name else failure.device,
        backend=None,
        requested_bytes=failure.bytes,
        free_bytes=failure.free_bytes,
        limit_bytes=failure.limit_bytes,
        cause=Cause.BACKEND_LIMIT if failure.limit_bytes else Cause.CAPACITY,
        key_line=None,
        evidence=(),
        title=f"{what[0].upper()}{what[1:]}: {failure.device} is expected to refuse {asked}",
        summary=f"{failure.device} {short} {what} of {asked}.",
    )
