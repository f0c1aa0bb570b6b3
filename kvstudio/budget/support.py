"""What a backend cannot do with a weight, which sends the weight to host memory.

Source: llama.cpp b11434, ggml/src/ggml-<backend> (supports_op); backends not named here are taken to do everything.
"""

from math import prod

from kvstudio.budget import builds
from kvstudio.budget.placement_values import BackendTraits
from kvstudio.budget.traits import CpuTraits
from kvstudio.header.types import TENSOR_TYPES
from kvstudio.header.values import TensorInfo
from kvstudio.model.values import ModelInfo

_F16, _I32 = 1, 26
_Q4_0, _Q4_1, _Q8_0, _Q2_K, _Q4_K, _Q5_K, _Q6_K, _IQ4_NL, _IQ4_XS, _MXFP4 = 2, 3, 8, 10, 12, 13, 14, 20, 23, 39
_TQ1_0 = 34
#: Weights of matrices and rows that every GPU backend reads.
_MATRIX_OPS = frozenset({"MUL_MAT", "MUL_MAT_ID", "GET_ROWS"})
_VULKAN_MATRIX = frozenset(
    {0, 1, 30, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 29, 39, 40, 34, 35, 41, 42}
)
_CUDA_NO_ROWS = frozenset({34, 35, 15, 9})
_MAMBA2_STATES = {"Vulkan": (128, 256), "CUDA": (96, 128, 256), "ROCm": (96, 128, 256), "MUSA": (96, 128, 256)}
_FLOAT = 4
_PROBE_COLUMNS = 512  # llama.cpp probes a matrix with so many columns
_PROBE_SEQUENCES = 3  # and a state-space step with so many sequences of that many tokens
_WKV6_PROBE_BYTES = 4 * 123**4  # the state RWKV 6's step is probed with, whatever the model


def device_takes(
    trait: BackendTraits, op: str, tensor: TensorInfo, model: ModelInfo, build: int = builds.NEWEST
) -> bool:
    """Whether the backend runs `op` on that weight."""
    backend = trait.backend
    if trait.max_tensor_bytes is not None and _largest(op, tensor, model) > trait.max_tensor_bytes:
        return False
    if backend == "Vulkan":
        if tensor.type_id == _TQ1_0 and op in _MATRIX_OPS and not builds.follows(build, builds.VULKAN_TQ1):
            return False
        return _vulkan_takes(op, tensor, model)
    if backend in ("CUDA", "ROCm", "MUSA"):
        if op == "SSM_SCAN":
            return _scan(backend, tensor, model)
        return not (op == "GET_ROWS" and tensor.type_id in _CUDA_NO_ROWS)
    return True


def _largest(op: str, tensor: TensorInfo, model: ModelInfo) -> int:
    """Bytes of the largest tensor of the probe: the weight, its input, its result or its state."""
    if op == "RWKV_WKV6":
        return max(tensor.n_bytes, _WKV6_PROBE_BYTES)
    if op == "SSM_CONV":
        length = tensor.shape[0] - 1 + _PROBE_COLUMNS
        return max(tensor.n_bytes, _FLOAT * length * prod(tensor.shape[1:2]) * _PROBE_SEQUENCES)
    if op == "SSM_SCAN":
        rows = _PROBE_COLUMNS + int(model.hparams["ssm_d_state"])
        return max(tensor.n_bytes, _FLOAT * rows * int(model.hparams["ssm_d_inner"]) * _PROBE_SEQUENCES)
    columns = {"MUL_MAT": _PROBE_COLUMNS, "MUL_MAT_ID": _PROBE_COLUMNS * max(1, model.n_expert_used)}.get(op, 0)
    widest = max(tensor.shape[:2]) * prod(tensor.shape[2:] if op == "MUL_MAT" else ())
    return max(tensor.n_bytes, _FLOAT * widest * columns)


def _vulkan_takes(op: str, tensor: TensorInfo, model: ModelInfo) -> bool:
    if op == "SSM_SCAN":
        return _scan("Vulkan", tensor, model)
    if op == "GET_ROWS" and tensor.type_id == _I32:
        return True
    return op not in _MATRIX_OPS or tensor.type_id in _VULKAN_MATRIX


def _scan(backend: str, tensor: TensorInfo, model: ModelInfo) -> bool:
    """The state-space scan: Mamba 2 with a few state sizes, Mamba 1 on CUDA only."""
    hp = model.hparams
    shape = (*tensor.shape, 1)
    d_state = hp["ssm_d_state"] if shape[0] == 1 else shape[0]
    n_head = shape[1]
    head_dim = hp["ssm_d_inner"] // n_head if n_head else 0
    if shape[0] == 1:
        return d_state in _MAMBA2_STATES[backend] and head_dim % 16 == 0
    if backend == "Vulkan":
        return False
    return bool(d_state == 16 and head_dim == 1 and n_head % 128 == 0 and (hp["ssm_n_group"] or 1) == 1)


def repacks(cpu: CpuTraits, op: str, tensor: TensorInfo) -> bool:
    """Whether CPU_REPACK takes the weight. Source: ggml/src/ggml-cpu/repack.cpp."""
    if op not in ("MUL_MAT", "MUL_MAT_ID") or len(_dims(tensor)) != (2 if op == "MUL_MAT" else 3):
        return False
    rows = tensor.shape[1]
    if cpu.arm:
        return _repacks_arm(tensor.type_id, rows)
    types = {_Q4_0, _Q4_K, _IQ4_NL, _MXFP4} | ({_Q2_K} if cpu.avx512 else set())
    return tensor.type_id in types and rows % 8 == 0


def _repacks_arm(type_id: int, rows: int) -> bool:
    if type_id in (_Q4_K, _Q5_K, _Q6_K):
        return rows % 8 == 0
    return type_id in (_Q4_0, _IQ4_NL, _Q8_0, _MXFP4) and rows % 4 == 0


def _dims(tensor: TensorInfo) -> tuple[int, ...]:
    """The shape without trailing ones, as ggml counts dimensions."""
    shape = tensor.shape
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


_AMX_WIDTH = {_Q4_0: 32, _Q4_1: 32, _Q8_0: 32, _Q4_K: 256, _Q5_K: 256, _Q6_K: 256, _IQ4_XS: 256, _F16: 16}
_AMX_EXTRA = {_Q8_0: 4, _Q4_K: 4, _Q5_K: 4, _IQ4_XS: 2}


def amx_takes(cpu: CpuTraits, op: str, tensor: TensorInfo) -> bool:
    """Whether the AMX buffer takes the weight. Source: ggml/src/ggml-cpu/amx/amx.cpp."""
    width = _AMX_WIDTH.get(tensor.type_id)
    if not cpu.amx or op != "MUL_MAT" or width is None or len(tensor.shape) < 2:
        return False
    return tensor.shape[0] % width == 0 and tensor.shape[1] % 32 == 0


def amx_bytes(tensor: TensorInfo) -> int:
    """Bytes in the AMX buffer: some types' blocks grow, and of a stack of matrices only one is counted.

    Source: llama.cpp b11434, ggml/src/ggml-cpu/amx/mmq.cpp (ggml_backend_amx_get_alloc_size).
    """
    if tensor.type_id == _F16:
        return tensor.n_bytes
    kind = TENSOR_TYPES[tensor.type_id]
    row = tensor.shape[0] // kind.block * (kind.block_bytes + _AMX_EXTRA.get(tensor.type_id, 0))
    return row * tensor.shape[1]
