"""Whole test launches against the fake server: every way they can end, and what is then known."""

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from kvstudio.devices.values import Device, Machine
from kvstudio.launch.config import Arg
from kvstudio.runlog.values import Phase
from kvstudio.verify.values import CHECKS, RunOutcome
from tests.fakes.launches import FLAGS, fake_binary, fake_config, fake_launch


def checks_of(run):
    return {check.check: check.ok for check in run.checks}


def leftovers(run):
    """Processes that still carry this launch's port or log."""
    port = run.argv[run.argv.index("--port") + 1]
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "--port" in words and words[words.index("--port") + 1 :][:1] == [port]:
            found.append(process.pid)
    return found


@pytest.fixture(autouse=True)
def _no_thread_stays():
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), thread.name


def test_a_launch_that_answers_is_verified_with_evidence(tmp_path):
    lines, phases, samples = [], [], []
    on = {
        "on_lines": lines.extend,
        "on_phase": lambda *news: phases.append(news),
        "on_sample": samples.append,
    }
    run = fake_launch(tmp_path, fake_config({"n_parallel": 2}), on=on)
    assert run.outcome is RunOutcome.VERIFIED, run.says
    assert [check.check for check in run.checks] == list(CHECKS)
    assert checks_of(run) == dict.fromkeys(CHECKS, True)
    assert all(check.evidence for check in run.checks)
    assert [kind for kind, *_ in run.prompts] == ["first", "repeated", "repeated", "concurrent", "concurrent"]
    assert run.reached is Phase.REPEAT
    assert all(state == "done" for _, state in run.phases)
    # The server may answer before its last lines were read, so the order of the news is not that of the phases.
    assert {p for p, state, _ in phases if state == "done"} == {phase for phase, _ in run.phases}
    assert (run.exit_code, run.signal, run.diagnosis) == (0, None, None)
    assert run.argv[0] == fake_binary().path
    assert "-lv" in run.argv
    text = Path(run.log_path).read_text()
    assert [line.text for line in lines] == text.splitlines()
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert samples == list(run.samples)
    assert not leftovers(run)


def test_lines_of_evidence_are_the_lines_of_the_log(tmp_path):
    run = fake_launch(tmp_path)
    text = Path(run.log_path).read_text().splitlines()
    by_name = {check.check: check for check in run.checks}
    assert any("KV buffer size" in text[n - 1] for n in by_name["buffers"].lines)
    assert any("n_ctx  " in text[n - 1] for n in by_name["context"].lines)
    assert "offloaded 19/19" in text[by_name["placement"].lines[0] - 1]
    assert "build 10434" in text[by_name["binary"].lines[0] - 1]
    for buffer in run.buffers:
        assert buffer.name in text[buffer.line - 1]


def test_printed_buffers_and_memory_are_kept(tmp_path):
    machine = Machine((Device("Vulkan0", "Vulkan", free_bytes=2 << 30),), Device("Host", "CPU", free_bytes=8 << 30))
    run = fake_launch(tmp_path, machine=machine)
    kinds = {(b.name, b.device, b.kind) for b in run.buffers}
    assert ("Vulkan0", "Vulkan0", "kv") in kinds
    assert ("CPU_Mapped", None, "model") in kinds
    assert ("Vulkan_Host", None, "compute") in kinds
    peak = dict(run.peak)
    assert peak["Vulkan0"] == sum(b.bytes for b in run.buffers if b.device == "Vulkan0")
    assert peak["Host"] > 4 << 20
    assert dict(run.free_before) == {"Vulkan0": 2 << 30, "Host": 8 << 30}
    assert dict(run.overhead) == {"Vulkan0": None}


def test_the_command_keeps_what_decides_memory_and_replaces_where_it_listens(tmp_path):
    odd = (Arg(None, ("--api-prefix", "/x")), Arg(None, ("--log-disable",)), Arg(None, ("--keep-me", "1")))
    run = fake_launch(tmp_path, fake_config({"host": "0.0.0.0", "port": 1, "layout": odd}))
    assert run.argv[run.argv.index("--host") + 1] == "127.0.0.1"
    assert run.argv[run.argv.index("--port") + 1] != "1"
    assert "--keep-me" in run.argv
    assert "--api-prefix" not in run.argv
    assert "--log-disable" not in run.argv
    assert run.config.host == "0.0.0.0"


def test_only_flags_the_binary_has_are_added(tmp_path):
    run = fake_launch(tmp_path, binary=fake_binary(flags=frozenset({"-m", "--port", "--host"})))
    assert "-lv" not in run.argv
    assert run.outcome is RunOutcome.VERIFIED


