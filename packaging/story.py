"""The story the pictures tell: Qwen3 32B on two 24 GB cards, one of which another process half fills."""

import os
import tempfile
from dataclasses import replace
from math import prod
from pathlib import Path

from kvstudio.budget.values import Budget
from kvstudio.devices.values import Device, DeviceProcess, Machine
from kvstudio.header.types import TENSOR_TYPES
from kvstudio.header.values import Header, TensorInfo
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.describe import describe
from kvstudio.model.values import ModelInfo
from kvstudio.units import GIB, MIB
from tests.budget import zoo

FILE = "Qwen3-32B-Q4_K_M.gguf"
COMMIT = "4f1c2a97"
_CARD = 24564 * MIB
_HELD = 7782 * MIB
_Q4_K, _Q6_K = 12, 14
_MOSTLY_Q4_K_M = 15
_DRY = "NVIDIA GeForce RTX 4090"


def machine() -> Machine:
    """Two cards, a desktop on the first and somebody's python3 on the second."""
    desktop = (DeviceProcess(1811, "Xorg", 302 * MIB), DeviceProcess(2203, "firefox", 110 * MIB))
    other = (DeviceProcess(4182, "python3", _HELD),)
    cards = (
        Device("CUDA0", "CUDA", _DRY, _CARD, _CARD - 412 * MIB, processes=desktop),
        Device("CUDA1", "CUDA", _DRY, _CARD, _CARD - _HELD, processes=other),
    )
    host = Device("Host", "CPU", "RAM", round(62.6 * GIB), round(51.2 * GIB))
    return Machine(cards, host)


def model() -> ModelInfo:
    """The shape with the tensor types of Q4_K_M: the more sensitive tensors of some layers are Q6_K."""
    shape = zoo.header("qwen3-32b")
    tensors: list[TensorInfo] = []
    offset = 0
    for tensor in shape.tensors:
        type_id = _type_of(tensor)
        kind = TENSOR_TYPES[type_id]
        n_bytes = prod(tensor.shape) // kind.block * kind.block_bytes
        tensors.append(replace(tensor, type_id=type_id, n_bytes=n_bytes, offset=offset))
        offset += n_bytes
    names = {"general.name": "Qwen3 32B", "general.file_type": _MOSTLY_Q4_K_M}
    data = 5 * MIB
    shard = replace(shape.shards[0], path=FILE, size_bytes=data + offset, data_offset=data, need_bytes=data + offset)
    return describe(Header(FILE, 3, shape.metadata | names, tuple(tensors), (shard,)))


def _type_of(tensor: TensorInfo) -> int:
    if tensor.type_id == 0:
        return 0
    if tensor.name == "output.weight":
        return _Q6_K
    parts = tensor.name.split(".")
    if parts[0] == "blk" and parts[2] in ("attn_v", "ffn_down"):
        layer, n_layer = int(parts[1]), 64
        if layer < n_layer // 8 or layer >= 7 * n_layer // 8 or (layer - n_layer // 8) % 3 == 2:
            return _Q6_K
    return _Q4_K


def config(n_ctx: int, tensor_split: tuple[float, ...] | None) -> LaunchConfig:
    """What was typed."""
    return LaunchConfig(
        model_path=str(Path.home() / "models" / FILE),
        n_ctx=n_ctx,
        n_gpu_layers=99,
        tensor_split=tensor_split,
        host="192.168.1.20",
        port=8080,
        api_key="secret-key",
    )


def binary() -> Binary:
    """A llama-server that replays the log that `$FAKE_LLAMA_LOG` names, under the name a real one would have."""
    path = Path.home() / "llama.cpp" / "build" / "bin" / "llama-server"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.symlink_to(Path(__file__).resolve().parent.parent / "tests" / "fakes" / "fake_llama.py")
    version = f"11434 ({COMMIT})"
    return Binary(str(path), "llama-server", version, 11434, COMMIT, "GNU 13.3.0", ("CUDA",), frozenset())


