"""Runs on disk: kept, read back, damaged, interrupted, compared."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from kvstudio.case.history import RUN_FILE, History, compare
from kvstudio.errors import StoreError
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import Arg, LaunchConfig
from kvstudio.runlog.values import Phase
from kvstudio.verify.values import Check, MemorySample, PrintedBuffer, Run, RunOutcome

BINARY = Binary("/opt/llama-server", "llama-server", "10434", 10434, "7e4c0a9", None, ("Vulkan",), frozenset({"-lv"}))


def make_run(outcome=RunOutcome.VERIFIED, log_path=None, binary=BINARY, **config):
    settings = LaunchConfig(model_path="/models/a.gguf", **config)
    return Run(
        number=0, config=settings, argv=("llama-server", "-m", "a"), env=(), binary=binary, outcome=outcome,
        reached=Phase.REPEAT, phases=((Phase.KV, "done"),), seconds=1.5, started_at=1000.25, exit_code=0, signal=None,
        buffers=(PrintedBuffer("Vulkan0", "Vulkan0", "kv", 4096, 12),), peak=(("Vulkan0", 4096),),
        free_before=(("Vulkan0", 1 << 31),), samples=(MemorySample(0.5, (("Host", 7),)),),
        checks=(Check("context", True, "n_ctx 4096", (3, 4)), Check("repeated", None, "")), diagnosis=None,
        log_path=log_path,
    )  # fmt: skip


def test_a_run_comes_back_as_it_was(tmp_path):
    log = tmp_path / "somewhere.log"
    log.write_bytes(b"line\xff\n")
    history = History(tmp_path / "runs")
    kept = history.add(make_run(log_path=str(log), n_ctx=4096, tensor_split=(3.0, 1.0)), model_name="Gemma")
    (again,) = History(tmp_path / "runs").list().entries
    assert again == kept
    assert again.run.number == 1
    assert again.title == "Gemma"
    log.unlink()
    with open(again.run.log_path, "rb") as file:
        assert file.read() == b"line\xff\n"


def test_a_history_can_be_moved(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("hello")
    History(tmp_path / "runs").add(make_run(log_path=str(log)))
    os.rename(tmp_path / "runs", tmp_path / "moved")
    (entry,) = History(tmp_path / "moved").list().entries
    with open(entry.run.log_path) as file:
        assert file.read() == "hello"


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"schema": "kvstudio.run/99"}', b"\xff\xfe\x00", b'{"schema": "kvstudio.run/1", "run": 5}'],
)
def test_a_damaged_run_is_skipped_with_a_note(tmp_path, damage):
    history = History(tmp_path)
    for n_ctx in (1024, 2048, 4096):
        history.add(make_run(n_ctx=n_ctx))
    (tmp_path / "000002" / RUN_FILE).write_bytes(damage)
    listing = history.list()
    assert [entry.run.config.n_ctx for entry in listing.entries] == [1024, 4096]
    assert len(listing.notes) == 1
    assert "run 2" in listing.notes[0]
    assert history.add(make_run()).number == 4


def test_every_cut_of_the_file_is_noticed(tmp_path):
    history = History(tmp_path)
    history.add(make_run())
    path = tmp_path / "000001" / RUN_FILE
    whole = path.read_bytes()
    for size in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError):
            history.load(1)
    path.write_bytes(whole)
    assert history.load(1).run.outcome is RunOutcome.VERIFIED


def test_values_of_a_wrong_type_are_named(tmp_path):
    history = History(tmp_path)
    history.add(make_run())
    path = tmp_path / "000001" / RUN_FILE
    plain = json.loads(path.read_text())
    plain["run"]["seconds"] = "soon"
    path.write_text(json.dumps(plain))
    with pytest.raises(StoreError, match="seconds"):
        history.load(1)


def test_a_run_of_a_program_that_died_is_noted_with_its_log(tmp_path):
    code = f"""
