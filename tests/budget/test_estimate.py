"""The whole budget: sums, failures, JSON, extras and sentences."""

import json
from dataclasses import replace

import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.budget.explain import popular_bytes, popular_formula
from kvstudio.budget.extras import Extras
from kvstudio.budget.host_growth import host_growth
from kvstudio.budget.json import to_json
from kvstudio.budget.values import BufferKind, Provenance
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB
from tests.budget import zoo
from tests.budget.models import gpus, header, model

LLAMA = zoo.model("llama31-8b")
HOST = Device("Host", "CPU", total_bytes=64 * GIB, free_bytes=60 * GIB)


def test_sums_are_the_buffers() -> None:
    budget = estimate(LLAMA, LaunchConfig(n_gpu_layers=20), gpus(8, 8), HOST)
    for device in (*budget.devices, budget.host):
        name = None if device.name == "Host" else device.name
        for kind in (BufferKind.MODEL, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE, BufferKind.OUTPUT):
            assert device.of(kind) == sum(
                buffer.bytes or 0 for buffer in budget.buffers if buffer.device == name and buffer.kind is kind
            )


def test_every_buffer_has_a_sentence() -> None:
    for name in ("llama31-8b", "gemma3n-e4b", "deepseek-v4-flash", "mamba-2.8b"):
        for buffer in estimate(zoo.model(name), LaunchConfig(n_ctx=4096), gpus(20, 20)).buffers:
            assert buffer.why.endswith(".")
            assert not buffer.why.startswith(" ")


def test_first_failure_comes_in_order_of_allocation() -> None:
    weights = estimate(LLAMA, LaunchConfig(n_ctx=4096, n_parallel=1), gpus(4)).first_failure
    cells = estimate(LLAMA, LaunchConfig(n_ctx=131072, n_parallel=1), gpus(8)).first_failure
    assert weights is not None
    assert cells is not None
    assert (weights.kind, weights.device) == (BufferKind.MODEL, "CUDA0")
    assert cells.kind is BufferKind.KV
    assert cells.short_bytes == cells.bytes - cells.free_bytes > 0


def test_overhead_takes_room() -> None:
    config = LaunchConfig(n_ctx=4096, n_parallel=1)
    need = estimate(LLAMA, config, gpus(8)).devices[0].need_bytes
    tight = (Device("CUDA0", "CUDA", total_bytes=24 * GIB, free_bytes=need),)
    assert estimate(LLAMA, config, tight).fits
    assert estimate(LLAMA, config, tight, overhead={"CUDA0": 300 * MIB}).fits is False


def test_weights_mapped_beyond_the_memory_are_said() -> None:
    small = replace(HOST, total_bytes=4 * GIB, free_bytes=3 * GIB)
    config = LaunchConfig(n_ctx=4096, repack=False)
    assert any("read from the disk again" in note for note in estimate(LLAMA, config, (), small).notes)
    assert not any("read from the disk again" in note for note in estimate(LLAMA, config, (), HOST).notes)


def test_unknown_memory_is_no_answer() -> None:
    assert estimate(LLAMA, LaunchConfig(), (Device("CUDA0", "CUDA"),)).fits is None


def test_unknown_architecture_is_estimated() -> None:
    budget = estimate(model("brandnew"), LaunchConfig(), gpus(8))
    assert {buffer.provenance for buffer in budget.buffers} == {Provenance.ESTIMATED}
    assert any("brandnew" in note for note in budget.notes)


def test_json_is_plain_and_complete() -> None:
    budget = estimate(LLAMA, LaunchConfig(n_ctx=32768), gpus(12, 12), HOST)
    document = json.loads(json.dumps(to_json(LLAMA, budget)))
    assert document["schema"] == "kvstudio.budget/1"
    assert document["offloaded_layers"] == [33, 33]
    assert document["config"]["n_parallel"] == 4
    assert document["devices"][0]["overhead_bytes"] is None
    assert document["devices"][0]["need_bytes"] == budget.devices[0].need_bytes
    assert set(document["host"]) >= {"model_bytes", "kv_bytes", "rs_bytes", "compute_bytes", "output_bytes"}
    assert {"name", "device", "kind", "bytes", "provenance", "why"} <= set(document["buffers"][0])
    assert document["caches"][0]["cells"] == 32768
    assert document["first_failure"] is None


