"""Model, settings and placement to bytes of compute buffer per device and host, remembered between calls."""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Any

from kvstudio.budget.compute.backend import Backend
from kvstudio.budget.compute.inputs import MIXED_BATCH_SINCE, Reserve
from kvstudio.budget.compute.known import Known
from kvstudio.budget.compute.layers import Kept, kept_layers
from kvstudio.budget.compute.simulate import (
    Simulated,
    backends_of,
    delta_net_survives,
    flash_attn_survives,
    placed_by_name,
    reserve_for,
    simulate,
)
from kvstudio.budget.placement_values import PlacedTensor, Placement
from kvstudio.budget.values import EffectiveConfig, Provenance
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

_PLACEMENTS_KEPT = 8
_SETTINGS_KEPT = 64


@dataclass(slots=True)
class _Samples:
    """Results by cells per sequence, everything else being equal."""

    at: list[int] = field(default_factory=list)
    results: list[Simulated] = field(default_factory=list)

    def add(self, n: int, result: Simulated) -> None:
        i = bisect_left(self.at, n)
        self.at.insert(i, n)
        self.results.insert(i, result)

    def get(self, n: int) -> Simulated | None:
        """The result for `n` if it was seen, or lies on a line through three results around it.

        A buffer's size is the highest of many straight lines in the number of cells, so three results on one line have
        nothing but that line between them.
        """
        i = bisect_left(self.at, n)
        if i < len(self.at) and self.at[i] == n:
            return self.results[i]
        for lo in (i - 2, i - 1):
            if lo >= 0 and lo + 2 < len(self.at) and self.at[lo] < n < self.at[lo + 2]:
                found = self._between(lo, n)
                if found is not None:
                    return found
        return None

    def _between(self, lo: int, n: int) -> Simulated | None:
        x0, x1, x2 = self.at[lo : lo + 3]
        a, b, c = self.results[lo : lo + 3]
        sizes = []
        for s0, s1, s2 in zip(a.sizes, b.sizes, c.sizes, strict=True):
            if (s1 - s0) * (x2 - x0) != (s2 - s0) * (x1 - x0) or (s2 - s0) * (n - x0) % (x2 - x0):
                return None
            sizes.append(s0 + (s2 - s0) * (n - x0) // (x2 - x0))
        return replace(b, sizes=tuple(sizes))


@dataclass(slots=True)
class _Prepared:
    """What one placement needs whatever the settings are; `placement` is held so that its identity stays its own."""

    placement: Placement
    placed: dict[str, PlacedTensor]
    backends: list[Backend]
    names: tuple[str, ...]
    kept: Kept | None = None
    samples: dict[Any, _Samples] = field(default_factory=dict)


def compute_buffers(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None = None
) -> dict[str, tuple[int, Provenance, str]]:
    """Bytes, provenance and reason of each compute buffer, by the buffer type's log name.

    `EXACT` where the architecture's own graph is followed on a backend whose rules were confirmed; else `ESTIMATED`.
    """
    prepared = _prepare(model, placement, effective.build)
    reserve = reserve_for(model, effective, placement, config, prepared.placed)
    key = _key(reserve, effective)
    samples = prepared.samples.get(key)
    if samples is None:
        if len(prepared.samples) >= _SETTINGS_KEPT:
            prepared.samples.pop(next(iter(prepared.samples)))
        samples = prepared.samples[key] = _Samples()
    result = samples.get(effective.n_ctx_seq)
    if result is None:
        result = _simulated(prepared, reserve, effective, key)
        samples.add(effective.n_ctx_seq, result)
    known = result.followed and model.known_architecture
    provenance = Provenance.EXACT if known and not _approximate(placement, reserve) else Provenance.ESTIMATED
    return {
        name: (size, provenance, why)
        for name, size, why in zip(prepared.names, result.sizes, result.reasons, strict=True)
    }


def _prepare(model: ModelInfo, placement: Placement, build: int) -> _Prepared:
    memo: dict[tuple[int, int], _Prepared] = model.memo.setdefault("compute_buffers", {})
    prepared = memo.get((id(placement), build))
    if prepared is None:
        if len(memo) >= _PLACEMENTS_KEPT:
            memo.pop(next(iter(memo)))
        backends = backends_of(placement, build)
        names = (*(placement.buffer_types or placement.devices), backends[-1].buffer_type)
        prepared = memo[id(placement), build] = _Prepared(placement, placed_by_name(placement), backends, names)
    return prepared


def _key(reserve: Reserve, effective: EffectiveConfig) -> Any:
    """All that matters but the number of cells."""
    swa = reserve.n_kv_swa if reserve.model.n_swa else 0
    return (
        replace(effective, n_ctx=0, n_ctx_seq=0), swa, reserve.n_tokens, reserve.n_outputs, reserve.pooling_kind,
    )  # fmt: skip


def _simulated(prepared: _Prepared, reserve: Reserve, effective: EffectiveConfig, key: Any) -> Simulated:
    if prepared.kept is None:
        prepared.kept = kept_layers(reserve)
    known: Known = reserve.model.memo.setdefault("simulated", Known())
    settings = _settings(reserve, effective, key)
    probe = _probe_settings(reserve, effective)
    if effective.flash_attn == "auto" and reserve.flash_attn:
        reserve.flash_attn = flash_attn_survives(reserve, prepared.backends, known, probe)
    if any(layer.is_recurrent for layer in reserve.layers) and _shared(prepared.placement):
        reserve.fused_delta = delta_net_survives(reserve, prepared.backends, known, probe)
    return simulate(
        reserve, prepared.backends, prepared.kept, known, (settings, reserve.flash_attn, reserve.fused_delta)
    )


def _shared(placement: Placement) -> bool:
    """Whether an operation may land elsewhere than its layer: some layers are on devices, or some are not."""
    return bool(placement.devices) and None in placement.layer_device


def _settings(reserve: Reserve, effective: EffectiveConfig, key: Any) -> Any:
    """All that decides a reserve but the model and what its placement says: how many layers are on devices."""
    return (
        replace(
            effective, n_gpu_layers=0, overrides=(), notes=(), errors=(), n_batch=0, fit=False, pipeline_copies=1,
            load_mode="", lazy_mode="", repack=True, no_host=False,
        ),
        reserve.full_offload, key[1:],
    )  # fmt: skip


def _probe_settings(reserve: Reserve, effective: EffectiveConfig) -> Any:
    """The same for a probe, whose batch is its own."""
    return (
        replace(
            effective, n_gpu_layers=0, overrides=(), notes=(), errors=(), n_batch=0, fit=False, pipeline_copies=1,
            load_mode="", lazy_mode="", repack=True, no_host=False, n_ctx=0, n_ctx_seq=0, n_parallel=0, n_ubatch=0,
            n_outputs_max=0,
        ),
        reserve.full_offload, reserve.pooling_kind,
    )  # fmt: skip


#: Backends whose buffers were met to the byte in real runs. CUDA's rules are followed too, but no run confirmed them.
_MET = frozenset({"Vulkan", "RPC"})


def _approximate(placement: Placement, reserve: Reserve) -> bool:
    """Is a backend, or an order of operations, not confirmed? The latter: DeepSeek V4 before some were merged."""
    if reserve.arch == "deepseek4" and reserve.config.build < MIXED_BATCH_SINCE and placement.traits:
        return True
    return any(traits.backend not in _MET for traits in placement.traits)