import os, signal
from kvstudio.case.history import History
from kvstudio.launch.config import LaunchConfig
number, folder = History({str(tmp_path)!r}).begin(LaunchConfig())
(folder / "launch.log").write_text("half a log")
os.kill(os.getpid(), signal.SIGKILL)
"""
    History(tmp_path).add(make_run())
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    listing = History(tmp_path).list()
    assert len(listing.entries) == 1
    assert "run 2 was never finished" in listing.notes[0]
    assert "launch.log" in listing.notes[0]


def test_a_run_that_is_still_going_on_is_no_damage(tmp_path):
    history = History(tmp_path)
    number, folder = history.begin(LaunchConfig())
    assert history.list().notes == ()
    (folder / "own.log").write_text("log")
    kept = history.finish(number, make_run(log_path=str(folder / "own.log")))
    assert kept.run.log_path == str(folder / "own.log")
    assert history.list().entries == (kept,)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="could not be kept"):
        History(tmp_path / "file" / "runs").add(make_run())
    with pytest.raises(StoreError):
        History(tmp_path / "file").list()
    assert History(tmp_path / "missing").list().entries == ()


def test_numbers_go_on_and_old_runs_can_go(tmp_path):
    history = History(tmp_path)
    for _ in range(5):
        history.add(make_run())
    assert history.prune(2) == 3
    assert [entry.number for entry in history.list().entries] == [4, 5]
    history.remove(5)
    assert history.add(make_run()).number == 5


def test_two_runs_side_by_side(tmp_path):
    history = History(tmp_path)
    before = history.add(make_run(RunOutcome.FAILED, n_ctx=65536, layout=(Arg(None, ("--odd", "1")),)))
    after = history.add(replace(make_run(n_ctx=32768), buffers=(PrintedBuffer("Vulkan0", "Vulkan0", "kv", 2048, 9),)))
    both = compare(before, after)
    assert both.changes == (("n_ctx", 65536, 32768), ("--odd 1", True, None))
    assert both.outcomes == (RunOutcome.FAILED, RunOutcome.VERIFIED)
    assert [(r.device, r.kind, r.before_printed, r.after_printed) for r in both.sizes] == [
        ("Vulkan0", "kv", 4096, 2048)
    ]
    assert "n_ctx 65536 -> 32768" in both.says
    assert "failed -> verified" in both.says
    assert not both.regression


def test_same_settings_with_another_binary_that_fails_is_a_regression(tmp_path):
    history = History(tmp_path)
    newer = replace(BINARY, version="11434", build=11434, commit="abcdef0")
    works = history.add(make_run())
    fails = history.add(make_run(RunOutcome.CRASHED, binary=newer))
    both = compare(works, fails)
    assert both.regression
    assert both.changes[0][0] == "binary"
    assert "work with llama-server b10434" in both.says
    typed = history.add(make_run(RunOutcome.CRASHED, binary=newer, program="/opt/new/llama-server"))
    assert compare(works, typed).regression, "the other path is the other binary, not another setting"
    assert [name for name, *_ in compare(works, typed).changes] == ["binary"]
    assert not compare(works, history.add(make_run(RunOutcome.CANCELLED, binary=newer))).regression
    assert not compare(works, history.add(make_run(RunOutcome.CRASHED, binary=newer, n_ctx=1))).regression


def test_two_programs_of_one_name_are_told_apart_by_their_places(tmp_path):
    history = History(tmp_path)
    works = history.add(make_run())
    fails = history.add(make_run(RunOutcome.FAILED, binary=replace(BINARY, path="/other/llama-server")))
    assert compare(works, fails).regression
    assert "/other/llama-server" in compare(works, fails).says


def test_a_file_name_that_is_no_text_comes_back_as_it_was(tmp_path):
    history = History(tmp_path)
    name = os.fsdecode(b"/models/a\xff.gguf")
    run = make_run()
    history.add(replace(run, config=run.config.evolve(model_path=name)))
    assert history.load(1).run.config.model_path == name
