"""runlog.patterns: every phrase of the table has a line it is read from, and its cheap words are in that line."""

import pytest

from kvstudio.runlog.lines import make_line
from kvstudio.runlog.lookup import Hints, look
from kvstudio.runlog.parse import LogParser, parse
from kvstudio.runlog.patterns import BY_NAME, SIGNATURES
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import AllocationFailed, LogEvent, Note
from tests.diagnose.samples import lines_of, load
from tests.runlog.phrases import MORE, PHRASES


def signatures(text: str) -> set[str]:
    return {e.signature for e in parse(lines_of(text)) if isinstance(e, Note | AllocationFailed)}


@pytest.fixture(scope="module")
def in_logs() -> set[str]:
    return {name for sample in load() for name in signatures(sample.data.decode())}


def test_every_phrase_has_a_line(in_logs: set[str]) -> None:
    assert {row.name for row in SIGNATURES} - in_logs - set(PHRASES) == set()


@pytest.mark.parametrize("name", PHRASES)
def test_the_line_is_read_as_its_phrase(name: str) -> None:
    assert name in signatures(PHRASES[name])


@pytest.mark.parametrize(("name", "line"), MORE, ids=lambda text: text[:40])
def test_other_words_for_a_phrase(name: str, line: str) -> None:
    assert name in signatures(line)


@pytest.mark.parametrize(
    ("name", "backend", "device", "n_bytes"),
    [
        ("sycl_attention", "SYCL", None, 67108864),
        ("hexagon_mapping", "HTP", "HTP0", 1 << 30),
        ("hexagon_batch", "HTP", "HTP0", None),
        ("spacemit_alloc", "CPU", "CPU_RISCV64_SPACEMIT", 1 << 30),
        ("kompute_alloc", "Vulkan", None, None),
        ("et_alloc", "ET", None, None),
        ("openvino_buffer", "OpenVINO", None, 4096),
    ],
)
def test_what_an_allocator_states(name: str, backend: str, device: str | None, n_bytes: int | None) -> None:
    (event,) = [e for e in parse(lines_of(PHRASES[name])) if isinstance(e, AllocationFailed)]
    assert (event.signature, event.backend, event.device, event.bytes) == (name, backend, device, n_bytes)


def survived(line: str) -> bool:
    return not {BY_NAME[name].kind for name in signatures(line)} & {
        Kind.ALLOCATOR, Kind.BUFFER, Kind.PURPOSE, Kind.REFUSAL, Kind.PLANNER, Kind.KILLED,
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "warmup: flash attention is not supported by the current backend; falling back to CPU (performance will be "
        "degraded)",
        "llama_mmap: warning: munmap failed: Invalid argument",
        "llama_prefetch: madvise(MADV_WILLNEED) failed: Cannot do it",
        "NCCL init failed (unhandled system error); falling back to internal AllReduce",
        "ggml_opencl: A_q_d buffer size reduced from 268435456 to 134217728 due to device limitations.",
        "Failed to open cl_profiling.csv",
        "/home/user/llama.cpp/src/llama-context.cpp:12:5: warning: unused variable 'x' [-Wunused-variable]",
        "at ggml_abort (ggml.c:250)",
        "srv  update:  - cache size limit reached, removing oldest entry (size = 512.00 MiB)",
        "decode: removing memory module entries for seq_id = 0, pos = [12, +inf)",
    ],
)
def test_warnings_that_a_run_survives_are_no_failures(line: str) -> None:
    assert survived(line)


def test_names_are_unique_and_sources_given() -> None:
    assert len(BY_NAME) == len(SIGNATURES)
    assert all(row.source and row.says and row.keys for row in SIGNATURES)


def test_harmless_lines_are_no_failures() -> None:
    for row in SIGNATURES:
        if row.kind is Kind.HARMLESS and row.name in PHRASES:
            assert survived(PHRASES[row.name]), row.name
    for name, line in MORE:
        assert BY_NAME[name].kind is not Kind.HARMLESS or survived(line), line


def test_the_quick_look_passes_every_line_that_means_something() -> None:
    everything = Hints(SIGNATURES, True, True)
    for sample in load():
        for raw in sample.data.decode().split("\n"):
            line = make_line(1, raw)
            events: list[LogEvent] = []
            LogParser()._read_part(1, line.message.strip(), everything, events)
            if events:
                assert look(line.message) is not None, raw


def test_figures_in_a_phrase_are_said() -> None:
    (event,) = [e for e in parse(lines_of(PHRASES["runtime_other"])) if isinstance(e, Note)]
    assert event.says == "the GPU runtime answered: invalid argument"


def test_a_reason_that_is_not_given_is_left_out() -> None:
    line = "ggml_vulkan: Error: Shared memory size too small for matrix multiplication."
    (event,) = [e for e in parse(lines_of(line)) if isinstance(e, Note)]
    assert event.says == "the Vulkan driver cannot do what was asked of it"


def test_braces_in_a_log_are_text() -> None:
    (event,) = [e for e in parse(lines_of("CUDA error: {0.__class__} {oops")) if isinstance(e, Note)]
    assert "{0.__class__} {oops" in event.says
