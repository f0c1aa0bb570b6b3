"""Failures that have nothing to do with memory: files, settings, missing support, llama.cpp's own arithmetic."""

# ruff: noqa: E501
# A pattern is easier to check against the line it reads when it is not broken up.
from kvstudio.runlog.signatures.row import Kind, Signature, row

_R = Kind.REFUSAL


def _refusal(
    name: str, cause: str, keys: str | tuple[str, ...], pattern: str, says: str, source: str, rank: int = 5
) -> Signature:
    return row(name, _R, keys, pattern, says, source, rank=rank, cause=cause)


REFUSALS: tuple[Signature, ...] = (
    # files
    _refusal("unknown_arch", "unsupported", ("nknown model architecture", "unsupported model architecture"),
        r"(?:unknown|Unknown|unsupported) model architecture:? ?'?(?P<what>[\w\-]*)", "this build does not know the architecture {what}",
        "llama-model.cpp"),
    _refusal("unknown_pre_tokenizer", "unsupported", "pre-tokenizer type",
        r"unknown pre-tokenizer type: '(?P<what>[^']*)'", "this build does not know the tokenizer {what}", "llama-vocab.cpp"),
    _refusal("unknown_tensor_type", "unsupported", ("invalid ggml type", "unknown type", "invalid type "),
        r"invalid ggml type (?P<what>\d+)|has invalid ggml type", "the file uses a tensor type this build does not know", "gguf.cpp"),
    _refusal("tensor_count", "unsupported", "wrong number of tensors",
        r"wrong number of tensors; expected (?P<a>\d+), got (?P<b>\d+)",
        "the file has {b} tensors where this build expects {a}: file and build are of different versions",
        "llama-model-loader.cpp done_getting_tensors"),
    _refusal("tensor_missing", "unsupported", ("missing tensor", "' not found"),
        r"missing tensor '(?P<what>[^']+)'|tensor '(?P<what2>[^']+)' not found",
        "the file has no tensor {what}, which this build expects: file and build are of different versions",
        "llama-model-loader.cpp"),
    _refusal("tensor_shape", "unsupported", ("has wrong shape", "wrong shape", "has incorrect shape"),
        r"tensor '(?P<what>[^']+)' has (?:wrong|incorrect) shape", "tensor {what} has another shape than this build expects",
        "llama-model-loader.cpp check_tensor_dims"),
    _refusal("key_missing", "file", ("key not found in model", "error loading model hyperparameters", "error loading model vocabulary"),
        r"key not found in model: (?P<what>\S+)|error loading model (?:hyperparameters|vocabulary): (?P<what2>.+)",
        "the header lacks what this build needs", "llama-model-loader.cpp", 4),
    _refusal("not_gguf", "file", ("invalid magic", "invalid model file", "failed to read magic", "invalid file magic"),
        r"invalid (?:file )?magic(?: characters| number)?|invalid model file|failed to read magic", "the file is not a GGUF file", "gguf.cpp"),
    _refusal("gguf_version", "file", ("is no longer supported", "only supports up to version", "GGUF version"),
        r"GGUFv1 is no longer supported|only supports up to version|unsupported GGUF version|unknown \(magic, version\)",
        "the file's format version is not supported", "gguf.cpp"),
    _refusal("file_short", "file", ("not within the file bounds", "unexpectedly reached end of file", "file is corrupted or incomplete",
        "failed to read tensor data", "model is corrupted"),
        r"not within (?:the )?file bounds|unexpectedly reached end of file|corrupted or incomplete|failed to read tensor data",
        "the file is shorter than its header says: an incomplete download or copy", "llama-model-loader.cpp; llama-mmap.cpp"),
    _refusal("file_invalid", "file", ("has invalid data", "with invalid data", "corrupted model", "invalid split", "illegal split",
        "is duplicated", "failed to load GGUF split", "failed to read key", "failed to read tensor info", "read error"),
        r"has invalid data|tensors with invalid data|corrupted model:|(?:invalid|illegal) split (?:file|count)|is duplicated"
        r"|failed to load GGUF split|failed to read (?:key|tensor info)|read error:", "the file, or one of its parts, is damaged or missing",
        "llama-model-loader.cpp"),
    _refusal("file_missing", "file", ("failed to open", "No such file or directory", "error opening", "file does not exist"),
        r"failed to open (?:GGUF file )?'?(?P<what>[^:']+)|load(?:ing)? model from (?P<what2>.+?): No such file or directory|(?:error opening|cannot open) .*gguf", "the file could not be opened",
        "llama-mmap.cpp; gguf.cpp", 4),
    _refusal("clip_as_model", "config", "CLIP cannot be used as main model",
        r"CLIP cannot be used as main model", "a multimodal projector was given as the model", "llama-model.cpp"),
    # settings
    _refusal("v_quant_fa", "config", ("flash_attn", "Flash Attention", "flash attention"),
        r"V cache quantization requires flash_attn|quantized V cache (?:requires flash_attn|was requested, but this requires Flash Attention)"
        r"|SPLIT_MODE_TENSOR requires flash_attn|requires Flash Attention",
        "a quantised V cache needs flash attention, which is off or not possible here", "llama-context.cpp llama_init_from_model"),
    _refusal("kv_type", "config", ("does not divide n_embd_head", "does not support different K"),
        r"cache type (?P<what>\S+) with block size \d+ does not divide|does not support different K .* and V",
        "the cache type does not fit the head size", "llama-context.cpp llama_init_from_model"),
    _refusal("ctx_other", "unsupported", "requires ctx_other to be set",
        r"requires ctx_other to be set", "a draft model was loaded as the main model", "llama-context.cpp"),
    _refusal("split_mode", "unsupported", ("SPLIT_MODE", "split buffers", "split mode"),
        r"LLAMA_SPLIT_MODE_\w+ not implemented|does not support split buffers|LLAMA_SPLIT_MODE_TENSOR needs"
        r"|split mode '?\w+'? (?:is )?not (?:supported|implemented)", "the split mode is not implemented for this model or backend",
        "llama-model.cpp"),
    _refusal("seq_max", "config", ("n_seq_max must be", "n_ctx_seq == 0", "cannot both be zero"),
        r"n_seq_max must be <=|n_seq_max = \d+ > \d+|n_ctx_seq == 0|n_batch and n_ubatch cannot both be zero",
        "a context parameter is out of range", "llama-context.cpp"),
    _refusal("main_gpu", "config", "invalid value for main_gpu", r"invalid value for main_gpu: (?P<what>-?\d+)",
        "there is no device number {what}", "llama.cpp llama_prepare_model_devices"),
    _refusal("bad_argument", "config", ("invalid argument", "unknown argument", "error while handling argument", "unknown buffer type",
        "unknown value for", "invalid parameter for argument", "unrecognized arguments", "input configs, but system only",
        "invalid device: "),
        r"error: (?:invalid|unknown) argument:|unknown argument:|error while handling argument|^unknown buffer type"
        r"|unknown value for --|invalid parameter for argument|input configs, but system only|invalid device: ",
        "the command line was not understood", "common/arg.cpp"),
    _refusal("ctx_mtp", "unsupported", "doesn't contain MTP layers", r"doesn't contain MTP layers", "the model has no MTP layers",
        "llama-context.cpp", 3),
    _refusal("no_backend", "unsupported", ("no backends are loaded", "failed to initialize ", "no usable GPU found", "no CUDA-capable",
        "no ROCm-capable"),
        r"no backends are loaded|failed to initialize (?:CPU|\S+) backend(?!.*out of memory)",
        "a backend could not be started", "ggml-cuda.cu ggml_cuda_init; llama.cpp", 3),
    _refusal("lora_mismatch", "file", ("LoRA tensor", "adapter", "LoRA arch"),
        r"model arch and LoRA arch mismatch|LoRA tensor .*does not exist in base model|expect general.type to be 'adapter'",
        "the adapter does not belong to this model", "llama-adapter.cpp"),
    _refusal("port_taken", "config", ("ouldn't bind", "ddress already in use", "Only one usage of each socket address"),
        r"[Cc]ouldn't bind|[Aa]ddress already in use|Only one usage of each socket address", "the port is already in use", "server-http.cpp"),
    # running out of cells
    _refusal("cells_full", "config", ("failed to find a memory slot", "free space in the KV cache", "could not find a KV slot",
        "context size has been exceeded", "Context size has been exceeded", "exceeds the available context size",
        "the request exceeds", "is larger than the context", "input is too large", "KV cache slot", "kv cache slot"),
        r"failed to find (?:a memory slot|free space in the KV cache|(?:a )?KV cache slot)|could not find a KV slot"
        r"|(?:could not|unable to) find a kv cache slot|[Cc]ontext size has been exceeded"
        r"|exceeds the available context size|the request exceeds the",
        "the context has no free cells left; no memory is missing", "llama-context.cpp decode; server-context.cpp", 4),
    _refusal("positions", "bug", ("last position stored in the memory", "inconsistent sequence positions", "failed to initialize batch"),
        r"does not start from the last position stored in the memory|inconsistent sequence positions|failed to initialize batch",
        "a batch does not go on where the cache ends: what the program kept and what llama.cpp kept differ", "llama-batch.cpp", 4),
    # the GPU runtime, not memory
    _refusal("illegal_access", "bug", ("illegal memory access", "illegal instruction", "misaligned address", "unspecified launch failure"),
        r"(?P<api>CUDA|ROCm|HIP|MUSA) error.*(?:illegal memory access|illegal instruction|misaligned address|unspecified launch failure)",
        "a GPU kernel touched memory it does not own: a bug or a driver fault, not a shortage", "CUDA runtime text"),
    _refusal("driver_version", "unsupported", ("driver version is insufficient", "unsupported display driver", "no kernel image",
        "invalid device function", "PTX was compiled", "forward compatibility", "kernel image is invalid"),
        r"(?:(?P<api>CUDA|ROCm|HIP|MUSA) error.*?)?(?:driver version is insufficient|unsupported display driver|no kernel image is available"
        r"|invalid device function|unsupported toolchain|forward compatibility was attempted|kernel image is invalid)",
        "driver and build do not fit together", "CUDA runtime text", 4),
    _refusal("blas_start", "unknown", "STATUS_NOT_INITIALIZED", r"(?P<api>CUDA|ROCm|HIP|MUSA) error: \w+_STATUS_NOT_INITIALIZED",
        "the matrix library could not start on the GPU, which a full device and a broken driver both lead to",
        "ggml-cuda common.cuh cublas_handle", 4),
    _refusal("runtime_other", "unknown", ("CUDA error", "ROCm error", "HIP error", "MUSA error", "CANN error", "VMM Failure",
        "synchronize stream failed"),
        r"(?P<api>CUDA|ROCm|HIP|MUSA|CANN) error(?: \d+ at .{1,200}?:\d+)?: (?P<why>(?!.*(?i:out.of.memory|memory access|alloc))[^\n]+)"
        r"|(?:CUDA|ROCm|HIP|MUSA) error\s*$|(?:Hip|Cuda)VMM Failure: (?P<why2>(?!out of memory).+)|synchronize stream failed, (?P<why3>.+)",
        "the GPU runtime answered: {why}", "ggml-cuda.cu ggml_cuda_error; ggml-cann.cpp ggml_cann_error", 3),
    _refusal("sycl_other", "unknown", ("Native API", "SYCL error", "backend failed with error"),
        r"Native API (?:failed|returns)(?P<why>(?!.*OUT_OF_).*)|SYCL error: \S|backend failed with error: (?P<why2>\d+ \[(?!\w*OUT_OF_)\w+\])",
        "the SYCL runtime gave up: {why}", "ggml-sycl common.hpp; the SYCL runtime's exception", 3),
    _refusal("metal_status_other", "unknown", "CommandBufferCallbackError",
        r"\((?P<code>\w+):kIO(?:GPU|Accel)CommandBufferCallbackError(?!OutOfMemory)(?P<why>\w+)\)",
        "Metal ended the command buffer: {why}", "Metal error text", 4),
    _refusal("metal_library", "unsupported", ("failed to create library", "failed to create pipeline", "error loading library",
        "failed to initialize the Metal library"),
        r"ggml_metal\w*: (?:error: )?.*failed to (?:create|initialize) (?:the )?(?:Metal )?(?:library|pipeline)",
        "the Metal kernels could not be built", "ggml-metal-device.m", 4),
    _refusal("rpc_gone", "unknown", ("Remote RPC server crashed", "Null buffer for tensor passed"),
        r"Remote RPC server crashed or returned malformed response|Null buffer for tensor passed to init_tensor",
        "the server on the other machine ended, or could not do what was asked", "ggml-rpc.cpp", 3),
    # llama.cpp's own checks
    _refusal("backend_cannot_run", "backend_limit", "that cannot run the operation",
        r"pre-allocated tensor \((?P<what>[^)]*)\) in a buffer \((?P<buf>[^)]*)\) that cannot run the operation",
        "{buf} cannot work on tensor {what} as it is: over one of the backend's limits, or not supported there",
        "ggml-backend.cpp ggml_backend_sched_backend_id_from_cur", 6),
    _refusal("prealloc_limit", "backend_limit", "Requested preallocation size is too large",
        r"Requested preallocation size is too large", "a temporary buffer is over the device's cap for one allocation",
        "ggml-vulkan.cpp", 6),
    _refusal("vector_range", "bug", ("invalid vector subscript", "_M_range_check", "vector::_M_default_append", "map::at"),
        r"invalid vector subscript|_M_range_check|vector::_M_default_append|\bmap::at\b", "llama.cpp indexed past the end of a list",
        "C++ runtime text", 2),
    _refusal("assertion", "bug", ("GGML_ASSERT", "GGML_ABORT", "fatal error", "Assertion"),
        r"GGML_ASSERT\((?P<what>.+)\) failed|GGML_ASSERT: (?P<what2>.+)|[Aa]ssertion .* failed",
        "an internal check failed", "ggml.h GGML_ASSERT", 2),
)  # fmt: skip

