"""Estimated beside measured, and what no buffer explains."""

from kvstudio.verify.compare import compare_buffers
from kvstudio.verify.memory import learned_overhead, peaks
from kvstudio.verify.values import MemorySample, PrintedBuffer
from tests.verify.budgets import budget_of

BUFFERS = (
    PrintedBuffer("Vulkan0", "Vulkan0", "model", 900, 1),
    PrintedBuffer("CPU_Mapped", None, "model", 50, 2),
    PrintedBuffer("Vulkan0", "Vulkan0", "kv", 80, 3),
    PrintedBuffer("Vulkan0", "Vulkan0", "kv", 20, 4),
)


def test_sizes_are_compared_per_device_and_kind():
    rows = compare_buffers(
        budget_of(Vulkan0={"model": 1000, "kv": 100}, Vulkan1={"kv": 40}, host={"model": 50}), BUFFERS
    )
    table = {(row.device, row.kind): (row.estimated, row.measured, row.difference) for row in rows}
    assert table == {
        ("Vulkan0", "model"): (1000, 900, -100),
        ("Vulkan0", "kv"): (100, 100, 0),
        ("Vulkan1", "kv"): (40, 0, -40),
        ("Host", "model"): (50, 50, 0),
    }


def test_a_kind_that_was_never_printed_is_unknown_not_zero():
    rows = compare_buffers(budget_of(Vulkan0={"compute": 7}), BUFFERS[:1])
    assert [(r.kind, r.measured, r.difference) for r in rows if r.kind == "compute"] == [("compute", None, None)]


def test_without_a_budget_only_measured_sizes_are_known():
    assert all(row.estimated is None for row in compare_buffers(None, BUFFERS))


def test_memory_that_no_buffer_explains_is_overhead_where_a_driver_counts():
    assert learned_overhead({"Vulkan0": 300}, {"Vulkan0": 1500}, BUFFERS) == (("Vulkan0", 200),)
    assert learned_overhead({}, {}, BUFFERS) == (("Vulkan0", None),)
    assert learned_overhead({"Vulkan0": 300}, {"Vulkan0": 400}, BUFFERS) == (("Vulkan0", 0),)


def test_the_peak_is_the_largest_sample_and_the_systems_own_record():
    samples = (
        MemorySample(0.0, (("A", 1), ("Host", 5))),
        MemorySample(1.0, (("A", 3),)),
        MemorySample(2.0, (("A", 2),)),
    )
    assert peaks(samples, 9) == (("A", 3), ("Host", 9))
    assert peaks(samples, 4) == (("A", 3), ("Host", 5))
