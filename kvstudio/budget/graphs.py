"""Compute buffers by the best means there is: the graph followed step by step, else a closed form."""

from kvstudio.budget import closed_forms, compute
from kvstudio.budget.closed_forms import Compute
from kvstudio.budget.compute.families import BUILDERS, STYLES
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.values import EffectiveConfig, Provenance
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

_KEPT = 256
_FOLLOWED = "The graph llama.cpp reserves for {tokens} tokens, allocated step by step{copies}."

Key = tuple[int, EffectiveConfig, str | None]


def compute_buffers(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None = None
) -> Compute:
    """Bytes, provenance and a sentence by buffer type name; remembered per model."""
    kept: dict[Key, tuple[Placement, Compute]] = model.memo.setdefault("compute", {})
    key = (id(placement), effective, config.pooling if config else None)
    known = kept.get(key)
    if known is not None and known[0] is placement:
        return known[1]
    if len(kept) >= _KEPT:
        kept.clear()
    found = _compute(model, effective, placement, config)
    kept[key] = placement, found
    return found


def can_follow(model: ModelInfo) -> bool:
    """Whether the model's graph is known operation by operation."""
    return model.known_architecture and (model.architecture in STYLES or model.architecture in BUILDERS)


def _compute(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None
) -> Compute:
    if not can_follow(model) or placement.shares:
        return closed_forms.compute_buffers(model, effective, placement)
    try:
        found = compute.compute_buffers(model, effective, placement, config)
    except LookupError:  # the file lacks tensors the architecture's graph is made of
        return closed_forms.compute_buffers(model, effective, placement)
    return {
        name: (n_bytes, provenance, why or _why(effective, provenance))
        for name, (n_bytes, provenance, why) in found.items()
        if n_bytes
    }


def _why(effective: EffectiveConfig, provenance: Provenance) -> str:
    tokens = min(effective.n_ctx, effective.n_ubatch)
    copies = f" with {effective.pipeline_copies} pipeline copies" if effective.pipeline_copies > 1 else ""
    sentence = _FOLLOWED.format(tokens=tokens, copies=copies)
    return sentence if provenance is Provenance.EXACT else f"Estimated: {sentence[0].lower()}{sentence[1:]}"
