"""Where every layer and tensor goes, before anything is summed."""

from dataclasses import dataclass

from kvstudio.header.values import TensorInfo


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """What a backend's buffer types do to sizes. `host_buffer_type` None: none (Metal, RPC, OpenCL...); a buffer of it
    is `host_extra` bytes larger than what it holds. Larger sums are cut into buffers of `max_buffer_bytes`. What has a
    tensor over `max_tensor_bytes` is left to the CPU; one allocation over `max_alloc_bytes` is refused, None where that
    limit does not exist or is not known.

    Source: memory model of llama.cpp b11434, ggml/src/ggml-<backend>.
    """

    backend: str
    alignment: int
    max_buffer_bytes: int | None
    host_buffer_type: str | None
    host_alignment: int
    async_events: bool
    pads_quantized_rows: bool
    flash_attn_scratch: bool
    host_extra: int = 0
    max_tensor_bytes: int | None = None
    max_alloc_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor as created, `buffer_type` by its log name (`CUDA0`, `Vulkan_Host`, `CPU_REPACK`...).

    `device` is None on the host, `layer` for input and output tensors; `duplicate` marks the second copy of a tied
    embedding or of rope factors, `lazy` a huge lookup table that is read from the file row by row.
    """

    tensor: TensorInfo
    buffer_type: str
    device: str | None
    layer: int | None
    duplicate: bool = False
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class MappedRange:
    """The part of one file that a mapped buffer covers, in bytes from the start of its data section."""

    shard: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors that are placed together: `sizes` bytes by buffer type, `ranges` the file parts of mapped ones, `counts`
    how many there are by buffer type.
    """

    tensors: tuple[PlacedTensor, ...]
    sizes: tuple[tuple[str, int], ...]
    ranges: tuple[tuple[str, MappedRange], ...]
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """`devices` in llama.cpp's order; `layer_device` has n_layer_all + 1 entries, the output last, None is the CPU.

    `pipeline_copies` is 4 with pipeline parallelism, else 1. `buffer_types` names each device's default buffer type as
    the log does; `host_type` is the pinned host type of the first device that has one, None without; `mapped` says
    whether weights in host memory are mapped from the file. `shares` are the proportions of a `-sm tensor` split, else
    empty; with them the layers on devices are on all devices, and `layer_device` names the first.
    """

    devices: tuple[str, ...]
    traits: tuple[BackendTraits, ...]
    layer_device: tuple[str | None, ...]
    tensors: tuple[PlacedTensor, ...]
    offloaded_layers: tuple[int, int]
    pipeline_copies: int
    buffer_types: tuple[str, ...] = ()
    host_type: str | None = None
    mapped: bool = False
    groups: tuple[TensorGroup, ...] = ()
    shares: tuple[float, ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
