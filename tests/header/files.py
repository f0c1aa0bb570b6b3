"""Small GGUF files for the header tests: true ones by the gguf package, hostile ones byte by byte."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

Q4_0_BLOCK = (32, 18)


def write_model(path: Path, *, vocabulary: int = 300, layers: int = 2, alignment: int | None = None) -> Path:
    """A tiny model with each kind of metadata and two tensor types."""
    writer = GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_name("Tiny ünit")
    writer.add_block_count(layers)
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -5)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_int32("test.i32", -7)
    writer.add_uint64("test.u64", 2**40)
    writer.add_int64("test.i64", -(2**40))
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.yes", True)
    writer.add_bool("test.no", False)
    writer.add_array("test.per_layer", [8, 4, 0, 2])
    writer.add_array("test.flags", [True, False, True])
    writer.add_array("general.tags", ["small", "tést"])
    writer.add_token_list([f"token{n}" * (n % 40) for n in range(vocabulary)])
    writer.add_token_scores([float(n) for n in range(vocabulary)])
    writer.add_tensor("token_embd.weight", np.zeros((vocabulary, 64), dtype=np.float32))
    for layer in range(layers):
        raw = np.zeros((48, 64 // Q4_0_BLOCK[0] * Q4_0_BLOCK[1]), dtype=np.uint8)
        writer.add_tensor(f"blk.{layer}.attn_q.weight", raw, raw_dtype=GGMLQuantizationType.Q4_0)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.ones(7, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, type_id: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", type_id) + value


def tensor(name: str, shape: Sequence[int] = (32,), type_id: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dims + struct.pack("<IQ", type_id, offset)


def gguf_bytes(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    version: int = 3,
    n_pairs: int | None = None,
    n_tensors: int | None = None,
    data: int = 0,
) -> bytes:
    """A file put together by hand; the counts can lie. `data` zeros follow the padded header."""
    counts = (len(tensors) if n_tensors is None else n_tensors, len(pairs) if n_pairs is None else n_pairs)
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32 + data if tensors else 0)


def write_split(
    folder: Path, parts: Sequence[Sequence[str]], prefix: str = "model", total: int | None = None
) -> tuple[Path, ...]:
    """Shards whose tensors (32 floats each) are named by `parts`."""
    total = sum(map(len, parts)) if total is None else total
    paths = []
    for index, names in enumerate(parts):
        split: Mapping[str, tuple[int, bytes]] = {
            "split.no": (2, struct.pack("<H", index)),
            "split.count": (2, struct.pack("<H", len(parts))),
            "split.tensors.count": (5, struct.pack("<i", total)),
        }
        pairs = [pair(key, kind, value) for key, (kind, value) in split.items()]
        if index == 0:
            pairs.insert(0, pair("general.architecture", 8, text("llama")))
        rows = [tensor(name, offset=128 * row) for row, name in enumerate(names)]
        path = folder / f"{prefix}-{index + 1:05d}-of-{len(parts):05d}.gguf"
        path.write_bytes(gguf_bytes(pairs, rows, data=128 * len(names)))
        paths.append(path)
    return tuple(paths)
