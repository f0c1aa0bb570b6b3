"""The six checks on what a launch has shown, without a launch."""

import pytest

from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.lines import make_line
from kvstudio.runlog.values import ConfigPrinted, OffloadPrinted
from kvstudio.verify.checks import (
    Seen,
    check_binary,
    check_buffers,
    check_context,
    check_generation,
    check_placement,
    check_repeated,
)
from kvstudio.verify.endpoints import Reply
from kvstudio.verify.requests import Talk
from kvstudio.verify.values import PrintedBuffer
from tests.fakes.launches import fake_binary
from tests.verify.budgets import budget_of, effective

GOOD = Reply(True, "/completion", 1.0, "4 tokens", 4, 2)
BAD = Reply(False, "/completion", 1.0, "HTTP 500: Compute error.")


def seen(config=None, binary=None, lines=(), events=(), buffers=(), talk=None, budget=None, has_server=True):
    numbered = tuple(make_line(i, text) for i, text in enumerate(lines, 1))
    return Seen(
        LaunchConfig(**(config or {})),
        binary,
        numbered,
        tuple(events),
        tuple(buffers),
        talk or Talk(),
        budget,
        has_server,
    )


def buffer(name, kind, device=None, size=100):
    return PrintedBuffer(name, device, kind, size, 5)


@pytest.mark.parametrize(
    ("line", "ok"),
    [
        ("build: 10434 (7e4c0a9) with GNU 11.4.0 for Linux x86_64", True),
        ("0.00.027.226 I cmn  common_param: common_params_print_info: build 1 (7e4c0a9d) with GNU", True),
        ("build: 9000 (1234567) with clang", False),
        ("main: nothing of the kind", True),
    ],
)
def test_the_build_line_is_held_against_the_binary(line, ok):
    assert check_binary(seen(binary=fake_binary(), lines=(line,))).ok is ok


def test_without_a_build_line_the_servers_own_word_counts():
    talk = Talk(build_info="b9000-1234567")
    assert check_binary(seen(binary=fake_binary(), lines=("x",), talk=talk)).ok is False
    assert check_binary(seen(lines=("x",))).ok is None


def test_every_cache_the_budget_names_has_to_be_printed():
    buffers = (buffer("CUDA0", "model", "CUDA0"), buffer("CUDA0", "kv", "CUDA0"), buffer("CUDA0", "compute", "CUDA0"))
    up = Talk(listening=True)
    hybrid = budget_of(CUDA0={"kv": 1, "rs": 1})
    missing = check_buffers(seen(buffers=buffers, talk=up, budget=hybrid))
    assert missing.ok is False
    assert "not printed: rs" in missing.evidence
    assert check_buffers(seen(buffers=(*buffers, buffer("CUDA0", "rs", "CUDA0")), talk=up, budget=hybrid)).ok
    assert check_buffers(seen(buffers=buffers, talk=up)).ok
    assert check_buffers(seen(buffers=buffers[:1])).ok is None
    assert check_buffers(seen(talk=up)).ok is False


@pytest.mark.parametrize(
    ("config", "printed", "ok"),
    [
        ({"n_ctx": 4096}, {"n_ctx": 4096}, True),
        ({"n_ctx": 5000, "n_parallel": 3}, {"n_ctx": 5376, "n_seq_max": 3}, True),
        ({"n_ctx": 5000, "n_parallel": 3}, {"n_ctx": 4608, "n_seq_max": 3}, True),
        ({"n_ctx": 65536}, {"n_ctx": 4096}, False),
        ({"n_parallel": 4}, {"n_ctx": 4096, "n_seq_max": 1}, False),
        ({"n_parallel": -1}, {"n_ctx": 4096, "n_seq_max": 4}, True),
        ({}, {"n_ctx": 32768}, True),
        ({"n_ctx": 4096}, {}, None),
    ],
)
def test_context_and_slots_are_at_least_the_asked_ones(config, printed, ok):
    events = [ConfigPrinted(i, key, str(value)) for i, (key, value) in enumerate(printed.items(), 1)]
    assert check_context(seen(config, events=events)).ok is ok


def test_a_whole_trained_context_that_was_asked_for_may_not_shrink():
    events = (ConfigPrinted(1, "n_ctx", "8192"),)
    budget = budget_of(config=effective(n_ctx=131072))
    assert check_context(seen({"n_ctx": 0}, events=events, budget=budget)).ok is False
    chosen = check_context(seen({}, events=events, budget=budget))
    assert chosen.ok
    assert "before fitting: 131072" in chosen.evidence


