"""Which heads and cache types a backend's flash attention takes."""

from typing import Any

import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.budget.values import Budget
from kvstudio.launch.config import LaunchConfig
from tests.budget import zoo
from tests.budget.models import gpus, model


def of(name: str, backend: str = "CUDA", **typed: Any) -> Budget:
    return estimate(zoo.model(name), LaunchConfig(n_ctx=4096, n_parallel=1, **typed), gpus(20, backend=backend))


@pytest.mark.parametrize("name", ["llama31-8b", "gemma3-12b", "gpt-oss-20b", "deepseek-r1-671b", "mimo2-flash"])
def test_common_heads_have_a_kernel(name: str) -> None:
    assert of(name).config.flash_attn_on


def test_automatic_choice_is_switched_off_where_there_is_none() -> None:
    rare = of("llama31-8b", cache_type_k="iq4_nl")
    assert rare.config.flash_attn_on is False
    assert any("switched off" in note for note in rare.notes)
    assert of("llama31-8b", "Vulkan", cache_type_k="iq4_nl").config.flash_attn_on
    assert of("llama31-8b", "Vulkan", cache_type_k="bf16").config.flash_attn_on is False


def test_typed_choice_stays_and_the_cpu_computes() -> None:
    rare = of("llama31-8b", cache_type_k="iq4_nl", flash_attn="on")
    assert rare.config.flash_attn_on
    assert any("the CPU computes it" in note for note in rare.notes)


def test_uneven_heads_need_grouped_queries() -> None:
    odd = model("llama", attention__key_length=100, attention__value_length=100)
    assert estimate(odd, LaunchConfig(n_ctx=4096), gpus(8)).config.flash_attn_on is False
    assert estimate(odd, LaunchConfig(n_ctx=4096), ()).config.flash_attn_on
