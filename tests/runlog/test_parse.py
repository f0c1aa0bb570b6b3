"""runlog.parse: figures of every era to typed events."""

# ruff: noqa: E501
# Lines stand as the programs print them.

import time

import pytest

from kvstudio.runlog.parse import LogParser, parse
from kvstudio.runlog.values import (
    AllocationFailed,
    BreakdownRow,
    BufferPrinted,
    BuildPrinted,
    CachePrinted,
    CommandSeen,
    ConfigPrinted,
    DevicePrinted,
    FitProjected,
    LogEvent,
    ModelSeen,
    OffloadPrinted,
    Phase,
    PhaseReached,
)
from kvstudio.units import GIB, MIB
from tests.diagnose.samples import LOGS, lines_of


def events(text: str) -> list[LogEvent]:
    return list(parse(lines_of(text)))


def only(text: str, kind: type[LogEvent]) -> list[LogEvent]:
    return [e for e in events(text) if isinstance(e, kind)]


@pytest.mark.parametrize(
    ("line", "name", "kind", "n_bytes"),
    [
        ("load_tensors:        CUDA0 model buffer size = 11826.45 MiB", "CUDA0", "model", round(11826.45 * MIB)),
        ("load_tensors:   CPU_Mapped model buffer size =   170.00 MiB", "CPU_Mapped", "model", 170 * MIB),
        ("llm_load_tensors:      CUDA0 buffer size =  8746.89 MiB", "CUDA0", "model", round(8746.89 * MIB)),
        ("llama_kv_cache:    Vulkan0 KV buffer size =  1024.00 MiB", "Vulkan0", "kv", GIB),
        ("llama_kv_cache_init:      ROCm0 KV buffer size =   488.00 MiB", "ROCm0", "kv", 488 * MIB),
        ("llama_kv_cache_unified:      CUDA0 KV buffer size =   512.00 MiB", "CUDA0", "kv", 512 * MIB),
        ("init:    Vulkan0 KV buffer size = 13800.00 MiB", "Vulkan0", "kv", 13800 * MIB),
        (
            "llama_kv_cache_init: RPC[192.0.2.1:50052] KV buffer size =   384.00 MiB",
            "RPC[192.0.2.1:50052]",
            "kv",
            384 * MIB,
        ),
        ("llama_memory_recurrent:      CUDA0 RS buffer size =   201.00 MiB", "CUDA0", "rs", 201 * MIB),
        ("sched_reserve:    Vulkan0 compute buffer size =    60.12 MiB", "Vulkan0", "compute", round(60.12 * MIB)),
        ("llama_new_context_with_model:      CUDA0 compute buffer size =   304.00 MiB", "CUDA0", "compute", 304 * MIB),
        ("llama_context:  CUDA_Host  output buffer size =     0.50 MiB", "CUDA_Host", "output", MIB // 2),
        ("llama_adapter_lora_init_impl:      CUDA0 LoRA buffer size =    64.00 MiB", "CUDA0", "lora", 64 * MIB),
        ("alloc_compute_meta:      CUDA0 compute buffer size =   372.00 MiB", "CUDA0", "mmproj", 372 * MIB),
        ("llama_init_from_file: kv self size  =  400.00 MB", "CPU", "kv", 400 * MIB),
        (
            'level=INFO source=ggml.go:289 msg="model weights" buffer=CUDA0 size="16.5 GiB"',
            "CUDA0",
            "model",
            33 * GIB // 2,
        ),
        ("load_tensors:        CPU model buffer size =  1900,50 MiB", "CPU", "model", round(1900.5 * MIB)),
    ],
)
def test_buffers(line: str, name: str, kind: str, n_bytes: int) -> None:
    (found,) = only(line, BufferPrinted)
    assert found == BufferPrinted(1, name, kind, n_bytes)


def test_a_mismatch_at_shutdown_is_no_buffer() -> None:
    text = "~llama_context:      CUDA0 compute buffer size of 304.0000 MiB, does not match expectation of 300.0000 MiB"
    assert only(text, BufferPrinted) == []


def test_caches() -> None:
    kv = "llama_kv_cache: size = 2048.00 MiB ( 65536 cells,   8 layers,  4/1 seqs), K (q8_0): 1024.00 MiB, V (f16): 1024.00 MiB"
    rs = "llama_memory_recurrent: size =  201.00 MiB (     4 cells,  32 layers,  4 seqs  0 rs_seq), R (f32):    9.00 MiB, S (f32):  192.00 MiB"
    old = "llama_new_context_with_model: KV self size  =   64.00 MiB, K (f16):   32.00 MiB, V (f16):   32.00 MiB"
    assert only(kv, CachePrinted) == [CachePrinted(1, "kv", 65536, 8, 4, 1, "q8_0", "f16", GIB, GIB)]
    assert only(rs, CachePrinted) == [CachePrinted(1, "rs", 4, 32, 4, 1, "f32", "f32", 9 * MIB, 192 * MIB)]
    assert only(old, CachePrinted) == [CachePrinted(1, "kv", 0, 0, 0, 1, "f16", "f16", 32 * MIB, 32 * MIB)]


def test_devices_of_every_backend() -> None:
    text = (
        "ggml_cuda_init: found 2 ROCm devices:\n"
        "  Device 0: AMD Radeon RX 7900 XTX, gfx1100 (0x1100), VMM: no, Wave Size: 32, VRAM: 24560 MiB\n"
        "0.00.033.666 I cmn  common_param:   - Vulkan0 : llvmpipe (LLVM 15.0.6, 256 bits) (2048 MiB, 2000 MiB free)\n"
        "llama_prepare_model_devices: using device CUDA0 (NVIDIA A) (0000:01:00.0) - 23306 MiB free\n"
        "ggml_vulkan: 1 = AMD Radeon (RADV) (radv) | uma: 0 | fp16: 1\n"
        "ggml_metal_init: recommendedMaxWorkingSetSize  = 11453.25 MB\n"
    )
    found = {e.name: (e.total_bytes, e.free_bytes) for e in only(text, DevicePrinted) if isinstance(e, DevicePrinted)}
    assert found == {
        "ROCm0": (24560 * MIB, None), "CUDA0": (None, 23306 * MIB), "Vulkan1": (None, None),
        "Vulkan0": (2048 * MIB, 2000 * MIB), "Metal": (11453250000, None),
    }  # fmt: skip


def test_breakdown_tables_are_counted() -> None:
    row = "common_memory_breakdown_print: |   - CUDA0 (RTX 3090)   | 24126 = 23403 + (25610 = 15621 +    9152 +     836) +      -24888 |"
    head = "common_memory_breakdown_print: | memory breakdown [MiB] | total    free     self   model   context   compute    unaccounted |"
    host = "common_memory_breakdown_print: |   - Host               |                   1214 =   682 +       0 +     532                |"
    found = only("\n".join((head, row, host, head, row)), BreakdownRow)
    assert [e.table for e in found if isinstance(e, BreakdownRow)] == [1, 1, 2]
    assert found[0] == BreakdownRow(
        2,
        1,
        "CUDA0",
        "RTX 3090",
        24126 * MIB,
        23403 * MIB,
        25610 * MIB,
        15621 * MIB,
        9152 * MIB,
        836 * MIB,
        -24888 * MIB,
    )
    assert found[1] == BreakdownRow(3, 1, "Host", "", None, None, 1214 * MIB, 682 * MIB, 0, 532 * MIB, None)


def test_breakdown_as_json() -> None:
    text = (
        '{"type":"fit_memory_breakdown","data":{"unit":"MiB","rows":[{"kind":"device","name":"CUDA0","description":"X",'
        '"total":24126,"free":23403,"self":3,"model":1,"context":1,"compute":1,"unaccounted":720},'
        '{"kind":"host","self":3,"model":1,"context":1,"compute":1}]}}'
    )
    found = only(text, BreakdownRow)
    assert [(e.name, e.total_bytes, e.self_bytes) for e in found if isinstance(e, BreakdownRow)] == [
        ("CUDA0", 24126 * MIB, 3 * MIB), ("Host", None, 3 * MIB),
    ]  # fmt: skip


def test_fit_projection_tells_free_from_total() -> None:
    device = "common_params_fit_impl: projected to use 24840 MiB of device memory vs. 22341 MiB of free device memory"
    host = "common_params_fit_impl: projected to use 3645 MiB of host memory vs. 2973 MiB of total host memory"
    assert only(device, FitProjected) == [FitProjected(1, 24840 * MIB, 22341 * MIB, False, True)]
    assert only(host, FitProjected) == [FitProjected(1, 3645 * MIB, 2973 * MIB, True, False)]


def test_parameters_and_layers() -> None:
    text = "llama_context: n_ctx                 = 65536\nload_tensors: offloaded 65/65 layers to GPU\nprint_info: n_expert = 128\n"
    assert only(text, ConfigPrinted) == [ConfigPrinted(1, "n_ctx", "65536"), ConfigPrinted(3, "n_expert", "128")]
    assert only(text, OffloadPrinted) == [OffloadPrinted(2, 65, 65)]


def test_slots() -> None:
    text = "srv  llama_server: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true"
    assert only(text, ConfigPrinted) == [ConfigPrinted(1, "n_parallel", "4"), ConfigPrinted(1, "kv_unified", "true")]


def test_build_model_and_command() -> None:
    text = "build: 6700 (3df2244d) with gcc\nsrv    load_model: loading model '/m/a.gguf'\n$ ./llama-server -m /m/a.gguf -c 1\n"
    assert only(text, BuildPrinted) == [BuildPrinted(1, 6700, "3df2244d", "build: 6700 (3df2244d")]
    assert only(text, ModelSeen) == [ModelSeen(2, "/m/a.gguf", "model")]
    assert only(text, CommandSeen) == [CommandSeen(3, "./llama-server -m /m/a.gguf -c 1")]


def test_phases_of_a_real_run() -> None:
    found = [
        e.phase for e in only((LOGS / "live-healthy.log").read_text(), PhaseReached) if isinstance(e, PhaseReached)
    ]
    order = [Phase.FIT, Phase.WEIGHTS, Phase.KV, Phase.COMPUTE, Phase.LISTENING, Phase.GENERATE]
    assert set(order) <= set(found)
    last = [max(n for n, p in enumerate(found) if p is phase) for phase in (Phase.KV, Phase.LISTENING, Phase.GENERATE)]
    assert last == sorted(last)


def test_a_health_check_is_no_generation() -> None:
    text = "srv  log_server_r: done request: GET /health 127.0.0.1 503\nmain: HTTP server is listening, hostname: 127.0.0.1"
    assert only(text, PhaseReached) == []


def test_two_messages_glued_into_one_line() -> None:
    text = (
        "E alloc_tensor_range: failed to allocate SYCL_Host buffer of size 33703246400"
        + " " * 60
        + "E llama_model_load: error loading model: unable to allocate SYCL_Host buffer"
    )
    assert [e.layer for e in only(text, AllocationFailed) if isinstance(e, AllocationFailed)] == ["B", "C"]


def test_big_numbers_keep_their_digits() -> None:
    (found,) = only("[GPU] Exceeded max size of memory object allocation: requested 2305843008391495680 bytes, but max "
                    "alloc size supported by device is 4294959104 bytes.", AllocationFailed)  # fmt: skip
    assert isinstance(found, AllocationFailed)
    assert (found.bytes, found.limit_bytes) == (2305843008391495680, 4294959104)


def test_lines_may_come_in_any_batches() -> None:
    lines = lines_of((LOGS / "live-kv-vulkan.log").read_text())
    parser = LogParser()
    single = [event for line in lines for event in parser.feed((line,))]
    assert tuple(single) == parse(lines)


@pytest.mark.parametrize(
    "unit", ["(", "size = 1.00 MiB ( ", "a" * 7 + " ", "buffer size = ", "- x | ", "1.00.000.000 E ", "\\nx:"]
)
def test_no_message_takes_more_than_linear_time(unit: str) -> None:
    def seconds(n: int) -> float:
        start = time.perf_counter()
        parse(lines_of(unit * n))
        return time.perf_counter() - start

    seconds(10)
    assert seconds(2000) < 3
