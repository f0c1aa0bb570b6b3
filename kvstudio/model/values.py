"""What a model is, as far as memory goes."""

from dataclasses import dataclass, field
from typing import Any

from kvstudio.header.values import Header


@dataclass(frozen=True, slots=True)
class Layer:
    """One slot of `n_layer_all`; widths are elements per token."""

    index: int
    n_head: int
    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    n_ff: int
    is_swa: bool
    is_recurrent: bool
    has_kv: bool

    @property
    def n_embd_k_gqa(self) -> int:
        return self.n_embd_head_k * self.n_head_kv

    @property
    def n_embd_v_gqa(self) -> int:
        return self.n_embd_head_v * self.n_head_kv


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as llama.cpp would load it; `n_layer` is the trunk, `n_layer_all` includes MTP blocks.

    `hparams` holds what single architectures add (ssm_*, MLA ranks, indexer sizes...), by llama.cpp's names.
    `known_architecture` is False for names outside the table: then every number made from it is an estimate,
    and `missing_keys` says which keys would have been needed. `memo` holds tables the budget derives once per model.
    """

    header: Header
    architecture: str
    name: str
    size_label: str | None
    file_type: str | None
    n_layer: int
    n_layer_all: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    n_swa: int
    layers: tuple[Layer, ...]
    n_params: int
    tensor_bytes: int
    known_architecture: bool
    missing_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hparams: dict[str, Any] = field(default_factory=dict, hash=False)
    memo: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def size_bytes(self) -> int:
        return self.header.size_bytes

    @property
    def n_layer_nextn(self) -> int:
        return self.n_layer_all - self.n_layer
