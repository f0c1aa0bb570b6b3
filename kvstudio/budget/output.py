"""The output buffer: logits (and embeddings) the program reads back, in host memory.

Source: llama.cpp b11434, src/llama-context.cpp (output_reserve).
"""

from kvstudio.budget.placement_values import BackendTraits, Placement
from kvstudio.budget.tensor_groups import CPU
from kvstudio.budget.values import EffectiveConfig
from kvstudio.model.values import ModelInfo

_FLOAT = 4


def output_bytes(model: ModelInfo, effective: EffectiveConfig, placement: Placement, rows: int | None = None) -> int:
    """Bytes for `rows` outputs, by default the one row per sequence that is reserved at the start."""
    n = effective.n_parallel if rows is None else max(rows, effective.n_parallel)
    embeds = effective.embeddings or model.architecture == "t5"
    width = model.n_vocab + (model.hparams["n_embd_out"] if embeds else 0)
    trait = _output_trait(placement)
    return _FLOAT * int(width) * n + (trait.host_extra if trait else 0)


def output_buffer_type(placement: Placement) -> str:
    """Pinned memory of the device with the output layer when it has any, else plain CPU memory."""
    trait = _output_trait(placement)
    return (trait.host_buffer_type if trait else None) or CPU


def _output_trait(placement: Placement) -> BackendTraits | None:
    device = placement.layer_device[-1]
    return None if device is None else placement.traits[placement.devices.index(device)]
