"""Settings that llama.cpp refuses: which of the typed ones to take back so that it starts."""

from typing import Any

from kvstudio.advise.record import typed_difference, with_typed
from kvstudio.advise.situation import Situation
from kvstudio.advise.values import Fix
from kvstudio.launch.config import LaunchConfig

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

    Whatever the reason of the refusal is, going back to the default of one setting that is part of it ends it, or
    giving K the type of V or V that of K; so each is tried by the budget, and none needs a rule of its own.
    """
    found = []
    for name, after in _changes(s.config):
        before = getattr(s.config, name)
        config, budget = s.try_change(**{name: after})
        if budget.config.errors or (and_fits and budget.fits is False):
            continue
        gone, come = typed_difference(s.config, config)
        title = with_typed(come, gone)
        why = s.budget.config.errors[0]
        room = s.room_bytes(budget)
        found.append(
            Fix(name, before, after, f"{title[:1].upper()}{title[1:]}", why, _cost(name, after), config, budget, room)
        )
    return tuple(sorted(found, key=lambda fix: -(fix.room_bytes or 0)))


def _changes(config: LaunchConfig) -> tuple[tuple[str, Any], ...]:
    typed = [(name, None) for name in config.typed() if name not in _NEEDED]
    k, v = config.cache_type_k, config.cache_type_v
    alike = [("cache_type_v", k)] if k is not None and k != v else []
    alike += [("cache_type_k", v)] if v is not None and k != v else []
    return (*typed, *alike)


def _cost(name: str, after: Any) -> str:
    return _COSTS.get(name, "") if after is None else ""