def failed_log(budget: Budget, config: LaunchConfig) -> str:
    """What such a launch prints, with the sizes of a Budget, up to the refused allocation."""
    zero, one = budget.devices
    assert budget.first_failure is not None
    asked = budget.first_failure.bytes
    cells = budget.config.n_ctx
    head = [
        (0.021, "I", f"build: 11434 ({COMMIT}) with GNU 13.3.0 for Linux x86_64"),
        (0.022, "I", "device_info:"),
        *(
            (0.040, "I", f"  - {d.name} : {_DRY} ({_CARD // MIB} MiB, {(d.free_bytes or 0) // MIB} MiB free)")
            for d in (zero, one)
        ),
        (0.120, "I", f"srv    load_model: loading model '{config.model_path}'"),
        (0.310, "I", "common_init_result: fitting params to device memory ..."),
        (0.402, "W", "common_fit_params: failed to fit params to free device memory: "
         "model_params::tensor_split already set by user, abort"),
        *((0.52 + i / 1000, "I", f"llama_model_loader: - kv {i:3d}: {line}") for i, line in enumerate(_METADATA)),
        (0.741, "I", "print_info: arch                  = qwen3"),
        (0.741, "I", "print_info: n_ctx_train           = 40960"),
        (0.742, "I", "print_info: file type             = Q4_K - Medium"),
        (0.806, "I", "load_tensors: loading model tensors, this can take a while... (load_mode = mmap)"),
        (0.913, "I", "load_tensors: offloading output layer to GPU"),
        (0.913, "I", "load_tensors: offloading 63 repeating layers to GPU"),
        (0.913, "I", "load_tensors: offloaded 65/65 layers to GPU"),
        (0.913, "I", f"load_tensors:   CPU_Mapped model buffer size = {budget.host.model_bytes / MIB:8.2f} MiB"),
        (0.913, "I", f"load_tensors:        CUDA0 model buffer size = {zero.model_bytes / MIB:8.2f} MiB"),
        (0.913, "I", f"load_tensors:        CUDA1 model buffer size = {one.model_bytes / MIB:8.2f} MiB"),
        (3.871, "I", "llama_context: constructing llama_context"),
        (3.871, "I", f"llama_context: n_seq_max     = {budget.config.n_parallel}"),
        (3.871, "I", f"llama_context: n_ctx         = {cells}"),
        (3.872, "I", f"llama_context: n_ctx_seq     = {budget.config.n_ctx_seq}"),
        (3.872, "W", f"llama_context: n_ctx_seq ({budget.config.n_ctx_seq}) > n_ctx_train (40960) -- "
         "possible training context overflow"),
        (3.874, "I", f"llama_kv_cache:      CUDA0 KV buffer size = {zero.kv_bytes / MIB:8.2f} MiB"),
        (3.902, "E", f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {asked / MIB:.2f} MiB on device 1: "
         "cudaMalloc failed: out of memory"),
        (3.902, "E", f"alloc_tensor_range: failed to allocate CUDA1 buffer of size {asked}"),
        (3.914, "E", "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache"),
        (3.981, "E", f"srv    load_model: failed to load model, '{config.model_path}'"),
        (4.107, "E", "srv          main: exiting due to model loading error"),
    ]  # fmt: skip
    return "".join(f"{_stamp(at)} {level} {line}\n" for at, level, line in head)


_METADATA = (
    "general.architecture str              = qwen3",
    "general.type str              = model",
    "general.name str              = Qwen3 32B",
    "qwen3.block_count u32              = 64",
    "qwen3.context_length u32              = 40960",
    "qwen3.embedding_length u32              = 5120",
    "qwen3.feed_forward_length u32              = 25600",
    "qwen3.attention.head_count u32              = 64",
    "qwen3.attention.head_count_kv u32              = 8",
    "qwen3.attention.key_length u32              = 128",
    "qwen3.attention.value_length u32              = 128",
    "general.file_type u32              = 15",
)


def _stamp(seconds: float) -> str:
    """As llama.cpp's logger writes it: minutes, seconds, milliseconds, microseconds."""
    whole, micro = divmod(round(seconds * 1e6), 1_000_000)
    return f"{whole // 60}.{whole % 60:02d}.{micro // 1000:03d}.{micro % 1000:03d}"


def make_home() -> None:
    """A home folder of its own, so that no picture shows whose machine it was made on."""
    home = Path(tempfile.gettempdir()) / "anna"
    (home / "models").mkdir(parents=True, exist_ok=True)
    os.environ["HOME"] = str(home)
    os.environ["KVSTUDIO_DATA"] = tempfile.mkdtemp()
    os.environ["USER"] = os.environ["LOGNAME"] = "anna"