def test_mtp_context_is_counted_apart_from_the_main_one() -> None:
    mtp = zoo.model("qwen35-27b-mtp")
    config = LaunchConfig(n_ctx=8192, n_parallel=1, spec_type="draft-mtp")
    budget = estimate(mtp, config, gpus(20, 20))
    drafted = [buffer for buffer in budget.buffers if buffer.context == "mtp" and buffer.kind is BufferKind.KV]
    assert [buffer.bytes for buffer in drafted] == [32 * MIB]
    document = to_json(mtp, budget)
    assert document["devices"][1]["extra_bytes"] > 32 * MIB
    assert document["devices"][1]["kv_bytes"] == budget.devices[1].kv_bytes - 32 * MIB


def test_draft_model_projector_and_adapter_are_counted_when_read() -> None:
    plain = estimate(LLAMA, LaunchConfig(n_ctx=4096), gpus(20))
    draft = zoo.model("llama32-1b-f16")
    projector = header("clip")
    adapter = replace(
        projector,
        tensors=tuple(
            replace(tensor, name=f"{tensor.name}.lora_a") for tensor in projector.tensors if "attn_q" in tensor.name
        ),
    )
    config = LaunchConfig(n_ctx=4096, model_draft="draft.gguf", mmproj="mmproj.gguf", lora=("a.gguf",))
    unread = estimate(LLAMA, config, gpus(20))
    read = estimate(LLAMA, config, gpus(20), extras=Extras(draft, projector, (adapter,)))
    assert sum("not counted" in note for note in unread.notes) == 3
    assert not any("not counted" in note for note in read.notes)
    more = read.devices[0].model_bytes - plain.devices[0].model_bytes
    assert more > draft.tensor_bytes / 2 + sum(tensor.n_bytes for tensor in projector.tensors)


def test_host_memory_that_grows_is_bounded() -> None:
    config = LaunchConfig(n_ctx=8192)
    gemma = zoo.model("gemma3-4b")
    growth = host_growth(gemma, config, estimate(gemma, config, gpus(20)))
    assert growth is not None
    assert growth.prompt_cache_bytes == 8192 * MIB
    assert growth.checkpoint_bytes > 0
    off = config.evolve(cache_ram=0, ctx_checkpoints=0)
    none = host_growth(LLAMA, off, estimate(LLAMA, off, gpus(20)))
    assert none is not None
    assert none.note() is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("llama31-8b", "32 heads share 8"),
        ("deepseek-r1-671b", "latent of 576"),
        ("gemma3-12b", "look back only 1024"),
        ("jamba-1.5-mini", "recurrent state"),
        ("gemma3n-e4b", "reuse others"),
    ],
)
def test_why_the_popular_formula_is_off(name: str, says: str) -> None:
    described = zoo.model(name)
    budget = estimate(described, LaunchConfig(n_ctx=32768), gpus(20))
    assert says in popular_formula(described, budget.config)
    assert popular_bytes(described, budget.config) > sum(cache.k_bytes + cache.v_bytes for cache in budget.caches)


def test_popular_formula_is_right_for_full_heads() -> None:
    llama2 = zoo.model("llama2-7b-q8")
    budget = estimate(llama2, LaunchConfig(n_ctx=4096, n_parallel=1), gpus(20))
    assert popular_formula(llama2, budget.config) == ""
    assert popular_bytes(llama2, budget.config) == budget.devices[0].kv_bytes


def test_devices_a_launch_leaves_alone_are_asked_for_nothing() -> None:
    config = LaunchConfig(n_ctx=4096, split_mode="none", main_gpu=1)
    budget = estimate(model(), config, gpus(20, 10, 5))
    assert [d.name for d in budget.devices] == ["CUDA1"]
    assert [d.name for d in budget.idle] == ["CUDA0", "CUDA2"]
    assert [d.name for d in budget.all_devices] == ["CUDA1", "CUDA0", "CUDA2"]
    assert all(d.need_bytes == 0 and d.fits for d in budget.idle)
    assert budget.idle[0].other_bytes == 4 * GIB


def test_an_idle_device_of_unknown_memory_leaves_the_answer_known() -> None:
    devices = (*gpus(20), Device("CUDA9", "CUDA"))
    assert estimate(model(), LaunchConfig(device=("CUDA0",)), devices).fits is True
