"""The world a change is judged in: one model, one command, the devices, and what has been learned of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvstudio.budget.estimate import estimate
from kvstudio.budget.extras import NO_EXTRAS, Extras
from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that `device` takes in one allocation for a kind of memory; `share` of that kind is one allocation."""

    device: str
    kind: BufferKind
    bytes: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Situation:
    """What a fix function sees.

    `failing`: the kind of memory that is refused, from the diagnosis or the budget; `culprit` the device it is on
    (None: the host). `capacity_bytes` replaces a device's free memory where launches have shown better; `caps` are
    limits on one allocation that launches have met, `total_bytes` a limit on everything together. `estimator` is used
    instead of a fresh estimate where somebody keeps them, which else counts `extras`, the launch's other files.
    """

    model: ModelInfo
    config: LaunchConfig
    devices: tuple[Device, ...]
    host: Device | None
    budget: Budget
    failing: BufferKind | None
    culprit: str | None
    build: int | None = None
    overhead: Mapping[str, int] = field(default_factory=dict)
    capacity_bytes: Mapping[str, int] = field(default_factory=dict)
    spare_bytes: int = 0
    caps: tuple[Cap, ...] = ()
    total_bytes: int | None = None
    estimator: Callable[[LaunchConfig], Budget] | None = None
    extras: Extras = NO_EXTRAS

    def estimate(self, config: LaunchConfig) -> Budget:
        """The budget of other settings in the same world."""
        if self.estimator is not None:
            return self.estimator(config)
        return estimate(
            self.model, config, self.devices, host=self.host, build=self.build, overhead=self.overhead or None,
            extras=self.extras,
        )  # fmt: skip

    def try_change(self, **changes: Any) -> tuple[LaunchConfig, Budget]:
        """The settings with one variable replaced, and their budget."""
        config = self.config.evolve(**changes)
        return config, self.estimate(config)

    def room_bytes(self, budget: Budget) -> int | None:
        """What the tightest device would keep free; None when no capacity is known."""
        rooms = [room for device in self._judged(budget) if (room := self._room(device)) is not None]
        return min(rooms, default=None)

    def fits(self, budget: Budget) -> bool:
        """Whether every device whose memory is known has room, with the spare asked for, and no more is refused."""
        if self.newly_refused(budget) or self.over_caps(budget):
            return False
        if budget.first_failure is not None and not self.capacity_bytes:
            return False
        if self.total_bytes is not None and self._total(budget) > self.total_bytes:
            return False
        room = self.room_bytes(budget)
        return room is not None and room >= self.spare_bytes

    def fits_host(self, budget: Budget) -> bool:
        """Whether the RAM alone has room, or nobody knows."""
        room = self._room(budget.host)
        return room is None or room >= self.spare_bytes

    def short_bytes(self, budget: Budget) -> int:
        """What is missing on all devices and the host together, as far as their memory is known."""
        rooms = (self._room(place) for place in self._judged(budget))
        short = sum(-room for room in rooms if room is not None and room < 0)
        if self.total_bytes is not None:
            short = max(short, self._total(budget) - self.total_bytes)
        return short

    def newly_refused(self, budget: Budget) -> bool:
        """Whether llama.cpp refuses settings of it that it takes now, whatever the memory."""
        return bool(set(budget.config.errors) - set(self.budget.config.errors))

    def over_caps(self, budget: Budget) -> bool:
        """Whether one allocation would be larger than its device takes, as it says itself or as runs have shown."""
        failure = budget.first_failure
        if failure is not None and failure.limit_bytes is not None:
            return True
        return any(
            (place.of(cap.kind) or 0) * cap.share > cap.bytes
            for cap in self.caps
            for place in budget.devices
            if place.name == cap.device
        )

    def need_of_culprit(self, budget: Budget) -> int:
        """What the settings take of the device that refused; what is mapped from a file takes nothing of the RAM.

        A device that is left out takes nothing; for one that nobody knows (a log's own numbering) all count together.
        """
        if self.culprit is None or self.culprit == budget.host.name:
            return budget.host.need_bytes - budget.host.mapped_bytes
        needs = {device.name: device.need_bytes for device in budget.devices}
        known = any(device.name == self.culprit for device in self.devices)
        return needs.get(self.culprit, 0) if known else sum(needs.values())

    def _total(self, budget: Budget) -> int:
        return sum(place.need_bytes - place.mapped_bytes for place in self._judged(budget))

    def _judged(self, budget: Budget) -> tuple[DeviceBudget, ...]:
        return (*budget.devices, budget.host)

    def _room(self, device: DeviceBudget) -> int | None:
        capacity = self.capacity_bytes.get(device.name)
        return capacity - device.need_bytes if capacity is not None else device.room_bytes


def failing_of(budget: Budget) -> tuple[BufferKind | None, str | None]:
    """Kind and device of what fails first in a budget; (None, None) when it fits."""
    if budget.first_failure is not None:
        return budget.first_failure.kind, budget.first_failure.device
    short = [d for d in (*budget.devices, budget.host) if d.fits is False]
    return (None, None) if not short else (None, short[0].name)


#: A diagnosis' stage as the kind of memory it is about.
KIND_OF_STAGE = {
    "weights": BufferKind.MODEL,
    "kv": BufferKind.KV,
    "rs": BufferKind.RS,
    "compute": BufferKind.COMPUTE,
    "output": BufferKind.OUTPUT,
    "decode": BufferKind.COMPUTE,
}
