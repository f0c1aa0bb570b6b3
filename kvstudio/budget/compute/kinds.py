"""What tells the layers of one placement apart, worked out per group of tensors and remembered per model."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kvstudio.budget.compute.tensor import BLOCKS
from kvstudio.budget.placement_values import PlacedTensor, Placement, TensorGroup
from kvstudio.header.values import ArrayValue
from kvstudio.model.values import ModelInfo

#: Hidden rules by position that no weight and no number of the layer shows.
_MODULO_KEYS = ("rescale_every_n_layers", "moe_every_n_layers")
#: Architectures whose every fourth layer does not rotate. Source: llama_hparams::n_no_rope_layer_step, set by no file.
NO_ROPE_EVERY = {"llama4": 4, "smollm3": 4, "smallthinker": 4, "afmoe": 4}
_PACKED = -1
_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Place:
    """The tensors of one group as a layer on `device` sees them.

    `like`: equal where they make equal nodes. `exact`: equal where they also have equal names and take equal bytes when
    copied, and lie on the same of `homes`, which are the devices besides the layer's own. `tensors` spells it out, the
    device last. `shared`: every device has one of its own. `on_host`: whether the host holds some.
    """

    group: TensorGroup
    like: int
    exact: int
    tensors: tuple[tuple[Any, ...], ...]
    homes: tuple[str, ...]
    shared: bool
    on_host: bool


@dataclass(slots=True)
class _Known:
    """Of one model. `facts` has a number per layer, equal where all but the tensors is equal."""

    facts: tuple[int, ...]
    ids: dict[Any, int] = field(default_factory=dict)
    numbers: "count[int]" = field(default_factory=count)
    places: dict[tuple[int, str | None], Place] = field(default_factory=dict)

    def number(self, value: Any) -> int:
        # A number is used up for every question, so that two threads never give one to different values.
        return self.ids.setdefault(value, next(self.numbers))


@dataclass(frozen=True, slots=True)
class Kinds:
    """`row`: one value per layer, equal where layers build equal nodes. `facts` as above, `places` the tensors of each
    layer (None without any); `others` those outside the trunk's layers.
    """

    row: tuple[tuple[int, int], ...]
    facts: tuple[int, ...]
    places: tuple[Place | None, ...]
    others: tuple[Place, ...]
    on_host: bool


def kinds_of(model: ModelInfo, placement: Placement) -> Kinds:
    """The kinds of the layers of a placement."""
    known: _Known | None = model.memo.get("layer_kinds")
    if known is None:
        known = model.memo["layer_kinds"] = _Known(_facts(model))
    n = model.n_layer
    places: list[Place | None] = [None] * n
    others: list[Place] = []
    on_host = False
    for group in placement.groups:
        il = group.tensors[0].layer
        if il is None or il >= n:
            place = _place(known, group, None)
            others.append(place)
        else:
            place = places[il] = _place(known, group, placement.layer_device[il] or "CPU")
        on_host = on_host or place.on_host
    facts = known.facts
    row = tuple([(-1 if p is None else p.like, fact) for p, fact in zip(places, facts, strict=True)])
    return Kinds(row, facts, tuple(places), tuple(others), on_host)


def _place(known: _Known, group: TensorGroup, device: str | None) -> Place:
    key = id(group), device
    place = known.places.get(key)
    if place is None or place.group is not group:
        if len(known.places) > _KEPT:
            known.places.clear()
        place = known.places[key] = _new_place(known, group, device)
    return place


def _new_place(known: _Known, group: TensorGroup, device: str | None) -> Place:
    like: list[Any] = []
    tensors: list[tuple[Any, ...]] = []
    ranks: dict[str, int] = {}
    on_host = False
    for placed in group.tensors:
        tensor = placed.tensor
        of_layer = tensor.name.startswith("blk.") and placed.layer is not None
        name = tensor.name.split(".", 2)[2] if of_layer and device is not None else tensor.name
        home = placed.device or placed.buffer_type
        own = home == device
        if of_layer:
            # What the host holds is copied to a device that computes with it, even for layers of the host.
            stays = own and placed.device is not None
            like.append((name, tensor.shape, ("", 0) if stays else (home, tensor.n_bytes)))
            on_host = on_host or placed.device is None
        elsewhere = None if own else placed.device
        if elsewhere is not None:
            ranks.setdefault(elsewhere, len(ranks))
        n_bytes = 0 if own and placed.device is not None else tensor.n_bytes
        host = home if placed.device is None else ""
        tensors.append((name, tensor.shape, _type(placed, own), n_bytes, host, own, placed.duplicate, elsewhere))
    exact = tuple((*tensor[:-1], ranks.get(tensor[-1])) for tensor in tensors)
    shared = bool(tensors) and all(tensor[0].startswith("rope_f") for tensor in tensors)
    return Place(
        group, known.number(("like", *sorted(like))), known.number(("exact", *exact)), tuple(tensors), tuple(ranks),
        shared, on_host,
    )  # fmt: skip


def _type(placed: PlacedTensor, own: bool) -> int:
    """The type as far as it decides anything: among packed ones on a layer's own device it does not."""
    type_id = placed.tensor.type_id
    per, _ = BLOCKS.get(type_id, (1, 4))
    return _PACKED if own and placed.device is not None and per > 1 else type_id


def _facts(model: ModelInfo) -> tuple[int, ...]:
    """One number per layer of the trunk, equal where layers differ in nothing but their tensors."""
    arrays = [v for v in model.hparams.values() if isinstance(v, tuple) and len(v) == model.n_layer_all]
    for value in model.header.metadata.values():
        if isinstance(value, ArrayValue) and value.count in (model.n_layer, model.n_layer_all) and value.values:
            arrays.append(value.values)
    steps = [NO_ROPE_EVERY.get(model.architecture, 0), *(_step(model, key) for key in _MODULO_KEYS)]
    ids: dict[Any, int] = {}
    result = []
    for il in range(model.n_layer):
        layer = model.layers[il]
        facts = (
            layer.n_head,
            layer.n_head_kv,
            layer.n_embd_head_k,
            layer.n_embd_head_v,
            layer.n_ff,
            layer.is_swa,
            layer.is_recurrent,
            layer.has_kv,
            tuple(a[il] if il < len(a) else None for a in arrays),
            tuple((il + 1) % step if step else 0 for step in steps),
        )
        result.append(ids.setdefault(facts, len(ids)))
    return tuple(result)


def _step(model: ModelInfo, key: str) -> int:
    value = model.header.metadata.get(f"{model.architecture}.{key}")
    if isinstance(value, ArrayValue):
        value = value.values[0] if value.values else None
    return 0 if value is None or isinstance(value, str) else int(value)
