"""Every kind of bad input on the terminal: one line that says what is wrong and where, no traceback, no hang."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstudio.cli import main
from tests.header.files import gguf_bytes, pair, tensor, text

DATA = Path(__file__).parent / "data"
TINY = DATA / "headers" / "tiny.gguf"
LOG = DATA / "logs" / "cpu-kv-128gib.log"
GPU = ("--device", "CUDA0=24GiB")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("KVSTUDIO_DATA", str(tmp_path / "kept"))

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def model(path: Path, arch: str = "llama", name: str = "m", **keys: tuple[int, bytes]) -> str:
    """A model of two layers by hand; `keys` replace or add metadata, `__` stands for a dot."""
    metadata = {
        "context_length": (4, (4096).to_bytes(4, "little")),
        "embedding_length": (4, (64).to_bytes(4, "little")),
        "block_count": (4, (2).to_bytes(4, "little")),
        "attention.head_count": (4, (4).to_bytes(4, "little")),
    }
    metadata |= {key.replace("__", "."): value for key, value in keys.items()}
    pairs = [pair("general.architecture", 8, text(arch)), pair("general.name", 8, text(name))]
    pairs += [pair(f"{arch}.{key}", kind, value) for key, (kind, value) in metadata.items()]
    path.write_bytes(gguf_bytes(pairs, [tensor("token_embd.weight", (64, 320))], data=64 * 320 * 4))
    return str(path)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "an empty one"),
        (b"hello, no model", "expected the letters GGUF"),
        (TINY.read_bytes()[:300], "the tensor count is 39 where at most 11 are possible"),
        (b"GGUF" + (1).to_bytes(4, "little") + b"\0" * 16, "version 1"),
        (b"GGUF" + (4).to_bytes(4, "little") + b"\0" * 16, "version 4"),
        (b"GGUF" + (3).to_bytes(4, "big") + b"\0" * 16, "big-endian"),
        (b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 7 + b"\0" + b"\0" * 8, "are possible"),
    ],
)
def test_files_that_are_no_model(cli: Run, tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    code, out, err = cli("budget", *GPU, "--", "llama-server", "-m", str(path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"{path}: at byte " in err
    assert says in err


def test_a_short_file_opens_and_says_so_before_a_launch(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(TINY.read_bytes()[:-20_000])
    code, out, _ = cli("budget", "--json", *GPU, "--", "llama-server", "-m", str(path))
    assert code == 0
    assert any("incomplete download: 369,056 of 389,056 bytes" in note for note in json.loads(out)["notes"])


def test_an_unknown_architecture_is_marked_estimated(cli: Run, tmp_path: Path) -> None:
    path = model(tmp_path / "m.gguf", arch="frobnicator")
    code, out, _ = cli("budget", "--json", *GPU, "--", "llama-server", "-m", path)
    found = json.loads(out)
    assert code == 0
    assert found["model"]["known_architecture"] is False
    assert any("frobnicator is not known" in note for note in found["notes"])
    assert {b["provenance"] for b in found["buffers"] if b["bytes"]} == {"estimated"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ((8, text("two")), "llama.block_count is 'two'"),
        ((5, (-3).to_bytes(4, "little", signed=True)), "llama.block_count is -3"),
        ((4, (4_000_000_000).to_bytes(4, "little")), "llama.block_count is 4000000000"),
        ((7, b"\1"), "llama.block_count is True"),
    ],
)
def test_absurd_metadata_is_named_with_its_value(cli: Run, tmp_path: Path, value: tuple[int, bytes], says: str) -> None:
    code, _, err = cli("budget", *GPU, "--", "llama-server", "-m", model(tmp_path / "m.gguf", block_count=value))
    assert code == 2
    assert says in err


def test_a_number_that_is_none_is_named(cli: Run, tmp_path: Path) -> None:
    path = model(tmp_path / "m.gguf", attention__layer_norm_rms_epsilon=(6, b"\0\0\xc0\x7f"))
    code, out, _ = cli("budget", *GPU, "--", "llama-server", "-m", path)
    assert code == 0
    assert "llama.attention.layer_norm_rms_epsilon is nan, ignored" in out


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (None, "does not exist"),
        ("#!/bin/sh\nkill -SEGV $$\n", "crashed with signal 11"),
        ("#!/bin/sh\nexit 1\n", "failed with exit code 1 and printed nothing"),
        ("#!/bin/sh\necho hello\n", "not llama.cpp's: hello"),
        ("#!/nonexistent/interpreter\n", "needs a loader or interpreter"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="scripts of a shell")
def test_binaries_that_are_none(cli: Run, tmp_path: Path, body: str | None, says: str) -> None:
    program = tmp_path / "llama-server"
    if body is not None:
        program.write_text(body)
        program.chmod(0o755)
    code, _, err = cli("launch", "--", str(program), "-m", str(TINY))
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("diagnose", "nowhere.log"), "nowhere.log could not be read"),
        (("diagnose", str(DATA)), "Is a directory"),
        (("diagnose", str(TINY)), "is a GGUF model, not a log"),
        (("history", "--compare", "3", "7"), "there is no run 3. kvstudio-cli history lists those"),
        (("budget", *GPU, "--", str(TINY)), f"{TINY} is a model, not a program of llama.cpp. Write it like: --"),
        (("report", "--case", str(LOG)), f"{LOG.name}, line 1, column 1: expected JSON, a saved case"),
        (("report", "--log", "a.log", "--case", "b.kvcase"), "--log and --case both say"),
        (("diagnose", "--", "-odd-.log"), "-odd-.log could not be read"),
        (("history", "--show", "x"), "'x' is not the number of a run"),
        (("history", "--show", "-1"), "'-1' is not the number of a run"),
        (("budget", "--device", "CUDA0=24", "--", "llama-server", "-m", str(TINY)), "the unit is missing"),
        (("budget", "--build", "x", "--", "llama-server"), "write it like b11434"),
        (("launch", "--timeout", "abc", "--", "llama-server"), "'abc' is not a number"),
        (("launch", "--repeat", "-1", "--", "llama-server"), "--repeat"),
        (("fix", "--dry-run", *GPU, "--want", "tensor_split=a", "--", "llama-server", "-m", str(TINY)), "'a' are not"),
    ],
)
def test_words_that_make_no_sense(cli: Run, words: tuple[str, ...], says: str) -> None:
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_command_in_quotes_is_still_one(cli: Run) -> None:
    code, out, _ = cli("budget", "--json", *GPU, "--", f"llama-server -m '{TINY}' -c 2048")
    assert code == 0
    assert json.loads(out)["config"]["n_ctx"] == 2048


def test_a_home_folder_in_quotes_is_still_one(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(TINY.read_bytes())
    code, _, err = cli("budget", *GPU, "--", "llama-server -m ~/m.gguf")
    assert (code, err) == (0, "")


def test_settings_llama_cpp_refuses_are_not_called_fitting(cli: Run) -> None:
    _, out, _ = cli("budget", *GPU, "--", "llama-server", "-m", str(TINY), "-ctv", "q4_0", "-fa", "off")
    assert "Will not start" in out
    assert "Fits" not in out


def test_a_failed_save_keeps_the_report_before(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    path.write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = cli("report", "--log", str(LOG), "-o", str(path))
    assert code == 2
    assert "report.md could not be saved: No space left on device" in err
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_device_is_said_and_stays_a_device(cli: Run) -> None:
    code, _, err = cli("report", "--log", str(LOG), "-o", "/dev/full")
    assert code == 2
    assert "No space left on device" in err
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_hostile_name_stays_text(cli: Run, tmp_path: Path) -> None:
    name = "<b>x</b> %s %n {0} $(id) \x1b[31mred\u202e"
    code, out, _ = cli("budget", *GPU, "--", "llama-server", "-m", model(tmp_path / "m.gguf", name=name))
    assert code == 0
    assert "<b>x</b> %s %n {0} $(id)" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
