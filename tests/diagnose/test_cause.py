"""diagnose.cause: one cause, only on what the log or a budget states."""

import pytest

from kvstudio.budget.values import Budget, BufferKind, DeviceBudget, EffectiveConfig, FirstFailure
from kvstudio.diagnose.diagnose import diagnose
from kvstudio.diagnose.values import Cause, Diagnosis
from kvstudio.units import GIB
from tests.diagnose.samples import lines_of

REFUSED = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 1: cudaMalloc failed: out of memory\n"
    "alloc_tensor_range: failed to allocate CUDA1 buffer of size 4294967296\n"
    "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
)


def device(name: str, total: int, free: int | None, model: int, kv: int, other: int | None = 0) -> DeviceBudget:
    free_bytes = None if free is None else free * GIB
    return DeviceBudget(name, "", total * GIB, free_bytes, model * GIB, kv * GIB, 0, 0, 0, 0, other)


def budget(*devices: DeviceBudget, first: FirstFailure | None = None) -> Budget:
    config = EffectiveConfig(
        "llama-server", 11434, 32768, 32768, 1, False, 2048, 512, 1, "f16", "f16", -2, "auto", None, "layer",
        True, True, False, False,
    )  # fmt: skip
    host = DeviceBudget("Host", "", None, None, 0, 0, 0, 0, 0, None, None)
    return Budget(config, (33, 33), devices, host, (), (), first)


def cause(text: str, known: Budget | None = None) -> Diagnosis:
    return diagnose(lines_of(text), budget=known)


def test_full_device_is_capacity() -> None:
    found = cause(REFUSED, budget(device("CUDA0", 24, 2, 20, 2), device("CUDA1", 24, 22, 20, 4)))
    assert found.cause is Cause.CAPACITY
    assert found.free_bytes == 22 * GIB


def test_room_on_another_device_is_placement() -> None:
    found = cause(REFUSED, budget(device("CUDA0", 48, 40, 20, 2), device("CUDA1", 24, 22, 20, 4)))
    assert found.cause is Cause.PLACEMENT
    assert "CUDA0" in found.summary


def test_others_on_the_device_are_named_when_it_would_fit_without_them() -> None:
    found = cause(REFUSED, budget(device("CUDA1", 24, 10, 14, 4, other=13 * GIB)))
    assert found.cause is Cause.OTHER_PROCESS


def test_a_launch_that_should_have_fitted_is_no_capacity() -> None:
    found = cause(REFUSED, budget(device("CUDA1", 24, 23, 10, 4)))
    assert found.cause is Cause.UNKNOWN
    assert "should have fit" in found.summary


def test_a_cap_known_to_the_budget_is_told() -> None:
    first = FirstFailure("CUDA1", BufferKind.KV, 4 * GIB, GIB, 3 * GIB, limit_bytes=4 * GIB - 1)
    found = cause(REFUSED, budget(device("CUDA1", 24, 20, 1, 4), first=first))
    assert found.limit_bytes == 4 * GIB - 1
    assert found.cause is Cause.BACKEND_LIMIT
    assert "at most 4.0 GiB in one allocation" in found.summary


def test_a_budget_without_figures_says_nothing() -> None:
    assert cause(REFUSED, budget(device("CUDA1", 24, None, 20, 4))).cause is Cause.PLACEMENT


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("4096.00", "4096.00"), Cause.PLACEMENT),
        (("cudaMalloc failed: out of memory", "cudaMalloc failed: the provided PTX was compiled"), Cause.UNSUPPORTED),
        (("4294967296", "2305843008391495680"), Cause.BUG),
        (("4294967296", str(128 * GIB)), Cause.CONFIG),
        (("CUDA1 buffer", "CUDA_Host buffer"), Cause.HOST_MEMORY),
    ],
)
def test_the_log_alone(change: tuple[str, str], expected: Cause) -> None:
    assert cause(REFUSED.replace(*change)).cause is expected


ALONE = REFUSED.replace("device 1", "device 0").replace("CUDA1", "CUDA0")
USING = "llama_prepare_model_devices: using device CUDA{} (NVIDIA A40) (unknown id) - {} MiB free\n"


def test_a_split_without_free_figures_asks_for_them() -> None:
    assert any("each device had free" in want for want in cause(REFUSED).missing)
    assert not any("each device had free" in want for want in cause(ALONE).missing)


