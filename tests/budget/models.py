"""Small made-up models for tests of single rules."""

from math import prod
from typing import Any

from kvstudio.devices.values import Device
from kvstudio.header.types import TENSOR_TYPES
from kvstudio.header.values import ArrayValue, Header, Shard, TensorInfo
from kvstudio.model.describe import describe
from kvstudio.model.values import ModelInfo
from kvstudio.units import GIB

Q4_K, F32, Q8_0 = 12, 0, 8


def header(
    architecture: str = "llama",
    n_layer: int = 4,
    n_embd: int = 512,
    n_vocab: int = 1024,
    tied: bool = False,
    extra_tensors: tuple[tuple[str, tuple[int, ...], int], ...] = (),
    **keys: Any,
) -> Header:
    """A header with the plain decoder's tensors; `keys` are added under the architecture, `__` standing for a dot."""
    named = {
        "block_count": n_layer,
        "embedding_length": n_embd,
        "context_length": 8192,
        "feed_forward_length": 4 * n_embd,
        "attention__head_count": 8,
        **keys,
    }
    metadata: dict[str, Any] = {"general.architecture": architecture, "general.file_type": 15}
    for key, value in named.items():
        kept = ArrayValue(5, len(value), tuple(value)) if isinstance(value, (tuple, list)) else value
        if kept is not None:
            metadata[f"{architecture}.{key.replace('__', '.')}"] = kept
    metadata["tokenizer.ggml.tokens"] = ArrayValue(8, n_vocab, None)
    rows = [("token_embd.weight", (n_embd, n_vocab), Q4_K), ("output_norm.weight", (n_embd,), F32)]
    rows += [] if tied else [("output.weight", (n_embd, n_vocab), Q4_K)]
    for il in range(n_layer):
        rows += [
            (f"blk.{il}.attn_norm.weight", (n_embd,), F32),
            (f"blk.{il}.attn_q.weight", (n_embd, n_embd), Q4_K),
            (f"blk.{il}.attn_k.weight", (n_embd, n_embd), Q4_K),
            (f"blk.{il}.attn_v.weight", (n_embd, n_embd), Q4_K),
            (f"blk.{il}.attn_output.weight", (n_embd, n_embd), Q4_K),
            (f"blk.{il}.ffn_norm.weight", (n_embd,), F32),
            (f"blk.{il}.ffn_gate.weight", (n_embd, 4 * n_embd), Q4_K),
            (f"blk.{il}.ffn_up.weight", (n_embd, 4 * n_embd), Q4_K),
            (f"blk.{il}.ffn_down.weight", (4 * n_embd, n_embd), Q4_K),
        ]
    tensors, offset, end = [], 0, 0
    for name, shape, type_id in (*rows, *extra_tensors):
        kind = TENSOR_TYPES[type_id]
        n_bytes = prod(shape) // kind.block * kind.block_bytes
        tensors.append(TensorInfo(name, shape, type_id, offset, n_bytes))
        end = offset + n_bytes
        offset += -(-n_bytes // 32) * 32
    shard = Shard("tiny.gguf", end, 0, 32, len(tensors), end)
    return Header("tiny.gguf", 3, metadata, tuple(tensors), (shard,))


def model(architecture: str = "llama", **changes: Any) -> ModelInfo:
    return describe(header(architecture, **changes))


def gpus(*free_gib: float, backend: str = "CUDA") -> tuple[Device, ...]:
    return tuple(
        Device(f"{backend}{index}", backend, total_bytes=24 * GIB, free_bytes=int(free * GIB))
        for index, free in enumerate(free_gib)
    )
