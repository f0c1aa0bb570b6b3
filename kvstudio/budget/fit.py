"""What llama.cpp's `--fit` would change before it loads, worked out with our own measurements.

Source: llama.cpp b11434, common/fit.cpp (common_params_fit_impl).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from kvstudio.budget.effective import resolve
from kvstudio.budget.estimate import estimate
from kvstudio.budget.explain import FIT_TARGET_MIB
from kvstudio.budget.extras import NO_EXTRAS, PROJECTOR, Extras
from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.typed_metadata import as_typed
from kvstudio.budget.values import Budget, DeviceBudget
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.units import MIB

_DEFAULT_MIN_CTX = 4096
_U32 = 2**32
_CELL_PAD = 256
_MOE_ALL = r"blk\.\d+\.ffn_(up|down|gate_up|gate)_(ch|)exps"


class _BlockedError(Exception):
    """llama.cpp gives up; the message is its reason in our words."""


def fit(
    model: ModelInfo,
    config: LaunchConfig,
    devices: tuple[Device, ...],
    host: Device | None = None,
    build: int | None = None,
    overhead: Mapping[str, int] | None = None,
    typed: Budget | None = None,
    extras: Extras = NO_EXTRAS,
) -> FitResult:
    """The settings llama.cpp ends with, given the memory that is free on the devices, and what they ask for.

    `typed` is the budget of the settings as they are, where it is known: when all fits it answers without another one.
    """
    model, _ = as_typed(model, config)
    effective = resolve(model, config, len(devices), build)
    if not effective.fit:
        return FitResult("off", "--fit is off.", config)
    if effective.split_mode == "tensor":
        return FitResult("blocked", "--fit does nothing with -sm tensor.", config)
    if typed is not None and _clearly_fits(typed, config):
        return FitResult("unchanged", _FITS, config)
    work = _Fitter(model, config, devices, host, build, extras)
    if work.unknown:
        return FitResult("unknown", "the free memory of a device is not known.", config)
    try:
        why = work.run()
        status = "unchanged" if work.config == config else "changed"
    except _BlockedError as blocked:
        status, why = "blocked", str(blocked)
    after = work.config
    changes = tuple((name, getattr(after, name)) for name in _FITTED if getattr(after, name) != getattr(config, name))
    budget = estimate(model, after, devices, host, build, overhead, extras, after_fit=True) if changes else None
    return FitResult(status, why, after, changes, budget)


_FITTED = ("n_ctx", "n_gpu_layers", "tensor_split", "override_tensor")
_FITS = "it fits as it is."


def _clearly_fits(typed: Budget, config: LaunchConfig) -> bool:
    """Whether every device keeps its margin by the budget as typed, which counts no less than a dry run does."""
    rooms = [None if d.free_bytes is None else d.free_bytes - _used_bytes(d) for d in typed.devices]
    # Weights that a device maps are a whole range of the file there, and single tensors in a dry run.
    mapped = any(b.device is not None and b.name.endswith("_Mapped") for b in typed.buffers)
    if not rooms or mapped:
        return False
    return all(room is not None and room >= margin for room, margin in zip(rooms, _margins(config, len(rooms))))


def _margins(config: LaunchConfig, n_devices: int) -> list[int]:
    """Bytes to keep free on each device."""
    typed = config.fit_target or (FIT_TARGET_MIB,)
    spread = typed * n_devices if len(typed) == 1 else (*typed, *((FIT_TARGET_MIB,) * n_devices))
    return [target * MIB for target in spread[:n_devices]]


def _used_bytes(part: DeviceBudget) -> int:
    """What a dry run adds up for a device."""
    return part.model_bytes + part.kv_bytes + part.rs_bytes + part.compute_bytes


class _Overflow(IntEnum):
    """Which part of the first partial layer stays off its device."""

    ATTN = 0
    UP = 1
    GATE = 2
    MOE = 3


_OVERFLOW_PATTERN = {
    _Overflow.ATTN: r"\.ffn_(gate|up|gate_up|down).*",
    _Overflow.UP: r"\.ffn_(gate|gate_up|down).*",
    _Overflow.GATE: r"\.ffn_down.*",
    _Overflow.MOE: r"\.ffn_(up|down|gate_up|gate)_(ch|)exps",
}


@dataclass(frozen=True, slots=True)
class _Share:
    """Layers of one device; `n_part` of them without their experts."""

    n_layer: int = 0
    n_part: int = 0
    overflow: _Overflow = _Overflow.MOE
    to: str = "CPU"

    @property
    def n_full(self) -> int:
        return self.n_layer - self.n_part


Shares = tuple[_Share, ...]


class _Fitter:
    """One run; `config` is what has been decided so far."""

    def __init__(
        self,
        model: ModelInfo,
        config: LaunchConfig,
        devices: tuple[Device, ...],
        host: Device | None,
        build: int | None,
        extras: Extras,
    ) -> None:
        self._model, self._devices, self._host, self._build = model, devices, host, build
        self.config = config
        first = self._measure(config)
        names = [device.name for device in first.devices]
        self._free = [device.free_bytes or 0 for device in first.devices]
        self.unknown = any(device.free_bytes is None for device in first.devices) or (
            not names and (host is None or host.total_bytes is None)
        )
        self._names = names
        self._first = first
        self._typed = config
        self._is_moe = model.n_expert > 0
        self._n_slots = model.n_layer + (model.n_layer_nextn if first.config.load_mtp else 0)
        self._margins = self._with_projector(_margins(config, max(1, len(names))), extras)

    def _with_projector(self, margins: list[int], extras: Extras) -> list[int]:
        """A projector is loaded after the fit, which keeps its memory free beside the margin."""
        if extras.projector is None or not self._names:
            return margins
        whole = estimate(self._model, self._typed, self._devices, self._host, self._build, extras=extras)
        held = [
            sum(b.bytes or 0 for b in whole.buffers if b.context == PROJECTOR and b.device == name)
            for name in self._names
        ]
        return [margin + more for margin, more in zip(margins, held, strict=True)]

    def _measure(self, config: LaunchConfig) -> Budget:
        """A dry run: nothing is mapped."""
        return estimate(self._model, config.evolve(load_mode="none"), self._devices, self._host, self._build)

    def _used(self, budget: Budget) -> list[int]:
        parts = budget.devices if self._names else (budget.host,)
        return [_used_bytes(part) for part in parts]

    def run(self) -> str:
        """Decide everything; says why in a sentence. Raises: _BlockedError."""
        used = self._used(self._first)
        free = self._free if self._names else [self._host.total_bytes or 0] if self._host else [0]
        rooms = [f - u for f, u in zip(free, used, strict=True)]
        if all(room >= margin for room, margin in zip(rooms, self._margins, strict=True)):
            return _FITS
        surplus = sum(rooms) - sum(self._margins)
        if surplus < 0 and self._shorten(sum(free), used):
            return "the context is shortened until everything fits."
        self._check_blocks()
        return self._fill()

    def _shorten(self, free: int, used: list[int]) -> bool:
        """Lower an automatic context; True when that is all there is to do."""
        config = self._typed
        if config.n_ctx:
            return False
        streams = 1 if self._first.config.kv_unified else self._first.config.n_parallel
        n_max = self._model.n_ctx_train * streams
        n_min = _U32 if config.n_ctx == 0 else (config.fit_ctx or _DEFAULT_MIN_CTX) * streams
        if n_max <= n_min:
            return False
        target = free - sum(self._margins)
        n_devices = len(self._names)
        if n_devices > 1:
            weights = sum(device.model_bytes for device in self._first.devices)
            per_layer = weights // max(1, self._n_slots)
            target -= (n_devices + 1) * per_layer // (6 if self._is_moe else 2)
        self.config = config.evolve(n_ctx=n_min)
        least = sum(self._used(self._measure(self.config)))
        if target <= least:
            return False
        n_ctx = n_min + (n_max - n_min) * (target - least) // max(1, sum(used) - least)
        n_ctx = max(n_ctx - n_ctx % (_CELL_PAD * streams), n_min)
        self.config = config.evolve(n_ctx=n_ctx)
        return n_devices <= 1

    def _check_blocks(self) -> None:
        """What keeps llama.cpp from moving layers. Raises: _BlockedError."""
        config = self._typed
        if not self._names:
            raise _BlockedError("the model does not fit in memory even with the shortest context.")
        if self._first.config.n_gpu_layers != -1:
            raise _BlockedError("-ngl is set, so --fit moves no layers.")
        if len(self._names) > 1 and any(config.tensor_split or ()):
            raise _BlockedError("-ts is set, so --fit moves no layers.")
        if len(self._names) > 1 and self._first.config.split_mode == "row":
            raise _BlockedError("--fit does not handle -sm row.")
        if self._first.config.overrides:
            raise _BlockedError("-ot or one of its shortcuts is set, so --fit moves no layers.")

    def _fill(self) -> str:
        """Give layers to the devices back to front; for experts, then front to back with them."""
        targets = [free - margin for free, margin in zip(self._free, self._margins, strict=True)]
        surplus = 0
        if self._is_moe:
            budget = self._measure(self.config.evolve(override_tensor=((_MOE_ALL, "CPU"),)))
            surplus = sum(targets) - sum(self._used(budget))
        shares: Shares = tuple(_Share() for _ in self._names)
        mem = self._memory(shares)
        for index in reversed(range(len(shares))):
            shares, mem = self._fill_device(index, shares, mem, targets)
        if self._is_moe and surplus > 0:
            shares = self._fill_experts(shares, mem, targets)
            why = "layers stay whole where they fit, other layers' experts are kept in host memory."
        else:
            why = "as many layers as fit are put on the devices."
        self.config = self._apply(shares)
        return why

    def _apply(self, shares: Shares) -> LaunchConfig:
        """The settings that give every device its share."""
        n_layers = sum(share.n_layer for share in shares)
        first = self._n_slots + 1 - n_layers
        overrides: list[tuple[str, str]] = []
        for share in shares:
            first += share.n_full
            for il in range(first, first + share.n_part):
                kind = share.overflow if il == first else _Overflow.MOE
                overrides.append((rf"blk\.{il}{_OVERFLOW_PATTERN[kind]}", share.to if il == first else "CPU"))
            first += share.n_part
        split = tuple(float(share.n_layer) for share in shares) if len(shares) > 1 else None
        return self.config.evolve(n_gpu_layers=n_layers, tensor_split=split, override_tensor=tuple(overrides) or None)

    def _memory(self, shares: Shares) -> list[int]:
        return self._used(self._measure(self._apply(shares)))

    def _fill_device(self, index: int, shares: Shares, mem: list[int], targets: list[int]) -> tuple[Shares, list[int]]:
        """As many layers as the device takes; for experts, layers without them."""
        last = len(shares) - 1
        unassigned = self._n_slots + 1 - sum(share.n_layer for share in shares[index + 1 :])
        if unassigned <= 0:
            return shares, mem
        part = (unassigned if index < last else unassigned - 1) if self._is_moe else 0
        high = _with(shares, index, n_layer=unassigned, n_part=part)

        def step(low: Shares, size: int) -> Shares:
            share = low[index]
            more = 0
            if self._is_moe:
                more = size - 1 if index == last and share.n_part == 0 else size
            return _with(low, index, n_layer=share.n_layer + size, n_part=share.n_part + more)

        return self._search(index, shares, high, mem, targets, step, lambda s: s[index].n_layer)

    def _search(
        self,
        index: int,
        low: Shares,
        high: Shares,
        mem: list[int],
        targets: Sequence[int],
        step: Callable[[Shares, int], Shares],
        count: Callable[[Shares], int],
    ) -> tuple[Shares, list[int]]:
        """The largest shares between `low` and `high` that meet the target, by false position."""
        mem_high = self._memory(high)
        if mem_high[index] <= targets[index]:
            return high, mem_high
        delta = count(high) - count(low)
        while delta > 1:
            size = _guess(delta, targets[index] - mem[index], mem_high[index] - mem[index])
            test = step(low, size)
            mem_test = self._memory(test)
            if mem_test[index] <= targets[index]:
                low, mem = test, mem_test
            else:
                high, mem_high = test, mem_test
            delta = count(high) - count(low)
        return low, mem

    def _fill_experts(self, shares: Shares, mem: list[int], targets: list[int]) -> Shares:
        """Turn layers without experts into whole ones, front to back, and try one partial layer per device."""
        n = len(shares)
        start = next((index for index in reversed(range(n)) if shares[index].n_layer == 0), -1) + 1
        for index in range(n):
            if index > start or start >= n:
                break
            shares, mem = self._search(
                index,
                shares,
                _all_to(shares, index, start),
                mem,
                targets,
                lambda low, size, index=index, start=start: _convert(low, index, start, size),  # type: ignore[misc]
                lambda s, index=index: s[index].n_full,  # type: ignore[misc]
            )
            start = _first_partial(shares, start)
            shares, mem = self._try_partial(index, start, shares, mem, targets)
            start = _first_partial(shares, start)
        return shares

    def _try_partial(
        self, index: int, start: int, shares: Shares, mem: list[int], targets: list[int]
    ) -> tuple[Shares, list[int]]:
        """Part of one more layer on this device; the rest of it goes to the next one or to the CPU."""
        last = len(shares) - 1
        if shares[start].n_layer <= (0 if index < last else 1) or shares[start].n_part <= 0:
            return shares, mem
        moved = _move_one(shares, start, index)
        spot = self._first.devices[index + 1].name if index < last else "CPU"
        for kind, then in ((_Overflow.UP, _Overflow.GATE), (_Overflow.ATTN, None)):
            test = _with(moved, index, overflow=kind, to=spot)
            mem_test = self._memory(test)
            if not self._meets(index, mem_test, targets):
                continue
            shares, mem = test, mem_test
            if then is not None:
                test = _with(moved, index, overflow=then, to=spot)
                mem_test = self._memory(test)
                if self._meets(index, mem_test, targets):
                    shares, mem = test, mem_test
            break
        return shares, mem

    def _meets(self, index: int, mem: list[int], targets: list[int]) -> bool:
        following = index + 1
        return mem[index] < targets[index] and (following == len(mem) or mem[following] < targets[following])


def _with(shares: Shares, index: int, **changes: Any) -> Shares:
    return tuple(replace(share, **changes) if at == index else share for at, share in enumerate(shares))


def _guess(delta: int, room: int, span: int) -> int:
    """llama.cpp's step: an unsigned number, so a negative guess becomes the largest step."""
    guess = int(delta * room / span) if span else 1
    return min(max(guess if guess >= 0 else _U32, 1), delta - 1)


