"""A budget beside the buffers that were printed: one row per device and kind."""

from dataclasses import dataclass

from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.units import MIB
from kvstudio.verify.values import PrintedBuffer, Run

HOST = "Host"
#: Sizes are printed with two decimals of MiB; closer than that is equal.
PRINTED_STEP = MIB // 100 + 1
#: Kinds that are printed as buffers, in the order of allocation.
KINDS = (BufferKind.MODEL, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE, BufferKind.OUTPUT)


@dataclass(frozen=True, slots=True)
class ComparedSize:
    """One kind of memory on one device (`Host` for all host memory), in bytes; None when that side does not know it."""

    device: str
    kind: str
    estimated: int | None
    measured: int | None

    @property
    def difference(self) -> int | None:
        """Measured minus estimated: positive when the estimate was low."""
        return None if self.estimated is None or self.measured is None else self.measured - self.estimated

    @property
    def agrees(self) -> bool | None:
        """Whether the two are the same as far as the printed figure tells."""
        return None if self.difference is None else abs(self.difference) < PRINTED_STEP


def compare(budget: Budget | None, run: Run) -> tuple[ComparedSize, ...]:
    """Estimated beside measured for everything either side knows of."""
    return compare_buffers(budget, run.buffers)


def compare_buffers(budget: Budget | None, buffers: tuple[PrintedBuffer, ...]) -> tuple[ComparedSize, ...]:
    """As `compare`, from printed buffers. Once a kind was printed anywhere, a device without it holds none."""
    measured: dict[tuple[str, str], int] = {}
    for buffer in buffers:
        key = (buffer.device or HOST, buffer.kind)
        measured[key] = measured.get(key, 0) + buffer.bytes
    seen = {kind for _, kind in measured}
    places = {d.name: d for d in budget.devices} | {HOST: budget.host} if budget else {}
    names = list(dict.fromkeys([*places, *(device for device, _ in measured)]))
    rows = (_row(name, kind, places.get(name), measured, seen) for name in names for kind in KINDS)
    return tuple(row for row in rows if row.estimated or row.measured)


def _row(
    name: str, kind: BufferKind, place: DeviceBudget | None, measured: dict[tuple[str, str], int], seen: set[str]
) -> ComparedSize:
    printed = measured.get((name, kind.value), 0 if kind.value in seen else None)
    return ComparedSize(name, kind.value, place.of(kind) if place else None, printed)
