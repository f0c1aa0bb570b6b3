"""The wizard's plan: one variable at a time, always an end, and a root cause only from runs that prove it."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstudio.advise.plan import MAX_LAUNCHES, Plan, World, can_undo, changed, needed, start
from kvstudio.advise.plan_values import TrialKind
from kvstudio.diagnose.values import Cause, Diagnosis, NextStep, Outcome
from kvstudio.launch.config import LaunchConfig
from tests.advise.world import Reality, device
from tests.budget import zoo

MODELS = ("llama31-8b", "gemma3-12b", "mistral-7b", "mamba-2.8b", "qwen3-30b-a3b", "deepseek-v2-lite")


def wanted(**settings: object) -> LaunchConfig:
    return LaunchConfig(model_path="m.gguf", fit=False, n_gpu_layers=99).evolve(**settings)


configs = st.builds(
    wanted,
    n_ctx=st.sampled_from([4096, 32768, 131072]),
    n_parallel=st.sampled_from([None, 1, 4, 16]),
    cache_type_k=st.sampled_from([None, "q8_0"]),
    n_ubatch=st.sampled_from([None, 2048]),
)
devices = st.lists(st.sampled_from([4, 6, 8, 12, 24]), min_size=1, max_size=2).map(
    lambda sizes: tuple(device(i, gib) for i, gib in enumerate(sizes))
)
slow = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(name=st.sampled_from(MODELS), config=configs, found=devices, less=st.sampled_from([1.0, 1.0, 0.7]))
def test_a_walk_changes_one_variable_at_a_time_and_ends(name, config, found, less):
    model = zoo.model(name)
    true = tuple(device(i, d.total_bytes / 2**30 * less) for i, d in enumerate(found))
    reality = Reality(World(model, true))
    plan = reality.walk(start(World(model, found), config))

    assert plan.verdict is not None
    assert reality.launches <= MAX_LAUNCHES
    for attempt in plan.attempts:
        if attempt.trial.parent is not None:
            parent = plan.attempts[attempt.trial.parent].trial.config
            assert len(changed(plan, parent, attempt.trial.config)) == 1
    if plan.verdict.outcome == "verified":
        assert reality.truth.estimate(plan.verdict.config).fits is not False
    cause = plan.verdict.root_cause
    if cause is not None:
        failed, worked = plan.attempts[cause.failed_attempt], plan.attempts[cause.worked_attempt]
        assert not failed.worked
        assert worked.worked
        assert changed(plan, failed.trial.config, worked.trial.config) == (cause.variable,)


@slow
@given(name=st.sampled_from(MODELS), config=configs, found=devices)
def test_where_a_smaller_context_fits_the_walk_ends_verified(name, config, found):
    model = zoo.model(name)
    world = World(model, found)
    least = config.evolve(n_ctx=4096, n_parallel=1)
    if world.estimate(least).fits is not True:
        return
    plan = Reality(world).walk(start(world, config))
    assert plan.verdict is not None
    assert plan.verdict.outcome == "verified"


def test_a_command_that_works_is_left_alone():
    world = World(zoo.model("llama31-8b"), (device(0, 80),))
    reality = Reality(world)
    plan = reality.walk(start(world, wanted(n_ctx=8192)))
    assert reality.launches == 1
    assert plan.verdict.config == wanted(n_ctx=8192)
    assert plan.verdict.root_cause is None


def test_an_even_split_over_uneven_cards_is_the_root_cause():
    world = World(zoo.model("llama31-8b"), (device(0, 24, 23), device(1, 24, 8)))
    config = wanted(n_ctx=131072, n_parallel=1, tensor_split=(1.0, 1.0))
    assert world.estimate(config).first_failure.device == "CUDA1"
    plan = Reality(world).walk(start(world, config))
    assert plan.verdict.outcome == "verified"
    assert plan.verdict.root_cause.variable == "tensor_split"
    assert plan.verdict.config.n_ctx == 131072
    assert "tensor_split" in needed(plan, len(plan.attempts) - 1)


def test_recurrent_state_is_met_by_slots_and_never_by_cache_types():
    world = World(zoo.model("mamba-2.8b"), (device(0, 8),))
    config = wanted(n_ctx=4096, n_parallel=250)
    plan = Reality(world).walk(start(world, config))
    assert plan.verdict.outcome == "verified"
    assert plan.verdict.root_cause.variable == "n_parallel"
    tried = {attempt.trial.variable for attempt in plan.attempts}
    assert not tried & {"cache_type", "cache_type_k", "cache_type_v", "n_ctx"}
    assert plan.verdict.config.n_parallel > 1, "the edge is searched, not the smallest kept"


def test_a_refused_setting_is_met_by_what_the_log_names():
    refused = Diagnosis(
        Outcome.FAILED, "not_memory", None, None, None, None, None, None, Cause.CONFIG, None, (), "refused", "",
        (NextStep({"flash_attn": "on"}, "a quantized V cache needs it"),),
    )  # fmt: skip
    world = World(zoo.model("llama31-8b"), (device(0, 80),))
    plan = start(world, wanted(flash_attn="off", cache_type_v="q4_0"), given=refused)
    assert plan.pending.kind is TrialKind.CHANGE
    assert plan.pending.change == {"flash_attn": ("off", "on")}


def test_a_full_context_is_met_by_more_cells_than_the_model_gives_by_default():
    full = Diagnosis(
        Outcome.FAILED, "not_memory", None, None, None, None, None, None, Cause.CONFIG, None, (), "full", "",
        (NextStep({"n_ctx": 16384}, "it takes more cells"),),
    )  # fmt: skip
    model = zoo.model("llama31-8b")
    assert model.n_ctx_train == 131072
    plan = start(World(model, (device(0, 80),)), wanted(n_ctx=0), given=full)
    assert plan.pending.variable == "n_ctx"
    assert plan.pending.after == 2 * 131072
    named = start(World(model, (device(0, 80),)), wanted(n_ctx=8192), given=full)
    assert named.pending.after == 16384


def test_a_broken_file_is_not_walked():
    broken = Diagnosis(
        Outcome.FAILED, "not_memory", "weights", None, None, None, None, None, Cause.FILE, None, (), "", "cut short"
    )
    plan = start(World(zoo.model("llama31-8b"), ()), wanted(), given=broken)
    assert plan.pending is None
    assert plan.verdict.outcome == "no_fit"
    assert "cut short" in plan.verdict.says


def test_skip_goes_on_with_another_variable_and_stop_keeps_what_was_found():
    world = World(zoo.model("llama31-8b"), (device(0, 12),))
    config = wanted(n_ctx=131072, n_parallel=1)
    plan = start(world, config, given=refusal_of(world, config))
    first = plan.pending
    again = plan.skip()
    assert again.pending is None or again.pending.config != first.config
    assert plan.pending is first, "going back is the earlier value"
    assert plan.stop().verdict.outcome == "stopped"


def refusal_of(world: World, config: LaunchConfig) -> Diagnosis:
    worked, diagnosis, _ = Reality(world).run(config)
    assert not worked
    assert diagnosis is not None
    return diagnosis


@pytest.mark.parametrize("name", MODELS)
def test_nothing_helps_when_the_weights_are_larger_than_everything(name):
    from kvstudio.devices.values import Device

    world = World(
        zoo.model(name),
        (device(0, 0.25),),
        host=Device("Host", "CPU", total_bytes=2**28, free_bytes=2**28),
    )
    plan = Reality(world).walk(start(world, wanted(n_ctx=4096, load_mode="none")))
    assert plan.verdict.outcome == "no_fit"
    assert "weights alone" in plan.verdict.says


def first_working_change(reality: Reality, plan: Plan) -> Plan:
    while plan.pending is not None:
        plan = plan.ran(reality.attempt(plan.pending))
        if plan.attempts[-1].worked and can_undo(plan.attempts[-1].trial):
            return plan
    raise AssertionError("no change works")


def test_nothing_builds_on_a_change_that_was_undone_and_its_variable_is_not_proposed_again():
    world = World(zoo.model("llama31-8b"), (device(0, 12),))
    reality = Reality(world)
    plan = first_working_change(reality, start(world, wanted(n_ctx=131072)))
    dropped = plan.attempts[-1].trial
    undone = plan.undo()
    assert undone.attempts == plan.attempts
    last = len(undone.attempts) - 1
    end = reality.walk(undone)
    later = [a.trial for a in end.attempts[last + 1 :]]
    assert later
    assert all(trial.parent != last for trial in later)
    assert dropped.variable not in {trial.variable for trial in later if trial.kind is dropped.kind}
    assert end.verdict.outcome == "verified"
    assert end.verdict.config != dropped.config


def test_where_only_the_undone_change_works_the_end_says_so():
    world = World(zoo.model("llama31-8b"), (device(0, 12),))
    reality = Reality(world)
    plan = start(world, wanted(n_ctx=131072))
    plan = plan.ran(reality.attempt(plan.pending))
    assert plan.pending.kind is TrialKind.SMALLEST
    plan = first_working_change(reality, plan.skip())
    kept, plan = plan.attempts[-1], plan.undo()
    while plan.pending is not None:
        plan = plan.skip()
    assert plan.verdict.config == kept.trial.config
    assert plan.verdict.says.startswith("Nothing else was found than what was undone.")


def test_the_first_run_and_mere_tests_cannot_be_undone():
    world = World(zoo.model("llama31-8b"), (device(0, 12),))
    reality = Reality(world)
    plan = start(world, wanted(n_ctx=131072))
    assert plan.undo() is plan
    plan = plan.ran(reality.attempt(plan.pending))
    assert plan.undo() is plan


def test_a_cancelled_launch_counts_as_one_and_teaches_nothing():
    world = World(zoo.model("llama31-8b"), (device(0, 12),))
    reality = Reality(world)
    plan = start(world, wanted(n_ctx=131072))
    plan = plan.ran(reality.attempt(plan.pending))
    broken = plan.broke_off(replace(reality.attempt(plan.pending), worked=False, diagnosis=None))
    assert broken.pending == plan.pending
    assert broken.launches_left == plan.launches_left - 1
    assert [a.run_number for a in broken.launched] == [1, 2]
    end = reality.walk(broken)
    assert len(end.launched) <= MAX_LAUNCHES
    assert end.verdict.outcome == "verified"


def test_refused_settings_behind_a_refusal_of_memory_are_taken_back_on_the_way():
    # The weights are refused first; once they fit, llama.cpp refuses K and V of two types, for this model keeps K only.
    model = zoo.model("deepseek-v2-lite")
    config = wanted(n_ctx=131072, cache_type_k="q8_0")
    world = World(model, (device(0, 6),), device(9, 60))
    assert world.estimate(config).config.errors
    plan = Reality(world).walk(start(world, config))
    assert plan.verdict.outcome == "verified"
    assert not world.estimate(plan.verdict.config).config.errors
    refusals = [a for a in plan.attempts if a.diagnosis and a.diagnosis.memory_class == "not_memory"]
    assert refusals
    for attempt in plan.attempts[1:]:
        assert len(changed(plan, plan.attempts[attempt.trial.parent].trial.config, attempt.trial.config)) == 1
