"""What a change does, in figures: the words that make a reason one of this launch and no other."""

from kvstudio.advise.situation import Situation
from kvstudio.advise.verdict import noun
from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.devices.values import Device
from kvstudio.units import format_room

#: What a launch asks for; what others hold does not change with its settings.
_KINDS = (BufferKind.MODEL, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE, BufferKind.OUTPUT)
#: Kinds that give less than this share of what a device gains are not worth a word.
_WORTH = 0.1
#: A process that holds less than this share of a device is not what makes it short.
_HOLDS = 0.05


def what_shrinks(s: Situation, after: Budget) -> str:
    """`On CUDA1 the KV cache goes from 7.8 GiB to 3.9 GiB.`; empty where the device that is short gains nothing."""
    old, new = _culprit(s, s.budget), _culprit(s, after)
    if old is None or new is None:
        return ""
    gains = {kind: (old.of(kind) or 0) - (new.of(kind) or 0) for kind in _KINDS}
    whole = sum(gain for gain in gains.values() if gain > 0)
    worth = sorted((kind for kind, gain in gains.items() if gain > _WORTH * whole), key=lambda kind: -gains[kind])
    if not worth:
        return ""
    said = [f"{noun(kind)} {_goes(kind)} from {_size(old, kind)} to {_size(new, kind)}" for kind in worth]
    return f"{_where(s, old)} {listed(said)}."


def _culprit(s: Situation, budget: Budget) -> DeviceBudget | None:
    """The device that is short, in a budget; None where it is not used."""
    if s.culprit is None or s.culprit == budget.host.name:
        return budget.host
    return next((place for place in budget.devices if place.name == s.culprit), None)


def _where(s: Situation, place: DeviceBudget) -> str:
    return "In RAM" if place.name == s.budget.host.name else f"On {place.name}"


def _goes(kind: BufferKind) -> str:
    return "go" if kind is BufferKind.MODEL else "goes"


def _size(place: DeviceBudget, kind: BufferKind) -> str:
    n_bytes = place.of(kind) or 0
    return format_room(n_bytes) if n_bytes else "nothing"


def layers_on(budget: Budget) -> str:
    """`39 layers on CUDA0, 25 and the output on CUDA1`."""
    parts: list[str] = []
    for place in budget.devices:
        unit = "" if parts else " layer" if place.n_layers == 1 else " layers"
        output = " and the output" if place.has_output_layer else ""
        parts.append(f"{place.n_layers}{unit}{output} on {place.name}")
    return ", ".join(parts)


def why_short(s: Situation) -> str:
    """`CUDA1, where 16.4 GiB are free because python3 holds 7.6 GiB`, of the device that is short."""
    place = _culprit(s, s.budget)
    if place is None or place.free_bytes is None:
        return s.culprit or "the device"
    device = next((device for device in s.devices if device.name == place.name), None)
    because = _holder(device) if device is not None else ""
    return f"{place.name}, where {format_room(place.free_bytes)} are free{because}"


def _holder(device: Device) -> str:
    held = [(process.bytes, process.name) for process in device.processes if process.bytes]
    n_bytes, name = max(held, default=(0, ""))
    return f" because {name} holds {format_room(n_bytes)}" if n_bytes > _HOLDS * (device.total_bytes or 0) else ""


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
