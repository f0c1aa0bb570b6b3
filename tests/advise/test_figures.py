"""Reasons carry the figures of this launch, and a working command says what it could have besides."""

from dataclasses import replace

import pytest

from kvstudio.advise.figures import layers_on, listed
from kvstudio.advise.plan import World, start
from kvstudio.advise.predict import predict
from kvstudio.advise.suggest import suggest
from kvstudio.budget.estimate import estimate
from kvstudio.devices.values import DeviceProcess
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, format_room
from tests.advise.world import Reality, device
from tests.budget import zoo

QWEN = LaunchConfig(model_path="m.gguf", n_ctx=65536, n_gpu_layers=99, fit=False)


def test_the_reason_for_another_split_names_who_is_short_and_where_the_layers_go():
    held = replace(device(1, 24, 16.4), processes=(DeviceProcess(7, "python3", int(7.6 * GIB)),))
    devices = (device(0, 24, 23.6), held)
    fixes = suggest(zoo.model("qwen3-32b"), QWEN.evolve(tensor_split=(1.0, 1.0)), devices)
    fix = next(fix for fix in fixes if fix.variable == "tensor_split")
    assert "-ts 1,1 puts 33 layers on CUDA0, 31 and the output on CUDA1" in fix.why
    assert "CUDA1, where 16.4 GiB are free because python3 holds 7.6 GiB" in fix.why
    assert layers_on(fix.budget) in fix.why
    assert layers_on(fix.budget) != "33 layers on CUDA0, 31 and the output on CUDA1"


def test_a_process_that_holds_little_is_not_blamed():
    held = replace(device(1, 24, 16.4), processes=(DeviceProcess(7, "Xorg", GIB // 8),))
    fixes = suggest(zoo.model("qwen3-32b"), QWEN.evolve(tensor_split=(1.0, 1.0)), (device(0, 24, 23.6), held))
    fix = next(fix for fix in fixes if fix.variable == "tensor_split")
    assert "16.4 GiB are free. Without -ts" in fix.why


@pytest.mark.parametrize("variable", ["n_ctx", "cache_type", "n_gpu_layers"])
def test_a_reason_says_what_the_device_that_is_short_gains(variable):
    devices = (device(0, 12, 11.5),)
    model, config = zoo.model("llama31-8b"), QWEN.evolve(n_ctx=98304, cache_type_k="f16")
    before = estimate(model, config, devices).devices[0]
    fix = next(fix for fix in suggest(model, config, devices, limit=20) if fix.variable == variable)
    after = fix.budget.devices[0]
    kv = f"the KV cache goes from {format_room(before.kv_bytes)} to {format_room(after.kv_bytes)}"
    assert f"On CUDA0 {kv}" in fix.why
    assert after.kv_bytes < before.kv_bytes


def test_figures_of_the_host_are_said_of_the_ram():
    host = device(0, 16, 9, backend="Host")
    host = replace(host, name="Host", backend="CPU")
    model = zoo.model("llama31-8b")
    fix = next(f for f in suggest(model, QWEN, (), host, limit=20) if f.variable == "n_ctx")
    assert " In RAM the KV cache goes from 8.0 GiB to " in fix.why


def test_a_list_of_words_reads_like_one():
    assert [listed(list(words)) for words in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


CUT = (device(0, 12, 11.5), device(1, 24, 23))


def test_a_shorter_context_is_told_what_else_costs_nothing():
    world = World(zoo.model("qwen3-32b"), CUT)
    config = QWEN.evolve(tensor_split=(1.0, 1.0))
    predicted = predict(start(world, config))
    assert "Without -ts 1,1 as well, a context of " in predicted.verdict.says
    walked = Reality(world).walk(start(world, config))
    assert walked.verdict.root_cause.variable == "n_ctx"
    said = walked.verdict.says.partition("Without -ts 1,1 as well, a context of ")[2]
    longer = int(said.split(" ")[0])
    assert world.estimate(config.evolve(tensor_split=None, n_ctx=longer)).fits
    assert longer >= 1.25 * walked.verdict.config.n_ctx


def test_what_was_not_typed_or_gains_nothing_is_not_mentioned():
    world = World(zoo.model("qwen3-32b"), CUT)
    for config in (QWEN, QWEN.evolve(flash_attn="on"), QWEN.evolve(swa_full=False)):
        verdict = predict(start(world, config)).verdict
        assert verdict.config is not None
        assert "as well" not in verdict.says
