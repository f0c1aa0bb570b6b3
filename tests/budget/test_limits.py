"""One allocation over what a backend takes is refused, however much memory is free."""

from dataclasses import replace

import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.budget.limits import limits_of
from kvstudio.budget.traits import traits_of
from kvstudio.budget.values import BufferKind
from kvstudio.devices.values import Device, DeviceSource
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB
from tests.budget.models import gpus, model

BIG = 64 * GIB
PLAIN = LaunchConfig(n_ctx=65536, n_parallel=1, n_gpu_layers=99, fit=False)


def device(backend: str, most: int | None = None, **changes: object) -> Device:
    return replace(Device(f"{backend}0", backend, "", BIG, BIG, max_buffer_bytes=most), **changes)


@pytest.mark.parametrize("backend", ["CUDA", "ROCm", "MUSA", "CANN"])
def test_backends_without_a_limit_take_any_size(backend):
    trait = traits_of(device(backend, GIB))
    assert (trait.max_buffer_bytes, trait.max_alloc_bytes) == (None, None)


@pytest.mark.parametrize("backend", ["SYCL", "OpenCL", "OPENVINO", "MTL", "WebGPU", "RPC"])
def test_the_drivers_figure_cuts_and_refuses(backend):
    trait = traits_of(device(backend, 3 * GIB))
    assert (trait.max_buffer_bytes, trait.max_alloc_bytes) == (3 * GIB, 3 * GIB)


@pytest.mark.parametrize("backend", ["Vulkan", "SYCL", "OpenCL", "OPENVINO", "MTL", "RPC", "HTP"])
def test_an_unknown_limit_refuses_nothing(backend):
    assert traits_of(device(backend, source=DeviceSource.WHAT_IF)).max_alloc_bytes is None


def test_webgpu_lists_its_largest_buffer_as_its_memory():
    listed = device("WebGPU", total_bytes=2 * GIB, source=DeviceSource.LISTED)
    assert limits_of("WebGPU", listed, {}).most_bytes == 2 * GIB
    typed = replace(listed, source=DeviceSource.WHAT_IF)
    assert limits_of("WebGPU", typed, {}).most_bytes is None


def test_vulkan_cuts_at_a_gibibyte_and_refuses_over_its_largest_buffer():
    trait = traits_of(device("Vulkan", 4 * GIB - 1))
    assert (trait.max_buffer_bytes, trait.max_alloc_bytes) == (GIB, 4 * GIB - 1)


def test_vulkan_leaves_a_weight_over_its_largest_buffer_to_the_cpu():
    assert traits_of(device("Vulkan", 2 * GIB)).max_tensor_bytes == 2 * GIB
    assert traits_of(device("Vulkan")).max_tensor_bytes == 2**32 - 1


@pytest.mark.parametrize(
    ("backend", "variables", "chunk", "most"),
    [
        ("Vulkan", {"GGML_VK_FORCE_MAX_BUFFER_SIZE": "60000000"}, GIB, 60000000),
        ("Vulkan", {"GGML_VK_SUBALLOCATION_BLOCK_SIZE": "30000000"}, 30000000, 4 * GIB),
        ("Vulkan", {"GGML_VK_FORCE_MAX_ALLOCATION_SIZE": "40000000"}, 40000000, 4 * GIB),
        ("Vulkan", {"GGML_VK_FORCE_MAX_BUFFER_SIZE": "large"}, GIB, 4 * GIB),
        ("SYCL", {"GGML_SYCL_HOST_PINNED_MEM_2G": "1"}, 2 * GIB, 4 * GIB),
        ("SYCL", {"GGML_SYCL_HOST_PINNED_MEM_2G": "0"}, 4 * GIB, 4 * GIB),
        ("HTP", {"GGML_HEXAGON_MBUF": "512", "GGML_HEXAGON_VMEM": "3000"}, 512 * MIB, 3000 * MIB),
    ],
)
def test_variables_change_the_limits(backend, variables, chunk, most):
    trait = traits_of(device(backend, 4 * GIB), variables)
    assert (trait.max_buffer_bytes, trait.max_alloc_bytes) == (chunk, most)


