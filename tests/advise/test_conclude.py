"""Root causes come from runs in which one variable differed; whatever no pair of runs tells apart is named."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.wizard_walks import WORLDS, broken_rules, draw
from kvstudio.advise.conclude import needed, not_separated, result, root_cause, stopped
from kvstudio.advise.plan import World, changed, differs, start
from kvstudio.advise.plan_values import Attempt, Trial, TrialKind
from kvstudio.advise.record import Record, differs_from_wanted
from kvstudio.launch.config import LaunchConfig
from tests.advise.world import device
from tests.budget import zoo

MODELS = ("qwen2.5-0.5b", "llama32-1b-f16", "mistral-7b", "olmoe-1b-7b")
WANTED = LaunchConfig(model_path="m.gguf", fit=False, n_ctx=32768, n_parallel=4, n_gpu_layers=99)
WORLD = World(zoo.model("llama32-1b-f16"), (device(0, 24),))

tried = st.lists(
    st.tuples(
        st.sampled_from((32768, 8192)),
        st.sampled_from((4, 1)),
        st.sampled_from((99, 10)),
        st.sampled_from(((), (4182,))),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each[:4],
)


def record_of(runs) -> Record:
    """A record of runs in whatever order and outcome, the command as given among them."""
    attempts = [attempt(WANTED, (), False)]
    for n_ctx, n_parallel, n_gpu_layers, freed, worked in runs:
        config = WANTED.evolve(n_ctx=n_ctx, n_parallel=n_parallel, n_gpu_layers=n_gpu_layers)
        if config != WANTED or freed:
            attempts.append(attempt(config, freed, worked))
    return Record(WORLD, WANTED, tuple(attempts))


def attempt(config: LaunchConfig, freed: tuple[int, ...], worked: bool) -> Attempt:
    trial = Trial(TrialKind.CHANGE, config, 0, None, None, None, "", "", "", WORLD.estimate(config), freed)
    return Attempt(trial, worked, "verified" if worked else "failed")


@settings(deadline=None)
@given(tried)
def test_a_root_cause_needs_a_failed_and_a_working_run_that_differ_in_it_alone(runs):
    record = record_of(runs)
    pairs = {
        names[0]
        for failed in record.attempts
        for worked in record.attempts
        if worked.worked and not failed.worked and len(names := differs(record, failed.trial, worked.trial)) == 1
    }
    cause = root_cause(record)
    assert (cause is None) == (not pairs)
    if cause is not None:
        failed, worked = record.attempts[cause.failed_attempt], record.attempts[cause.worked_attempt]
        assert (failed.worked, worked.worked) == (False, True)
        assert differs(record, failed.trial, worked.trial) == (cause.variable,)


@settings(deadline=None)
@given(tried)
def test_each_change_of_a_result_is_proven_by_a_pair_or_named_as_not_separated(runs):
    record = record_of(runs)
    for best, found in enumerate(record.attempts):
        if not found.worked:
            continue
        verdict = result(record, best)
        differing = differs_from_wanted(record, found.trial.config)
        proven = needed(record, best)
        assert set(verdict.not_separated) == set(differing) - set(proven)
        for name in proven:
            assert any(
                not other.worked and changed(record, other.trial.config, found.trial.config) == (name,)
                for other in record.attempts
            )
        if verdict.root_cause is None and differing:
            assert "no pair of runs" in verdict.says


@pytest.mark.parametrize("kind", WORLDS)
def test_however_few_launches_there_are_put_backs_keep_to_them_and_the_rest_is_named(kind):
    rng = random.Random(f"few {kind}")
    for most in (2, 3, 4, 6):
        drawn = draw(rng, kind, MODELS)
        plan = drawn.reality.walk(start(drawn.world, drawn.wanted, max_launches=most))
        assert len(plan.attempts) <= most
        assert [rule for rule in broken_rules(drawn, plan) if rule != "too many launches"] == []
        if plan.verdict.config is not None:
            best = next(i for i, a in enumerate(plan.attempts) if a.worked and a.trial.config == plan.verdict.config)
            assert plan.verdict.not_separated == not_separated(plan, best)
        assert stopped(plan).outcome == "stopped"
