"""Walks over models, devices and settings drawn at random, in worlds that do and do not do what they report."""

import random

import pytest

from benchmarks.wizard_walks import WORLDS, broken_rules, draw
from kvstudio.advise.plan import start

MODELS = ("llama31-8b", "gemma3-4b", "mistral-7b", "mamba-2.8b", "qwen3-30b-a3b", "qwen2.5-32b", "phi3-mini-128k")


@pytest.mark.parametrize("kind", WORLDS)
def test_walks_end_change_one_variable_and_find_what_fits(kind):
    rng = random.Random(kind)
    failing = 0
    for _ in range(12):
        drawn = draw(rng, kind, MODELS)
        plan = drawn.reality.walk(start(drawn.world, drawn.wanted))
        failing += not plan.attempts[0].worked
        assert broken_rules(drawn, plan, honest=kind == "honest") == [], drawn.label
    assert failing, "a draw in which everything works shows nothing"
