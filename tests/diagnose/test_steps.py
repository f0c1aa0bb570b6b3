"""diagnose.steps: each step is one setting, and none works against its stage."""

import pytest

from kvstudio.diagnose.diagnose import diagnose
from kvstudio.launch.config import LaunchConfig
from tests.diagnose.samples import Sample, lines_of, load

ALLOCATOR = "allocating 900.00 MiB on device 0: cudaMalloc failed: out of memory\n"
CONTEXT = (
    "llama_context: n_seq_max     = 4\nllama_context: n_ctx         = 65536\nllama_context: n_ubatch      = 512\n"
    "llama_context: kv_unified    = false\n"
)
ENDS = {
    "rs": "llama_init_from_model: failed to initialize the context: failed to allocate buffer for rs cache",
    "kv": "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
    "compute": "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers",
    "weights": "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
}


def changes(stage: str, before: str = CONTEXT) -> list[str]:
    found = diagnose(lines_of(before + ALLOCATOR + ENDS[stage]))
    assert found.stage == stage
    return [name for step in found.next_steps for name in step.change]


def test_recurrent_state_wants_fewer_slots_and_no_other_cache_type() -> None:
    assert changes("rs")[0] == "n_parallel"
    assert not {"cache_type_k", "cache_type_v", "n_ctx"} & set(changes("rs"))


def test_weights_want_layers_elsewhere_and_no_shorter_context() -> None:
    assert "n_gpu_layers" in changes("weights")
    assert not {"n_ctx", "n_ubatch", "cache_type_k"} & set(changes("weights"))


def test_compute_wants_a_smaller_batch_first() -> None:
    assert changes("compute")[0] == "n_ubatch"


def test_kv_wants_fewer_cells_or_smaller_ones() -> None:
    assert {"n_ctx", "cache_type_k", "n_parallel"} <= set(changes("kv"))


def test_placement_comes_before_layers_when_free_memory_is_known() -> None:
    devices = "  - CUDA0   : NVIDIA A (24080 MiB, 700 MiB free)\n  - CUDA1   : NVIDIA B (24080 MiB, 23000 MiB free)\n"
    assert changes("weights", devices)[0] == "tensor_split"


@pytest.mark.parametrize("sample", load(), ids=lambda s: s.name)
def test_every_step_is_one_known_setting(sample: Sample) -> None:
    found = diagnose(lines_of(sample.data.decode()))
    for step in found.next_steps:
        assert len(step.change) == 1
        assert LaunchConfig().evolve(**step.change)
        assert step.why


def test_a_full_context_wants_more_cells() -> None:
    full = "llama_context: n_ctx = 4096\ndecode: failed to find a memory slot for batch of size 1024"
    found = diagnose(lines_of(full))
    assert found.next_steps[0].change == {"n_ctx": 8192}
