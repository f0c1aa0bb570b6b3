"""A budget that does not fit, to at most a few single changes that would."""

from collections.abc import Mapping

from kvstudio.advise.accepted import accepted
from kvstudio.advise.fixes import all_fixes
from kvstudio.advise.rank import order
from kvstudio.advise.situation import KIND_OF_STAGE, Situation, failing_of
from kvstudio.advise.values import Fix
from kvstudio.budget.estimate import estimate
from kvstudio.budget.extras import NO_EXTRAS, Extras
from kvstudio.budget.values import Budget
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo


def suggest(
    model: ModelInfo,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    host: Device | None = None,
    budget: Budget | None = None,
    diagnosis: Diagnosis | None = None,
    limit: int = 3,
    build: int | None = None,
    overhead: Mapping[str, int] | None = None,
    extras: Extras = NO_EXTRAS,
) -> tuple[Fix, ...]:
    """The best single changes, each the smallest of its variable that should fit; empty when the launch fits.

    Where llama.cpp refuses the settings, whatever the memory, those that take one of them back.
    """
    now = budget or estimate(model, config, devices, host=host, build=build, overhead=overhead, extras=extras)
    if now.fits is not False and diagnosis is None and not now.config.errors:
        return ()
    situation = make_situation(model, config, devices, host, now, diagnosis, build, overhead, extras)
    if now.config.errors and (now.fits is not False or diagnosis is None or diagnosis.memory_class != "memory"):
        return accepted(situation)[:limit]
    return all_fixes(situation, order(situation.failing))[:limit]


def make_situation(
    model: ModelInfo,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    host: Device | None,
    budget: Budget,
    diagnosis: Diagnosis | None = None,
    build: int | None = None,
    overhead: Mapping[str, int] | None = None,
    extras: Extras = NO_EXTRAS,
) -> Situation:
    """A Situation whose failing kind comes from the diagnosis where it names one, else from the budget."""
    kind, culprit = failing_of(budget)
    if diagnosis is not None and diagnosis.stage in KIND_OF_STAGE:
        kind, culprit = KIND_OF_STAGE[diagnosis.stage], diagnosis.device or culprit
    return Situation(model, config, devices, host, budget, kind, culprit, build, overhead or {}, extras=extras)