def test_the_only_device_of_the_text_is_full() -> None:
    assert cause(ALONE).cause is Cause.CAPACITY


@pytest.mark.parametrize(
    ("free", "expected"),
    [((3000, 9000), Cause.PLACEMENT), ((3000, 3000), Cause.CAPACITY), ((9000, 3000), Cause.CAPACITY)],
)
def test_free_figures_of_the_text_decide_between_split_and_size(free: tuple[int, int], expected: Cause) -> None:
    text = "".join(USING.format(n, mib) for n, mib in enumerate(free))
    assert cause(text + ALONE).cause is expected


def test_what_was_printed_since_no_longer_counts_as_free_elsewhere() -> None:
    text = (
        USING.format(0, 3000) + USING.format(1, 9000) + "load_tensors:        CUDA1 model buffer size =  6000.00 MiB\n"
    )
    assert cause(text + ALONE).cause is Cause.CAPACITY


def test_a_request_beyond_reason_is_laid_to_the_settings() -> None:
    text = "llama_context: n_ctx = 1048576\n" + REFUSED.replace("4096.00", "131072.00").replace(
        "4294967296", "137438953472"
    )
    found = cause(text)
    assert found.cause is Cause.CONFIG
    assert "128.0 GiB for the KV cache: the settings, among them n_ctx 1048576, ask for that much." in found.summary


def test_a_second_try_that_worked_was_not_beyond_reason() -> None:
    text = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 51748.72 MiB on device 0: cudaMalloc failed: "
        "out of memory\n"
        "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 54262464512\n"
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
        "srv    load_model: initializing, n_slots = 1\n"
    )
    assert cause(text).cause is Cause.PLACEMENT
    assert cause(text.rsplit("\n", 3)[0]).cause is Cause.CONFIG


def test_an_application_that_holds_memory_is_the_cause_where_the_text_says_so() -> None:
    text = (
        "Note: KoboldCpp has detected that a significant amount of GPU VRAM (5014.0 MB) is currently used by another "
        "application.\n"
    )
    found = cause(text + ALONE)
    assert found.cause is Cause.OTHER_PROCESS
    assert 1 in [e.number for e in found.evidence]


def test_a_model_without_flash_attention_cannot_have_it_switched_on() -> None:
    text = (
        "llama_init_from_model: flash_attn is not compatible with Grok - forcing off\n"
        "llama_init_from_model: V cache quantization requires flash_attn\n"
    )
    found = cause(text)
    assert found.cause is Cause.UNSUPPORTED
    assert [step.change for step in found.next_steps] == [{"cache_type_v": "f16"}]


def test_a_setting_that_stopped_fitting_is_the_cause() -> None:
    why = "n_gpu_layers already set by user to 99, abort"
    found = cause(f"common_fit_params: failed to fit params to free device memory: {why}\n{REFUSED}")
    assert found.cause is Cause.CONFIG
    assert 1 in [e.number for e in found.evidence]


def test_no_allocator_line_leaves_the_cause_open() -> None:
    remote = "ggml_gallocr_reserve_n: failed to allocate RPC0[192.0.2.1:50052] buffer of size 1234"
    assert cause(remote).cause is Cause.UNKNOWN


def test_a_tiny_request_is_not_what_is_missing() -> None:
    found = cause(REFUSED.replace("4096.00", "7.00").replace("4294967296", "7340032"))
    assert found.cause is Cause.CAPACITY
    assert "full already" in found.summary


def test_the_call_of_another_runtime_error_is_no_shortage() -> None:
    where_and_call = (
        "  current device: 0, in function alloc at ggml-cuda.cu:589\n  cuMemCreate(&handle, reserve_size, &prop, 0)"
    )
    other = diagnose(lines_of(f"CUDA error: invalid argument\n{where_and_call}"))
    full = diagnose(lines_of(f"CUDA error: out of memory\n{where_and_call}"))
    cut_off = diagnose(lines_of(where_and_call))
    assert (other.memory_class, other.device) == ("not_memory", "CUDA0")
    assert (full.memory_class, cut_off.memory_class) == ("memory", "memory")
    assert full.key_line is not None and full.key_line.number == 1
