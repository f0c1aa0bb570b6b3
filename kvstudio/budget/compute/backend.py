"""Backends as the scheduler sees them: which operations they run, which they take over, how they align and reorder."""

from collections.abc import Callable
from dataclasses import dataclass

from kvstudio.budget.compute.tensor import Tensor

#: Batch from which a device takes over operations on weights that live in host memory.
#: Source: GGML_OP_OFFLOAD_MIN_BATCH, ggml-cuda.cu and ggml-vulkan.cpp, read at build 11434.
OFFLOAD_MIN_BATCH = 32


@dataclass(frozen=True, slots=True)
class Backend:
    """One scheduler backend; the last one of a list is the CPU.

    `buffer_type` is where its nodes get memory; `max_bytes` the largest single buffer, None without a limit.
    `alloc_bytes` replaces a tensor's own size where the backend asks for more.
    """

    name: str
    buffer_type: str
    alignment: int
    max_bytes: int | None
    offloads: bool
    reorders: bool
    supports: Callable[[Tensor], bool] | None = None
    alloc_bytes: Callable[[Tensor], int] | None = None


def wants_offload(node: Tensor) -> bool:
    """Whether a device asks for a node although its weight is on the host.

    Source: offload_op and get_op_batch_size of the CUDA and Vulkan backends.
    """
    op, ne = node.op, node.ne
    if op == "GET_ROWS":
        return False
    if op == "MUL_MAT":
        return ne[1] >= OFFLOAD_MIN_BATCH
    if op in ("MUL_MAT_ID", "ROPE"):
        return ne[2] >= OFFLOAD_MIN_BATCH
    return ne[1] * ne[2] * ne[3] >= OFFLOAD_MIN_BATCH
