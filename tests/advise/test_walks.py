"""Walks over models, devices and settings drawn at random, in worlds that do and do not do what they report."""

import random

import pytest

from benchmarks.wizard_walks import WORLDS, broken_rules, draw
from kvstudio.advise.plan import start

MODELS = ("llama31-8b", "gemma3-1b", "mistral-7b", "mamba-2.8b")
WALKS = 4


@pytest.mark.parametrize("kind", WORLDS)
def test_walks_end_change_one_variable_and_find_what_fits(kind):
    rng = random.Random(kind)
    failing = 0
    while failing < WALKS:  # a command that works as given shows nothing
        drawn = draw(rng, kind, MODELS)
        plan = drawn.reality.walk(start(drawn.world, drawn.wanted))
        failing += not plan.attempts[0].worked
        assert broken_rules(drawn, plan) == [], drawn.label
