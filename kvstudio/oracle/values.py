"""What llama.cpp's own dry run said, beside what was estimated."""

from dataclasses import dataclass

from kvstudio.diagnose.values import Diagnosis

#: The dry run's figures are whole MiB, cut off: the true size is up to this much larger.
STEP_BYTES = 1 << 20
FIT_PROGRAM = "llama-fit-params"
HOST = "Host"
KINDS = ("model", "context", "compute")


@dataclass(frozen=True, slots=True)
class OracleRow:
    """One kind of memory on one device (`Host` for all host memory), in bytes.

    `context` is KV cache and recurrent state together. The true size lies from `measured` to `measured + slack`;
    `measured` is corrected where the dry run is known to differ from a real load, and `note` says so. None: the dry run
    does not tell. `estimated` is None when there was no budget.
    """

    device: str
    kind: str
    measured: int | None
    slack: int
    estimated: int | None
    note: str = ""

    @property
    def difference(self) -> int | None:
        """Bytes the estimate lies outside what was measured; negative when it is low, 0 when it agrees."""
        if self.measured is None or self.estimated is None:
            return None
        high = self.measured + self.slack
        return self.estimated - min(max(self.estimated, self.measured), high)

    @property
    def agrees(self) -> bool | None:
        return None if self.difference is None else self.difference == 0


@dataclass(frozen=True, slots=True)
class OracleResult:
    """One check. `method`: `llama-server` or `llama-fit-params`; no rows when it could not tell, and `says` why."""

    method: str
    argv: tuple[str, ...]
    rows: tuple[OracleRow, ...]
    says: str
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    cached: bool = False
    cancelled: bool = False
    diagnosis: Diagnosis | None = None

    @property
    def ok(self) -> bool:
        return bool(self.rows)

    @property
    def worst(self) -> OracleRow | None:
        """The row whose estimate is furthest off."""
        known = [row for row in self.rows if row.difference]
        return max(known, key=lambda row: abs(row.difference or 0), default=None)


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the dry run's table as it came, in bytes of whole MiB. Rows that are no device are host memory."""

    name: str
    is_device: bool
    model: int
    context: int
    compute: int