PLANNER: tuple[Signature, ...] = (
    row("planner_space", Kind.PLANNER, "not enough space in the buffer",
        r"alloc\w*: not enough space in the buffer(?: to allocate (?P<what>\S+))? ?(?:bytes)?.*?"
        r"(?:\(?needed (?P<bytes>\d+)|to allocate (?P<bytes2>\d+) bytes)",
        "ggml planned a buffer too small for its own tensors; the figures are of that plan, not of the device",
        "ggml-alloc.c ggml_tallocr_alloc, ggml_dyn_tallocr_alloc; ggml_allocr_alloc, 2023", rank=5, cause="bug"),
    row("planner_pool", Kind.PLANNER, "context's memory pool",
        r"not enough space in the context's memory pool \(needed (?P<bytes>\d+), available (?P<have>\d+)\)",
        "a fixed arena inside ggml was too small; the figures are of that arena, not of the device",
        "ggml.c ggml_new_object", rank=5, cause="bug"),
    row("planner_scratch", Kind.PLANNER, "not enough space in the scratch memory",
        r"not enough space in the scratch memory(?: pool)?(?: \(needed (?P<bytes>\d+), available (?P<have>\d+)\))?",
        "a fixed arena inside ggml was too small", "ggml.c ggml_new_tensor_impl, 2023", rank=5, cause="bug"),
)  # fmt: skip