def test_the_drafts_context_is_not_taken_for_the_models():
    events = (ConfigPrinted(1, "n_ctx", "8192"), ConfigPrinted(9, "n_ctx", "2048"))
    assert check_context(seen({"n_ctx": 8192}, events=events)).ok


@pytest.mark.parametrize(
    ("config", "offloaded", "devices", "ok"),
    [
        ({"n_gpu_layers": 99}, (33, 33), ("CUDA0",), True),
        ({"n_gpu_layers": -2}, (20, 33), ("CUDA0",), False),
        ({"n_gpu_layers": 10}, (10, 33), ("CUDA0",), True),
        ({"n_gpu_layers": 10}, (9, 33), ("CUDA0",), False),
        ({}, (20, 33), ("CUDA0",), True),
        ({}, (33, 33), (), True),
        ({"n_gpu_layers": 99}, (33, 33), (), False),
        ({"n_gpu_layers": 0}, (0, 33), (), True),
        ({"n_gpu_layers": 99, "device": ("CUDA1",)}, (33, 33), ("CUDA0",), False),
        ({"n_gpu_layers": 99, "device": ("RPC0",)}, (33, 33), ("RPC0[h:1]",), True),
    ],
)
def test_layers_are_where_they_were_asked_to_be(config, offloaded, devices, ok):
    buffers = [buffer(name, "model", name) for name in devices]
    check = check_placement(seen(config, events=[OffloadPrinted(7, *offloaded)], buffers=buffers))
    assert check.ok is ok, check.evidence
    assert check.lines == (7,)


def test_a_device_of_the_budget_that_holds_nothing_is_named():
    budget = budget_of(CUDA0={"model": 5}, CUDA1={"model": 5})
    check = check_placement(
        seen(
            {"n_gpu_layers": 99},
            events=[OffloadPrinted(7, 33, 33)],
            buffers=[buffer("CUDA0", "model", "CUDA0")],
            budget=budget,
        )
    )
    assert check.ok is False
    assert "CUDA1 holds nothing" in check.evidence


def test_without_an_offload_line_a_device_that_was_asked_for_is_missed():
    buffers = [buffer("CPU_Mapped", "model")]
    assert check_placement(seen({"n_gpu_layers": 99}, buffers=buffers)).ok is False
    assert check_placement(seen({}, buffers=buffers)).ok
    assert check_placement(seen({})).ok is None


@pytest.mark.parametrize(
    ("lines", "devices", "says"),
    [
        (("E Failed to connect to 10.0.0.2:50052",), (), "10.0.0.2:50052 could not be reached"),
        (("x",), (), "nothing was placed on 10.0.0.2:50052, 10.0.0.3:50052"),
        (("E Failed to connect to 10.0.0.2:50052",), ("RPC0[10.0.0.3:50052]",), "10.0.0.2:50052 could not be reached"),
        (("x",), ("RPC0[10.0.0.2:50052]", "RPC1[10.0.0.3:50052]"), ""),
    ],
)
def test_a_remote_server_that_was_meant_and_gave_nothing_is_named(lines, devices, says):
    config = {"n_gpu_layers": 99, "rpc": ("10.0.0.2:50052", "10.0.0.3:50052")}
    buffers = (buffer("CPU", "model"), *(buffer(name, "model", name) for name in devices))
    offload = OffloadPrinted(7, 5, 5)
    check = check_placement(seen(config, lines=lines, events=[offload], buffers=buffers))
    assert check.ok is not bool(says)
    assert says in check.evidence


def test_one_bad_answer_among_good_ones_counts():
    talk = Talk(first=GOOD, again=[GOOD, BAD])
    assert check_generation(seen(talk=talk)).ok
    check = check_repeated(seen(talk=talk))
    assert check.ok is False
    assert "1 of 2 in a row answered (HTTP 500: Compute error.)" in check.evidence
    assert check_repeated(seen(talk=Talk(first=GOOD))).ok is None


def test_a_program_that_is_no_server_shows_its_tokens_in_the_log():
    lines = (
        "llama_perf_context_print: prompt eval time =      30.00 ms /     7 tokens (    4.29 ms per token)",
        "llama_perf_context_print:        eval time =     120.00 ms /    15 runs   (    8.00 ms per token)",
    )
    check = check_generation(seen(lines=lines, has_server=False))
    assert (check.ok, check.lines) == (True, (2,))
    assert check_generation(seen(lines=lines[:1], has_server=False)).ok is None
