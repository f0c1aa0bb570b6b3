"""Memory against context: where curves end, and what the tables say."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kvstudio.advise.by_context import (
    N_CTX_STEP,
    axis_end,
    by_context,
    card,
    cost_contexts,
    largest_step,
    limits,
    type_name,
    with_type,
)
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB
from tests.ui import samples


def view(**options):
    return by_context(samples.estimate, samples.CONFIG, samples.FAILS, 40960, samples.largest, **options)


def test_the_current_type_comes_first_and_the_others_follow():
    assert [curve.cache_type for curve in view().curves] == ["f16", "q8_0", "q4_0"]
    mixed = replace(samples.FAILS, config=replace(samples.EFFECTIVE, cache_type_k="q8_0", cache_type_v="f16"))
    assert type_name(mixed) == "q8_0/f16"
    typed = with_type(LaunchConfig(), "q8_0/f16")
    assert (typed.cache_type_k, typed.cache_type_v) == ("q8_0", "f16")


def test_each_device_ends_where_its_memory_does():
    seen = view()
    cuda0, cuda1 = seen.curves[0].fits
    assert seen.largest == min(cuda0, cuda1)
    assert seen.deciding == "CUDA1"
    for index, end in enumerate(seen.curves[0].fits):
        assert samples.estimate(samples.CONFIG.evolve(n_ctx=end)).devices[index].fits
        assert not samples.estimate(samples.CONFIG.evolve(n_ctx=end + N_CTX_STEP)).devices[index].fits


def test_smaller_types_reach_further():
    ends = [curve.fits[1] for curve in view().curves]
    assert ends == sorted(ends)


def test_curves_never_fall():
    for curve in view().curves:
        for index in (0, 1):
            sizes = [p.devices[index].kv_bytes for p in curve.points]
            assert sizes == sorted(sizes)
            assert curve.points[-1].n_ctx == 131072


def test_sizes_too_small_for_the_model_are_one_row_and_this_machine_is_the_last():
    rows = view().limits
    assert rows[0].label == "8, 12, 16 GB card"
    assert rows[0].n_ctx == (None, None, None, None)
    assert rows[-1].is_this_machine
    assert [row.label for row in rows[1:-1]] == ["24 GB card", "32 GB card", "48 GB card", "80 GB card"]


def test_limits_ask_without_the_typed_placement():
    asked = []

    def largest(config, devices):
        asked.append((config.tensor_split, config.cache_type_k, devices))
        return 4096

    limits(largest, samples.CONFIG, ("f16",))
    assert {split for split, _, _ in asked} == {None}
    assert asked[0][2] == (card(8),)
    assert len(asked) == 8
    assert asked[-1][2] is None


def test_costs_are_linear_in_the_context_here():
    rows = {row.n_ctx: row.kv_bytes for row in view().costs}
    assert set(rows) == {8192, 16384, 32768, 40960, 65536, 131072}
    assert rows[65536][0] == 16 * GIB
    assert rows[131072][0] == 32 * GIB
    assert rows[65536][1] == 16 * GIB * 34 // 64


def test_no_device_leaves_the_host():
    budget = replace(samples.FAILS, devices=(), first_failure=None)
    seen = by_context(lambda _: budget, samples.CONFIG, budget, 40960)
    assert [d.name for d in seen.curves[0].points[0].devices] == ["Host"]
    assert seen.limits == ()


def test_the_axis_shows_twice_the_present_and_all_of_the_trained_context():
    assert axis_end(65536, 40960) == 131072
    assert axis_end(4096, 131072) == 131072
    assert axis_end(0, 0) == 8192
    assert cost_contexts(5000, 40960, 65536) == (5000, 8192, 16384, 32768, 40960, 65536)


@given(end=st.integers(0, 600), limit=st.integers(1, 512))
def test_bisection_finds_the_last_that_fits(end, limit):
    found = largest_step(lambda n_ctx: n_ctx <= end * N_CTX_STEP, limit * N_CTX_STEP)
    assert found == (min(end, limit) * N_CTX_STEP or None)


def test_estimates_are_few_enough_for_a_click():
    made = []

    def counted(config):
        made.append(config)
        return samples.estimate(config)

    by_context(counted, samples.CONFIG, samples.FAILS, 40960)
    assert len(made) < 80
    assert len({(c.n_ctx, c.cache_type_k) for c in made}) == len(made)
