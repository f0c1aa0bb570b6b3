"""What decides a simulation besides the settings, free of which device and which layer number it is."""

from typing import Any

from kvstudio.budget.compute.inputs import Reserve
from kvstudio.budget.compute.kinds import Place, kinds_of
from kvstudio.budget.compute.layers import Kept
from kvstudio.budget.placement_values import Placement

#: Layers by whose number a rule may go; those behind are told apart by what they have.
_NUMBERED = 8
_CPU = -1


def structure_of(reserve: Reserve, kept: Kept) -> tuple[Any, tuple[int, ...]]:
    """(a key equal for equal simulations, the devices that take part by their index).

    Devices of one kind that take no part may as well not be there, so moving layers from one to the next, or more of
    the same layers to the host, often changes nothing. Everything else that decides the graph is in the settings.
    """
    placement, n = reserve.placement, reserve.model.n_layer
    kinds = kinds_of(reserve.model, placement)
    devices = placement.layer_device
    used = _used(
        placement, [kinds.places[il] for il in kept.layers], kinds.others, [devices[il] for il in kept.layers], n
    )
    at: dict[str | None, int] = {None: _CPU}
    at.update((placement.devices[i], rank) for rank, i in enumerate(used))
    layers = tuple(
        [
            (_tensors(kinds.places[il], at), kinds.facts[il], min(il, _NUMBERED), il == n - 1, at[devices[il]])
            for il in kept.layers
        ]
    )
    first = {il: i for i, il in enumerate(kept.layers)}
    gaps = tuple((first[gap.period[0]], len(gap.period)) for gap in kept.gaps)
    key = (
        layers,
        gaps,
        tuple(_tensors(place, at) for place in kinds.others),
        tuple(at[device] for device in devices[n:]),
        any(device is not None for device in devices[:n]),
        len(placement.devices),
        placement.traits if len(set(placement.traits)) > 1 else placement.traits[:1],
        placement.pipeline_copies,
    )
    return key, used


def _used(
    placement: Placement, places: list[Place | None], others: tuple[Place, ...], layers: list[str | None], n: int
) -> tuple[int, ...]:
    """Devices something of the graph may run on. The first may take over the host's work; unlike ones are all kept."""
    names = placement.devices
    if len(set(placement.traits)) > 1:
        return tuple(range(len(names)))
    found = {*names[:1], *layers, *placement.layer_device[n:]}
    for place in (*places, *others):
        if place is not None:
            found.update(home for home in place.homes if not place.shared)
    return tuple(i for i, name in enumerate(names) if name in found)


def _tensors(place: Place | None, at: dict[str | None, int]) -> Any:
    """A group's tensors with devices by their rank; of what every device has its own of, only what is used."""
    if place is None or not place.homes:
        return place and place.exact
    if not place.shared and all(home in at for home in place.homes):
        return place.exact, *(at[home] for home in place.homes)
    return tuple((*tensor[:-2], at[tensor[-1]]) for tensor in place.tensors if tensor[-1] in at)
