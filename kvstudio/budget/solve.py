"""The budget turned round: the largest setting that still fits."""

from collections.abc import Callable

from kvstudio.budget.effective import resolve
from kvstudio.budget.estimate import estimate
from kvstudio.budget.values import Budget
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

_CELL_PAD = 256
_MAX_SEQUENCES = 256
_NO_TRAINED_CONTEXT = 2**20


def largest_n_ctx(
    model: ModelInfo,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    host: Device | None = None,
    build: int | None = None,
) -> int | None:
    """The largest `-c` that fits, a multiple of 256 per slot, at most what the model was trained for in every slot.

    None when not even the smallest fits, or when the memory of a device is not known.
    """
    effective = resolve(model, config, len(devices), build)
    streams = 1 if effective.kv_unified else effective.n_parallel
    unit = _CELL_PAD * streams
    trained = model.n_ctx_train or _NO_TRAINED_CONTEXT
    last = max(1, trained * streams // unit)

    def rooms(step: int) -> list[int] | None:
        return _rooms(estimate(model, config.evolve(n_ctx=step * unit), devices, host, build))

    found = _largest(rooms, 1, last)
    if found is None:
        return None
    return min(found * unit, trained * streams) if found == last else found * unit


def most_parallel(
    model: ModelInfo,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    host: Device | None = None,
    build: int | None = None,
) -> int | None:
    """The largest `-np` that fits with everything else as typed; None when not even one slot does."""

    def rooms(slots: int) -> list[int] | None:
        return _rooms(estimate(model, config.evolve(n_parallel=slots), devices, host, build))

    return _largest(rooms, 1, _MAX_SEQUENCES)


def fewest_cpu_layers(
    model: ModelInfo,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    host: Device | None = None,
    build: int | None = None,
) -> int | None:
    """How few layers (the output layer counted) must stay on the CPU for the rest to fit; None when none may move."""
    slots = model.n_layer_all + 1

    def rooms(n_gpu_layers: int) -> list[int] | None:
        return _rooms(estimate(model, config.evolve(n_gpu_layers=n_gpu_layers), devices, host, build))

    if _fits(rooms(slots)):
        return 0
    found = _largest(rooms, 0, slots - 1)
    return None if found is None else slots - found


def _rooms(budget: Budget) -> list[int] | None:
    """Bytes left on every device and, where its memory is known, on the host; None when a device's is not."""
    parts = [part.room_bytes for part in budget.devices]
    if budget.host.room_bytes is not None:
        parts.append(budget.host.room_bytes)
    rooms = [room for room in parts if room is not None]
    return rooms if rooms and len(rooms) == len(parts) else None


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
