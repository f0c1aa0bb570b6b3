"""The terminal's contract: exit codes, one clear line for bad input, and JSON of the agreed shape."""

import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kvstudio.cli import inputs, main
from kvstudio.errors import LaunchError
from tests.fakes.launches import fake_binary

TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
LOGS = Path(__file__).parent.parent / "data" / "logs"
TWO = ("--device", "CUDA0=24GiB/20GiB", "--device", "CUDA1=8GiB")


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KVSTUDIO_DATA", str(tmp_path / "kept"))


def run(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def budget(capsys, *words):
    code, out, _ = run(capsys, "budget", "--json", *words)
    return code, json.loads(out)


def test_budget_has_every_agreed_key(capsys):
    code, found = budget(capsys, *TWO, "--", "llama-server", "-m", TINY, "-c", "4096")
    assert code == 0
    assert found["schema"] == "kvstudio.budget/1"
    agreed = {
        "model",
        "config",
        "offloaded_layers",
        "devices",
        "host",
        "buffers",
        "caches",
        "fits",
        "first_failure",
        "notes",
    }
    assert agreed <= found.keys()
    assert {"architecture", "name", "n_layer", "n_ctx_train", "size_bytes", "shards"} <= found["model"].keys()
    device = found["devices"][0]
    parts = ("model_bytes", "kv_bytes", "rs_bytes", "compute_bytes", "output_bytes")
    assert device["need_bytes"] == sum(device[part] for part in parts)
    assert device["overhead_bytes"] is None
    assert (device["total_bytes"], device["free_bytes"]) == (24 * 2**30, 20 * 2**30)
    assert found["config"]["n_parallel"] == 4
    assert found["config"]["kv_unified"] is True
    assert found["offloaded_layers"] == [5, 5]


def test_kv_is_two_bytes_times_two_times_width_times_cells_times_layers(capsys):
    _, found = budget(capsys, "--device", "CUDA0=1GiB", "--", "llama-server", "-m", TINY, "-c", "4096", "-np", "1")
    assert found["devices"][0]["kv_bytes"] == 2 * 2 * 32 * 4096 * 4
    assert [cache["cells"] for cache in found["caches"]] == [4096]


def test_what_does_not_fit_exits_3_and_names_the_first_refusal(capsys):
    words = ("--device", "CUDA0=2MiB", "--", "llama-server", "-m", TINY, "-c", "4096", "-np", "1")
    code, found = budget(capsys, *words)
    assert code == 3
    assert found["fits"] is False
    failure = found["first_failure"]
    assert failure["device"] == "CUDA0"
    assert failure["kind"] == "kv"
    assert failure["short_bytes"] > 0
    code, out, _ = run(capsys, "budget", *words)
    assert code == 3
    assert "Does not fit: CUDA0" in out


def test_what_fit_launches_is_shown_before_what_was_typed(capsys):
    words = ("--device", "CUDA0=1030MiB", "--", "llama-server", "-m", TINY, "-np", "1")
    _, found = budget(capsys, *words)
    layers = found["fit"]["changes"]["n_gpu_layers"]
    assert (found["fit"]["status"], found["fit"]["fits"]) == ("changed", True)
    assert found["fit"]["offloaded_layers"] == [layers, 5]
    assert found["offloaded_layers"] == [5, 5]
    assert found["devices"][0]["need_bytes"] > found["fit"]["devices"][0]["need_bytes"]
    _, out, _ = run(capsys, "budget", *words)
    launched, typed = out.index("As launched, after -fit: n_ctx"), out.index("As typed: n_ctx")
    assert launched < typed
    assert f"{layers} of 5 layers on devices" in out[launched:typed]
    assert "5 of 5 layers on devices" in out[typed:]
    _, off = budget(capsys, *words, "-fit", "off")
    assert (off["fit"]["status"], off["fit"]["fits"]) == ("off", None)
    assert "As launched" not in run(capsys, "budget", *words, "-fit", "off")[1]


def test_max_is_the_edge_of_what_fits(capsys):
    words = ("--device", "CUDA0=3MiB", "--", "llama-server", "-m", TINY, "-np", "1")
    code, out, _ = run(capsys, "max", "--json", "--for", "n_ctx", *words)
    best = json.loads(out)["value"]
    assert code == 0
    at = budget(capsys, *words, "-c", str(best))
    over = budget(capsys, *words, "-c", str(best + 256))
    assert (at[0], over[0]) == (0, 3)


def test_settings_llama_cpp_refuses_fit_nowhere(capsys):
    words = (*TWO, "--", "llama-server", "-m", TINY, "-ctv", "q4_0", "-fa", "off")
    code, found = budget(capsys, *words)
    assert (code, found["fits"]) == (3, False)
    assert found["first_failure"] is None
    assert "needs flash attention" in found["errors"][0]
    assert all(device["fits"] for device in found["devices"])
    code, out, _ = run(capsys, "max", "--json", *words)
    assert (code, json.loads(out)["value"]) == (3, None)
    assert "Will not start as it is" in run(capsys, "max", *words)[1]


def test_the_exit_code_is_that_of_the_settings_as_typed(capsys):
    words = ("--device", "CUDA0=6MiB", "--device", "Host=64GiB", "--", "llama-server", "-m", TINY, "-fitt", "0")
    code, found = budget(capsys, *words)
    assert (found["fit"]["status"], found["fit"]["fits"]) == ("changed", True)
    assert (code, found["fits"]) == (3, False)
    code, out, err = run(capsys, "budget", *words)
    assert code == 3
    assert "Fits once -fit" in out
    assert "as typed, 3; llama.cpp starts all the same" in err


@pytest.mark.parametrize(
    ("options", "words", "says"),
    [
        (TWO, ("--ctxx", "4096"), "--ctxx is no option of llama.cpp, which refuses to start with it"),
        (TWO, ("--flash_attnn",), "Did you mean --flash-attn?"),
        (TWO, ("--ctx-sise", "4096"), "Did you mean --ctx-size?"),
        (TWO, ("--json",), "--json is an option of kvstudio-cli: put it before the --"),
        (TWO, ("-ts", "1,2,3"), "-ts has 3 shares for 2 devices: those past the last device do nothing"),
        (TWO, ("-ts", "1"), "-ts has 1 share for 2 devices: the devices past the last share get 0"),
        (TWO, ("-ts", "1,2", "-dev", "CUDA1"), "-ts has 2 shares for 1 device"),
        (TWO, ("--rpc", "box:50052"), "--rpc box:50052: no typed device stands for it"),
        (
            (*TWO, "--device", "RPC0[a:1]=8GiB"),
            ("--rpc", "a:1,b:2,c:3"),
            "--rpc b:2 and 1 more: no typed device stands for it, so it is left out. Add it like "
            "--device 'RPC1[b:2]=24GiB'",
        ),
    ],
)
def test_what_will_not_do_what_was_meant_is_said(capsys, options, words, says):
    command = (*options, "--", "llama-server", "-m", TINY, "-c", "512", *words)
    _, out, err = run(capsys, "budget", "--json", *command)
    assert f"warning: {says}" in err or says in err
    assert any(says in note for note in json.loads(out)["notes"])
    assert says in run(capsys, "max", *command)[2]


@pytest.mark.parametrize(
    "words",
    [
        ("--jinja", "--metrics", "--no-webui", "-t", "8", "--temp", "0.7", "-ts", "1,1"),
        ("-ts", "1,2,3", "-sm", "none"),
        ("--cache_type_k", "q8_0", "--override-kv", "a=int:1"),
    ],
)
def test_what_llama_cpp_knows_is_not_doubted(capsys, words):
    _, _, err = run(capsys, "budget", *TWO, "--", "llama-server", "-m", TINY, "-c", "512", *words)
    assert err == ""


def test_options_are_those_of_the_binary_that_will_run(capsys, monkeypatch):
    monkeypatch.setattr(inputs, "choose_binary", lambda config: fake_binary(flags=frozenset({"-m", "-c", "--new-one"})))
    monkeypatch.setattr(inputs, "list_devices", lambda *_, **__: "")
    _, _, err = run(capsys, "budget", "--", "llama-server", "-m", TINY, "-c", "512", "--new-one", "--metrics")
    assert "--metrics is no option of llama-server" in err
    assert "--new-one" not in err


def test_max_says_what_its_number_means_and_what_is_in_the_way(capsys):
    words = ("--", "llama-server", "-m", TINY)
    _, out, _ = run(capsys, "max", *TWO, *words)
    assert out.startswith("n_ctx 4096\n")
    assert "4 slots share the 4096 cells: one alone can have 4096 tokens." in out
    assert "The model was trained for 4096 tokens" in out
    small = ("--device", "CUDA0=3MiB", *words, "-np", "1")
    _, out, _ = run(capsys, "max", "--json", *small)
    found = json.loads(out)
    assert (found["limit"]["by"], found["limit"]["device"]) == ("device", "CUDA0")
    assert found["per_slot"] == found["value"]
    beyond = found["value"] + 256
    _, out, _ = run(capsys, "max", *small)
    assert f"With n_ctx {beyond} CUDA0 would be" in out
    assert "add -fit off" in out
    assert "add -fit off" not in run(capsys, "max", *small, "-fit", "off")[1]
    _, out, _ = run(capsys, "max", "--for", "n_gpu_layers", *TWO, *words)
    assert "Every layer is on a device" in out
    _, out, _ = run(capsys, "max", "--for", "n_parallel", *TWO, *words, "-c", "512")
    assert "256 slots of 256 tokens each, 65536 cells together" in out
    assert "llama.cpp has no more slots" in out


def test_max_without_a_device_claims_none(capsys):
    words = ("--cpu-only", "--device", "Host=8GiB", "--", "llama-server", "-m", TINY)
    _, out, _ = run(capsys, "max", "--for", "n_gpu_layers", *words)
    assert "There is no device, so all 5 layers are in RAM" in out
    assert "on a device" not in out


def test_devices_of_a_file_written_by_hand(capsys, tmp_path):
    path = tmp_path / "rig.json"
    path.write_text('{"devices": [{"name": "CUDA0", "total_bytes": 8589934592, "free_bytes": 8000000000}]}')
    words = ("--", "llama-server", "-m", TINY, "-c", "512")
    code, found = budget(capsys, "--devices", str(path), *words)
    assert (code, found["devices"][0]["free_bytes"]) == (0, 8000000000)
    typed = budget(capsys, "--device", "CUDA0=8GiB", *words)[1]
    assert found["devices"][0]["need_bytes"] == typed["devices"][0]["need_bytes"]


def test_max_says_why_nothing_fits(capsys):
    code, out, _ = run(capsys, "max", "--device", "CUDA0=1MiB", "--", "llama-server", "-m", TINY, "-ngl", "99")
    assert code == 3
    assert "Nothing fits, not even n_ctx 256." in out
    assert "CUDA0 is" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["budget", "--device", "CUDA0=1GiB", "--", "llama-server", "-c", "1"], "names no model"),
        ([], "say what to do: budget, max"),
        (["budget", *TWO, "--", "llama-server", "-m", "C:\\models\\m.gguf"], "C:\\models\\m.gguf is a path of Windows"),
        (["budget", "--device", "CUDA0=1GiB"], "no llama.cpp command line"),
        (["budget", "--device", "nonsense", "--", "llama-server", "-m", TINY], "nonsense"),
        (["budget", *TWO, *TWO, "--", "llama-server", "-m", TINY], "given twice"),
        (["budget", *TWO, "--", "llama-server", "-m", "/no/such/file.gguf"], "/no/such/file.gguf"),
        (["budget", *TWO, "--", "llama-server", "-m", TINY, "-c", "many"], "-c"),
        (["diagnose", "/no/such/log"], "/no/such/log"),
        (["launch", "--", "/no/such/llama-server", "-m", TINY], "/no/such/llama-server"),
        (["report"], "nothing to report on"),
        (["fix", "--want", "colour=red", "--", "llama-server", "-m", TINY], "colour"),
        (["history", "--show", "7"], "7"),
        (["budget", *TWO, "llama-server", "-m", TINY], "Put -- before"),
        (["budget", *TWO, "--cpu-only", "--", "llama-server", "-m", TINY], "--cpu-only"),
        (["budget", *TWO, "--devices", "saved.json", "--", "llama-server", "-m", TINY], "--devices"),
        (["budget", "--cpu-only", "--devices", "saved.json", "--", "llama-server", "-m", TINY], "--devices"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_2(capsys, words, says):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_unknown_commands_and_options_exit_2(capsys):
    assert main(["conjure"]) == 2
    assert main(["budget", "--colour", "red"]) == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    "name", ["budget", "max", "inspect", "devices", "diagnose", "launch", "check", "fix", "report", "history"]
)
def test_help_shows_one_real_example(capsys, name):
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert f"kvstudio-cli {name}" in out.split("example:")[1]