def _all_to(shares: Shares, index: int, start: int) -> Shares:
    """Every layer from device `start` on moved whole to `index`; the last device keeps the output layer."""
    last = len(shares) - 1
    moved = list(shares)
    for at in range(start, len(shares)):
        n = moved[at].n_layer if at < last else moved[at].n_layer - 1
        moved[index] = replace(moved[index], n_layer=moved[index].n_layer + n)
        moved[at] = replace(moved[at], n_layer=moved[at].n_layer - n, n_part=0)
    return tuple(moved)


def _convert(shares: Shares, index: int, start: int, size: int) -> Shares:
    """`size` layers without experts, from device `start` on, become whole layers of `index`."""
    moved = list(shares)
    left = size
    for at in range(start, len(shares)):
        n = min(left, moved[at].n_part)
        moved[at] = replace(moved[at], n_layer=moved[at].n_layer - n, n_part=moved[at].n_part - n)
        moved[index] = replace(moved[index], n_layer=moved[index].n_layer + n)
        left -= n
        if moved[at].n_part > 0:
            break
    return tuple(moved)


def _first_partial(shares: Shares, start: int) -> int:
    """The first device from `start` on that still has layers without experts, the last one if none has."""
    return next((at for at in range(start, len(shares)) if shares[at].n_part > 0), len(shares) - 1)


def _move_one(shares: Shares, start: int, index: int) -> Shares:
    moved = _with(shares, start, n_layer=shares[start].n_layer - 1, n_part=shares[start].n_part - 1)
    return _with(moved, index, n_layer=moved[index].n_layer + 1, n_part=moved[index].n_part + 1)
