"""What is proposed is the smallest change that should work and no other variable; what is not has a reason."""

import random
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.wizard_walks import draw
from kvstudio.advise.fixes import CACHE_LADDER, CTX_STEP, FIXES, changed_fields, same_cache_types, useless
from kvstudio.advise.learned import situation
from kvstudio.advise.not_offered import not_offered
from kvstudio.advise.plan import Plan, start
from kvstudio.advise.plan_values import TrialKind
from kvstudio.advise.situation import Situation
from kvstudio.advise.values import Fix

MODELS = ("qwen2.5-0.5b", "llama32-1b-f16", "mistral-7b", "olmoe-1b-7b", "mixtral-8x7b", "mamba-2.8b")
CASES = 8
_UBATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096)


def failing_plans(kind: str, count: int = CASES) -> list[Plan]:
    """Plans right after the command as given was refused."""
    rng, found = random.Random(f"proposals {kind}"), []
    while len(found) < count:
        drawn = draw(rng, kind, MODELS)
        plan = start(drawn.world, drawn.wanted)
        plan = plan.ran(drawn.reality.attempt(plan.pending))
        if not plan.attempts[0].worked:
            found.append(plan)
    return found


@pytest.fixture(scope="module", params=("honest", "less"))
def plans(request):
    return failing_plans(request.param)


def here(plan: Plan) -> Situation:
    return situation(plan, plan.wanted, plan.first.diagnosis)


def milder(fix: Fix, s: Situation) -> dict[str, Any] | None:
    """The next value of a fix's variable that takes less away; None where it has but one."""
    effective = s.budget.config
    if fix.variable == "n_ctx":
        step = CTX_STEP * (1 if effective.kv_unified else effective.n_parallel)
        rounded = fix.after + max(step, fix.after // 9)  # a tenth may go to a round number
        return {"n_ctx": rounded} if rounded < effective.n_ctx else None
    if fix.variable == "n_parallel":
        return {"n_parallel": fix.after + 1} if fix.after + 1 < effective.n_parallel else None
    if fix.variable == "n_ubatch":
        larger = _UBATCHES[_UBATCHES.index(fix.after) + 1]
        return {"n_ubatch": larger} if larger < effective.n_ubatch else None
    if fix.variable == "n_gpu_layers":
        now = s.budget.offloaded_layers[0]
        step = 1 if fix.after < now else -1
        return {"n_gpu_layers": fix.after + step} if fix.after + step != now else None
    if fix.variable == "n_cpu_moe":
        return {"n_cpu_moe": fix.after - 1} if fix.after - 1 > (s.config.n_cpu_moe or 0) else None
    if fix.variable.startswith("cache_type"):
        sides = ("k", "v") if fix.variable == "cache_type" else (fix.variable[-1],)
        current = getattr(effective, f"cache_type_{sides[0]}")
        at = CACHE_LADDER.index(fix.after) - 1
        return {f"cache_type_{side}": CACHE_LADDER[at] for side in sides} if CACHE_LADDER[at] != current else None
    return None


def test_a_fix_changes_one_variable_fits_and_spares_the_culprit(plans):
    for plan in plans:
        s = here(plan)
        for name, fix in fixes(s):
            names = changed_fields(s.config, fix.config, paired_types=fix.variable == "cache_type")
            assert len(names) == 1, name
            assert s.fits(fix.budget), name
            assert s.need_of_culprit(fix.budget) <= s.need_of_culprit(s.budget), name


def test_a_fix_is_the_smallest_change_of_its_variable_that_fits(plans):
    seen = set()
    for plan in plans:
        s = here(plan)
        for name, fix in fixes(s):
            less = milder(fix, s)
            if less is not None:
                seen.add(name)
                assert not s.fits(s.try_change(**less)[1]), (name, fix.after, less)
    assert {"n_ctx", "n_gpu_layers"} <= seen


def test_what_is_proposed_says_that_less_would_not_do(plans):
    for plan in plans:
        end = walk_to_change(plan)
        if end is None or end.pending.predicted.fits is not True:
            continue
        why = end.pending.why
        if end.pending.variable in ("n_parallel", "n_ubatch", "n_gpu_layers", "n_cpu_moe", "cache_type"):
            assert "would not" in why
        if end.pending.variable == "n_ctx":
            assert "largest context that should fit" in why


def test_useless_variables_are_never_proposed(plans):
    for plan in plans:
        end = walk_to_change(plan)
        if end is None:
            continue
        base = end.attempts[end.pending.parent]
        s = situation(end, base.trial.config, base.diagnosis)
        assert useless(end.pending.variable, s.failing, s) is None


def test_every_variable_is_proposed_or_has_a_reason(plans):
    for plan in plans:
        end = walk_to_change(plan)
        if end is None:
            continue
        reasons = {each.variable: each.reason for each in not_offered(end)}
        ours = {name for name in FIXES if not (name == "cache_type" and not same_cache_types(end.world.model))}
        proposed = {"tensor_split", "split_ratio"} if end.pending.variable == "tensor_split" else {end.pending.variable}
        assert ours - proposed <= reasons.keys()
        assert not proposed & reasons.keys()
        assert all(reason.endswith(".") for reason in reasons.values())


def test_a_skipped_variable_says_so_and_is_not_proposed_again(plans):
    for plan in plans:
        end = walk_to_change(plan)
        if end is None or end.pending.variable not in FIXES:
            continue
        skipped, later = end.pending.variable, end.skip()
        if later.pending is not None and later.pending.kind is TrialKind.CHANGE:
            assert later.pending.variable != skipped
            reasons = {each.variable: each.reason for each in not_offered(later)}
            assert reasons[skipped] == "It was skipped." or useless(skipped, here(later).failing, here(later))


def fixes(s: Situation) -> list[tuple[str, Fix]]:
    found = ((name, FIXES[name](s)) for name in FIXES if useless(name, s.failing, s) is None)
    return [(name, fix) for name, fix in found if fix is not None]


def walk_to_change(plan: Plan) -> Plan | None:
    """The plan at its first page that changes a setting for good; tests before it are taken to fail alike."""
    while plan.pending is not None and plan.pending.kind is not TrialKind.CHANGE:
        plan = plan.skip() if plan.pending.variable else plan.ran(replace(plan.first, trial=plan.pending))
    return plan if plan.pending is not None else None