@pytest.mark.parametrize("name", ["budget", "max", "launch", "check", "fix", "report"])
def test_usage_says_where_the_command_line_goes(capsys, name):
    _, out, _ = run(capsys, name, "--help")
    assert "-- COMMAND" in out.split("options:")[0]


def test_cpu_only_plans_for_the_typed_memory(capsys):
    _, found = budget(capsys, "--cpu-only", "--device", "Host=1MiB", "--", "llama-server", "-m", TINY, "-c", "4096")
    assert found["devices"] == []
    assert found["fits"] is False


def test_one_slot_is_one_slot(capsys):
    _, out, _ = run(capsys, "budget", *TWO, "--", "llama-server", "-m", TINY, "-np", "1")
    assert "1 slot," in out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["budget", *TWO, "--", "llama-server", "-m", TINY, "-c", "512"], 0),
        (["budget", "--device", "nonsense", "--", "llama-server", "-m", TINY], 2),
        (["diagnose", "-"], 2),
    ],
)
def test_streams_closed_before_the_start_are_no_crash(words, code):
    program = "import os, sys; from kvstudio.cli import main; sys.exit(main(sys.argv[1:]))"
    closing = "import os, sys; [os.close(n) for n in (0, 1)]; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", closing, "-c", program, *words],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_the_reader_of_the_output_may_go_away(tmp_path):
    program = "import sys; from kvstudio.cli import main; sys.exit(main(sys.argv[1:]))"
    log = LOGS / "cpu-kv-128gib.log"
    with open(os.devnull, "rb") as nobody:
        done = subprocess.run(
            [sys.executable, "-c", program, "diagnose", str(log)],
            check=False, stdin=nobody, stdout=_broken_pipe(), stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "")


