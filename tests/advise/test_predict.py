"""A plan by the budget alone: what it expects, and that it claims no launch."""

import pytest

from kvstudio.advise.plan import World, start
from kvstudio.advise.predict import predict
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Cause
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB
from tests.advise.world import Reality, device
from tests.budget import zoo

WANTED = LaunchConfig(model_path="m.gguf", fit=False, n_gpu_layers=99, n_ctx=131072, n_parallel=1)


@pytest.fixture
def model():
    return zoo.model("llama31-8b")


def test_a_predicted_fit_is_no_verified_launch(model):
    world = World(model, (device(0, 12),))
    end = predict(start(world, WANTED)).verdict
    assert (end.outcome, end.predicted, end.root_cause) == ("stopped", True, None)
    assert world.estimate(end.config).fits
    assert "instead of -c 131072" in end.says
    assert "Nothing was launched" in end.says


def test_a_command_that_fits_is_left_as_it_is(model):
    end = predict(start(World(model, (device(0, 80),)), WANTED)).verdict
    assert (end.outcome, end.predicted, end.config) == ("stopped", True, WANTED)
    assert "fits as it is" in end.says


def test_where_nothing_fits_the_limit_is_told_in_numbers(model):
    host = Device("Host", "CPU", total_bytes=GIB, free_bytes=GIB)
    end = predict(start(World(model, (device(0, 1),), host), WANTED.evolve(load_mode="none"))).verdict
    assert (end.outcome, end.predicted, end.config) == ("no_fit", True, None)
    assert end.hard_limit.available_bytes == 2 * GIB


def test_nothing_is_expected_of_a_device_whose_memory_is_unknown(model):
    end = predict(start(World(model, (Device("CUDA0", "CUDA"),)), WANTED)).verdict
    assert (end.outcome, end.predicted, end.config) == ("stopped", True, None)
    assert "not known" in end.says


def test_refused_settings_fit_nowhere_however_much_memory_there_is(model):
    world = World(model, (device(0, 80),))
    plan = predict(start(world, WANTED.evolve(flash_attn="off", cache_type_v="q8_0")))
    assert plan.attempts[0].diagnosis.cause is Cause.CONFIG
    assert not plan.attempts[0].worked
    assert not world.estimate(plan.verdict.config).config.errors


def test_what_was_really_verified_stays_verified(model):
    world = World(model, (device(0, 12),))
    plan = Reality(world).walk(start(world, WANTED))
    assert predict(plan) is plan
    assert plan.verdict.outcome == "verified"


def test_a_predicted_refusal_names_device_and_size(model):
    plan = predict(start(World(model, (device(0, 12),)), WANTED))
    found = plan.attempts[0].diagnosis
    assert found.title.startswith("The KV cache: CUDA0 is expected to refuse ")
    assert "short for the KV cache of" in found.summary
