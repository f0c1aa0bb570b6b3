"""Numbered log lines and the events read from them."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as it stood in the file: `number` counts from 1, `text` is the decoded original without its line end.

    `message` is the text without wrapper prefixes, time and level; `level` one of `D I W E` or None; `time_s` seconds
    since start where the line says so.
    """

    number: int
    text: str
    message: str
    level: str | None = None
    time_s: float | None = None


class Phase(StrEnum):
    """Stages of a launch, in order."""

    FIT = "fit"
    WEIGHTS = "weights"
    KV = "kv"
    RS = "rs"
    COMPUTE = "compute"
    WARMUP = "warmup"
    LISTENING = "listening"
    GENERATE = "generate"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Something a line states. Subclasses carry the figures; `line` is the line's number."""

    line: int


@dataclass(frozen=True, slots=True)
class BufferPrinted(LogEvent):
    """`Vulkan0 KV buffer size = 512.00 MiB`, in bytes. `kind`: model, kv, rs, compute, output, lora, mmproj."""

    name: str
    kind: str
    bytes: int


@dataclass(frozen=True, slots=True)
class CachePrinted(LogEvent):
    """The `size = ... (cells, layers, seqs)` summary of one KV or RS cache."""

    kind: str
    cells: int
    layers: int
    seqs: int
    streams: int
    k_type: str | None
    v_type: str | None
    k_bytes: int
    v_bytes: int


@dataclass(frozen=True, slots=True)
class DevicePrinted(LogEvent):
    """A device the log names, with MiB figures turned into bytes; None where the line has none."""

    name: str
    description: str
    total_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class ConfigPrinted(LogEvent):
    """An effective parameter: `llama_context: n_ctx = 65536`."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class OffloadPrinted(LogEvent):
    """`offloaded 65/65 layers to GPU`."""

    offloaded: int
    total: int


@dataclass(frozen=True, slots=True)
class BreakdownRow(LogEvent):
    """A row of llama.cpp's memory breakdown table, in bytes (MiB as printed). `table` counts tables from 1."""

    table: int
    name: str
    description: str
    total_bytes: int | None
    free_bytes: int | None
    self_bytes: int
    model_bytes: int
    context_bytes: int
    compute_bytes: int
    unaccounted_bytes: int | None


@dataclass(frozen=True, slots=True)
class PhaseReached(LogEvent):
    """A line that shows a phase has begun or was passed."""

    phase: Phase
    done: bool


@dataclass(frozen=True, slots=True)
class AllocationFailed(LogEvent):
    """An allocator line. `layer`: A backend allocator, B ggml allocator, C what it was for. Unsaid sizes are None.

    `groups` are the figures and names of the line as its pattern calls them.
    """

    layer: str
    signature: str
    backend: str | None
    device: str | None
    bytes: int | None
    limit_bytes: int | None
    bytes_exact: bool
    groups: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Note(LogEvent):
    """Any other line that means something to a diagnosis: `signature` is its row in the table of patterns."""

    signature: str
    says: str
    groups: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BuildPrinted(LogEvent):
    """The build a program names: `build: 6700 (3df2244d)`; `build` is None where only a commit or version is said."""

    build: int | None
    commit: str | None
    version: str


@dataclass(frozen=True, slots=True)
class CommandSeen(LogEvent):
    """A llama.cpp command line that stands in the log, as text."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelSeen(LogEvent):
    """A model file the log names. `role`: model, draft, mmproj, lora."""

    path: str
    role: str


@dataclass(frozen=True, slots=True)
class FitProjected(LogEvent):
    """`projected to use X MiB of device memory vs. Y MiB of free device memory`; `host` for the same about RAM.

    `available_is_free` is False where the line compares with a total.
    """

    needed_bytes: int
    available_bytes: int
    host: bool
    available_is_free: bool


@dataclass(frozen=True, slots=True)
class MemoryNoted(LogEvent):
    """Free memory of a device a fit line or wrapper states, in bytes."""

    name: str
    total_bytes: int | None
    free_bytes: int | None
    used_bytes: int | None
