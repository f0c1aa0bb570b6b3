"""The facts a llama.cpp maintainer asks for, in order, each with the command that tells it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """A field of the report before it is filled."""

    id: str
    label: str
    how: str


ASKED = (
    Asked("version", "Version and commit", "llama-server --version"),
    Asked("binary_path", "Binary path", "command -v llama-server"),
    Asked("os", "Operating system", "uname -sr; cat /etc/os-release"),
    Asked("cpu", "CPU", "lscpu"),
    Asked("gpus", "GPUs", "llama-server --list-devices"),
    Asked("driver", "GPU driver", "nvidia-smi, or vulkaninfo --summary"),
    Asked("backend", "Backend", "llama-server --list-devices"),
    Asked("build_options", "Build options", "grep -E '^(GGML|LLAMA|CMAKE_BUILD_TYPE)' build/CMakeCache.txt"),
    Asked("model_source", "Model repository, revision", "the page the file came from and its commit there"),
    Asked("gguf", "GGUF file name", "ls -l on the folder given to -m"),
    Asked("n_ctx", "Context size", "llama-server -lv 4, line n_ctx"),
    Asked("n_parallel", "Parallel setting", "llama-server -lv 4, line n_seq_max"),
    Asked("cache_type_k", "Cache type K", "llama-server -lv 4, the K size in the KV cache line"),
    Asked("cache_type_v", "Cache type V", "llama-server -lv 4, the V size in the KV cache line"),
    Asked("n_gpu_layers", "GPU layers", "llama-server -lv 4, line offloaded N/M layers"),
    Asked("split", "Split mode, tensor split", "the -sm and -ts of the command"),
    Asked("free_memory", "Free memory before launch", "llama-server --list-devices, right before the launch"),
    Asked("command", "Exact command", "the command as it was typed, with its environment variables"),
    Asked("allocator_error", "Allocator error", "llama-server -lv 4 2>&1 | tee llama.log"),
    Asked("log", "Full log", "llama-server ... -lv 4 2>&1 | tee llama.log"),
    Asked("known_good", "Known-good older commit", "the same command with an older build, or git bisect"),
)
