"""The types a cache can have, by the names `-ctk` and `-ctv` take."""

from kvstudio.header.types import TENSOR_TYPES, TensorType
from kvstudio.launch.config import CACHE_TYPES

_BY_NAME: dict[str, TensorType] = {kind.name: kind for kind in TENSOR_TYPES.values() if kind.name in CACHE_TYPES}
F16 = _BY_NAME["f16"]


def cache_type(name: str | None) -> TensorType:
    """The type of that name; f16, llama.cpp's default, for None and for a name it does not know."""
    return _BY_NAME.get(name or "f16", F16)


def row_bytes(kind: TensorType, n_elements: int) -> int:
    """Bytes of one row of so many elements, cut down to whole blocks as ggml does."""
    return n_elements // kind.block * kind.block_bytes
