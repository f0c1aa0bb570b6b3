"""A Budget: every buffer llama.cpp will allocate, per device, with where each number comes from."""

from dataclasses import dataclass
from enum import StrEnum


class BufferKind(StrEnum):
    """Kinds of memory, in the order a bar shows them: what is there before us, then the order of allocation."""

    OTHER_PROCESSES = "other"
    OVERHEAD = "overhead"
    MODEL = "model"
    KV = "kv"
    RS = "rs"
    COMPUTE = "compute"
    OUTPUT = "output"


class Provenance(StrEnum):
    """How a number is known."""

    EXACT = "exact"  # from the header and llama.cpp's rules
    ESTIMATED = "estimated"  # a formula with a known error
    MEASURED = "measured"  # printed by the binary
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """The settings as the binary will resolve them. `n_gpu_layers` keeps -1 (auto) and -2 (all).

    `flash_attn` is what was asked ("on", "off", "auto"); `flash_attn_on` what it becomes, None if only the log tells.
    `overrides` are (pattern, buffer type) in the order llama.cpp tries them. `errors` are settings llama.cpp refuses.
    """

    program: str
    build: int
    n_ctx: int
    n_ctx_seq: int
    n_parallel: int
    kv_unified: bool
    n_batch: int
    n_ubatch: int
    n_outputs_max: int
    cache_type_k: str
    cache_type_v: str
    n_gpu_layers: int
    flash_attn: str
    flash_attn_on: bool | None
    split_mode: str
    kv_offload: bool
    op_offload: bool
    swa_full: bool
    fit: bool
    pipeline_copies: int = 1
    n_rs_seq: int = 0
    n_draft: int = 0
    load_mtp: bool = False
    embeddings: bool = False
    causal_attn: bool = True
    load_mode: str = "auto"
    lazy_mode: str = "auto"
    repack: bool = True
    no_host: bool = False
    overrides: tuple[tuple[str, str], ...] = ()
    mtp_context: bool = False
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer as the log will name it; `device` is None for host memory, `bytes` None when unknown.

    `context` says whose it is: `main`, or what a launch has besides (`mtp`, `draft`, `mmproj`, `lora`).
    """

    name: str
    device: str | None
    kind: BufferKind
    bytes: int | None
    provenance: Provenance
    why: str
    context: str = "main"


@dataclass(frozen=True, slots=True)
class Cache:
    """One KV or recurrent cache over all devices. `kind`: `kv`, `kv_swa`, `indexer`, `rs`..."""

    kind: str
    cells: int
    layers: int
    streams: int
    k_bytes: int
    v_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceBudget:
    """What one device (or the host) gives and is asked for, in bytes; unknown is None.

    `need_bytes` is what this launch asks of it: all kinds but other processes, overhead included where it is known.
    `mapped_bytes` is the part of the host's weights that is mapped from the file: page cache, which the system takes
    back when it must, so it cannot be refused and does not count against free memory.
    """

    name: str
    description: str
    total_bytes: int | None
    free_bytes: int | None
    model_bytes: int
    kv_bytes: int
    rs_bytes: int
    compute_bytes: int
    output_bytes: int
    overhead_bytes: int | None
    other_bytes: int | None
    n_layers: int = 0
    has_output_layer: bool = False
    mapped_bytes: int = 0

    def of(self, kind: BufferKind) -> int | None:
        """Bytes of one kind; None when unknown."""
        value: int | None = getattr(self, f"{kind.value}_bytes")
        return value

    @property
    def need_bytes(self) -> int:
        buffers = self.model_bytes + self.kv_bytes + self.rs_bytes + self.compute_bytes + self.output_bytes
        return buffers + (self.overhead_bytes or 0)

    @property
    def fits(self) -> bool | None:
        return None if self.room_bytes is None else self.room_bytes >= 0

    @property
    def room_bytes(self) -> int | None:
        """Free memory left after this launch; negative when it does not fit."""
        return None if self.free_bytes is None else self.free_bytes - (self.need_bytes - self.mapped_bytes)


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The allocation that fails first in llama.cpp's own order.

    `free_bytes` is what the device has left at that moment, None when unknown; `limit_bytes` the backend's cap on one
    allocation when that is the reason, `bytes` is then the one allocation over it.
    """

    device: str
    kind: BufferKind
    bytes: int
    short_bytes: int
    free_bytes: int | None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """The whole answer for one model, one command line and one set of devices.

    `devices` are the ones llama.cpp takes, in its order; `idle` those it leaves alone (`-sm none`, `-dev`, an
    integrated chip beside a card), asked for nothing. `offloaded_layers` as llama.cpp logs it: (on devices, all), the
    output layer counted.
    """

    config: EffectiveConfig
    offloaded_layers: tuple[int, int]
    devices: tuple[DeviceBudget, ...]
    host: DeviceBudget
    buffers: tuple[Buffer, ...]
    caches: tuple[Cache, ...]
    first_failure: FirstFailure | None
    notes: tuple[str, ...] = ()
    idle: tuple[DeviceBudget, ...] = ()

    @property
    def all_devices(self) -> tuple[DeviceBudget, ...]:
        """The devices in use, then the idle ones."""
        return (*self.devices, *self.idle)

    @property
    def fits(self) -> bool | None:
        """Whether every device (and the host, where known) has room; None when a device's memory is unknown."""
        answers = [d.fits for d in self.devices] + ([self.host.fits] if self.host.fits is not None else [])
        if False in answers or self.first_failure is not None:
            return False
        return None if None in answers or not answers else True
