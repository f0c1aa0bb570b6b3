"""wrapped: lines that were broken in two are read with the size and device of both halves."""

import pytest

from kvstudio.diagnose.diagnose import diagnose
from kvstudio.diagnose.values import Diagnosis
from tests.diagnose.samples import lines_of

MALLOC = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 1: cudaMalloc failed: out of memory"
)
BUFFER = "ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 2147483648"
CPU = "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 2147483648"


def read(text: str) -> Diagnosis:
    return diagnose(lines_of(text))


@pytest.mark.parametrize("at", ["on ", "device "])
def test_a_broken_allocator_line_counts_from_its_first_half(at: str) -> None:
    upper, lower = MALLOC.split(at, 1)
    found = read(f"main: a line before\n{upper}{at.rstrip()}\n   {lower}\n{BUFFER}")
    assert found.key_line is not None and found.key_line.number == 2
    assert (found.device, found.requested_bytes) == ("CUDA1", 2147483648)


@pytest.mark.parametrize("whole", [BUFFER, CPU])
@pytest.mark.parametrize("at", ["of size", "size", ""])
def test_a_size_on_the_next_line_belongs_to_the_buffer(whole: str, at: str) -> None:
    upper, lower = whole.rsplit(at, 1) if at else whole.rsplit(" ", 1)
    found = read(f"{upper.rstrip()}\n  {at}{lower}; and more")
    assert (found.requested_bytes, found.bytes_exact) == (2147483648, True)


def test_the_size_of_another_line_is_not_taken() -> None:
    found = read(f"cudaMalloc failed: out of memory\n{MALLOC}\n{BUFFER}")
    assert found.requested_bytes == 2147483648
    lone = read("alloc_tensor_range: failed to allocate CUDA0 buffer\nload_tensors: CPU model buffer of size 4096 MiB")
    assert lone.requested_bytes is None
