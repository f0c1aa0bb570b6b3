"""Small made-up projectors, each a real file of which llama-server b11434 printed the compute buffers."""

from math import prod
from typing import Any

from kvstudio.header.types import TENSOR_TYPES
from kvstudio.header.values import Header, Shard, TensorInfo

F32, F16 = 0, 1


def projector(
    kind: str,
    side: int,
    patch: int = 14,
    n_embd: int = 128,
    n_ff: int = 512,
    n_out: int = 64,
    n_layer: int = 4,
    merge: int | None = None,
    rms: bool = False,
    gate: bool = False,
    class_embd: bool = False,
    f16: bool = True,
    fused: bool = False,
    **changes: Any,
) -> Header:
    """A vision tower of plain layers with 4 heads and the projector of its kind."""
    is_qwen, plain, matrix = kind.startswith("qwen"), kind == "pixtral", F16 if f16 else F32
    rows: list[tuple[str, tuple[int, ...], int]] = [("v.patch_embd.weight", (patch, patch, 3, n_embd), matrix)]
    if is_qwen:
        rows.append(("v.patch_embd.weight.1", (patch, patch, 3, n_embd), matrix))
    if fused or not (is_qwen or plain or kind == "mlp"):
        rows.append(("v.patch_embd.bias", (n_embd,), F32))
    if class_embd:
        rows.append(("v.class_embd", (n_embd,), F32))
    if fused or not (is_qwen or plain):
        rows.append(("v.position_embd.weight", (n_embd, (side // patch) ** 2 + class_embd), F32))
    norms = ["pre_ln"] if kind == "mlp" else [] if plain else ["post_ln"]
    linears: list[tuple[str, int, int]] = []
    for il in range(n_layer):
        norms += [f"blk.{il}.ln1", f"blk.{il}.ln2"]
        parts = (("qkv", 3), ("out", 1)) if fused else (("q", 1), ("k", 1), ("v", 1), ("out", 1))
        linears += [(f"blk.{il}.attn_{part}", n_embd, many * n_embd) for part, many in parts]
        linears += [(f"blk.{il}.ffn_up", n_embd, n_ff), (f"blk.{il}.ffn_down", n_ff, n_embd)]
        linears += [(f"blk.{il}.ffn_gate", n_embd, n_ff)] if gate else []
    for name in norms:
        rows += [(f"v.{name}.weight", (n_embd,), F32)] + ([] if rms else [(f"v.{name}.bias", (n_embd,), F32)])
    for name, n_in, n_to in linears:
        rows += [(f"v.{name}.weight", (n_in, n_to), matrix)] + ([] if plain else [(f"v.{name}.bias", (n_to,), F32)])
    rows += _projection(kind, n_embd, n_out, merge, matrix)
    metadata: dict[str, Any] = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        "clip.vision.embedding_length": n_embd,
        "clip.vision.attention.head_count": 4,
        "clip.vision.block_count": n_layer,
        "clip.vision.image_size": side,
        "clip.vision.patch_size": patch,
    }
    if merge is not None and not is_qwen:
        metadata["clip.vision.projector.scale_factor"] = merge
    return _header(metadata | changes, rows)


def listener(n_embd: int = 128, n_ff: int = 512, n_layer: int = 4) -> Header:
    """An audio tower of Whisper's kind."""
    rows: list[tuple[str, tuple[int, ...], int]] = [
        ("a.conv1d.1.weight", (3, 80, n_embd), F16),
        ("a.conv1d.1.bias", (1, n_embd), F32),
        ("a.conv1d.2.weight", (3, n_embd, n_embd), F16),
        ("a.conv1d.2.bias", (1, n_embd), F32),
        ("a.position_embd.weight", (n_embd, 1500), F32),
    ]
    norms = ["post_ln"]
    for il in range(n_layer):
        norms += [f"blk.{il}.ln1", f"blk.{il}.ln2"]
        parts = [(f"attn_{part}", n_embd, n_embd) for part in ("q", "k", "v", "out")]
        for name, n_in, n_to in [*parts, ("ffn_up", n_embd, n_ff), ("ffn_down", n_ff, n_embd)]:
            rows.append((f"a.blk.{il}.{name}.weight", (n_in, n_to), F16))
            rows += [] if name == "attn_k" else [(f"a.blk.{il}.{name}.bias", (n_to,), F32)]
    rows += [(f"a.{name}.{part}", (n_embd,), F32) for name in norms for part in ("weight", "bias")]
    rows += [("mm.a.fc.weight", (n_embd, 64), F16), ("mm.a.fc.bias", (64,), F32)]
    metadata = {
        "general.architecture": "clip",
        "clip.has_audio_encoder": True,
        "clip.projector_type": "qwen2a",
        "clip.audio.embedding_length": n_embd,
        "clip.audio.attention.head_count": 4,
        "clip.audio.block_count": n_layer,
        "clip.audio.num_mel_bins": 80,
    }
    return _header(metadata, rows)


def _projection(kind: str, n_embd: int, n_out: int, merge: int | None, matrix: int) -> list[tuple[str, Any, int]]:
    if kind == "gemma3":
        return [("mm.input_projection.weight", (n_out, n_embd), matrix), ("mm.soft_emb_norm.weight", (n_embd,), F32)]
    wide = n_embd * (merge or 1) ** 2
    pairs = {
        "idefics3": [("mm.model.fc", wide, n_out)],
        "mlp": [("mm.0", n_embd, 2 * n_out), ("mm.2", 2 * n_out, n_out)],
        "internvl": [("mm.model.mlp.1", wide, n_out), ("mm.model.mlp.3", n_out, n_out)],
    }.get(kind, [("mm.0", wide, wide), ("mm.2", wide, n_out)])
    rows: list[tuple[str, Any, int]] = []
    for name, n_in, n_to in pairs:
        rows += [(f"{name}.weight", (n_in, n_to), matrix)]
        rows += [] if kind == "idefics3" else [(f"{name}.bias", (n_to,), F32)]
    return rows


def _header(metadata: dict[str, Any], rows: list[tuple[str, Any, int]]) -> Header:
    tensors, offset = [], 0
    for name, shape, type_id in rows:
        kind = TENSOR_TYPES[type_id]
        n_bytes = prod(shape) // kind.block * kind.block_bytes
        tensors.append(TensorInfo(name, shape, type_id, offset, n_bytes))
        offset += -(-n_bytes // 32) * 32
    shard = Shard("mmproj.gguf", offset, 0, 32, len(tensors), offset)
    return Header("mmproj.gguf", 3, metadata, tuple(tensors), (shard,))
