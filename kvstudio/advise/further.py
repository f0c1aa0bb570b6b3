"""What a working command could have besides, at no cost: said at the end of a walk, not tried."""

from typing import Any

from kvstudio.advise.fixes import context
from kvstudio.advise.learned import situation
from kvstudio.advise.plan_values import TrialKind
from kvstudio.advise.record import Record, changed, typed_difference, with_typed
from kvstudio.launch.config import LaunchConfig

#: Changes that take nothing from anybody but may not be enough alone.
_FREE_OF_COST: tuple[tuple[str, Any], ...] = (("tensor_split", None), ("swa_full", None), ("flash_attn", "on"))
#: A context that is not longer by this factor is not worth another change.
_WORTH = 1.25


def longer_context(record: Record, config: LaunchConfig) -> str:
    """`Without -ts 1,1 as well, a context of 49152 should fit.` where a walk ended by a shorter one; else empty."""
    if changed(record, record.wanted, config) != ("n_ctx",):
        return ""
    now = record.estimate(config).config.n_ctx
    best, says = int(now * _WORTH), ""
    for name, value in _FREE_OF_COST:
        typed = getattr(record.wanted, name)
        if typed in (None, value) or typed is False or record.was_skipped(TrialKind.CHANGE, name):
            continue
        changed_too = record.wanted.evolve(**{name: value})
        fix = context(situation(record, changed_too, None))
        n_ctx = fix.budget.config.n_ctx if fix is not None else 0
        if n_ctx > best:
            gone, come = typed_difference(record.wanted, changed_too)
            words = with_typed(come, gone)
            best, says = n_ctx, f" {words[:1].upper()}{words[1:]} as well, a context of {n_ctx} should fit."
    return says
