"""Which buffer was refused: ggml's own line after the allocator's, with the whole size."""

# ruff: noqa: E501
# A pattern is easier to check against the line it reads when it is not broken up.
from kvstudio.runlog.signatures.row import Kind, Signature, row

_BUF = r"(?P<buf>[\w.\-]+(?:\[[^\]\s]*\])?)"

BUFFERS: tuple[Signature, ...] = (
    row(
        "buffer_graph",
        Kind.BUFFER,
        "gallocr_reserve",
        rf"ggml_gallocr_reserve_n(?:_impl)?: failed to allocate {_BUF} buffer(?: of size (?P<bytes>\d+)\b)?",
        "the compute buffer of {buf} is {bytes} bytes",
        "ggml-alloc.c ggml_gallocr_reserve_n_impl",
        rank=5,
        stage="compute",
    ),
    row(
        "buffer_tensors",
        Kind.BUFFER,
        ("alloc_tensor_range: failed", "alloc_buffer_n_default: failed", "alloc_ctx_tensors"),
        rf"(?:alloc_tensor_range|\w*alloc_buffer_n_default|\w*alloc_ctx_tensors\w*): failed to allocate {_BUF}"
        r"(?: buffer(?: of size (?P<bytes>\d+)\b)?|$)",
        "the buffer of tensors on {buf} is {bytes} bytes",
        "ggml-alloc.c alloc_tensor_range; ggml-backend.cpp",
        rank=5,
    ),
    row(
        "buffer_tensor_init",
        Kind.BUFFER,
        "failed to initialize tensor",
        r"failed to initialize tensor (?P<tensor>\S+)",
        "tensor {tensor} could not be set up in its buffer",
        "ggml-alloc.c alloc_tensor_range",
        rank=4,
    ),
    row(
        "buffer_plain",
        Kind.BUFFER,
        "buffer of size ",
        r"(?:^|: |\s)failed to allocate (?P<buf>(?!HBM|input|output|compute)[A-Za-z][\w.\-]*(?:\[[^\]\s]*\])?) buffer of size (?P<bytes>\d+)\b",
        "a buffer of {bytes} bytes on {buf} was refused",
        "the same lines with their function name cut off",
        rank=5,
    ),
)
