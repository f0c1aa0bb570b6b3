"""What a GGUF header says, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class ArrayValue:
    """A metadata array; `values` is None where the reader skipped it (strings, or longer than the reader keeps)."""

    element_type: int
    count: int
    values: tuple[Scalar, ...] | None


MetadataValue = Scalar | ArrayValue


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One row of the tensor table. `shape` as stored (ne0 first); `offset` in bytes from its shard's data section."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    n_bytes: int
    shard: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of the model. `need_bytes` is where the last tensor ends; a smaller `size_bytes` is incomplete."""

    path: str
    size_bytes: int
    data_offset: int
    alignment: int
    n_tensors: int
    need_bytes: int

    @property
    def complete(self) -> bool:
        return self.size_bytes >= self.need_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata of the first shard, tensors of all shards in file order.

    `missing_shards` names files that a split model should have and that are not there.
    """

    path: str
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[TensorInfo, ...]
    shards: tuple[Shard, ...]
    missing_shards: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def need_bytes(self) -> int:
        return sum(shard.need_bytes for shard in self.shards)
