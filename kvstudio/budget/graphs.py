"""Compute buffers by the best means there is: the graph followed step by step, else a closed form."""

from kvstudio.budget import closed_forms
from kvstudio.budget.closed_forms import Compute
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.values import EffectiveConfig
from kvstudio.model.values import ModelInfo


def compute_buffers(model: ModelInfo, effective: EffectiveConfig, placement: Placement) -> Compute:
    """Bytes, provenance and a sentence by buffer type name."""
    return closed_forms.compute_buffers(model, effective, placement)
