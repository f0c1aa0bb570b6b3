"""The runner against a fake server and against programs that misbehave."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from kvstudio.launch import process_child, process_guard
from kvstudio.launch.process_log import KeptLog
from kvstudio.launch.process_values import EndKind, ProcessSpec
from kvstudio.launch.runner import Runner

FAKE = str(Path(__file__).parents[1] / "fakes" / "fake_llama.py")


def spec(*args, limit=None, **env):
    full = {"PATH": os.environ["PATH"]} | {f"FAKE_LLAMA_{k.upper()}": str(v) for k, v in env.items()}
    return ProcessSpec((FAKE, *args), tuple(full.items()), None, limit)


def python(code, limit=None):
    return ProcessSpec((sys.executable, "-S", "-c", code), (), None, limit)


def run(what, timeout=20.0, **options):
    ends, chunks = [], []
    runner = Runner(what, on_bytes=chunks.append, on_end=ends.append, **options)
    runner.start()
    end = runner.wait(timeout)
    assert end is not None, "no end came"
    assert ends == [end]
    return end, b"".join(chunks)


def wait_for(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("condition never came")


def gone(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def test_output_and_exit_code_come_back(tmp_path):
    end, output = run(python("import sys,os; os.write(1,b'one\\n'); os.write(2,b'two\\n'); sys.exit(7)"),
                      log_path=tmp_path / "run.log")  # fmt: skip
    assert (end.kind, end.exit_code, end.signal) == (EndKind.EXITED, 7, None)
    assert output == b"one\ntwo\n"
    assert (tmp_path / "run.log").read_bytes() == output
    assert end.log_bytes == len(output)
    assert end.peak_rss_bytes > 1 << 20


def test_a_signal_from_elsewhere_is_told():
    end, _ = run(spec(signal=int(signal.SIGABRT)))
    assert (end.kind, end.exit_code, end.signal) == (EndKind.SIGNALLED, None, signal.SIGABRT)


def half_a_program(folder):
    path = folder / "cut"
    path.write_bytes(b"\x7fELF not really")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p / "missing", "No such file"),
        (lambda p: p, "ermission"),
        (half_a_program, "format"),
    ],
)
def test_what_cannot_be_started_is_an_end_not_an_exception(tmp_path, make, says):
    end, _ = run(ProcessSpec((str(make(tmp_path)),)))
    assert end.kind is EndKind.COULD_NOT_START
    assert says in end.message
    assert end.hint


def test_cancel_ends_it_politely():
    cancel = threading.Event()
    runner = Runner(spec(), cancel=cancel)
    runner.start()
    runner.wait_started(10)
    time.sleep(0.3)
    cancel.set()
    end = runner.wait(10)
    assert (end.kind, end.forced) == (EndKind.CANCELLED, False)
    assert gone(runner.pid)


def test_one_that_ignores_sigterm_is_killed_after_the_grace_time():
    chunks = []
    runner = Runner(spec(ignore_term=1), on_bytes=chunks.append, grace_s=0.3)
    runner.start()
    wait_for(lambda: b"listening" in b"".join(chunks))
    runner.stop()
    end = runner.wait(10)
    assert (end.kind, end.signal, end.forced) == (EndKind.STOPPED, signal.SIGKILL, True)


def test_a_cancel_before_the_start_starts_nothing():
    cancel = threading.Event()
    cancel.set()
    runner = Runner(spec(), cancel=cancel)
    runner.start()
    assert runner.wait(10).kind is EndKind.CANCELLED
    assert runner.pid is None


def test_phase_and_total_timeouts():
    runner = Runner(spec(hang=2))
    runner.limit_phase("loading the weights", 0.4)
    runner.start()
    end = runner.wait(10)
    assert end.kind is EndKind.TIMED_OUT
    assert "loading the weights took longer than 0.4 s" in end.message
    end, _ = run(spec(hang=2), timeout_s=0.4)
    assert end.kind is EndKind.TIMED_OUT
    assert "in all" in end.message


@pytest.mark.parametrize("how", ["stop", "exits"])
def test_grandchildren_die_too_even_those_that_left_the_session(tmp_path, how):
    pids = tmp_path / "pids"
    env = {"grandchild": pids} | ({"exit": 0, "line_delay": 0.01} if how == "exits" else {})
    runner = Runner(spec(**env))
    runner.start()
    wait_for(pids.exists)
    near, far = (int(word) for word in pids.read_text().split())
    if how == "stop":
        runner.stop()
    assert runner.wait(15) is not None
    assert gone(near)
    assert gone(far)


def test_nothing_survives_when_we_are_killed(tmp_path):
    pids = tmp_path / "pids"
    what = spec(ignore_term=1, grandchild=pids)
    code = f"""
