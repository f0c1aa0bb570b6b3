"""The size of a change: the least of it that fits, and what makes it a Fix."""

import math
from collections.abc import Iterable
from typing import Any

from kvstudio.advise.figures import what_shrinks
from kvstudio.advise.situation import Situation
from kvstudio.advise.values import Fix
from kvstudio.budget.values import Budget
from kvstudio.launch.config import LaunchConfig


def fix_of(s: Situation, variable: str, change: dict[str, Any], title: str, why: str, cost: str) -> Fix | None:
    """A Fix of exactly one variable, or None when it would not fit or makes the culprit worse."""
    config, budget = s.try_change(**change)
    if not s.fits(budget) or s.need_of_culprit(budget) > s.need_of_culprit(s.budget):
        return None
    field, after = next(iter(change.items()))
    return made(s, variable, getattr(s.config, field), after, title, why, cost, config, budget)


def made(
    s: Situation, variable: str, before: Any, after: Any, title: str, why: str, cost: str,
    config: LaunchConfig, budget: Budget,
) -> Fix:  # fmt: skip
    """A Fix whose reason says what it does to the device that is short."""
    reason = f"{why} {what_shrinks(s, budget)}".strip()
    return Fix(variable, before, after, title, reason, cost, config, budget, s.room_bytes(budget))


def first_that_fits(s: Situation, field: str, values: Iterable[Any]) -> Any | None:
    """The first value, in the order given (least harm first), whose budget fits."""
    order = tuple(values)
    if not order or not s.fits(s.try_change(**{field: order[-1]})[1]):
        return None  # the last one takes least
    return next(value for value in order if s.fits(s.try_change(**{field: value})[1]))


def largest_that_fits(s: Situation, field: str, lowest: int, highest: int, step: int = 1) -> int | None:
    """The largest multiple of `step` in [lowest, highest] that fits, for a need that grows with the value."""
    low, high = math.ceil(lowest / step), highest // step
    if low > high or not s.fits(s.try_change(**{field: low * step})[1]):
        return None
    best, low = low * step, low + 1
    while low <= high:
        middle = (low + high) // 2
        if s.fits(s.try_change(**{field: middle * step})[1]):
            best, low = middle * step, middle + 1
        else:
            high = middle - 1
    return best


def on_host(s: Situation) -> bool:
    """Whether it is the RAM that is short."""
    return s.culprit is None or all(device.name != s.culprit for device in s.devices)
