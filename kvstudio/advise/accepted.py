"""Settings that llama.cpp refuses: which of the typed ones to take back so that it starts."""

from kvstudio.advise.record import typed_difference, with_typed
from kvstudio.advise.situation import Situation
from kvstudio.advise.values import Fix

#: Without these there is no launch to speak of.
_NEEDED = frozenset({"model_path", "hf_repo", "hf_file"})
_COSTS = {
    "cache_type_k": "a larger cache",
    "cache_type_v": "a larger cache",
    "device": "other devices are used too",
    "tensor_split": "split by free memory",
}


def accepted(s: Situation, *, and_fits: bool = True) -> tuple[Fix, ...]:
    """The single settings without which nothing is refused any more (`and_fits`: and it fits), roomiest first.

    Whatever the reason of the refusal is, going back to the default of one setting that is part of it ends it; so
    each is tried by the budget, and none needs a rule of its own.
    """
    found = []
    for name, value in s.config.typed().items():
        if name in _NEEDED:
            continue
        config, budget = s.try_change(**{name: None})
        if budget.config.errors or (and_fits and budget.fits is False):
            continue
        gone, come = typed_difference(s.config, config)
        title = with_typed(come, gone)
        why = s.budget.config.errors[0]
        room = s.room_bytes(budget)
        found.append(
            Fix(name, value, None, f"{title[:1].upper()}{title[1:]}", why, _COSTS.get(name, ""), config, budget, room)
        )
    return tuple(sorted(found, key=lambda fix: -(fix.room_bytes or 0)))