def _broken_pipe():
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_json_loses_no_letter_where_the_locale_has_none_for_it(tmp_path):
    path = tmp_path / "mo\u00fcse \u6a21.gguf"
    path.write_bytes(Path(TINY).read_bytes())
    program = "import sys; from kvstudio.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "inspect", "--json", str(path)],
        check=True, capture_output=True, timeout=60, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert json.loads(done.stdout.decode("ascii"))["files"][0]["path"] == str(path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_messages_that_cannot_be_told_do_not_change_the_answer():
    program = "import sys; from kvstudio.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["budget", *TWO, "--", "llama-server", "-m", TINY, "-c", "512", "--zzzz"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            check=False, stdout=subprocess.PIPE, stderr=full, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0
    assert "Fits" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["budget", "--device", "CUDA0=2MiB", "--", "llama-server", "-m", TINY],
        ["max", *TWO, "--", "llama-server", "-m", TINY],
        ["diagnose", str(LOGS / "cpu-kv-128gib.log")],
        ["inspect", TINY],
        ["devices"],
        ["--help"],
    ],
)
def test_sentences_and_tables_keep_to_a_narrow_terminal(capsys, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = run(capsys, *words)
    lines = out.splitlines()
    long = [line for line in lines if len(line) > 40]
    assert all("failed to allocate buffer of size" in line for line in long), "only a line of a log is left whole"
    assert not any(line.startswith(("CUDA0  ", "Host  ")) for line in lines)
    monkeypatch.delenv("COLUMNS")
    if words[0] not in ("--help", "devices"):  # free memory changes from one moment to the next
        whole = set(run(capsys, *words)[1].split())
        narrow = {word.rstrip(":,") for word in out.split()}
        assert {word.rstrip(":,") for word in whole} <= narrow | {"-", "device", "RS"}
        assert not any(line.strip().startswith(("GiB", "MiB", "KiB")) for line in lines), "torn from their number"


def test_names_in_a_file_cannot_reach_the_terminal_as_escape_codes(capsys, tmp_path):
    from gguf import GGUFWriter

    path = tmp_path / "evil.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_name("\x1b[2J\x1b]0;owned\x07name")
    writer.add_block_count(1)
    writer.add_context_length(32)
    writer.add_embedding_length(8)
    writer.add_head_count(1)
    writer.add_feed_forward_length(8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    code, out, _ = run(capsys, "inspect", str(path))
    assert code == 0
    assert "\x1b" not in out
    assert "name" in out


def test_a_truncated_file_is_named_with_its_offset(capsys, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 5, 9))
    code, _, err = run(capsys, "inspect", str(path))
    assert code == 2
    assert "cut.gguf" in err


def test_diagnose_reads_standard_input_and_names_the_key_line(capsys, monkeypatch):
    log = (
        b"load_tensors: offloaded 33/33 layers to GPU\n"
        b"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 1: "
        b"cudaMalloc failed: out of memory\n"
        b"alloc_tensor_range: failed to allocate CUDA1 buffer of size 4294967296\n"
        b"llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log)))
    code, out, _ = run(capsys, "diagnose", "-", "--json")
    found = json.loads(out)
    assert code == 3
    assert found["schema"] == "kvstudio.diagnosis/1"
    assert (found["stage"], found["device"], found["requested_bytes"]) == ("kv", "CUDA1", 4294967296)
    assert found["key_line"]["number"] == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cpu-kv-128gib", "try: -c 524288: half of 1048576 tokens"),
        ("composed-mmproj-load", "try: --no-mmproj-offload: keeps the projector in host memory"),
        ("composed-draft-kv", "try: no -md: without a draft model"),
        ("composed-musa-not-supported", "Failed [cause unknown]"),
        ("composed-cpu-weights", "Weights: CPU refused 40.0 GiB [host memory]"),
    ],
)
def test_what_to_try_is_written_as_it_is_typed(capsys, name, says):
    _, out, _ = run(capsys, "diagnose", str(LOGS / f"{name}.log"))
    assert says in out


