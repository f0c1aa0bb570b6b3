"""What lies in a compute buffer when it is fullest, in one sentence."""

from collections.abc import Mapping

from kvstudio.budget.compute.tensor import Tensor
from kvstudio.units import format_bytes

_NAMED = 3

#: First match of a weight's name -> what its product is.
_PRODUCTS = (
    ("_exps", "expert activations"),
    ("_shexp", "shared expert activations"),
    ("ffn_", "feed-forward activations"),
    ("ssm_", "state-space activations"),
    ("time_mix", "time-mix activations"),
    ("channel_mix", "channel-mix activations"),
    ("indexer", "indexer scores"),
    ("attn_", "attention projections"),
    ("per_layer", "per-layer inputs"),
    ("output", "logits"),
)
_OPERATIONS = {
    "FLASH_ATTN_EXT": "attention output",
    "SOFT_MAX": "attention scores",
    "GLU": "feed-forward activations",
    "SSM_SCAN": "recurrent states",
    "SSM_CONV": "state-space activations",
    "GATED_DELTA_NET": "recurrent states",
    "LIGHTNING_INDEXER": "indexer scores",
    "ROPE": "attention projections",
    "CONCAT": "joined activations",
}


def sentence(sums: Mapping[str, int]) -> str:
    """The largest of the kinds alive at the peak."""
    top = sorted(sums.items(), key=lambda item: -item[1])[:_NAMED]
    if not top:
        return "nothing of the graph runs here"
    return "at its fullest it holds " + ", ".join(f"{format_bytes(size)} of {kind}" for kind, size in top)


def label(tensor: Tensor, names: Mapping[int, str], copies: int) -> str:
    """What a tensor is; `names` of weights by the id of their leaf."""
    origin = tensor.origin
    if origin is not None:
        if origin.weight:
            return f"weights kept in host memory ({names.get(id(origin), 'copied').split('.')[-2]})"
        root = origin if origin.view_src is None else origin.view_src
        if root.home is not None:
            return "K and V copied from host memory"
        if not origin.is_input:
            return "activations from another device" + (f" in {copies} copies" if copies > 1 else "")
    if tensor.is_input:
        kind = "attention masks" if tensor.ne[1] > 1 and tensor.type in (0, 1) and tensor.ne[0] % 256 == 0 else "inputs"
        return f"{kind} in {copies} copies" if copies > 1 else kind
    return _product(tensor, names)


def _product(tensor: Tensor, names: Mapping[int, str]) -> str:
    if tensor.op in ("MUL_MAT", "MUL_MAT_ID"):
        weight = tensor.src[0]
        name = names.get(id(weight if weight.origin is None else weight.origin))
        if name is None:
            return "attention scores"
        return next((label for part, label in _PRODUCTS if part in name), "activations")
    return _OPERATIONS.get(tensor.op, "hidden states")
