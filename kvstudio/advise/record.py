"""A walk's record: the world it takes place in, what was wanted, what was tried."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvstudio.advise.fixes import changed_fields, same_cache_types
from kvstudio.advise.plan_values import Attempt, Competitor, Trial, TrialKind, Verdict
from kvstudio.budget.estimate import estimate
from kvstudio.budget.extras import NO_EXTRAS, Extras
from kvstudio.budget.values import Budget
from kvstudio.devices.values import Device
from kvstudio.launch.argv import arranged
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

#: Launches the whole walk may take; the edge is searched only while some are left.
MAX_LAUNCHES = 8


@dataclass(frozen=True, slots=True)
class World:
    """What stays the same during a walk.

    `binary` is the program the command means, `binaries` others of the same name, best candidate first.
    `other_devices` are known but not used: the same cards through another backend. `extras`: the launch's other files.
    """

    model: ModelInfo
    devices: tuple[Device, ...]
    host: Device | None = None
    build: int | None = None
    overhead: Mapping[str, int] = field(default_factory=dict)
    binary: Binary | None = None
    binaries: tuple[Binary, ...] = ()
    other_devices: tuple[Device, ...] = ()
    extras: Extras = NO_EXTRAS
    memo: dict[LaunchConfig, Budget] = field(default_factory=dict, init=False, compare=False, repr=False)
    emptier: dict[tuple[int, ...], "World"] = field(default_factory=dict, init=False, compare=False, repr=False)

    def estimate(self, config: LaunchConfig) -> Budget:
        """The budget of settings here, by the rules of the build that would run them.

        Kept: a walk asks for the same ones again and again, and the graph of a large model takes a while.
        """
        known = self.memo.get(config)
        if known is None:
            known = self.memo[config] = estimate(
                self.model,
                config,
                self.devices_for(config),
                host=self.host,
                build=self.build_for(config),
                overhead=self.overhead or None,
                extras=self.extras,
            )
        return known

    def devices_for(self, config: LaunchConfig) -> tuple[Device, ...]:
        """The devices of a launch; a typed -dev may name ones that are not used otherwise."""
        named = config.device or ()
        return (*self.devices, *(device for device in self.other_devices if device.name in named))

    def build_for(self, config: LaunchConfig) -> int | None:
        """The build of the binary that settings name, else the world's."""
        other = self.other_binary(config)
        return other.build if other is not None and other.build is not None else self.build

    def other_binary(self, config: LaunchConfig) -> Binary | None:
        """The binary of a trial that is made with another one; None for the command's own."""
        return next((binary for binary in self.binaries if binary.path == config.program), None)

    def competitors(self) -> tuple[Competitor, ...]:
        """Other processes that hold memory of the devices, largest first."""
        found = [
            Competitor(device.name, process.pid, process.name, process.bytes)
            for device in self.devices
            for process in device.processes
            if process.bytes
        ]
        return tuple(sorted(found, key=lambda each: -each.bytes))

    def without(self, pids: tuple[int, ...]) -> "World":
        """The world once these processes have ended."""
        if not pids:
            return self
        if pids not in self.emptier:  # kept, and with it what it has estimated
            self.emptier[pids] = replace(self, devices=tuple(_without(device, pids) for device in self.devices))
        return self.emptier[pids]


def _without(device: Device, pids: tuple[int, ...]) -> Device:
    ended = sum(process.bytes or 0 for process in device.processes if process.pid in pids)
    if not ended or device.free_bytes is None:
        return device
    free = device.free_bytes + ended
    kept = tuple(process for process in device.processes if process.pid not in pids)
    return replace(device, free_bytes=min(free, device.total_bytes) if device.total_bytes else free, processes=kept)


