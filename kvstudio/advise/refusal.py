"""What a log would say of a budget that does not fit: a refusal to plan with, without a launch."""

from kvstudio.advise.situation import KIND_OF_STAGE
from kvstudio.budget.values import Budget, BufferKind
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome
from kvstudio.units import format_bytes

_STAGE_OF_KIND = {kind: stage for stage, kind in reversed(KIND_OF_STAGE.items())}
_NOUNS = {
    BufferKind.MODEL: "the weights",
    BufferKind.KV: "the KV cache",
    BufferKind.RS: "the recurrent state",
    BufferKind.COMPUTE: "the compute buffer",
    BufferKind.OUTPUT: "the output buffer",
}


def refusal(budget: Budget) -> Diagnosis | None:
    """The predicted first failure as a Diagnosis without lines; None when the budget names none."""
    failure = budget.first_failure
    if failure is None:
        return None
    stage = _STAGE_OF_KIND.get(failure.kind, "host")
    noun, asked = _NOUNS.get(failure.kind, "this launch"), format_bytes(failure.bytes)
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
        title=f"{noun[0].upper()}{noun[1:]}: {failure.device} is expected to refuse {asked}",
        summary=f"{failure.device} {short} {noun} of {asked}.",
    )
