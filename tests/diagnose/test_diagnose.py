"""diagnose: real logs, each with what it should be read as, in every dress a wrapper gives them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstudio.diagnose.diagnose import diagnose
from kvstudio.diagnose.read import read_log
from kvstudio.diagnose.values import STAGES, Cause, Outcome
from tests.diagnose.samples import VARIANTS, Sample, lines_of, load, misses

SAMPLES = load()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_reads_a_real_log(sample: Sample) -> None:
    assert misses(sample, read_log(sample.data).diagnosis) == {}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wrapper_changes_nothing(variant: str) -> None:
    change, shift = VARIANTS[variant]
    wrong = {s.name: m for s in SAMPLES if (m := misses(s, read_log(change(s.data)).diagnosis, shift=shift))}
    assert wrong == {}


def test_samples_hold_every_kind_of_end() -> None:
    outcomes = {s.expected["outcome"] for s in SAMPLES}
    stages = {s.expected["stage"] for s in SAMPLES}
    assert outcomes == {o.value for o in Outcome}
    assert stages >= set(STAGES)


def test_two_runs_in_one_file_the_last_counts_and_is_said_to() -> None:
    sample = next(s for s in SAMPLES if s.name == "composed-two-runs-both-fail")
    found = read_log(sample.data).diagnosis
    assert found.stage == "kv"
    assert "2 runs" in found.notes[0]


def test_loading_again_after_a_failure_is_another_run() -> None:
    failed = "\n".join(
        (
            "load_tensors: loading model tensors, this can take a while... (mmap = true)",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 100.00 MiB on device 0: cudaMalloc failed: "
            "out of memory",
            "alloc_tensor_range: failed to allocate CUDA0 buffer of size 104857600",
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        )
    )
    went = "load_tensors: loading model tensors, this can take a while... (mmap = true)\nmain: model loaded"
    assert diagnose(lines_of(f"{failed}\n{went}")).outcome is Outcome.OK
    assert diagnose(lines_of(f"{went}\n{failed}")).outcome is Outcome.FAILED


def test_other_refusals_are_evidence_not_the_answer() -> None:
    sample = next(s for s in SAMPLES if s.name == "cuda-compute-3tries")
    found = read_log(sample.data).diagnosis
    others = [e.number for e in found.evidence if e.says.startswith("another refusal")]
    assert found.key_line is not None
    assert found.key_line.number == 2
    assert others == [4, 6]


def test_the_generic_line_is_marked_and_is_not_the_key_line() -> None:
    found = read_log(next(s for s in SAMPLES if s.name == "live-kv-vulkan").data).diagnosis
    assert found.key_line is not None
    assert found.generic_line is not None
    assert found.generic_line > found.key_line.number


def test_missing_text_is_asked_for() -> None:
    asked = read_log(next(s for s in SAMPLES if s.name == "ollama-loadfailed").data).diagnosis.missing
    assert "OLLAMA_DEBUG" in asked[0]
    remote = read_log(next(s for s in SAMPLES if s.name == "public-rpc-weights-router").data).diagnosis.missing
    assert "rpc-server" in remote[0]


def test_what_a_person_writes_about_memory_is_no_failure() -> None:
    found = diagnose(lines_of("User: I get out of memory errors, cudaMalloc, help!\nAssistant: use a smaller model."))
    assert found.outcome is Outcome.UNKNOWN
    assert found.key_line is None


@pytest.mark.parametrize("text", ["", "\n\n\n", "\0\0", "{", "[]", "{}", "[" * 5000, "%s%n{0}", "<b>CUDA error</b>"])
def test_odd_texts_give_an_answer(text: str) -> None:
    assert diagnose(lines_of(text)).cause in Cause


PIECES = [line for s in SAMPLES for line in s.data.decode().split("\n") if line][:1200]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=60)), max_size=40), st.sampled_from(["\n", "\r\n"]))
def test_any_mix_of_lines_is_diagnosed(pieces: list[str], end: str) -> None:
    found = read_log(end.join(pieces).encode("utf-8", "replace")).diagnosis
    assert found.stage is None or found.stage in STAGES
    assert found.summary
    if found.key_line is not None:
        assert found.key_line.number >= 1


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_are_diagnosed(data: bytes) -> None:
    assert read_log(data).n_bytes == len(data)


def test_a_line_cut_before_its_figure_says_no_figure() -> None:
    found = diagnose(lines_of('{"error":"exit status 1: ggml_backend_cpu_buffer_type_alloc_buffer: failed"}'))
    assert found.requested_bytes is None
    assert "the system refused some bytes of host memory" in [e.says for e in found.evidence]


def test_a_failed_metal_command_buffer_is_not_overcome_by_a_server_that_listens() -> None:
    text = (
        "ggml_metal_synchronize: error: command buffer 0 failed with status 5\n"
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n"
        "srv  llama_server: model loaded\n"
    )
    assert diagnose(lines_of(text)).outcome is Outcome.FAILED


def test_lines_alike_are_quoted_once_and_the_last_counted() -> None:
    found = diagnose(lines_of("decode: failed to find a memory slot for batch of size 1024\n" * 9))
    assert [(e.number, e.says) for e in found.evidence][1:] == [(9, "the last of 9 alike")]
    assert found.title == "The context is full"


@pytest.mark.parametrize(
    ("file", "stage"), [("Qwen3.5-4B-MTP-UD-Q5_K_XL.gguf", "kv"), ("gemma-4-12b-it-Q8_0-MTP.gguf", "draft")]
)
def test_a_main_model_may_have_mtp_in_its_name(file: str, stage: str) -> None:
    text = (
        "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1632174080\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
        f"srv    load_model: failed to create_context with model '/models/{file}'\n"
    )
    assert diagnose(lines_of(text)).stage == stage
