"""Refused settings: what is offered starts, changes one setting, and says which."""

import pytest

from kvstudio.advise.suggest import suggest
from kvstudio.launch.config import LaunchConfig
from tests.advise.world import device
from tests.budget import zoo

PLAIN = LaunchConfig(model_path="m.gguf", n_ctx=4096, n_gpu_layers=99, fit=False)


@pytest.mark.parametrize(
    ("name", "changes", "offered"),
    [
        ("llama31-8b", {"cache_type_v": "q8_0", "flash_attn": "off"}, {"cache_type_v", "flash_attn"}),
        ("llama31-8b", {"device": ("CUDA7",)}, {"device"}),
        ("llama31-8b", {"main_gpu": 5, "split_mode": "none"}, {"main_gpu", "split_mode"}),
    ],
)
def test_each_setting_that_is_part_of_the_refusal_can_be_taken_back(name, changes, offered):
    fixes = suggest(zoo.model(name), PLAIN.evolve(**changes), (device(0, 24), device(1, 24)))
    assert {fix.variable for fix in fixes} == offered
    for fix in fixes:
        assert not fix.budget.config.errors
        assert fix.budget.fits
        assert fix.config == PLAIN.evolve(**changes).evolve(**{fix.variable: None})
        assert fix.title.startswith("Without -")
        assert fix.why


def test_what_would_start_but_not_fit_is_not_offered():
    config = PLAIN.evolve(n_ctx=131072, cache_type_v="q8_0", flash_attn="off")
    fixes = suggest(zoo.model("llama31-8b"), config, (device(0, 15),))
    assert {fix.variable for fix in fixes} <= {"flash_attn"}


def test_settings_that_are_taken_get_no_such_advice():
    assert suggest(zoo.model("llama31-8b"), PLAIN, (device(0, 24),)) == ()


def test_a_model_that_keeps_k_only_is_offered_the_same_type_for_v():
    config = PLAIN.evolve(cache_type_k="q8_0")
    fixes = suggest(zoo.model("deepseek-v2-lite"), config, (device(0, 24),))
    assert {(fix.title, fix.after) for fix in fixes} == {("Without -ctk q8_0", None), ("With -ctv q8_0", "q8_0")}
    # V is not kept at all, so a quantized K is what makes room.
    assert fixes[0].title == "With -ctv q8_0"
    assert all(not fix.budget.config.errors for fix in fixes)
