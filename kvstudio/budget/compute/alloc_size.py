"""Backends that ask for more than a tensor's own bytes.

Source: get_alloc_size of ggml-cuda.cu (and SYCL, which follows it), fattn-common.cuh, read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.inputs import pad
from kvstudio.budget.compute.tensor import BLOCKS, F16, Tensor
from kvstudio.budget.placement_values import BackendTraits

_ROW_PADDING = 512
_ALIGNMENT = 128


def alloc_bytes_of(traits: BackendTraits) -> Callable[[Tensor], int] | None:
    """The rule of a backend; None where a tensor takes its own size."""
    if not traits.pads_quantized_rows and not traits.flash_attn_scratch:
        return None
    return _padded_with_scratch if traits.flash_attn_scratch else _padded


def _padded(tensor: Tensor) -> int:
    per, size = BLOCKS.get(tensor.type, (1, 4))
    rest = tensor.ne[0] % _ROW_PADDING
    if per == 1 or rest == 0:
        return tensor.n_bytes
    return tensor.n_bytes + (_ROW_PADDING - rest) // per * size


def _padded_with_scratch(tensor: Tensor) -> int:
    if tensor.op != "FLASH_ATTN_EXT":
        return _padded(tensor)
    k, v = tensor.src[1], tensor.src[2]
    total = tensor.n_bytes
    if k.type != F16:
        total = pad(total, _ALIGNMENT) + 2 * k.n_elements
    if v.type != F16 and not _shares(k, v):
        total = pad(total, _ALIGNMENT) + 2 * v.n_elements
    return total


def _shares(k: Tensor, v: Tensor) -> bool:
    """Whether V is a view of the cached K rows, as in latent attention."""
    k = k if k.origin is None else k.origin
    v = v if v.origin is None else v.origin
    return v.view_src is not None and v.view_src is k.view_src
