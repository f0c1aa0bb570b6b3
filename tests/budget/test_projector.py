"""A projector's compute buffers against what llama-server printed for the same file."""

from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGUFWriter

from kvstudio.budget.estimate import estimate
from kvstudio.budget.extra_files import read_extras
from kvstudio.budget.extras import Extras
from kvstudio.budget.fit import fit
from kvstudio.budget.projector import towers, warmup_side
from kvstudio.budget.values import Budget, Buffer, BufferKind, Provenance
from kvstudio.devices.values import Device
from kvstudio.header.values import Header
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB
from tests.budget.models import gpus, model
from tests.budget.projectors import listener, projector

CONFIG = LaunchConfig(n_ctx=512, n_parallel=1, mmproj="mmproj.gguf")
SOFTWARE = (Device("Vulkan0", "Vulkan", "llvmpipe", 8 * GIB, 8 * GIB),)
GEMMA = projector("gemma3", 896, n_embd=288, n_ff=1076)
SMALL = projector("gemma3", 224, n_ff=256, f16=False)
LLAVA = projector("mlp", 336, n_embd=256, n_ff=1024, class_embd=True)
QWEN2 = projector("qwen2vl_merger", 560, merge=2)
QWEN25 = projector("qwen2.5vl_merger", 560, n_ff=384, merge=2, rms=True, gate=True)
INTERN = projector("internvl", 448, merge=2, class_embd=True)
IDEFICS = projector("idefics3", 512, patch=16, merge=4)


QWEN3 = projector("qwen3vl_merger", 768, patch=16, merge=2, fused=True)
JANUS = projector("janus_pro", 384, patch=16)
LFM = projector("lfm2", 256, patch=16, merge=2)


def launched(header: Header, devices: tuple[Device, ...] = (), **changes: object) -> Budget:
    return estimate(model(), CONFIG.evolve(**changes), devices, extras=Extras(projector=header))


def buffers(budget: Budget, kind: BufferKind = BufferKind.COMPUTE) -> list[Buffer]:
    return [b for b in budget.buffers if b.context == "mmproj" and b.kind is kind]


@pytest.mark.parametrize(
    ("header", "flash", "printed"),
    [
        (GEMMA, "auto", 30.31),
        (GEMMA, "off", 283.00),
        (SMALL, "auto", 0.86),
        (SMALL, "off", 1.75),
        (LLAVA, "auto", 4.11),
        (LLAVA, "off", 7.50),
        (QWEN2, "auto", 35.65),
        (QWEN2, "off", 1116.38),
        (QWEN25, "auto", 429.05),
        (QWEN25, "off", 1389.67),
        (INTERN, "auto", 3.50),
        (INTERN, "off", 18.03),
        (IDEFICS, "auto", 4.50),
        (IDEFICS, "off", 18.00),
        (QWEN3, "auto", 41.46),
        (QWEN3, "off", 1122.19),
        (JANUS, "auto", 2.53),
        (JANUS, "off", 6.19),
        (LFM, "auto", 4.50),
        (LFM, "off", 18.00),
        (listener(), "auto", 5.13),
        (listener(), "off", 37.26),
    ],
)
def test_on_the_cpu_it_is_what_was_printed(header: Header, flash: str, printed: float) -> None:
    (found,) = buffers(launched(header, flash_attn=flash))
    assert found.device is None
    assert found.provenance is Provenance.ESTIMATED
    assert round((found.bytes or 0) / MIB, 2) == printed


@pytest.mark.parametrize(
    ("header", "on_device", "on_host"), [(GEMMA, 30.31, 9.19), (LLAVA, 4.11, 1.30), (INTERN, 3.50, 2.30)]
)
def test_on_a_device_the_raw_image_stays_in_host_memory(header: Header, on_device: float, on_host: float) -> None:
    found = buffers(launched(header, SOFTWARE))
    assert [(b.device, b.name) for b in found] == [("Vulkan0", "Vulkan0"), (None, "CPU")]
    assert [round((b.bytes or 0) / MIB, 2) for b in found] == [on_device, on_host]


