"""launch, check and history against the fake server: JSON, exit codes, messages, progress on a terminal only."""

import io
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from kvstudio.cli import main
from kvstudio.cli.main import COMMANDS
from kvstudio.cli.output import Progress
from kvstudio.oracle.values import OracleResult, OracleRow
from kvstudio.units import MIB
from tests.fakes.launches import FAKE

LOGS = Path(__file__).parent.parent / "data" / "logs"
TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")


@pytest.fixture(autouse=True)
def server(tmp_path, monkeypatch):
    """The fake under its proper name; the program's name decides what it is."""
    monkeypatch.setenv("KVSTUDIO_DATA", str(tmp_path / "kept"))
    path = tmp_path / "bin" / "llama-server"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(0o755)
    return str(path)


def run(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def launch(capsys, server, *words, json_out=True, options=("--repeat", "1", "--timeout", "30")):
    flags = ("--json",) if json_out else ()
    return run(capsys, "launch", *flags, *options, "--", server, "-m", TINY, "-c", "4096", "-np", "1", *words)


def test_a_verified_launch_is_json_of_the_agreed_shape_and_exit_0(capsys, server):
    code, out, err = launch(capsys, server)
    found = json.loads(out)
    assert (code, found["outcome"]) == (0, "verified"), err
    agreed = {"schema", "outcome", "reached", "seconds", "binary", "buffers", "peak", "checks", "diagnosis", "log"}
    assert agreed <= found.keys()
    assert found["schema"] == "kvstudio.launch/1"
    assert found["reached"] == "repeat"
    assert [check["check"] for check in found["checks"]] == [
        "binary", "buffers", "context", "placement", "generation", "repeated",
    ]  # fmt: skip
    assert {"name": "Vulkan0", "device": "Vulkan0", "kind": "kv"}.items() <= next(
        b for b in found["buffers"] if b["kind"] == "kv"
    ).items()
    assert os.path.isfile(found["log"])
    assert "\r" not in err  # progress is for a terminal


@pytest.mark.parametrize(
    ("env", "options", "outcome"),
    [
        ({"EXIT": "1"}, (), "failed"),
        ({"SIGNAL": "11"}, (), "crashed"),
        ({"SIGNAL": "9"}, (), "killed"),
        ({"HANG": "3"}, ("--timeout", "1"), "timed_out"),
        ({"BROKEN": "error"}, (), "started"),
    ],
)
def test_each_end_is_told_and_exits_3(capsys, server, monkeypatch, env, options, outcome):
    for name, value in env.items():
        monkeypatch.setenv(f"FAKE_LLAMA_{name}", value)
    code, out, _ = launch(capsys, server, options=("--repeat", "1", "--timeout", "30", *options))
    assert (code, json.loads(out)["outcome"]) == (3, outcome)


def test_the_example_of_each_help_works_as_printed(capsys, server, tmp_path, monkeypatch):
    """In a folder with the files it names, llama-server on PATH, and two launches kept."""
    monkeypatch.setenv("PATH", f"{Path(server).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    for name in ("Qwen3-32B-Q4_K_M.gguf", "gemma-3-270m.gguf"):
        shutil.copy(TINY, name)
    shutil.copy(LOGS / "cpu-kv-128gib.log", "server.log")
    wanted = {"diagnose": 3}  # the log is of a failure
    for command in ("launch", "launch", *COMMANDS):
        words = shlex.split(COMMANDS[command][1].partition(" > ")[0])
        code, out, err = run(capsys, *words[1:])
        assert (words[0], code) == ("kvstudio-cli", wanted.get(command, 0)), (command, out, err)
        assert "warning" not in err, (command, err)
    assert Path("report.md").is_file()


def test_a_program_whose_library_is_missing_is_one_clear_line(capsys, server):
    Path(server).write_text(
        "#!/bin/sh\necho 'error while loading shared libraries: libx.so.1: no file' >&2; exit 127\n"
    )
    code, out, err = launch(capsys, server)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert "libx.so.1" in err


def test_words_for_a_person_name_outcome_checks_and_log(capsys, server):
    code, out, _ = launch(capsys, server, json_out=False)
    assert code == 0
    assert out.startswith("verified after")
    assert "ok  generation" in out
    assert "log: " in out


@pytest.mark.parametrize(
    ("env", "options", "says"),
    [
        ({}, (), "Started, answered 2 of 2 requests and stopped cleanly."),
        ({"EXIT": "1"}, (), "Ended with exit code 1."),
        ({"HANG": "3"}, ("--timeout", "1"), "Timed out: the launch took longer than 1 s"),
    ],
)
def test_the_second_line_says_how_it_ended(capsys, server, monkeypatch, env, options, says):
    for name, value in env.items():
        monkeypatch.setenv(f"FAKE_LLAMA_{name}", value)
    _, out, _ = launch(capsys, server, json_out=False, options=("--repeat", "1", "--timeout", "30", *options))
    assert out.splitlines()[1].startswith(says)
    assert "run the same command again" not in out or "EXIT" in env


def test_an_unknown_option_is_told_once(capsys, server):
    _, _, err = launch(capsys, server, "--zzzz")
    assert err.count("--zzzz") == 1


def test_settings_the_program_does_not_know_are_said_before(capsys, server):
    _, _, err = launch(capsys, server, "--swa-full")
    assert "warning: --swa-full: llama-server b10434 has no such option; it is passed as typed" in err


def test_runs_are_listed_shown_and_compared(capsys, server, monkeypatch):
    launch(capsys, server)
    monkeypatch.setenv("FAKE_LLAMA_EXIT", "1")
    launch(capsys, server, "-ctk", "q8_0")
    code, out, _ = run(capsys, "history", "--json")
    listed = json.loads(out)
    assert (code, listed["schema"]) == (0, "kvstudio.history/1")
    assert [(r["number"], r["outcome"]) for r in listed["runs"]] == [(1, "verified"), (2, "failed")]
    compared = json.loads(run(capsys, "history", "--json", "--compare", "1", "2")[1])
    assert compared["changes"] == [{"setting": "cache_type_k", "before": None, "after": "q8_0"}]
    assert compared["regression"] is False
    assert json.loads(run(capsys, "history", "--json", "--show", "1")[1])["outcome"] == "verified"
    assert "verified after" in run(capsys, "history", "--show", "1")[1]
    assert "cache_type_k not set -> q8_0" in run(capsys, "history", "--compare", "1", "2")[1]


def test_check_measures_beside_the_estimate(capsys, server):
    code, out, _ = run(capsys, "check", "--json", "--", server, "-m", TINY, "-c", "4096", "-np", "1")
    found = json.loads(out)
    assert (code, found["schema"]) == (0, "kvstudio.check/1")
    assert {"device", "kind", "estimated", "measured", "difference"} <= found["rows"][0].keys()
    assert json.loads(run(capsys, "check", "--json", "--", server, "-m", TINY, "-c", "4096", "-np", "1")[1])["cached"]


@pytest.mark.parametrize(("estimated", "says"), [(1.5, "agrees"), (60.0, "explained")])
def test_figures_apart_for_a_known_reason_are_not_said_to_agree(capsys, monkeypatch, server, estimated, says):
    row = OracleRow("Host", "model", 1 * MIB, 2**40, round(estimated * MIB), "the dry run does not map the file")
    monkeypatch.setattr("kvstudio.cli.check.check", lambda *_, **__: OracleResult("x", (), (row,), "It agrees."))
    _, out, _ = run(capsys, "check", "--", server, "-m", TINY)
    assert f"{says}  the dry run" in out


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_rewritten_in_place_and_wiped(capsys):
    terminal = _Terminal()
    progress = Progress(terminal)
    progress.show("loading weights")
    progress.show("KV")
    progress.clear()
    assert terminal.getvalue().endswith("\r")
    assert terminal.getvalue().startswith("\rloading weights")
    pipe = io.StringIO()
    Progress(pipe).show("x")
    assert pipe.getvalue() == ""


def test_a_launch_shows_its_steps_on_a_terminal(capsys, server, monkeypatch):
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("FAKE_LLAMA_LINE_DELAY", "0.02")
    assert main(["launch", "--json", "--repeat", "1", "--", server, "-m", TINY, "-c", "4096", "-np", "1"]) in (0, 3)
    said = terminal.getvalue()
    assert "\r" in said
    assert "loading weights" in said
    assert said.rstrip(" ").endswith("\r")


def test_the_build_of_a_program_named_by_its_path_decides_for_typed_devices_too(server, capsys):
    def build_of(program, *options):
        code, out, _ = run(capsys, "budget", "--json", *options, "--", program, "-m", TINY)
        assert code == 0
        return json.loads(out)["config"]["build"]

    assert build_of(server, "--cpu-only") == build_of(server, "--device", "CUDA0=24GiB") == 10434
    assert build_of(server, "--cpu-only", "--build", "b11434") == 11434
    assert build_of("/not/here/llama-server", "--cpu-only") == build_of("llama-server", "--cpu-only") == 11434
