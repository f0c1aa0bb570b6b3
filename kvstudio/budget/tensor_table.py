"""A model's tensors by the layer they belong to, worked out once per model."""

import re
from dataclasses import dataclass

from kvstudio.budget import builds
from kvstudio.budget.tensor_ops import Place, TensorRole, role
from kvstudio.header.values import TensorInfo
from kvstudio.model.architectures import Architecture, Mtp, Output
from kvstudio.model.values import ModelInfo

_ROPE_NAMES = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
#: Of a skipped MTP block, what the loader creates all the same, without the block's name.
_MTP_HEAD = r"nextn\.(embed_tokens|shared_head_head|shared_head_norm)\.weight"
_MTP_FFN = r"ffn_((gate|down|up)(_shexp)?|gate_inp|down_exps|{})\.weight"
_MTP_KEPT = {
    "deepseek32": re.compile(r"exp_probs_b\.bias"),
    "glm-dsa": re.compile(r"exp_probs_b\.bias"),
    "cohere2moe": re.compile(_MTP_HEAD),
    "hy_v3": re.compile(rf"{_MTP_HEAD}|exp_probs_b|{_MTP_FFN.format('(gate|up|gate_up)_exps')}"),
    "step35": re.compile(
        rf"{_MTP_HEAD}|exp_probs_b\.bias|attn_(q_norm|k_norm|gate)\.weight|{_MTP_FFN.format('(gate|up)_exps')}"
    ),
}
_JOINED_EXPERTS = "ffn_gate_up_exps.weight"
_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor that will be created, and what it is probed with."""

    tensor: TensorInfo
    role: TensorRole


@dataclass(frozen=True, slots=True)
class TensorTable:
    """`blocks` maps a layer to its rows. `tied` is the second copy of the embedding (or of the head), `skipped` what
    is in the file and never allocated; `rope` factors with the layers that use them.
    """

    inputs: tuple[Row, ...]
    outputs: tuple[Row, ...]
    blocks: dict[int, tuple[Row, ...]]
    tied: Row | None
    always_two: bool
    rope: tuple[tuple[TensorInfo, tuple[int, ...]], ...]
    skipped: tuple[TensorInfo, ...]


def table_of(model: ModelInfo, load_mtp: bool, build: int) -> TensorTable:
    """The model's table under one choice of MTP and build."""
    key = ("tensors", load_mtp, build >= builds.MTP_GRAPHS)
    table: TensorTable | None = model.memo.get(key)
    if table is None:
        table = model.memo[key] = _build(model, load_mtp, build)
    return table


def _build(model: ModelInfo, load_mtp: bool, build: int) -> TensorTable:
    rule: Architecture = model.hparams["rule"]
    skip_mtp = _skips_mtp(model, rule, load_mtp, build)
    inputs: list[Row] = []
    outputs: list[Row] = []
    blocks: dict[int, list[Row]] = {}
    rope: list[TensorInfo] = []
    skipped: list[TensorInfo] = []
    for tensor in model.header.tensors:
        if tensor.name in _ROPE_NAMES:
            rope.append(tensor)
            continue
        row = Row(tensor, role(tensor.name, model.architecture))
        if row.role.op is None or (skip_mtp and _stays(model, row, build)):
            skipped.append(tensor)
        elif row.role.place is Place.INPUT:
            inputs.append(row)
        elif row.role.place is Place.OUTPUT or (row.role.block or 0) >= model.n_layer_all:
            outputs.append(row)
        else:
            blocks.setdefault(row.role.block or 0, []).append(row)
    return TensorTable(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        blocks={il: tuple(rows) for il, rows in blocks.items()},
        tied=_tied(model, rule),
        always_two=rule.output is Output.TIED_FIRST,
        rope=tuple((tensor, _rope_layers(model, skip_mtp)) for tensor in rope),
        skipped=tuple(skipped),
    )


def _skips_mtp(model: ModelInfo, rule: Architecture, load_mtp: bool, build: int) -> bool:
    """Whether the MTP blocks' tensors stay in the file."""
    if model.n_layer_nextn == 0 or model.hparams["router_layer"] >= 0:
        return False
    if model.architecture == "glm4moe" and not builds.follows(build, builds.MTP_GRAPHS):
        return True
    return rule.mtp is Mtp.SKIPPED or (rule.mtp is Mtp.ON_DEMAND and not load_mtp)


def _stays(model: ModelInfo, row: Row, build: int) -> bool:
    """Whether a tensor stays in the file when MTP blocks are skipped."""
    block = row.role.block
    if block is None or block < model.n_layer:
        return False
    if row.tensor.name.endswith(_JOINED_EXPERTS) and not builds.follows(build, builds.MTP_SKIPS_JOINED_EXPERTS):
        return False
    kept = _MTP_KEPT.get(model.architecture)
    return kept is None or kept.fullmatch(row.tensor.name.split(".", 2)[-1]) is None


def _tied(model: ModelInfo, rule: Architecture) -> Row | None:
    """The tensor that is created a second time because the file lacks the other."""
    by_name = {tensor.name: tensor for tensor in model.header.tensors if tensor.name in (_EMBEDDING, _HEAD)}
    if rule.output in (Output.TIED, Output.TIED_FIRST) and _HEAD not in by_name and _EMBEDDING in by_name:
        return Row(by_name[_EMBEDDING], TensorRole(Place.OUTPUT, "MUL_MAT", None))
    if rule.output is Output.REVERSED and _EMBEDDING not in by_name and _HEAD in by_name:
        return Row(by_name[_HEAD], TensorRole(Place.INPUT, "MUL_MAT", None))
    return None


def _rope_layers(model: ModelInfo, skip_mtp: bool) -> tuple[int, ...]:
    """Layers that create the rope factors, the first of them the original."""
    in_trunk = skip_mtp and model.architecture != "step35"  # whose loader does not skip them
    n = int(model.hparams.get("n_layer_phys", model.n_layer if in_trunk else model.n_layer_all))
    if model.architecture in ("gemma4", "gemma4-assistant"):
        return tuple(layer.index for layer in model.layers[:n] if not layer.is_swa)
    return tuple(range(n))
