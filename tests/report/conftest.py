"""A failed run on two cards and the values around it, made by hand."""

import re

import pytest

from kvstudio.budget.values import Budget, DeviceBudget, EffectiveConfig
from kvstudio.case.values import Case
from kvstudio.devices.values import Device, DeviceProcess, Machine
from kvstudio.diagnose.values import Cause, Diagnosis, KeyLine, Outcome
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.units import GIB, MIB
from kvstudio.verify.values import MemorySample, PrintedBuffer, Run, RunOutcome

LOG = """\
build: 11434 (4f1c2a97) with GCC 13.3.0 for x86_64-linux-gnu
0.00.101.202 I system_info: n_threads = 16 | CUDA : ARCHS = 890 | USE_GRAPHS = 1 |
0.00.402.100 I llama_model_loader: loaded meta data with 33 key-value pairs and 707 tensors from \
/home/alice/models/Qwen3-32B-Q4_K_M.gguf (version GGUF V3 (latest))
0.00.403.100 I load_tensors: offloaded 65/65 layers to GPU
0.00.913.100 I load_tensors:        CUDA1 model buffer size =  9254.52 MiB
0.03.871.100 I llama_context: n_seq_max             = 4
0.03.871.200 I llama_context: n_ctx                 = 65536
0.03.871.300 I llama_context: kv_unified            = true
0.03.874.100 I llama_kv_cache:      CUDA0 KV buffer size =  8448.00 MiB
0.03.902.100 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7936.00 MiB on device 1: \
cudaMalloc failed: out of memory
0.03.914.100 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
0.03.981.100 E srv    load_model: failed to load model, '/home/alice/models/Qwen3-32B-Q4_K_M.gguf'
"""
KEY = 10
_STAMP = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.\d{3} ([DIWE]) (.*)")


def line(number: int, text: str) -> LogLine:
    match = _STAMP.match(text)
    if match is None:
        return LogLine(number, text, text)
    minutes, seconds, millis, level, message = match.groups()
    return LogLine(number, text, message, level, int(minutes) * 60 + int(seconds) + int(millis) / 1000)


def lines_of(text: str) -> tuple[LogLine, ...]:
    return tuple(line(i, t) for i, t in enumerate(text.splitlines(), start=1))


@pytest.fixture
def log() -> tuple[LogLine, ...]:
    return lines_of(LOG)


@pytest.fixture
def diagnosis(log: tuple[LogLine, ...]) -> Diagnosis:
    return Diagnosis(
        outcome=Outcome.FAILED,
        memory_class="memory",
        stage="kv",
        device="CUDA1",
        backend="CUDA",
        requested_bytes=7936 * MIB,
        free_bytes=None,
        limit_bytes=None,
        cause=Cause.PLACEMENT,
        key_line=KeyLine(KEY, log[KEY - 1].text),
        evidence=(),
        title="The KV cache did not fit on CUDA1",
        summary="llama.cpp asked for 7.8 GiB and 6.9 GiB were free.",
    )


@pytest.fixture
def config() -> LaunchConfig:
    return LaunchConfig(
        model_path="/home/alice/models/Qwen3-32B-Q4_K_M.gguf",
        n_ctx=65536,
        n_gpu_layers=99,
        tensor_split=(1.0, 1.0),
        host="192.168.1.20",
        port=8080,
        api_key="topsecret-1",
        env=(("CUDA_VISIBLE_DEVICES", "0,1"),),
    )


@pytest.fixture
def machine() -> Machine:
    def card(i: int, free: int, *processes: DeviceProcess) -> Device:
        name = "NVIDIA GeForce RTX 4090"
        return Device(f"CUDA{i}", "CUDA", name, 24564 * MIB, free * MIB, driver="570.133.07", processes=processes)

    python = DeviceProcess(4182, "python3", 7782 * MIB, "bob")
    host = Device("Host", "CPU", "RAM", 62 * GIB, 51 * GIB)
    return Machine((card(0, 24152), card(1, 16782, python)), host, "AMD Ryzen 9 7950X", "Linux 6.8.0 (Ubuntu 24.04)")


def binary(build: int = 11434, commit: str = "4f1c2a97") -> Binary:
    return Binary(
        path="/home/alice/llama.cpp/build/bin/llama-server",
        program="llama-server",
        version=f"{build} ({commit})",
        build=build,
        commit=commit,
        compiler="GCC 13.3.0 for x86_64-linux-gnu",
        backends=("CUDA",),
        flags=frozenset(),
    )


def make_run(config: LaunchConfig, number: int = 1, **changes: object) -> Run:
    values: dict[str, object] = {
        "number": number,
        "config": config,
        "argv": (binary().path, "-m", config.model_path, "--api-key", config.api_key or "", "--port", "40123"),
        "env": config.env,
        "binary": binary(),
        "outcome": RunOutcome.FAILED,
        "reached": Phase.KV,
        "phases": ((Phase.FIT, "done"), (Phase.WEIGHTS, "done"), (Phase.KV, "failed")),
        "seconds": 4.1,
        "started_at": 0.0,
        "exit_code": 1,
        "signal": None,
        "buffers": (
            PrintedBuffer("CUDA0", "CUDA0", "model", 9169 * MIB, 4),
            PrintedBuffer("CUDA1", "CUDA1", "model", 9254 * MIB, 5),
            PrintedBuffer("CUDA0", "CUDA0", "kv", 8448 * MIB, 9),
        ),
        "peak": (("CUDA0", 18 * GIB), ("CUDA1", 17 * GIB)),
        "free_before": (("CUDA0", 24152 * MIB), ("CUDA1", 16782 * MIB)),
        "samples": (MemorySample(0.0, (("CUDA0", 412 * MIB), ("CUDA1", 7782 * MIB))),),
        "checks": (),
        "diagnosis": None,
        "log_path": None,
    }
    return Run(**(values | changes))  # type: ignore[arg-type]


def budget(overhead: int | None = 468 * MIB) -> Budget:
    def device(name: str, model: int, kv: int) -> DeviceBudget:
        return DeviceBudget(
            name, "RTX 4090", 24564 * MIB, 24152 * MIB, model * MIB, kv * MIB, 0, 482 * MIB, 0, overhead, None, 33
        )

    host = DeviceBudget("Host", "RAM", 62 * GIB, 51 * GIB, 417 * MIB, 0, 0, 0, 0, None, None)
    effective = EffectiveConfig(
        "llama-server", 11434, 65536, 16384, 4, True, 2048, 512, 4, "f16", "f16", 99, "auto", None, "layer",
        True, True, False, False,
    )  # fmt: skip
    return Budget(effective, (65, 65), (device("CUDA0", 9169, 8448), device("CUDA1", 9254, 7936)), host, (), (), None)


@pytest.fixture
def case(config: LaunchConfig, machine: Machine, log: tuple[LogLine, ...], diagnosis: Diagnosis) -> Case:
    run = make_run(config, diagnosis=diagnosis)
    return Case(
        config=config, machine=machine, chosen=("CUDA0", "CUDA1"), binary=binary(), budget=budget(), runs=(run,),
        log=log, diagnosis=diagnosis,
    )  # fmt: skip
