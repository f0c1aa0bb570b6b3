"""Where every layer and tensor goes, before anything is summed."""

from dataclasses import dataclass

from kvstudio.header.values import TensorInfo


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """What a backend's buffer types do to sizes. `host_buffer_type` None: none (Metal, RPC, OpenCL...).

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


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor as created: `buffer_type` by its log name (`CUDA0`, `Vulkan_Host`, `CPU_REPACK`...), `device` None on the host.

    `layer` is None for input and output tensors; `duplicate` for the second copy of a tied embedding or of rope factors.
    """

    tensor: TensorInfo
    buffer_type: str
    device: str | None
    layer: int | None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """`devices` in llama.cpp's order; `layer_device` has n_layer_all + 1 entries, the output layer last, None for the CPU.

    `pipeline_copies` is 4 with pipeline parallelism, else 1.
    """

    devices: tuple[str, ...]
    traits: tuple[BackendTraits, ...]
    layer_device: tuple[str | None, ...]
    tensors: tuple[PlacedTensor, ...]
    offloaded_layers: tuple[int, int]
    pipeline_copies: int
