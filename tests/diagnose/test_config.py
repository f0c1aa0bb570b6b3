"""diagnose.config: settings and devices read back out of somebody's log."""

import pytest

from kvstudio.diagnose.config import config_from_log, devices_from_log
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.parse import parse
from kvstudio.units import MIB
from tests.diagnose.samples import LOGS, lines_of


def config(text: str) -> LaunchConfig:
    lines = lines_of(text)
    found = config_from_log(parse(lines), lines)
    assert found is not None
    return found


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


def test_command_line_and_printed_parameters_together() -> None:
    found = config(log("cuda-rs-201mib"))
    assert found.model_path == "/home/user/models/Qwen3.5-9B.Q5_K_M.gguf"
    assert (found.n_gpu_layers, found.n_ctx, found.port) == (99, 65536, 8081)
    assert (found.n_parallel, found.kv_unified, found.cache_type_k) == (4, True, "f16")


def test_printed_parameters_alone() -> None:
    found = config(log("cpu-kv-750gib"))
    assert found.model_path == "/mnt/md0/models/deepseek-v2-chat-Q8_0.gguf"
    assert (found.n_ctx, found.n_batch, found.flash_attn) == (163840, 2048, "off")


def test_typed_settings_win_over_what_they_became() -> None:
    found = config("$ llama-server -m a.gguf -c 1000 -ngl 99\nllama_context: n_ctx = 1024\n")
    assert found.n_ctx == 1000


def test_ollama_runner() -> None:
    found = config(
        'time=2025-07-25T06:04:30.850+08:00 level=INFO source=server.go:438 msg="starting llama server" '
        'cmd="/usr/local/bin/ollama runner --model /m/sha256-2af3 --ctx-size 8192 --n-gpu-layers 33 --parallel 2"'
    )
    assert (found.program, found.model_path) == ("llama-server", "/m/sha256-2af3")
    assert (found.n_ctx, found.n_gpu_layers, found.n_parallel) == (8192, 33, 2)


def test_koboldcpp_namespace() -> None:
    found = config(
        "Namespace(batchsize=4096, contextsize=100000, draftmodel='', flashattention=True, gpulayers=99, mmproj='', "
        "model=['E:\\\\AI\\\\a.gguf'], tensor_split=[3.0, 1.0])"
    )
    assert (found.program, found.model_path) == ("koboldcpp", "E:\\AI\\a.gguf")
    assert (found.n_ctx, found.n_gpu_layers, found.flash_attn, found.tensor_split) == (100000, 99, "on", (3.0, 1.0))


def test_environment_before_the_command() -> None:
    found = config("llama-cpp | + LLAMA_ARG_CTX_SIZE=4096 CUDA_VISIBLE_DEVICES=0 ./llama-server -m a.gguf 2>&1 | tee x")
    assert dict(found.env)["CUDA_VISIBLE_DEVICES"] == "0"
    assert found.model_path == "a.gguf"


@pytest.mark.parametrize(
    ("line", "build"),
    [
        ("build: 6700 (3df2244d) with gcc for x86_64-linux-gnu", 6700),
        ("main: build = 992 (0919a0f)", 992),
        ("version: 4517 (9f7add1c)", 4517),
        ("version: b10752 (b96806d96)", 10752),
        ("version: 0.4.1-dev (build 11059, commit 059a34f8d)", 11059),
        ("0.00.033.574 I cmn  common_param: common_params_print_info: build 9803 (5c7c22c3e) with GNU 11.4.0", 9803),
        ('{"timestamp":1705807470,"level":"INFO","function":"main","line":2842,"message":"build info","build":1843,'
         '"commit":"e7e4df03"}', 1843),
        ("build 1 (7e4c0a9) with GNU 11.4.0 for Linux x86_64", None),
    ],
)  # fmt: skip
def test_build(line: str, build: int | None) -> None:
    assert config(f"{line}\nllama_context: n_ctx = 4096").build == build


def test_devices_with_their_memory() -> None:
    lines = lines_of(log("live-kv-vulkan"))
    first, second = devices_from_log(parse(lines))
    assert (first.name, first.backend) == ("Vulkan0", "Vulkan")
    assert (first.total_bytes, first.free_bytes) == (2048 * MIB, 2048 * MIB)
    assert second.name == "Vulkan1"
    assert "llvmpipe" in first.description


def test_a_log_without_settings_has_none() -> None:
    lines = lines_of("hello\nworld")
    assert config_from_log(parse(lines), lines) is None
    assert devices_from_log(parse(lines)) == ()