def test_a_sum_over_the_limit_is_cut_and_passes():
    described = model(n_layer=8)
    budget = estimate(described, PLAIN, (device("OpenCL", 256 * MIB),))
    kv = next(b for b in budget.buffers if b.kind is BufferKind.KV)
    assert (kv.bytes or 0) > 256 * MIB
    assert budget.first_failure is None
    assert budget.fits is True


def test_one_tensor_over_the_limit_is_refused_with_its_own_size():
    described = model(n_layer=8)
    one = 65536 * 512 * 2  # K of one layer in f16
    budget = estimate(described, PLAIN, (device("OpenCL", one - 1),))
    failure = budget.first_failure
    assert failure is not None
    assert (failure.device, failure.kind) == ("OpenCL0", BufferKind.KV)
    assert (failure.bytes, failure.limit_bytes, failure.short_bytes) == (one, one - 1, 1)
    assert failure.free_bytes == BIG - budget.devices[0].model_bytes
    assert budget.fits is False
    assert estimate(described, PLAIN, (device("OpenCL", one),)).first_failure is None


def test_a_limit_counts_where_free_memory_is_unknown():
    blind = device("SYCL", 16 * MIB, free_bytes=None)
    failure = estimate(model(), PLAIN, (blind,)).first_failure
    assert failure is not None
    assert failure.limit_bytes == 16 * MIB
    assert failure.free_bytes is None


def test_weights_come_before_the_cache():
    described = model()
    largest = max(t.n_bytes for t in described.header.tensors)
    failure = estimate(described, PLAIN, (device("MTL", largest - 1),)).first_failure
    assert failure is not None
    assert failure.kind is BufferKind.MODEL
    assert failure.bytes >= largest


def test_scores_without_flash_attention_are_one_tensor():
    plain = PLAIN.evolve(n_ubatch=512, flash_attn="off")
    scores = 65536 * 512 * 8 * 4  # cells x tokens x heads in f32
    limit = scores - 1
    failure = estimate(model(), plain, (device("MTL", limit),)).first_failure
    assert failure is not None
    assert (failure.kind, failure.bytes, failure.limit_bytes) == (BufferKind.COMPUTE, scores, limit)


def test_vulkan_leaves_an_operation_over_its_limit_to_the_cpu():
    plain = PLAIN.evolve(flash_attn="off")
    failure = estimate(model(), plain, (device("Vulkan", 512 * MIB),)).first_failure
    assert failure is None or failure.kind is not BufferKind.COMPUTE


def test_chunks_that_variables_made_larger_than_the_limit_are_refused_whole():
    config = PLAIN.evolve(env=(("GGML_VK_FORCE_MAX_BUFFER_SIZE", str(100 * MIB)),))
    budget = estimate(model(n_layer=8), config, (device("Vulkan"),))
    failure = budget.first_failure
    assert failure is not None
    assert failure.kind is BufferKind.KV
    assert failure.bytes == next(b.bytes for b in budget.buffers if b.kind is BufferKind.KV)


def test_recurrent_state_is_a_tensor_per_layer():
    described = model(
        "mamba", n_layer=2, ssm__conv_kernel=4, ssm__inner_size=1024, ssm__state_size=16, ssm__time_step_rank=32
    )
    config = LaunchConfig(n_ctx=512, n_parallel=200, n_gpu_layers=99, fit=False)
    whole = estimate(described, config, gpus(20))
    state = 4 * 1024 * 16 * 200
    rs = next(b for b in whole.buffers if b.kind is BufferKind.RS)
    assert (rs.bytes or 0) > state
    failure = estimate(described, config, (device("OpenCL", state - 1),)).first_failure
    assert failure is not None
    assert (failure.kind, failure.bytes) == (BufferKind.RS, state)
