"""Which operations a backend runs; what it does not run falls to the next backend, in the end to the CPU.

Source: supports_op of ggml-vulkan.cpp and ggml-cuda.cu, read at build 11434.
"""

from collections.abc import Callable

from kvstudio.budget.compute.tensor import BF16, BLOCKS, F16, F32, I32, Tensor

#: maxStorageBufferRange of graphics cards, a 32-bit number.
VULKAN_TENSOR_LIMIT = 2**32 - 1
#: Builds from which Vulkan picks `OLD_TOP_K` values and more.
LARGE_TOP_K_SINCE = 11000
OLD_TOP_K = 1024
#: A type of weights only later builds read.
_TQ1_0 = 34
#: Operations earlier builds had for the CPU alone.
_NEWER_ON_VULKAN = frozenset({"LIGHTNING_INDEXER", "DSV4_HC_PRE", "DSV4_HC_COMB", "DSV4_HC_POST"})
_VULKAN_ATTENTION_TYPES = frozenset({F32, F16, BF16, 8, 2, 3, 6, 7, 20})
#: Types that are copied to and from F32.
_VULKAN_COPIED = frozenset({F32, F16, BF16, 41, 42, 2, 3, 6, 7, 8, 20})
#: Head sizes the shaders of linear attention and of the gated delta rule are made for.
_VULKAN_LINEAR_HEAD = 64
_VULKAN_DELTA_HEADS = frozenset({16, 32, 64, 128})
_MAMBA2_STATES = {"Vulkan": (128, 256), "CUDA": (96, 128, 256)}


def support_of(backend: str, build: int, max_tensor_bytes: int | None = None) -> Callable[[Tensor], bool] | None:
    """The rule of a backend by its name prefix; None where everything is taken to run.

    `max_tensor_bytes` is the device's largest tensor where it is not that of a graphics card.
    """
    if backend == "Vulkan":
        rule = vulkan if build >= LARGE_TOP_K_SINCE else old_vulkan
        if max_tensor_bytes is None or max_tensor_bytes >= VULKAN_TENSOR_LIMIT:
            return rule
        return lambda node: _within(node, max_tensor_bytes) and rule(node)
    return cuda if backend in ("CUDA", "ROCm", "MUSA") else None


def _within(node: Tensor, limit: int) -> bool:
    return node.n_bytes <= limit and all(source.n_bytes <= limit for source in node.src)


def vulkan(node: Tensor) -> bool:
    if not _within(node, VULKAN_TENSOR_LIMIT):
        return False
    rule = _VULKAN.get(node.op)
    return rule is None or rule(node)


def old_vulkan(node: Tensor) -> bool:
    if node.op in _NEWER_ON_VULKAN or (node.op == "TOP_K" and node.ne[0] >= OLD_TOP_K):
        return False
    return vulkan(node) and not (node.src and node.src[0].type == _TQ1_0)


def cuda(node: Tensor) -> bool:
    rule = _CUDA.get(node.op)
    return rule is None or rule(node)


def _dim01_contiguous(t: Tensor) -> bool:
    per, size = BLOCKS.get(t.type, (1, 4))
    return t.nb[0] == size and t.nb[1] == t.nb[0] * t.ne[0] // per and (t.ne[3] == 1 or t.nb[3] == t.nb[2] * t.ne[2])


def _vulkan_mul_mat(node: Tensor) -> bool:
    a, b = node.src[0], node.src[1]
    if a.ne[3] != b.ne[3]:
        return False
    if a.type not in (F32, F16, BF16) and not _dim01_contiguous(a):
        return False
    return a.type == BF16 or b.type != BF16


def _vulkan_attention(node: Tensor) -> bool:
    _, k, v = node.src[:3]
    if k.ne[0] % 8 or v.ne[0] % 8:
        return False
    if k.type not in _VULKAN_ATTENTION_TYPES or v.type not in _VULKAN_ATTENTION_TYPES:
        return False
    return (k.type == BF16) == (v.type == BF16)


def _contiguous_rows(t: Tensor) -> bool:
    per, size = BLOCKS.get(t.type, (1, 4))
    return t.ne[0] == per or t.nb[0] == size


def _vulkan_rope(node: Tensor) -> bool:
    return _contiguous_rows(node.src[0])


def _vulkan_sort(node: Tensor) -> bool:
    return node.src[0].is_contiguous


def _vulkan_copy(node: Tensor) -> bool:
    """Copies within or between types; a packed one only as it lies."""
    source = node.src[0]
    to = node.src[1].type if len(node.src) > 1 else source.type
    if (source.type == F32 and to in _VULKAN_COPIED) or (to == F32 and source.type in _VULKAN_COPIED):
        return True
    if {source.type, to} == {F32, I32}:
        return True
    if source.type != to:
        return False
    per, size = BLOCKS.get(source.type, (1, 4))
    return per == 1 or (source.is_contiguous and node.is_contiguous and size % 2 == 0)


def _vulkan_arithmetic(node: Tensor) -> bool:
    return all(t.type in (F32, F16) for t in (node, *node.src[:2]))


def _vulkan_plain(node: Tensor) -> bool:
    return node.src[0].is_contiguous and node.src[0].type == F32


def _scan(states: tuple[int, ...]) -> Callable[[Tensor], bool]:
    def rule(node: Tensor) -> bool:
        state = node.src[0]
        a = node.src[3]
        return state.ne[0] in states and state.ne[1] % 16 == 0 and a.ne[0] == 1

    return rule


def _cuda_attention(node: Tensor) -> bool:
    q, k, v = node.src[:3]
    mask = node.src[3] if len(node.src) > 3 else None
    head_k, head_v = k.ne[0], v.ne[0]
    gqa = q.ne[2] // k.ne[2] if k.ne[2] else 1
    grouped = mask is not None and k.ne[1] % 256 == 0 and gqa >= 2
    if k.type == 20 or v.type == 20:
        return False
    if head_k == head_v and head_k in (40, 64, 72, 80, 96, 112, 128, 256):
        return True
    special = {(192, 128): 8, (320, 256): 32, (512, 512): 1, (576, 512): 1}
    need = special.get((head_k, head_v))
    return need is not None and grouped and gqa % need == 0


_VULKAN: dict[str, Callable[[Tensor], bool]] = {
    "MUL_MAT": _vulkan_mul_mat,
    "FLASH_ATTN_EXT": _vulkan_attention,
    "ROPE": _vulkan_rope,
    "ARGSORT": _vulkan_sort,
    "TOP_K": _vulkan_sort,
    "CONT": _vulkan_copy,
    "CPY": _vulkan_copy,
    "DUP": _vulkan_copy,
    "ADD": _vulkan_arithmetic,
    "SUB": _vulkan_arithmetic,
    "MUL": _vulkan_arithmetic,
    "DIV": _vulkan_arithmetic,
    "SCALE": _vulkan_plain,
    "SOFT_MAX": _vulkan_plain,
    "SUM_ROWS": lambda node: _contiguous_rows(node.src[0]),
    "GATED_LINEAR_ATTN": lambda node: node.src[0].ne[0] == _VULKAN_LINEAR_HEAD,
    "GATED_DELTA_NET": lambda node: node.src[2].ne[0] in _VULKAN_DELTA_HEADS,
    "SSM_SCAN": _scan(_MAMBA2_STATES["Vulkan"]),
}
_CUDA: dict[str, Callable[[Tensor], bool]] = {
    "FLASH_ATTN_EXT": _cuda_attention,
}
