"""What a reserve graph depends on: the model, the resolved settings and where everything lives, looked up by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvstudio.budget.compute.tensor import CACHE_TYPE_IDS, F16, Tensor
from kvstudio.budget.placement_values import PlacedTensor, Placement
from kvstudio.budget.pooling import pooling_kind
from kvstudio.budget.values import EffectiveConfig
from kvstudio.header.values import ArrayValue
from kvstudio.model.values import Layer, ModelInfo

#: First build that lets one batch mix token ids and embeddings.
MIXED_BATCH_SINCE = 11000
#: Architectures whose graphs take one kind of input at a time. Source: llm_arch_supports_mixed_batch.
NO_MIXED_BATCH = frozenset({"cogvlm", "deepseek4", "graniteswitch", "eagle3", "dflash", "gemma4-assistant"})


def pad(value: int, to: int) -> int:
    return (value + to - 1) // to * to


@dataclass(slots=True)
class Reserve:
    """The worst-case batch llama.cpp reserves for, and lookups into model and placement.

    `n_tokens` is already a multiple of `n_seqs`; `weights` caches one leaf per placed tensor.
    """

    model: ModelInfo
    config: EffectiveConfig
    placement: Placement
    n_tokens: int
    n_seqs: int
    n_outputs: int
    flash_attn: bool
    embeddings: bool = False
    pooling: str | None = None
    mtp: bool = False
    #: Whether the gated delta rule is one operation.
    fused_delta: bool = True
    placed: Mapping[str, PlacedTensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    caches: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    # -- model ---------------------------------------------------------------------------------------------------

    @property
    def arch(self) -> str:
        return self.model.architecture

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.model.layers

    def key(self, name: str, default: Any = None) -> Any:
        """A metadata value of this architecture, `name` without its prefix."""
        value = self.model.header.metadata.get(f"{self.arch}.{name}", default)
        return value.values if isinstance(value, ArrayValue) else value

    def number(self, name: str, default: float = 0) -> float:
        value = self.key(name)
        if isinstance(value, (list, tuple)):
            return value[0] if value else default
        return default if value is None or isinstance(value, str) else value

    def whole(self, name: str, default: int = 0) -> int:
        return int(self.number(name, default))

    def per_layer(self, name: str, il: int, default: int = 0) -> int:
        value = self.key(name)
        if isinstance(value, (list, tuple)):
            return int(value[il]) if il < len(value) else default
        return default if value is None else int(value)

    # -- weights and caches --------------------------------------------------------------------------------------

    def weight(self, name: str) -> Tensor | None:
        """The leaf of a weight, None when the model has no such tensor."""
        leaf = self.weights.get(name)
        if leaf is not None:
            return leaf
        placed = self.placed.get(name)
        if placed is None:
            return None
        ne = (*placed.tensor.shape, 1, 1, 1, 1)[:4]
        leaf = Tensor("NONE", placed.tensor.type_id, ne)  # type: ignore[arg-type]
        leaf.home = placed.device or placed.buffer_type
        leaf.weight = True
        self.weights[name] = leaf
        return leaf

    def device(self, il: int) -> str:
        """Backend name of a layer's device."""
        return self.placement.layer_device[il] or "CPU"

    def cache_home(self, il: int) -> str:
        return self.device(il) if self.config.kv_offload else "CPU"

    def cache(self, kind: str, il: int, type_id: int, ne: tuple[int, int, int]) -> Tensor:
        leaf = self.caches.get((kind, il))
        if leaf is None:
            leaf = Tensor("NONE", type_id, (*ne, 1))
            leaf.home = self.cache_home(il)
            self.caches[kind, il] = leaf
        return leaf

    # -- settings ------------------------------------------------------------------------------------------------

    @property
    def n_stream(self) -> int:
        return 1 if self.config.kv_unified else self.config.n_parallel

    @property
    def n_ctx_seq(self) -> int:
        return self.config.n_ctx_seq

    @property
    def n_kv_swa(self) -> int:
        """Cells of the sliding-window cache. Source: llama_kv_cache_iswa constructor."""
        n_kv = self.n_ctx_seq
        if self.config.swa_full:
            return n_kv
        seqs = self.config.n_parallel if self.config.kv_unified else 1
        return pad(min(n_kv, self.model.n_swa * seqs + self.config.n_ubatch), 256)

    @property
    def type_k(self) -> int:
        return CACHE_TYPE_IDS.get(self.config.cache_type_k, F16)

    @property
    def type_v(self) -> int:
        return CACHE_TYPE_IDS.get(self.config.cache_type_v, F16)

    @property
    def v_trans(self) -> bool:
        """The V cache is laid out before `auto` is resolved, so only a typed `off` transposes it."""
        return self.config.flash_attn == "off" or (self.arch == "grok")

    @property
    def pooling_kind(self) -> str:
        return pooling_kind(self.model, self.pooling)

    @property
    def full_offload(self) -> bool:
        asked = self.config.n_gpu_layers
        return asked < 0 or asked > self.model.n_layer_all

    @property
    def fused_indexer(self) -> bool:
        """Newer builds take the fused indexer for granted, older ones ask the layers' devices: only the CPU had it."""
        return self.config.build >= MIXED_BATCH_SINCE or not any(self.placement.layer_device[: self.model.n_layer])

    @property
    def mixed(self) -> bool:
        return self.config.build >= MIXED_BATCH_SINCE and self.arch not in NO_MIXED_BATCH and not self.mtp