@dataclass(frozen=True, slots=True)
class Record:
    """A walk so far: `pending` is the run to make next, `verdict` the end of it; exactly one of them is set.

    `attended`: somebody is there to do what a program must not, like ending another process. `undone`: attempts (by
    index) whose change the person did not keep; what they showed still counts, but nothing builds on them. `cancelled`:
    launches that were broken off; they teach nothing, but each was one.
    """

    world: World
    wanted: LaunchConfig
    attempts: tuple[Attempt, ...] = ()
    skipped: tuple[str, ...] = ()
    pending: Trial | None = None
    verdict: Verdict | None = None
    max_launches: int = MAX_LAUNCHES
    attended: bool = True
    undone: tuple[int, ...] = ()
    cancelled: tuple[Attempt, ...] = ()

    @property
    def launches_left(self) -> int:
        return self.max_launches - len(self.attempts) - len(self.cancelled)

    @property
    def launched(self) -> tuple[Attempt, ...]:
        """Every launch in the order they were made, those that were cancelled among them."""
        made = list(self.attempts)
        for each in self.cancelled:
            later = (i for i, a in enumerate(made) if (a.run_number or 0) > (each.run_number or 0))
            made.insert(next(later, len(made)), each)
        return tuple(made)

    @property
    def start_index(self) -> int:
        """The attempt that everything is compared with: the command as given, in the world as it is now."""
        kept = ((i, a) for i, a in enumerate(self.attempts) if i not in self.undone)
        freed = [i for i, a in kept if a.trial.kind is TrialKind.FREE]
        return freed[-1] if freed else 0

    @property
    def first(self) -> Attempt:
        return self.attempts[self.start_index]

    @property
    def freed(self) -> tuple[int, ...]:
        """Processes that were ended on the way."""
        return self.first.trial.freed if self.attempts else ()

    @property
    def now(self) -> World:
        """The world without the processes that were ended."""
        return self.world.without(self.freed)

    @property
    def slowest_s(self) -> float:
        """Seconds of the longest launch so far; 0 before the first."""
        return max((attempt.seconds for attempt in self.attempts), default=0.0)

    def estimate(self, config: LaunchConfig) -> Budget:
        return self.now.estimate(config)

    def was_tried(self, config: LaunchConfig) -> bool:
        """Whether these settings were run in the world as it is now."""
        return any(a.trial.config == config and a.trial.freed == self.freed for a in self.attempts)

    def was_skipped(self, kind: TrialKind, variable: str) -> bool:
        return skip_key(kind, variable) in self.skipped

    def tries(self, kind: TrialKind, variable: str | None = None) -> int:
        """How many runs of a kind (and variable) were made."""
        return sum(a.trial.kind is kind and variable in (None, a.trial.variable) for a in self.attempts)


def skip_key(kind: TrialKind, variable: str | None) -> str:
    return f"{kind}:{variable}"


def changed(record: Record, before: LaunchConfig, after: LaunchConfig) -> tuple[str, ...]:
    """Variables that differ; K and V types are one where the model refuses two."""
    names = changed_fields(before, after, paired_types=same_cache_types(record.world.model))
    return (*names, "binary") if before.program != after.program else names


def differs(record: Record, before: Trial, after: Trial) -> tuple[str, ...]:
    """What differs between two runs, the memory of other processes included."""
    names = changed(record, before.config, after.config)
    return (*names, "other_process") if before.freed != after.freed else names


def differs_from_wanted(record: Record, config: LaunchConfig) -> tuple[str, ...]:
    return changed(record, record.wanted, config)


def typed_difference(before: LaunchConfig, after: LaunchConfig) -> tuple[str, str]:
    """The pieces of the command that go and those that come, as one would type them."""
    old, new = (Counter(" ".join(arg.tokens) for arg in arranged(config)) for config in (before, after))
    return " ".join((old - new).elements()), " ".join((new - old).elements())


def with_typed(own: str, other: str) -> str:
    """`with -c 4096`, or `without -fa off` where nothing is typed instead."""
    return f"with {own}" if own else f"without {other}"
