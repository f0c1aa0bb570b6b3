"""The budget turned round: the largest setting that still fits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvstudio.budget.effective import resolve
from kvstudio.budget.estimate import estimate
from kvstudio.budget.extras import NO_EXTRAS, Extras
from kvstudio.budget.typed_metadata import as_typed
from kvstudio.budget.values import Budget
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

_CELL_PAD = 256
_MAX_SEQUENCES = 256
_NO_TRAINED_CONTEXT = 2**20


@dataclass(frozen=True, slots=True)
class Launch:
    """What a setting is looked for in: everything but that setting, as `estimate` takes it."""

    model: ModelInfo
    config: LaunchConfig
    devices: tuple[Device, ...]
    host: Device | None = None
    build: int | None = None
    overhead: Mapping[str, int] | None = None
    extras: Extras = NO_EXTRAS

    def budget(self, **changes: Any) -> Budget:
        """The budget with some settings changed."""
        config = self.config.evolve(**changes)
        return estimate(self.model, config, self.devices, self.host, self.build, self.overhead, self.extras)


def largest_n_ctx(launch: Launch, beyond_trained: bool = False) -> int | None:
    """The largest `-c` that fits, a multiple of 256 per slot, at most what the model was trained for in every slot.

    `beyond_trained` goes on past that, of which llama.cpp only warns. None when not even the smallest fits, or when the
    memory of a device is not known.
    """
    model, _ = as_typed(launch.model, launch.config)
    effective = resolve(model, launch.config, len(launch.devices), launch.build)
    streams = 1 if effective.kv_unified else effective.n_parallel
    unit = _CELL_PAD * streams
    trained = (model.n_ctx_train or _NO_TRAINED_CONTEXT) * streams
    most = max(trained, _NO_TRAINED_CONTEXT * streams) if beyond_trained else trained
    last = max(1, most // unit)
    found = _largest(lambda step: _rooms(launch.budget(n_ctx=step * unit)), 1, last)
    return None if found is None else min(found * unit, most)


def most_parallel(launch: Launch) -> int | None:
    """The largest `-np` that fits with everything else as typed; None when not even one slot does."""

    @cache
    def rooms(slots: int) -> list[int] | None:
        return _rooms(launch.budget(n_parallel=slots))

    # Graphs that are laid out once a slot take long to follow for hundreds of them, so the search goes up from one.
    high = 1
    while high < _MAX_SEQUENCES and _fits(rooms(high)):
        high *= 2
    return _largest(rooms, 1, high)


def most_gpu_layers(launch: Launch) -> int | None:
    """The most layers (the output layer counted) that fit on devices; None when not even the rest fits without any."""
    slots = launch.model.n_layer_all + 1
    return _largest(lambda n_gpu_layers: _rooms(launch.budget(n_gpu_layers=n_gpu_layers)), 0, slots)


def _rooms(budget: Budget) -> list[int] | None:
    """Bytes left on every device and, where its memory is known, on the host; last what one allocation is over its
    backend's limit, as a negative number. None when a device's memory is not known.
    """
    parts = [part.room_bytes for part in budget.devices]
    if budget.host.room_bytes is not None:
        parts.append(budget.host.room_bytes)
    rooms = [room for room in parts if room is not None]
    failure = budget.first_failure
    over = failure.short_bytes if failure is not None and failure.limit_bytes is not None else 0
    return [*rooms, -over] if rooms and len(rooms) == len(parts) else None


def _fits(rooms: list[int] | None) -> bool:
    return rooms is not None and min(rooms) >= 0


def _largest(rooms: Callable[[int], list[int] | None], low: int, high: int) -> int | None:
    """The largest step with room everywhere, for a need that grows with the step.

    The need is nearly linear, so the crossing is guessed from both ends and bracketed from there.
    """
    at_high = rooms(high)
    if at_high is None:
        return None
    if _fits(at_high):
        return high
    at_low = rooms(low)
    if at_low is None or not _fits(at_low):
        return None
    near = False
    while high - low > 1:
        guess = (low + high) // 2 if near else _crossing(low, at_low, high, at_high)
        guess = min(max(guess, low + 1), high - 1)
        at = rooms(guess)
        if at is None:
            return None
        before = high - low
        if _fits(at):
            low, at_low = guess, at
            if not near and high - low > 1:
                at_next = rooms(low + 1)
                if not _fits(at_next):
                    return low
                low, at_low = low + 1, at_next or at_low
        else:
            high, at_high = guess, at
        near = not near and (high - low) * 2 > before
    return low


def _crossing(low: int, at_low: list[int], high: int, at_high: list[int]) -> int:
    """The first step at which some device would run out, by straight lines between both ends."""
    steps = [
        low + (high - low) * room // (room - left)
        for room, left in zip(at_low, at_high, strict=True)
        if room > left and left < 0
    ]
    return min(steps, default=high)
