"""Budget and Run -> what was estimated beside what was printed, buffer by buffer."""

from dataclasses import dataclass

from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.verify.values import Run

_KINDS = (BufferKind.MODEL, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE, BufferKind.OUTPUT)
_HOST = "Host"
#: A figure is printed with two decimals of MiB; anything closer than that is the same.
_PRINTED_STEP = 10486


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One kind of memory on one device, in bytes; None where it was not estimated or not measured.

    `learned`: the measured figure is what no buffer explains, kept for these devices. `exact`: equal as far as printed.
    """

    device: str
    kind: BufferKind
    estimated_bytes: int | None
    measured_bytes: int | None
    learned: bool = False

    @property
    def difference_bytes(self) -> int | None:
        if self.estimated_bytes is None or self.measured_bytes is None:
            return None
        return self.measured_bytes - self.estimated_bytes

    @property
    def exact(self) -> bool:
        difference = self.difference_bytes
        return difference is not None and abs(difference) < _PRINTED_STEP


def compare(budget: Budget | None, run: Run) -> tuple[ComparisonRow, ...]:
    """Rows in the order of the devices, the host last; kinds that are zero on both sides are left out."""
    printed = _printed(run)
    estimated = {d.name: d for d in budget.devices} if budget else {}
    names = dict.fromkeys((*estimated, *(n for n, _ in printed if n != _HOST)))
    rows = [row for name in names for row in _device_rows(name, estimated.get(name), printed, run)]
    return (*rows, *_rows(_HOST, budget.host if budget else None, printed))


def _printed(run: Run) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for buffer in run.buffers:
        key = (buffer.device or _HOST, buffer.kind)
        sums[key] = sums.get(key, 0) + buffer.bytes
    return sums


def _rows(name: str, device: DeviceBudget | None, printed: dict[tuple[str, str], int]) -> list[ComparisonRow]:
    rows = []
    for kind in _KINDS:
        estimate = (device.of(kind) or 0) if device else None
        measured = printed.get((name, kind.value))
        if estimate or measured:
            rows.append(ComparisonRow(name, kind, estimate, measured))
    return rows


def _device_rows(
    name: str, device: DeviceBudget | None, printed: dict[tuple[str, str], int], run: Run
) -> list[ComparisonRow]:
    rows = _rows(name, device, printed)
    overhead = _unexplained(name, printed, run)
    if overhead is not None:
        estimate = device.overhead_bytes if device else None
        rows.append(ComparisonRow(name, BufferKind.OVERHEAD, estimate, overhead, learned=True))
    return rows


def _unexplained(name: str, printed: dict[tuple[str, str], int], run: Run) -> int | None:
    """Memory taken at the peak that no printed buffer explains; None where use was not watched."""
    peak = dict(run.peak).get(name)
    before = next((dict(s.used_bytes).get(name) for s in run.samples), None)
    if peak is None or before is None:
        return None
    buffers = sum(size for (device, _), size in printed.items() if device == name)
    return max(0, peak - before - buffers) if buffers else None