def test_a_run_without_a_failure_has_no_cause(capsys):
    code, out, _ = run(capsys, "diagnose", str(LOGS / "composed-healthy.log"))
    assert (code, out.splitlines()[0]) == (0, "No failure")


def test_a_report_of_a_log_hides_the_home_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    log = tmp_path / "server.log"
    log.write_text(
        "srv load_model: loading model '/home/alice/models/m.gguf'\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 64.00 MiB on device 0: "
        "cudaMalloc failed: out of memory\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    )
    code, out, err = run(capsys, "report", "--log", str(log))
    assert code == 0
    assert "/home/alice" not in out
    assert "allocating 64.00 MiB on device 0" in out
    assert "redacted" in err


def test_a_saved_report_leaves_the_json_on_stdout(capsys, tmp_path):
    path = tmp_path / "report.md"
    code, out, err = run(capsys, "report", "--json", "--log", str(LOGS / "cpu-kv-128gib.log"), "-o", str(path))
    assert (code, json.loads(out)["schema"]) == (0, "kvstudio.report/1")
    assert path.read_text(encoding="utf-8").startswith("###")
    assert f"saved {path}" in err


def test_resuming_without_a_kept_walk_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KVSTUDIO_DATA", str(tmp_path))
    code, out, err = run(capsys, "fix", "--resume", "--yes")
    assert (code, out) == (2, "")
    assert "no unfinished walk" in err


def test_fix_by_budget_alone_launches_nothing_and_ends(capsys):
    words = (
        "--dry-run",
        "--json",
        "--device",
        "CUDA0=64MiB",
        "--",
        "llama-server",
        "-m",
        TINY,
        "-c",
        "65536",
        "-np",
        "1",
        "-ngl",
        "99",
    )
    code, out, _ = run(capsys, "fix", *words)
    found = json.loads(out)
    assert code == 0
    assert (found["outcome"], found["predicted"]) == ("stopped", True), "no launch, no proof"
    assert found["launches"] == 0
    assert found["root_cause"] is None
    assert found["command"] != list(words[words.index("--") + 1 :])
    reasons = {each["variable"]: each["reason"] for each in found["not_offered"]}
    assert "binary" not in reasons, "other builds are not looked for"
    assert not any("tried" in reason for reason in reasons.values())
    for row in found["runs"]:
        assert len(row["change"]) <= 1


def test_a_program_that_does_not_list_its_devices_is_said(capsys, monkeypatch):
    def fails(*_, **__):
        raise LaunchError("it crashed")

    monkeypatch.setattr(inputs, "choose_binary", lambda config: fake_binary())
    monkeypatch.setattr(inputs, "list_devices", fails)
    _, _, err = run(capsys, "budget", "--", "llama-server", "-m", TINY, "-c", "512")
    assert "warning: the program does not list its devices: it crashed" in err


def test_the_same_process_answers_many_times(capsys):
    answers = {
        budget(capsys, *TWO, "--", "llama-server", "-m", TINY, "-c", "2048")[1]["devices"][0]["kv_bytes"]
        for _ in range(5)
    }
    assert len(answers) == 1


def test_a_device_that_is_left_alone_is_listed_and_asked_for_nothing(capsys):
    code, found = budget(capsys, *TWO, "--", "llama-server", "-m", TINY, "-c", "4096", "-sm", "none")
    assert code == 0
    assert [device["name"] for device in found["devices"]] == ["CUDA0", "CUDA1"]
    idle = found["devices"][1]
    assert (idle["need_bytes"], idle["model_bytes"], idle["fits"]) == (0, 0, True)