def test_a_failure_has_its_stage_its_phase_and_its_diagnosis(tmp_path):
    log = tmp_path / "kv.log"
    log.write_text(
        "0.00.1 I load_tensors:      Vulkan0 model buffer size =    65.16 MiB\n"
        "llama_context: n_ctx                 = 1048576\n"
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 1048576 cells\n"
        "ggml_vulkan: Device memory allocation of size 3221225472 failed.\n"
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"
        "ggml_backend_buft_alloc_buffer_n_default: failed to allocate Vulkan0 buffer of size 3221225472\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
        "srv    load_model: failed to load model, '/models/a.gguf'\n"
    )
    run = fake_launch(tmp_path, fake_config(log=log, exit=1))
    assert run.outcome is RunOutcome.FAILED
    assert run.exit_code == 1
    assert run.diagnosis.stage == "kv"
    assert run.diagnosis.requested_bytes == 3221225472
    assert dict(run.phases)[Phase.KV] == "failed"
    assert dict(run.phases)[Phase.WEIGHTS] == "done"
    assert run.reached is Phase.KV
    assert checks_of(run)["generation"] is None
    assert run.diagnosis.summary in run.says


@pytest.mark.parametrize(
    ("number", "outcome"),
    [(signal.SIGABRT, RunOutcome.CRASHED), (signal.SIGSEGV, RunOutcome.CRASHED), (signal.SIGKILL, RunOutcome.KILLED)],
)
def test_signals_are_told_apart(tmp_path, number, outcome):
    run = fake_launch(tmp_path, fake_config(signal=int(number)))
    assert (run.outcome, run.signal) == (outcome, number)


@pytest.mark.parametrize(("code", "outcome"), [(134, RunOutcome.CRASHED), (137, RunOutcome.KILLED)])
def test_exit_codes_a_shell_makes_of_signals_count_as_signals(tmp_path, code, outcome):
    assert fake_launch(tmp_path, fake_config(exit=code)).outcome is outcome


def test_a_binary_that_is_not_there_could_not_start(tmp_path):
    run = fake_launch(tmp_path, binary=fake_binary(path="/nonexistent/llama-server"))
    assert run.outcome is RunOutcome.COULD_NOT_START
    assert "No such file" in run.message
    assert run.says
    assert run.diagnosis is None


def test_a_missing_library_could_not_start(tmp_path):
    log = tmp_path / "loader"
    log.write_text(
        "llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file\n"
    )
    run = fake_launch(tmp_path, fake_config(log=log, exit=127))
    assert run.outcome is RunOutcome.COULD_NOT_START
    assert "libcudart" in run.says


def test_a_phase_that_takes_too_long_times_out(tmp_path):
    run = fake_launch(tmp_path, fake_config(hang=17), phase_timeout_s=2.0)
    assert run.outcome is RunOutcome.TIMED_OUT
    assert "weights took longer than 2 s" in run.says
    assert dict(run.phases)[Phase.WEIGHTS] == "failed"


def test_the_whole_launch_has_a_limit(tmp_path):
    run = fake_launch(tmp_path, fake_config(hang=0), timeout_s=1.0)
    assert run.outcome is RunOutcome.TIMED_OUT
    assert "in all" in run.says


@pytest.mark.parametrize("env", [{"hang": 3}, {"ignore_term": 1, "line_delay": 0.2}, {"broken": "hang"}])
def test_cancel_works_at_any_moment(tmp_path, env):
    cancel = threading.Event()
    timer = threading.Timer(1.2, cancel.set)
    timer.start()
    began = time.monotonic()
    run = fake_launch(tmp_path, fake_config(**env), cancel=cancel)
    timer.join()
    assert run.outcome is RunOutcome.CANCELLED
    assert time.monotonic() - began < 9
    assert not leftovers(run)


@pytest.mark.parametrize(
    ("broken", "outcome", "says"),
    [
        ("error", RunOutcome.STARTED, "Compute error"),
        ("empty", RunOutcome.STARTED, "0 generated"),
        ("die", RunOutcome.FAILED, ""),
    ],
)
def test_answers_that_fail_do_not_verify(tmp_path, broken, outcome, says):
    run = fake_launch(tmp_path, fake_config(broken=broken))
    assert run.outcome is outcome
    assert says in run.says
    assert checks_of(run)["generation"] is False
    assert dict(run.phases)[Phase.GENERATE] == "failed"


def test_a_model_that_writes_no_text_is_held_to_letters(tmp_path):
    run = fake_launch(tmp_path, fake_config(broken="garbage"))
    assert run.outcome is RunOutcome.VERIFIED
    assert "held to letters" in run.prompts[0][3]


