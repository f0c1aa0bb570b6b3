"""`-sm tensor`: what every device keeps of weights, caches and state."""

import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.budget.tensor_split import META, cache_parts, state_parts, tensor_parts
from kvstudio.budget.values import BufferKind
from kvstudio.launch.config import LaunchConfig
from tests.budget import zoo
from tests.budget.models import gpus

LLAMA = zoo.model("llama31-8b")
BY_NAME = {tensor.name: tensor for tensor in LLAMA.header.tensors}
EVEN = (1.0, 1.0)


def test_matrices_are_cut_and_norms_are_mirrored() -> None:
    for name in ("attn_q", "attn_k", "attn_output", "ffn_up", "ffn_down"):
        tensor = BY_NAME[f"blk.3.{name}.weight"]
        assert tensor_parts(LLAMA, tensor, EVEN) == (tensor.n_bytes // 2,) * 2
    norm = BY_NAME["blk.3.attn_norm.weight"]
    assert tensor_parts(LLAMA, norm, EVEN) == (norm.n_bytes,) * 2


def test_typed_proportions_are_rounded_to_whole_heads() -> None:
    tensor = BY_NAME["blk.0.attn_k.weight"]
    assert cache_parts(LLAMA, 0, 1024, (3.0, 1.0), values=False) == (768, 256)
    assert cache_parts(LLAMA, 0, 1024, (5.0, 2.0, 1.0), values=True) == (640, 256, 128)
    assert sum(tensor_parts(LLAMA, tensor, (5.0, 2.0, 1.0))) == tensor.n_bytes


def test_remainders_take_turns() -> None:
    one_head = zoo.model("gemma3-1b")
    full = [il for il, layer in enumerate(one_head.layers) if not layer.is_swa]
    parts = [cache_parts(one_head, il, 256, EVEN, values=False) for il in full]
    assert parts[:3] == [(0, 256), (256, 0), (0, 256)]


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "phi3-mini-128k", "qwen35-27b", "qwen3next-80b", "gpt-oss-20b"])
@pytest.mark.parametrize("weights", [EVEN, (3.0, 1.0), (1.0, 1.0, 1.0)])
def test_nothing_is_lost(name: str, weights: tuple[float, ...]) -> None:
    described = zoo.model(name)
    for tensor in described.header.tensors:
        parts = tensor_parts(described, tensor, weights)
        assert sum(parts) in (tensor.n_bytes, len(weights) * tensor.n_bytes)
    hp = described.hparams
    for layer in described.layers:
        if layer.is_recurrent:
            conv, state = state_parts(described, layer.index, (hp["n_embd_r"], hp["n_embd_s"]), weights)
            assert (sum(conv), sum(state)) == (hp["n_embd_r"], hp["n_embd_s"])
        elif layer.has_kv:
            assert sum(cache_parts(described, layer.index, layer.n_embd_k_gqa, weights, values=False)) == (
                layer.n_embd_k_gqa
            )


def test_budget_names_the_devices_together() -> None:
    budget = estimate(LLAMA, LaunchConfig(n_ctx=8192, n_parallel=1, split_mode="tensor"), gpus(8, 8))
    cells = [buffer for buffer in budget.buffers if buffer.kind is BufferKind.KV]
    assert {buffer.name for buffer in budget.buffers if buffer.device} == {META}
    assert [buffer.bytes for buffer in cells] == [512 * 2**20] * 2
    assert [device.n_layers for device in budget.devices] == [32, 32]
    assert budget.config.flash_attn == "on"