from kvstudio.launch.process_values import ProcessSpec
from kvstudio.launch.runner import Runner
runner = Runner(ProcessSpec({what.argv!r}, {what.env!r}))
runner.start()
runner.wait_started()
print(runner.pid, flush=True)
runner.wait()
"""
    ours = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with ours:
        child = int(ours.stdout.readline())
        wait_for(pids.exists)
        near, far = (int(word) for word in pids.read_text().split())
        guard = psutil.Process(child).ppid()
        assert not gone(child)
        ours.kill()
    for pid in (child, near, far, guard):
        wait_for(lambda pid=pid: gone(pid))


def test_when_the_guard_is_killed_the_child_goes_and_an_end_comes(tmp_path):
    runner = Runner(spec(grandchild=tmp_path / "pids"))
    runner.start()
    runner.wait_started(10)
    wait_for((tmp_path / "pids").exists)
    near, far = (int(word) for word in (tmp_path / "pids").read_text().split())
    psutil.Process(psutil.Process(runner.pid).ppid()).kill()
    end = runner.wait(10)
    assert (end.kind, end.exit_code, end.signal) == (EndKind.SIGNALLED, None, None)
    wait_for(lambda: gone(runner.pid))
    wait_for(lambda: gone(near))
    os.kill(far, signal.SIGKILL)  # it left the session and nobody is there to find it any more


def test_a_flood_of_output_stays_in_order_and_complete(tmp_path):
    size = 30_000_000
    seen = 0

    def count(chunk):
        nonlocal seen
        seen += len(chunk)

    runner = Runner(spec(flood=size, exit=0), log_path=tmp_path / "log", on_bytes=count)
    runner.start()
    end = runner.wait(30)
    assert end.exit_code == 0
    assert seen == end.log_bytes == (tmp_path / "log").stat().st_size >= size


def test_the_log_is_bounded_and_keeps_both_ends(tmp_path):
    log = KeptLog(tmp_path / "log", max_bytes=100, tail_bytes=50)
    for i in range(100):
        log.write(f"line {i:04d}\n".encode())
    log.close()
    text = (tmp_path / "log").read_text()
    assert text.startswith("line 0000\n")
    assert text.endswith("line 0099\n")
    assert "bytes left out here" in text
    assert len(text) < 300
    assert "left out" in log.message


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_a_full_disk_is_said_and_does_not_stop_the_launch():
    end, output = run(python("print('x' * 100)"), log_path="/dev/full")
    assert end.exit_code == 0
    assert len(output) == 101
    assert "No space left" in end.message


def test_an_exception_of_a_callback_ends_the_launch_and_is_raised():
    def fail(_):
        raise ValueError("mine")

    runner = Runner(spec(), on_bytes=fail)
    runner.start()
    with pytest.raises(ValueError, match="mine"):
        runner.wait(10)
    assert runner.end.kind is EndKind.CANCELLED
    assert gone(runner.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is not kept everywhere")
def test_the_address_space_limit_makes_allocations_fail():
    code = "b = bytearray(1 << 30)"
    assert run(python(code))[0].exit_code == 0
    end, output = run(python(code, limit=512 << 20))
    assert end.exit_code == 1
    assert b"MemoryError" in output


def test_arguments_reach_the_program_unchanged():
    words = ("a b", "$HOME", "`id`", "'\"", "ünï", "")
    code = "import sys; sys.stdout.buffer.write('|'.join(sys.argv[1:]).encode('utf8', 'surrogateescape'))"
    end, output = run(ProcessSpec((sys.executable, "-c", code, *words), (("LC_ALL", "C.UTF-8"),)))
    assert end.exit_code == 0
    assert output.decode() == "|".join(words)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has job objects instead")
@pytest.mark.parametrize("entry", ["entry_cli.py", "entry_window.py"])
def test_a_frozen_program_is_its_own_guard(entry, monkeypatch):
    """The entry of a bundle stands in for the bundle: same first argument, same descriptors."""
    path = Path(__file__).parents[2] / "packaging" / entry
    monkeypatch.setattr(process_child.sys, "frozen", True, raising=False)
    command = process_child.guard_command(7)
    assert command == (sys.executable, process_guard.GUARD_FLAG, "7")
    monkeypatch.setattr(process_child, "guard_command", lambda fd: (sys.executable, str(path), *command[1:2], str(fd)))
    end, output = run(python("print('guarded')"))
    assert (end.kind, end.exit_code) == (EndKind.EXITED, 0)
    assert output == b"guarded\n"


def test_no_thread_and_no_descriptor_is_left():
    run(python("pass"))
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for _ in range(5):
        run(python("pass"))
        run(ProcessSpec(("/nonexistent",)))
    assert threading.active_count() == threads
    if files:
        assert len(os.listdir("/proc/self/fd")) == files