def test_an_answer_that_never_comes_times_out(tmp_path):
    run = fake_launch(tmp_path, fake_config(broken="hang"), phase_timeout_s=2.0)
    assert run.outcome is RunOutcome.TIMED_OUT
    assert "no answer within 2 s" in run.says


def test_one_that_dies_on_a_later_request_is_not_verified(tmp_path):
    run = fake_launch(tmp_path, fake_config(die_after=2), repeat=3)
    assert run.outcome is RunOutcome.FAILED
    assert checks_of(run)["generation"] is True
    assert checks_of(run)["repeated"] is False


def test_it_waits_while_the_model_is_still_loading(tmp_path):
    run = fake_launch(tmp_path, fake_config(load_delay=0.6))
    assert run.outcome is RunOutcome.VERIFIED


def test_the_context_is_filled_to_a_share(tmp_path):
    run = fake_launch(tmp_path, fill_context=0.5, n_predict=8, repeat=0, concurrent=0)
    assert prompts_of(run)["fill"] == "2040 of a slot's 4096 tokens: 2040 prompt tokens, 8 generated"
    assert run.outcome is RunOutcome.VERIFIED


def prompts_of(run):
    return {kind: says for kind, _, _, says in run.prompts}


@pytest.mark.parametrize("settings", [{"embeddings": True}, {"reranking": True}])
def test_the_context_of_an_embedding_or_ranking_model_is_filled_too(tmp_path, settings):
    run = fake_launch(tmp_path, fake_config(settings), fill_context=0.5, repeat=0, concurrent=0)
    assert prompts_of(run)["fill"].startswith("about 2048 of a slot's 4096 tokens")
    assert run.outcome is RunOutcome.VERIFIED


@pytest.mark.parametrize("settings", [{"embeddings": True}, {"reranking": True}])
def test_a_prompt_that_has_to_pass_at_once_is_cut_to_the_batch_and_that_is_said(tmp_path, settings):
    run = fake_launch(tmp_path, fake_config(settings, batch=512), fill_context=0.5, repeat=0, concurrent=0)
    assert prompts_of(run)["fill"].startswith("about 512 of a slot's 4096 tokens")
    evidence = {check.check: check.evidence for check in run.checks}
    assert "512 tokens go through at once (-ub); 2048 of a slot's context were wanted" in evidence["repeated"]
    assert run.outcome is RunOutcome.VERIFIED


def test_a_model_that_takes_pictures_is_shown_one(tmp_path):
    run = fake_launch(tmp_path, fake_config({"mmproj": "/m/p.gguf"}, senses="vision"), n_predict=5)
    assert prompts_of(run)["picture"] == "100 prompt tokens, 5 generated"
    assert "/v1/chat/completions" in {check.check: check.evidence for check in run.checks}["generation"]
    assert run.outcome is RunOutcome.VERIFIED


def test_a_picture_that_gets_no_answer_is_not_verified(tmp_path):
    run = fake_launch(tmp_path, fake_config({"mmproj": "/m/p.gguf"}, senses="vision", broken="blind"))
    assert checks_of(run)["generation"] is False
    assert run.outcome is RunOutcome.STARTED


@pytest.mark.parametrize(("senses", "says"), [("audio", "takes audio"), ("unknown", "does not say")])
def test_a_projector_whose_pictures_cannot_be_tried_is_said(tmp_path, senses, says):
    run = fake_launch(tmp_path, fake_config({"mmproj": "/m/p.gguf"}, senses=senses))
    assert "picture" not in prompts_of(run)
    evidence = {check.check: check.evidence for check in run.checks}["repeated"]
    assert f"no picture was sent: the server {says}" in evidence


@pytest.mark.parametrize(
    ("settings", "says"), [({"embeddings": True}, "embedding of 2"), ({"reranking": True}, "1 documents ranked")]
)
def test_models_for_embeddings_and_ranking_are_asked_for_those(tmp_path, settings, says):
    run = fake_launch(tmp_path, fake_config(settings))
    assert run.outcome is RunOutcome.VERIFIED
    assert says in run.prompts[0][3]


def test_less_context_than_asked_for_is_not_verified(tmp_path):
    log = tmp_path / "short.log"
    log.write_text(
        "llama_context: n_seq_max             = 1\nllama_context: n_ctx                 = 4096\n"
        "load_tensors: offloaded 10/19 layers to GPU\n"
    )
    run = fake_launch(tmp_path, fake_config({"n_ctx": 65536}, log=log))
    assert run.outcome is RunOutcome.STARTED
    assert checks_of(run)["context"] is False
    assert checks_of(run)["placement"] is False
    assert "65536" in run.says or "n_ctx" in " ".join(c.evidence for c in run.checks)


