"""Case: everything the window shows, as one immutable value."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from kvstudio.advise.values import Fix
from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.values import Budget
from kvstudio.case.overhead import Overheads
from kvstudio.devices.values import Device, DeviceSource, Machine
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.oracle.values import OracleResult
from kvstudio.runlog.values import LogLine
from kvstudio.verify.values import Run


@dataclass(frozen=True, slots=True)
class Checked:
    """What llama.cpp's own dry run said, and the settings and devices it was asked for."""

    config: LaunchConfig
    devices: tuple[str, ...]
    result: OracleResult


@dataclass(frozen=True, slots=True)
class Case:
    """Model, devices, settings, budget, runs and note.

    `devices` are all known ones in llama.cpp's order; `chosen` names those that are ticked. `log` and `diagnosis`
    belong to the log on screen: the last run's, or one that was dropped. A what-if device hides a live one of its name.
    `extras` (`budget.extras.Extras`) are the other files of the launch, already read; None: read with each budget.
    """

    config: LaunchConfig = field(default_factory=LaunchConfig)
    model: ModelInfo | None = None
    machine: Machine | None = None
    what_if: tuple[Device, ...] = ()
    chosen: tuple[str, ...] = ()
    binary: Binary | None = None
    budget: Budget | None = None
    fixes: tuple[Fix, ...] = ()
    fitted: FitResult | None = None
    remembered: Overheads = field(default_factory=Overheads)
    runs: tuple[Run, ...] = ()
    log: tuple[LogLine, ...] = ()
    log_source: str = ""
    diagnosis: Diagnosis | None = None
    note: str = ""
    checked: Checked | None = None
    extras: Any = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """Live devices, then what-if ones."""
        hidden = {d.name for d in self.what_if}
        live = self.machine.devices if self.machine else ()
        return (*(d for d in live if d.name not in hidden), *self.what_if)

    @property
    def chosen_devices(self) -> tuple[Device, ...]:
        return tuple(d for d in self.devices if d.name in self.chosen)

    @property
    def not_here(self) -> tuple[str, ...]:
        """Devices in use that no launch on this machine can use: what-if ones, those of a log or of another machine."""
        return tuple(d.name for d in self.what_if if d.name in self.chosen and d.source is not DeviceSource.RPC)

    def replace(self, **changes: Any) -> Self:
        """The same page with some values replaced, nothing recomputed; see `kvstudio.case.evolve`."""
        return replace(self, **changes)
