"""Where the pieces of a bar go, without a window."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.budget.values import BufferKind, FirstFailure
from kvstudio.ui import text
from kvstudio.ui.widgets import bar_geometry as geometry
from kvstudio.units import GIB, MIB
from tests.ui import samples

NAMES = {kind: text.kind_name(kind, short=True) for kind in BufferKind}


def measure(words: str) -> float:
    return 7.0 * len(words)


def lay_out(budget, width=678.0, ratio=1.0, **options):
    return geometry.lay_out(geometry.group_values(budget), width, NAMES, measure, ratio, **options)


def by_kind(row):
    return {segment.kind: segment for segment in row.segments}


def test_devices_share_one_scale_and_the_host_has_its_own():
    shown = lay_out(samples.FAILS)
    cuda0, cuda1, host = shown.rows
    assert [row.values.name for row in shown.rows] == ["CUDA0", "CUDA1", "Host"]
    assert cuda0.capacity_x == cuda1.capacity_x
    assert host.capacity_x > cuda0.capacity_x
    same = by_kind(cuda0)[BufferKind.OVERHEAD].width - by_kind(cuda1)[BufferKind.OVERHEAD].width
    assert abs(same) <= 1
    assert len(shown.axes) == 2


def test_past_the_tick_everything_is_overflow():
    row = lay_out(samples.FAILS).rows[1]
    over = by_kind(row)[None]
    assert over.x == row.capacity_x
    assert over.bytes == pytest.approx(row.values.used_bytes - samples.CARD)
    assert BufferKind.COMPUTE not in by_kind(row), "it lies wholly past the tick"
    assert all(s.x + s.width <= row.capacity_x for s in row.segments if s.kind is not None)


def test_the_bracket_spans_the_whole_failing_segment():
    row = lay_out(samples.FAILS).rows[1]
    kv = by_kind(row)[BufferKind.KV]
    assert row.bracket.left == kv.x
    assert row.bracket.right > row.capacity_x
    assert lay_out(samples.FITS).rows[1].bracket is None


def test_a_bracket_for_a_kind_that_is_not_there_is_left_out():
    odd = replace(samples.FITS, first_failure=FirstFailure("CUDA0", BufferKind.RS, 1, 1, 0))
    assert lay_out(odd).rows[0].bracket is None


def test_labels_shrink_and_vanish_before_they_are_cut():
    wide, narrow = lay_out(samples.FAILS).rows[0], lay_out(samples.FAILS, width=420).rows[0]
    assert by_kind(wide)[BufferKind.MODEL].label == "Weights 9.0"
    assert by_kind(narrow)[BufferKind.MODEL].label == "9.0"
    assert by_kind(wide)[BufferKind.OVERHEAD].label == ""
    for row in (wide, narrow):
        for segment in row.segments:
            assert not segment.label or measure(segment.label) + 16 <= segment.width


@pytest.mark.parametrize(
    ("gib", "marks"),
    [
        (24, [0, 6, 12, 18, 24]),
        (23.988, [0, 6, 12, 18, 24]),
        (62.6, [0, 16, 32, 48]),
        (8, [0, 2, 4, 6, 8]),
        (80, [0, 24, 48, 72]),
        (16, [0, 4, 8, 12, 16]),
        (0.5, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
    ],
)
def test_an_axis_has_four_to_six_lines(gib, marks):
    device = replace(samples.FITS.devices[0], total_bytes=round(gib * GIB), free_bytes=round(gib * GIB), other_bytes=0)
    small = replace(device, model_bytes=MIB, kv_bytes=0, compute_bytes=0, overhead_bytes=0)
    axis = lay_out(replace(samples.FITS, devices=(small,))).axes[0]
    assert [float(t.text.split()[0]) for t in axis.ticks] == marks
    assert axis.ticks[0].text == "0 GiB"


def test_nothing_is_drawn_for_kinds_without_memory_and_unknown_capacity_has_no_tick():
    unknown = replace(samples.FITS.devices[0], total_bytes=None, free_bytes=None, other_bytes=None, overhead_bytes=None)
    row = lay_out(replace(samples.FITS, devices=(unknown,))).rows[0]
    assert row.capacity_x is None
    assert row.values.free_bytes is None
    assert set(by_kind(row)) == {BufferKind.MODEL, BufferKind.KV, BufferKind.COMPUTE}


def test_what_others_hold_is_what_is_not_free_when_nobody_names_them():
    device = replace(samples.FITS.devices[1], other_bytes=None)
    assert geometry.amounts(device)[0] == geometry.Amount(BufferKind.OTHER_PROCESSES, samples.CUDA1_OTHER)


def test_no_devices_leaves_the_host():
    shown = lay_out(replace(samples.FITS, devices=()))
    assert [row.values.name for row in shown.rows] == ["Host"]


def test_many_devices_move_together():
    eight = tuple(replace(samples.FITS.devices[0], name=f"CUDA{i}") for i in range(8))
    failing = replace(samples.FAILS, devices=(*eight[:1], samples.FAILS.devices[1], *eight[2:]))
    shown = lay_out(failing)
    gaps = [b.y - a.y - geometry.BAR_HEIGHT for a, b in zip(shown.rows, shown.rows[1:])]
    assert gaps[0] == geometry.GAP_MANY
    assert gaps[1] >= geometry.BRACKET_HEIGHT


def test_a_pair_of_pictures_shares_one_scale():
    scale = geometry.shared_scale(samples.FAILS, samples.FITS)
    before = geometry.group_values(samples.FAILS, host=False, at_least=scale)
    after = geometry.group_values(samples.FITS, host=False, at_least=scale)
    assert before[0].scale_bytes == after[0].scale_bytes
    assert len(before) == 1


def test_a_hit_finds_the_segment_that_is_drawn_there():
    shown = lay_out(samples.FAILS)
    for i, row in enumerate(shown.rows):
        for j, segment in enumerate(row.segments):
            assert shown.hit(segment.x + segment.width / 2, row.y + 5) == (i, j)
    assert shown.hit(2, shown.rows[0].y + 5) is None
    assert shown.hit(shown.rows[0].segments[0].x, shown.rows[0].y - 9) is None


@given(
    sizes=st.lists(st.integers(0, 200 * GIB), min_size=1, max_size=8).map(tuple),
    width=st.floats(80, 2000),
    ratio=st.sampled_from([1.0, 1.25, 1.5, 2.0]),
)
def test_widths_are_whole_pixels_that_add_up(sizes, width, ratio):
    scale = max(sum(sizes), 1)
    found = geometry.widths(sizes, scale, width, ratio)
    least = round(geometry.MIN_SEGMENT * ratio)
    assert all(w >= least for w, size in zip(found, sizes) if size)
    assert all(w == 0 for w, size in zip(found, sizes) if not size)
    crowded = sum(1 for size in sizes if size) * least
    if any(sizes) and crowded * len(sizes) < width * ratio:
        assert abs(sum(found) - width * ratio) <= 1


@given(t=st.floats(0, 1))
def test_a_glide_stays_between_its_ends(t):
    old, new = geometry.group_values(samples.FAILS), geometry.group_values(samples.FITS)
    assert geometry.same_bars(old, new)
    middle = geometry.between(old, new, t)
    for one, mid, two in zip(old[0].rows, middle[0].rows, new[0].rows):
        low, high = sorted((one.used_bytes, two.used_bytes))
        assert low - 1 <= mid.used_bytes <= high + 1
        assert mid.failure == two.failure


def test_an_axis_far_beyond_a_small_device_has_few_lines_and_no_label_touches_the_next():
    small = replace(
        samples.FITS.devices[0],
        total_bytes=2 * GIB,
        free_bytes=2 * GIB,
        other_bytes=0,
        model_bytes=18 * GIB,
        kv_bytes=0,
    )
    for width in (420, 680):
        axis = lay_out(replace(samples.FITS, devices=(small,)), width=width).axes[0]
        assert 4 <= len(axis.ticks) <= 6
        spans = [(t.x - measure(t.text) / 2, t.x + measure(t.text) / 2) for t in axis.ticks[1:] if t.text]
        assert all(a[1] + geometry.TICK_AIR <= b[0] for a, b in pairwise(spans))


def test_idle_devices_have_a_bar_of_what_others_hold():
    used, idle = samples.FAILS.devices
    groups = geometry.group_values(replace(samples.FAILS, devices=(used,), idle=(replace(idle, kv_bytes=0),)))
    assert [row.name for row in groups[0].rows] == ["CUDA0", "CUDA1"]
    assert groups[0].rows[1].layers == "not used"
    assert groups[0].rows[1].failure is None


def test_weights_mapped_from_the_file_give_way_and_never_overflow():
    host = replace(
        samples.FITS.host, total_bytes=32 * GIB, free_bytes=25 * GIB, other_bytes=7 * GIB, model_bytes=30 * GIB
    )
    asked = replace(samples.FITS, devices=(), idle=(), host=replace(host, mapped_bytes=20 * GIB))
    ((row,),) = geometry.row_values(asked)
    assert row.used_bytes == row.total_bytes
    assert row.is_available and row.free_bytes == asked.host.room_bytes
    ((over,),) = geometry.row_values(replace(asked, host=host))
    assert not over.is_available and over.free_bytes == host.room_bytes < 0


def test_a_small_mapped_part_leaves_free_memory_as_it_is():
    host = replace(samples.FITS.host, mapped_bytes=samples.FITS.host.model_bytes // 2)
    ((row,),) = geometry.row_values(replace(samples.FITS, devices=(), idle=(), host=host))
    assert not row.is_available
    assert row.free_bytes == row.total_bytes - row.used_bytes