def test_flash_attention_is_given_up_where_the_device_cannot_take_the_mask() -> None:
    """llama-server b10434 printed 56.32 MiB on Mesa's software device and 1385.54 MiB on the CPU."""
    named = (replace(SOFTWARE[0], description="llvmpipe (LLVM 15.0.6, 256 bits)"),)
    on_device, on_host = buffers(launched(QWEN25, named))
    assert round((on_device.bytes or 0) / MIB, 2) == 56.32
    assert abs((on_host.bytes or 0) / MIB - 1385.54) < 0.02


def test_weights_are_where_the_projector_runs() -> None:
    (weights,) = buffers(launched(GEMMA, gpus(8, 8)), BufferKind.MODEL)
    assert (weights.device, weights.bytes) == ("CUDA0", sum(t.n_bytes for t in GEMMA.tensors))
    (weights,) = buffers(launched(GEMMA, gpus(8, 8), mmproj_offload=False), BufferKind.MODEL)
    assert weights.device is None


def test_without_a_warm_up_nothing_is_reserved_and_that_is_said() -> None:
    budget = launched(GEMMA, gpus(8), warmup=False)
    assert buffers(budget) == []
    assert any("first image" in note for note in budget.notes)


def test_a_tower_that_only_shares_the_plain_layers_gets_room() -> None:
    other = replace(GEMMA, metadata={**GEMMA.metadata, "clip.projector_type": "yasa2"})
    assert (buffers(launched(other))[0].bytes or 0) > 1.2 * 25 * MIB


@pytest.mark.parametrize("kind", ["gemma3nv", "deepseekocr"])
def test_another_kind_of_tower_is_unknown(kind: str) -> None:
    other = replace(GEMMA, metadata={**GEMMA.metadata, "clip.projector_type": kind})
    (found,) = buffers(launched(other))
    assert (found.bytes, found.provenance) == (None, Provenance.UNKNOWN)


def test_a_tower_without_its_tensors_is_unknown() -> None:
    bare = replace(GEMMA, tensors=tuple(t for t in GEMMA.tensors if "ln" not in t.name and "attn" not in t.name))
    (found,) = buffers(launched(bare))
    assert found.bytes is None


@pytest.mark.parametrize("value", [None, 0, -1, "many", 1 << 40, 2.5])
def test_absurd_keys_leave_only_the_weights(value: object) -> None:
    odd = replace(GEMMA, metadata={**GEMMA.metadata, "clip.vision.patch_size": value})
    assert towers(odd) == ()
    budget = launched(odd)
    assert buffers(budget) == []
    assert len(buffers(budget, BufferKind.MODEL)) == 1


@pytest.mark.parametrize(("header", "side"), [(GEMMA, 896), (QWEN2, 46 * 28), (projector("pixtral", 1024, 16), 256)])
def test_the_warm_up_image_is_the_models_own_or_smaller(header: Header, side: int) -> None:
    assert [warmup_side(tower) for tower in towers(header)] == [side]


def test_fit_keeps_the_projectors_memory_free_besides() -> None:
    described = model(n_layer=8, n_embd=2048, n_vocab=32000)
    config = CONFIG.evolve(n_ctx=65536)
    devices = gpus(5.5)
    plain = fit(described, config, devices)
    beside = fit(described, config, devices, extras=Extras(projector=projector("gemma3", 896, n_embd=1152, n_ff=4304)))
    assert plain.status == "unchanged"
    assert beside.status == "changed"
    assert beside.budget is not None


def test_files_are_read_once_and_missing_ones_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    writer = GGUFWriter(str(path), "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config = LaunchConfig(mmproj=str(path), model_draft=str(tmp_path / "gone.gguf"), lora=(str(tmp_path),))
    found = read_extras(config)
    assert found.projector is not None
    assert found.projector is read_extras(config).projector
    assert (found.draft, found.adapters) == (None, ())
    path.write_bytes(b"no GGUF any more")
    assert read_extras(config).projector is None