def test_another_binary_than_meant_is_noticed(tmp_path):
    run = fake_launch(tmp_path, binary=fake_binary(version="9999 (abcdef0)", build=9999, commit="abcdef0"))
    assert checks_of(run)["binary"] is False
    assert run.outcome is RunOutcome.STARTED


def test_a_server_that_is_kept_runs_until_it_is_cancelled(tmp_path):
    cancel = threading.Event()
    done = threading.Event()

    def on_phase(phase, state, _):
        if phase is Phase.REPEAT and state == "done":
            done.set()

    timer = threading.Thread(target=lambda: (done.wait(20), time.sleep(0.5), cancel.set()))
    timer.start()
    run = fake_launch(tmp_path, cancel=cancel, keep_running=True, on={"on_phase": on_phase})
    timer.join()
    assert run.outcome is RunOutcome.VERIFIED
    assert not leftovers(run)


def test_an_exception_of_a_callback_leaves_nothing_running(tmp_path):
    def fail(_):
        raise RuntimeError("of the window")

    with pytest.raises(RuntimeError, match="of the window"):
        fake_launch(tmp_path, on={"on_lines": fail})
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_a_log_folder_that_cannot_be_made_costs_only_the_log(tmp_path):
    (tmp_path / "file").write_text("")
    run = fake_launch(tmp_path, log_dir=str(tmp_path / "file" / "logs"))
    assert run.outcome is RunOutcome.VERIFIED
    assert run.log_path is None


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
def test_proxies_are_ignored(tmp_path, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert fake_launch(tmp_path).outcome is RunOutcome.VERIFIED


def test_a_program_that_is_no_server_gets_its_prompt_on_the_command_line(tmp_path):
    log = tmp_path / "cli.log"
    log.write_text(
        "llama_context: n_ctx                 = 4096\nload_tensors: offloaded 19/19 layers to GPU\n"
        "load_tensors:      Vulkan0 model buffer size =    65.16 MiB\n"
        "llama_perf_context_print:        eval time =     120.00 ms /    15 runs   (    8.00 ms per token)\n"
    )
    flags = frozenset({"-m", "-p", "-n", "-st", "-lv"})
    config = fake_config({"program": "llama-cli"}, log=log, exit=0)
    run = fake_launch(tmp_path, config, fake_binary(program="llama-cli", flags=flags), prompt="Hello  $HOME")
    assert run.outcome is RunOutcome.VERIFIED, run.says
    assert run.argv[run.argv.index("-p") + 1] == "Hello  $HOME"
    assert run.argv[-1] == "-st"
    assert "--port" not in run.argv
    assert checks_of(run)["generation"] is True


def test_a_verbose_command_is_watched_at_the_level_of_buffers(tmp_path):
    run = fake_launch(tmp_path, fake_config({"log_verbosity": 2147483647}))
    assert run.argv[run.argv.index("-lv") + 1] == "4"


def test_a_silence_while_memory_is_filled_is_told(tmp_path):
    run = fake_launch(tmp_path, fake_config(silence="11:1.3"))
    assert run.outcome is RunOutcome.VERIFIED, run.says
    (pause,) = run.pauses
    assert pause.line == 11
    assert 1.0 <= pause.seconds < 10.0
    assert pause.phase in (Phase.FIT, Phase.WEIGHTS)


def test_settings_an_old_binary_spells_otherwise_are_told(tmp_path):
    old = fake_binary(flags=FLAGS | {"--no-mmap"})
    run = fake_launch(tmp_path, fake_config({"load_mode": "none"}), binary=old)
    assert "--no-mmap" in run.argv
    assert run.spelled == (f"-lm none is --no-mmap in {old.title}",)
    assert run.lost == ()


def test_settings_an_old_binary_has_no_option_for_are_told_and_passed_as_typed(tmp_path):
    run = fake_launch(tmp_path, fake_config({"swa_full": True}))
    assert "--swa-full" in run.argv
    assert run.spelled == ()
    assert "--swa-full: " in run.lost[0]


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [({"embeddings": True}, "/embedding"), ({"reranking": True}, "/rerank"), ({"mmproj": "/m/p.gguf"}, "/completion")],
)
def test_each_kind_of_server_is_asked_at_its_own_endpoint(tmp_path, settings, endpoint):
    run = fake_launch(tmp_path, fake_config(settings), binary=fake_binary(flags=frozenset()))
    assert run.outcome is RunOutcome.VERIFIED, run.says
    evidence = {check.check: check.evidence for check in run.checks}
    assert evidence["generation"].endswith(f" at {endpoint}")
