"""Buffer lines to buffers: what is added, what is replaced, whose memory it is."""

import pytest

from kvstudio.runlog.values import BufferPrinted, ConfigPrinted
from kvstudio.verify.printed import PrintedBuffers, device_of, printed_buffers


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("CUDA0", "CUDA0"),
        ("Vulkan12", "Vulkan12"),
        ("MTL0_Mapped", "MTL0"),
        ("RPC0[127.0.0.1:50052]", "RPC0[127.0.0.1:50052]"),
        ("CPU", None),
        ("CPU_Mapped", None),
        ("CPU_REPACK", None),
        ("CUDA_Host", None),
        ("AMX", None),
    ],
)
def test_whose_memory_a_buffer_is(name, device):
    assert device_of(name) == device


def test_two_caches_add_up_and_a_second_reservation_replaces():
    events = (
        ConfigPrinted(1, "n_seq_max", "1"),
        BufferPrinted(2, "CUDA0", "kv", 100),
        BufferPrinted(3, "CUDA0", "kv", 50),
        BufferPrinted(4, "CUDA0", "compute", 30),
        BufferPrinted(5, "CUDA0", "compute", 20),
    )
    collected = PrintedBuffers()
    collected.feed(events)
    assert collected.per_device() == {"CUDA0": 170}
    assert [b.line for b in collected.buffers] == [2, 3, 5]


def test_a_draft_context_has_its_own_compute_buffer():
    events = (
        ConfigPrinted(1, "n_seq_max", "1"),
        BufferPrinted(4, "CUDA0", "compute", 30),
        ConfigPrinted(6, "n_seq_max", "1"),
        BufferPrinted(7, "CUDA0", "compute", 20),
    )
    assert sum(b.bytes for b in printed_buffers(events)) == 50
