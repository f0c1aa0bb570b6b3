"""advise.choices: four wishes as steps, each with what it leaves on the tightest device."""

from dataclasses import replace

import pytest

from kvstudio.advise.choices import choices, context_steps, room_of
from kvstudio.budget.estimate import estimate
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB
from tests.budget import zoo

MODEL = zoo.model("qwen3-32b")
DEVICES = tuple(Device(f"CUDA{i}", "CUDA", total_bytes=24 * GIB, free_bytes=23 * GIB) for i in range(2))
HOST = Device("Host", "CPU", total_bytes=64 * GIB, free_bytes=50 * GIB)
CONFIG = LaunchConfig(model_path="m.gguf", n_ctx=32768, n_gpu_layers=99)


def at(config, devices=DEVICES):
    return estimate(MODEL, config, devices, host=HOST, build=11434)


@pytest.fixture(scope="module")
def found():
    return {choice.field: choice for choice in choices(at, CONFIG, at(CONFIG), MODEL.n_ctx_train)}


def test_each_step_says_what_the_changed_launch_leaves(found):
    for choice in found.values():
        for step in choice.steps:
            changed = CONFIG if step.is_now else CONFIG.evolve(**dict(step.change))
            assert step.room_bytes == room_of(at(changed))
            assert step.fits == (at(changed).fits is not False)


def test_one_step_of_each_wish_is_the_present_one(found):
    assert list(found) == ["n_ctx", "n_parallel", "cache_type_k", "n_gpu_layers"]
    assert all(sum(step.is_now for step in choice.steps) == 1 for choice in found.values())


def test_more_of_a_wish_leaves_less(found):
    for field in ("n_ctx", "cache_type_k"):
        rooms = [step.room_bytes for step in found[field].steps]
        assert rooms == sorted(rooms, reverse=True)
    separate = [step.room_bytes for step in found["n_parallel"].steps if not step.is_now]
    assert separate == sorted(separate, reverse=True)


def test_only_contexts_beyond_the_trained_one_are_marked(found):
    assert {step.label: step.beyond for step in found["n_ctx"].steps}["40960"] is False
    assert [s.beyond for s in found["n_ctx"].steps] == [int(s.label) > 40960 for s in found["n_ctx"].steps]
    assert any(step.beyond for step in found["n_ctx"].steps)


@pytest.mark.parametrize(("now", "trained"), [(256, 0), (4096, 40960), (65536, 40960), (1_000_000, 262144)])
def test_steps_have_now_and_the_trained_context_and_go_beyond(now, trained):
    steps = context_steps(now, trained)
    assert now in steps
    assert not trained or trained in steps
    assert steps[-1] > max(now, trained)
    assert list(steps) == sorted(set(steps))
    assert len(steps) <= 6


def test_a_cpu_has_no_layers_to_give():
    budget = at(CONFIG, ())
    fields = [c.field for c in choices(lambda config: at(config, ()), CONFIG, budget, MODEL.n_ctx_train)]
    assert "n_gpu_layers" not in fields


def test_unknown_memory_is_unknown():
    devices = tuple(replace(d, total_bytes=None, free_bytes=None) for d in DEVICES)
    budget = estimate(MODEL, CONFIG, devices, build=11434)
    found = choices(lambda config: estimate(MODEL, config, devices, build=11434), CONFIG, budget, 40960)
    assert all(step.fits is None for choice in found for step in choice.steps)