HINTS: tuple[Signature, ...] = (
    row("moved_to_cpu", Kind.HINT, "(usually due to missing support)",
        r"layer (?P<what>\d+) is assigned to device (?P<buf>\S+) but (?P<why>.+?) is assigned to device (?P<other>\S+) \(usually",
        "layer {what} sits on {buf} while its operation sits on {other}", "llama-context.cpp resolve_fused_ops", rank=1),
    row("fa_forced_off", Kind.HINT, ("forcing off", "Flash Attention not supported"),
        r"flash_attn (?:is not compatible with \S+|requires .*) - forcing off|Flash Attention not supported, set to disabled",
        "flash attention was switched off", "llama-context.cpp"),
    row("user_set", Kind.HINT, "already set by user",
        r"(?P<what>\S+) already set by user(?: to (?P<why>\S+))?, abort", "{what} was given by hand, so nothing was fitted",
        "common/fit.cpp common_params_fit_impl"),
    row("hip_call", Kind.HINT, ("hipMalloc(", "hipMemCreate", "hipStreamCreate", "hipMemcpy"),
        r"^\s*hip(?:Malloc|MemCreate|StreamCreate|Memcpy)\w*\(", "the failing call is HIP's", "ggml-cuda.cu in a HIP build"),
    row("malloc_said", Kind.HINT, "Malloc failed: out of memory", r"(?:cuda|hip|musa)Malloc failed: out of memory",
        "the driver had no memory left", "ggml-cuda.cu, without its figures"),
    row("ctx_overflow", Kind.HINT, "> n_ctx_train",
        r"n_ctx(?:_seq|_per_seq)? \((?P<a>\d+)\) > n_ctx_train \((?P<b>\d+)\)",
        "the context of {a} tokens is longer than the {b} the model was trained for", "llama-context.cpp"),
    row("current_device", Kind.HINT, "current device: ",
        r"current device: (?P<dev>-?\d+)(?:,? in function (?P<what>\S+) at (?P<why>\S+))?", "it happened on device {dev}",
        "ggml-cuda.cu ggml_cuda_error"),
    row("override_buffer", Kind.HINT, "buffer type overrid",
        r"tensor \S+ (?:\(\S+ \S+ \S+\) )?buffer type overrid?den to (?P<buf>\S+)|Tensor (?P<what>\S+) buffer type overrid\w+ to (?P<buf2>\S+)",
        "a tensor was put on {buf} by a rule", "llama-model-loader.cpp"),
)  # fmt: skip
