"""Layers to devices, tensors to buffer types."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.budget.effective import resolve
from kvstudio.budget.layer_split import assign, offloaded, split_points
from kvstudio.budget.placement import place
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.weights import model_buffers
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.units import GIB
from tests.budget.models import F32, Q8_0, gpus, model

LLAMA = model()
ROPE = (("rope_freqs.weight", (32,), F32),)


def put(described: ModelInfo, devices: tuple[Device, ...], **settings: Any) -> Placement:
    config = LaunchConfig(**settings)
    return place(described, resolve(described, config, len(devices)), devices, config)


def names(placement: Placement, tensor: str) -> list[str]:
    return [placed.buffer_type for placed in placement.tensors if placed.tensor.name == tensor]


def sizes(described: ModelInfo, placement: Placement) -> dict[str, int]:
    return {buffer.name: buffer.bytes for buffer in model_buffers(described, placement)}


def test_split_is_single_precision_and_right_open() -> None:
    assert split_points((3.0, 1.0)) == (0.75, 1.0)
    assert assign(3, -1, (0.75, 1.0)) == (0, 0, 0, 1)
    assert assign(3, 2, (0.5, 1.0)) == (None, None, 0, 1)
    assert assign(3, 0, (1.0,)) == (None,) * 4
    assert assign(3, 99, ()) == (None,) * 4


@given(
    n=st.integers(1, 200),
    ngl=st.integers(-2, 300),
    shares=st.lists(st.floats(0, 2.0**40, width=32), min_size=1, max_size=8),
)
def test_every_layer_has_one_place_and_devices_come_in_order(n: int, ngl: int, shares: list[float]) -> None:
    layers = assign(n, ngl, split_points(shares))
    on_device = [index for index in layers if index is not None]
    assert len(layers) == n + 1
    assert on_device == sorted(on_device)
    assert len(on_device) == offloaded(n, ngl)[0]


def test_free_memory_decides_the_split() -> None:
    assert put(LLAMA, gpus(20, 4)).layer_device == ("CUDA0",) * 5
    assert put(LLAMA, gpus(3, 3)).layer_device == ("CUDA0",) * 3 + ("CUDA1",) * 2
    assert put(LLAMA, gpus(3, 3), tensor_split=(1.0, 4.0)).layer_device == ("CUDA0",) + ("CUDA1",) * 4


def test_unknown_free_memory_is_said() -> None:
    blind = (Device("CUDA0", "CUDA"), Device("CUDA1", "CUDA"))
    assert any("guess" in note for note in put(LLAMA, blind).notes)


def test_main_gpu_and_named_devices() -> None:
    two = gpus(8, 8)
    assert put(LLAMA, two, split_mode="none", main_gpu=1).devices == ("CUDA1",)
    assert put(LLAMA, two, device=("CUDA1", "CUDA0")).devices == ("CUDA1", "CUDA0")
    assert put(LLAMA, two, device=("none",)).devices == ()
    assert put(LLAMA, two, split_mode="none", main_gpu=5).errors
    assert put(LLAMA, two, device=("CUDA7",)).errors


def test_remote_devices_first_and_integrated_ones_last() -> None:
    mixed = (
        Device("CUDA0", "CUDA", free_bytes=GIB, total_bytes=GIB, pci_id="1"),
        Device("Vulkan0", "Vulkan", free_bytes=GIB, total_bytes=GIB, pci_id="1"),
        Device("Vulkan1", "Vulkan", free_bytes=GIB, total_bytes=GIB, integrated=True),
        Device("RPC0", "RPC", free_bytes=GIB, total_bytes=GIB),
    )
    placement = put(LLAMA, mixed, rpc=("host:50052",))
    assert placement.devices == ("RPC0", "CUDA0")
    assert placement.buffer_types == ("RPC0[host:50052]", "CUDA0")
    assert put(LLAMA, mixed[2:3]).devices == ("Vulkan1",)
    assert not put(LLAMA, mixed[2:3]).mapped


def test_pipeline_needs_everything_on_several_devices() -> None:
    two = gpus(8, 8)
    assert put(LLAMA, two).pipeline_copies == 4
    for settings in ({"n_gpu_layers": 4}, {"kv_offload": False}, {"override_tensor": (("none", "CPU"),)}):
        assert put(LLAMA, two, **settings).pipeline_copies == 1
    assert put(LLAMA, gpus(8)).pipeline_copies == 1


def test_row_split_is_refused_where_nobody_offers_it() -> None:
    assert any("-sm row" in error for error in put(LLAMA, gpus(8, 8), split_mode="row").errors)
    assert not put(LLAMA, gpus(8, 8, backend="SYCL"), split_mode="row").errors


def test_host_weights_are_mapped_or_pinned() -> None:
    mapped = put(LLAMA, gpus(8), n_gpu_layers=2)
    pinned = put(LLAMA, gpus(8), n_gpu_layers=2, load_mode="none")
    bare = put(LLAMA, gpus(8), n_gpu_layers=2, load_mode="none", no_host=True, repack=False)
    assert set(sizes(LLAMA, mapped)) == {"CUDA0", "CPU_Mapped"}
    assert set(sizes(LLAMA, pinned)) == {"CUDA0", "CUDA_Host"}
    assert set(sizes(LLAMA, bare)) == {"CUDA0", "CPU"}


def test_mapped_range_spans_first_to_last_tensor() -> None:
    placement = put(LLAMA, (), repack=False)
    total = LLAMA.header.tensors[-1].offset + LLAMA.header.tensors[-1].n_bytes
    assert sizes(LLAMA, placement) == {"CPU_Mapped": total}


def test_cpu_repacks_matrices_beside_the_mapping() -> None:
    buffers = sizes(LLAMA, put(LLAMA, ()))
    assert set(buffers) == {"CPU_Mapped", "CPU_REPACK"}
    assert names(put(LLAMA, ()), "blk.0.attn_q.weight") == ["CPU_REPACK"]
    assert names(put(LLAMA, ()), "token_embd.weight") == ["CPU"]


def test_metal_maps_its_weights_too() -> None:
    assert set(sizes(LLAMA, put(LLAMA, gpus(8, backend="MTL")))) == {"MTL0_Mapped", "CPU_Mapped"}


def test_tied_embedding_counts_twice_when_apart() -> None:
    tied = model(tied=True)
    assert names(put(tied, gpus(8)), "token_embd.weight") == ["CPU", "CUDA0"]
    assert names(put(tied, (), repack=False), "token_embd.weight") == ["CPU"]
    assert names(put(model("bert", tied=True), gpus(8)), "token_embd.weight") == ["CPU"]


def test_gemma_copies_come_first_and_are_never_shared() -> None:
    gemma = model("gemma3n", tied=True, attention__sliding_window=512)
    assert len(names(put(gemma, (), repack=False), "token_embd.weight")) == 2


def test_rope_factors_once_per_buffer_type() -> None:
    rope = model(extra_tensors=ROPE)
    assert sorted(names(put(rope, gpus(3, 3)), "rope_freqs.weight")) == ["CUDA0", "CUDA1"]
    assert sorted(names(put(rope, gpus(3, 3), n_gpu_layers=2), "rope_freqs.weight")) == ["CPU", "CUDA0"]


def test_overrides_first_match_wins() -> None:
    placement = put(
        LLAMA, gpus(4, 4), override_tensor=((r"blk\.0\.ffn_up", "CPU"), (r"ffn_up", "CUDA1"), (r"attn_q$", "CPU"))
    )
    assert names(placement, "blk.0.ffn_up.weight") == ["CPU"]
    assert names(placement, "blk.1.ffn_up.weight") == ["CUDA1"]
    assert names(placement, "blk.0.attn_q.weight") == ["CUDA0"]


def test_bad_override_is_said() -> None:
    assert any("CUDA9" in note for note in put(LLAMA, gpus(4), override_tensor=(("x", "CUDA9"),)).notes)


def test_mtp_blocks_stay_in_the_file_unless_asked_for() -> None:
    mtp = model(
        "mimo2", nextn_predict_layers=1, attention__sliding_window=8, attention__sliding_window_pattern=(1,) * 4
    )
    assert names(put(mtp, gpus(8)), "blk.3.attn_q.weight") == []
    assert names(put(mtp, gpus(8), spec_type="draft-mtp"), "blk.3.attn_q.weight") == ["CUDA0"]
    assert names(put(model("glm4", nextn_predict_layers=1), gpus(8)), "blk.3.attn_q.weight") == []


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("cohere2moe", "nextn.shared_head_norm.weight"),
        ("deepseek32", "exp_probs_b.bias"),
        ("hy_v3", "ffn_up_exps.weight"),
        ("step35", "attn_q_norm.weight"),
    ],
)
def test_some_loaders_create_parts_of_a_skipped_mtp_block(name: str, tensor: str) -> None:
    extra = ((f"blk.3.{tensor}", (512,), F32), ("blk.3.nextn.eh_proj.weight", (1024, 512), Q8_0))
    keys = {"attention__sliding_window": 8, "attention__sliding_window_pattern": (1, 0, 1, 0)}
    placed = put(model(name, nextn_predict_layers=1, extra_tensors=extra, **keys), gpus(8))
    assert names(placed, f"blk.3.{tensor}") == ["CUDA0"]
    assert names(placed, "blk.3.nextn.eh_proj.weight") == []


def test_older_build_loads_joined_experts_of_a_skipped_mtp_block() -> None:
    joined = "blk.3.ffn_gate_up_exps.weight"
    described = model("qwen35moe", nextn_predict_layers=1, extra_tensors=((joined, (512, 64, 4), Q8_0),))
    assert names(put(described, gpus(8), build=10434), joined) == ["CUDA0"]
    assert names(put(described, gpus(8)), joined) == []


def test_probe_of_a_recurrent_step_is_larger_than_a_small_device_binds() -> None:
    first = (("blk.0.time_mix_first.weight", (64, 8), F32),)
    described = model("rwkv6", extra_tensors=first, wkv__head_size=64)
    software = Device("Vulkan0", "Vulkan", "llvmpipe (LLVM)", 8 * GIB, 8 * GIB)
    assert names(put(described, (software,)), first[0][0]) != ["Vulkan0"]
    assert names(put(described, gpus(8, backend="Vulkan")), first[0][0]) == ["Vulkan0"]


def test_cuda_pads_the_columns_of_quantized_rows() -> None:
    odd = (("blk.0.extra.weight", (544, 8), Q8_0),)
    plain, padded = model(), model(extra_tensors=odd)
    more = {
        backend: sizes(padded, put(padded, gpus(8, backend=backend)))[f"{backend}0"]
        - sizes(plain, put(plain, gpus(8, backend=backend)))[f"{backend}0"]
        for backend in ("CUDA", "Vulkan")
    }
    assert more["CUDA"] == -(-(544 // 32 * 34 * 8 + (512 - 32) // 32 * 34) // 128) * 128
    assert more["Vulkan"] == 544 // 32 * 34 * 8


def test_unknown_backend_is_said() -> None:
    assert any("Quantum" in note for note in put(LLAMA, gpus(8, backend="Quantum")).notes)


@pytest.mark.parametrize("ngl", [0, 1, 3, 5, -1])
def test_weights_are_complete(ngl: int) -> None:
    placement = put(LLAMA, gpus(4, 4), n_gpu_layers=ngl)
    assert sorted(p.tensor.name for p in placement.tensors) == sorted(t.name for t in LLAMA.header.tensors)


@pytest.mark.parametrize(
    ("name", "refused"),
    [("CUDA_Host", True), ("CPU_REPACK", True), ("CUDA7", True), ("CUDA1", False), ("CPU", False), ("Metal", False)],
)
def test_only_default_buffer_types_can_be_named(name: str, refused: bool) -> None:
    placement = put(LLAMA, gpus(20, 20), override_tensor=(("ffn", name),))

    assert any(f"={name} is refused" in error for error in placement.errors) is refused
