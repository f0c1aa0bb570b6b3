"""Whether a backend has a flash attention kernel for a model's heads and cache types.

Source: llama.cpp b11434, ggml/src/ggml-cuda/fattn.cu (ggml_cuda_get_best_fattn_kernel), ggml/src/ggml-vulkan.
"""

from kvstudio.budget.placement_values import Placement
from kvstudio.budget.values import EffectiveConfig
from kvstudio.model.values import Layer, ModelInfo

_CUDA = ("CUDA", "ROCm", "MUSA")
_CUDA_EQUAL_HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
_CUDA_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})
#: Uneven heads that need several query heads per K/V head, by K width: V width and what their number must divide by.
_CUDA_GROUPED = {192: (128, 8), 320: (256, 32), 512: (512, 2), 576: (512, 2)}


def after_probe(model: ModelInfo, effective: EffectiveConfig, placement: Placement) -> tuple[bool | None, str | None]:
    """(whether flash attention stays on, what to say) once the layers have their devices.

    llama.cpp switches an automatic choice off for all layers when one layer's device cannot do it; when it was typed,
    the attention of such layers is left to the CPU.
    """
    if effective.flash_attn_on is not True:
        return effective.flash_attn_on, None
    for device, trait in zip(placement.devices, placement.traits, strict=True):
        layers = [layer for layer in model.layers if layer.has_kv and placement.layer_device[layer.index] == device]
        if all(_supported(model, layer, trait.backend, effective) for layer in layers):
            continue
        if effective.flash_attn == "auto":
            return (
                False,
                f"flash attention is switched off: {trait.backend} lacks it for these heads or cache types.",
            )
        return True, f"{trait.backend} has no flash attention for these heads or cache types: the CPU computes it."
    return True, None


def _supported(model: ModelInfo, layer: Layer, backend: str, effective: EffectiveConfig) -> bool:
    if backend in _CUDA:
        return _cuda(model, layer, effective)
    if backend == "Vulkan":
        one_bf16 = (effective.cache_type_k == "bf16") != (effective.cache_type_v == "bf16")
        return layer.n_embd_head_k % 8 == 0 and layer.n_embd_head_v % 8 == 0 and not one_bf16
    return True


def _cuda(model: ModelInfo, layer: Layer, effective: EffectiveConfig) -> bool:
    k_width = layer.n_embd_head_k
    v_width = model.hparams["n_lora_kv"] if model.hparams["is_mla"] else layer.n_embd_head_v
    if not {effective.cache_type_k, effective.cache_type_v} <= _CUDA_TYPES:
        return False
    if k_width in _CUDA_EQUAL_HEADS:
        return bool(k_width == v_width)
    needs = _CUDA_GROUPED.get(k_width)
    if needs is None or not layer.n_head_kv:
        return False
    return v_width == needs[0] and (layer.n_head // layer.n_head_kv) % needs[1] == 0
