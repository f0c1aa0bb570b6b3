"""A child on Windows, with the system's calls played by a fake: what is asked of the system, in which order."""

import ctypes
import os
import subprocess
import sys

import pytest

from kvstudio.errors import LaunchError
from kvstudio.launch import environment
from kvstudio.launch.process_values import ProcessSpec
from kvstudio.launch.process_windows import (
    CREATE_NEW_PROCESS_GROUP,
    CREATE_NO_WINDOW,
    CREATE_SUSPENDED,
    KILL_ON_JOB_CLOSE,
    LIMIT_PROCESS_MEMORY,
    ExtendedLimits,
    MemoryCounters,
    WindowsChild,
    refuse_script,
)

SPEC = ProcessSpec(("C:\\llama\\llama-server.exe", "-m", "a b.gguf"), (("PATH", "x"),))
WIDE = 0x7FFF_FFFF_0000_0042


class System:
    """Windows as far as a child needs it: job objects, processes, and a diary of what was asked."""

    def __init__(self, **fails):
        self.diary, self.fails = [], fails
        self.flags = self.memory = None
        self.alive = False

    def CreateJobObjectW(self, attributes, name):
        assert attributes is None and name is None
        self.diary.append("job")
        return 0 if self.fails.get("job") else WIDE

    def SetInformationJobObject(self, job, kind, limits, size):
        assert (job, kind, size) == (WIDE, 9, ctypes.sizeof(ExtendedLimits))
        found = limits._obj
        self.flags, self.memory = found.basic.limit_flags, found.process_memory_limit
        self.diary.append("limits")
        return 0 if self.fails.get("limits") else 1

    def AssignProcessToJobObject(self, job, process):
        assert (job, process) == (WIDE, 77)
        self.diary.append("into the job")
        return 0 if self.fails.get("assign") else 1

    def TerminateJobObject(self, job, code):
        assert (job, code) == (WIDE, 1)
        self.diary.append("kill")
        self.alive = False
        return 1

    def CloseHandle(self, handle):
        assert handle == WIDE
        self.diary.append("close")
        return 1

    def K32GetProcessMemoryInfo(self, process, counters, size):
        assert (process, size) == (77, ctypes.sizeof(MemoryCounters))
        counters._obj.peak_working_set = 3 << 30
        return 1

    def SetDllDirectoryW(self, folder):
        self.diary.append(f"libraries {folder}")
        return 1

    def popen(self, argv, **call):
        if self.fails.get("start"):
            raise OSError(193, "not a valid Win32 application")
        self.call = {"argv": argv, **call}
        self.diary.append("start")
        self.alive = True
        os.write(call["stdout"], b"said\n")
        return Process(self)

    def resume(self, pid):
        assert pid == 4711
        if self.fails.get("resume"):
            raise OSError("gone")
        self.diary.append("run")


class Process:
    pid, _handle = 4711, 77

    def __init__(self, system):
        self.system = system

    def wait(self, timeout):
        if self.system.alive or self.system.fails.get("undead"):
            raise subprocess.TimeoutExpired("llama-server", timeout)
        return 0xC0000005

    def kill(self):
        self.system.diary.append("kill the one")
        self.system.alive = False


def start(system, spec=SPEC):
    return WindowsChild(spec, system, system.popen, system.resume)


def test_it_is_in_the_job_before_it_runs_and_the_job_goes_with_us():
    system = System()
    child = start(system)
    assert system.diary == ["job", "limits", "start", "into the job", "run"]
    assert system.flags == KILL_ON_JOB_CLOSE
    assert system.call["creationflags"] == CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW
    assert system.call["argv"] == SPEC.argv
    assert system.call["env"] == {"PATH": "x"}
    assert "shell" not in system.call
    assert child.pid == 4711
    assert child.poll(0.1) is None
    child.close()
    os.close(child.output_fd)


def test_a_memory_limit_is_a_limit_of_the_job():
    system = System()
    child = start(system, ProcessSpec(SPEC.argv, (), None, 5 << 30))
    assert system.flags == KILL_ON_JOB_CLOSE | LIMIT_PROCESS_MEMORY
    assert system.memory == 5 << 30
    child.close()
    os.close(child.output_fd)


def test_its_end_has_the_code_as_windows_gives_it_and_the_peak():
    system = System()
    child = start(system)
    child.terminate()
    end = child.poll(0.1)
    assert (end.exit_code, end.signal, end.peak_rss_bytes) == (0xC0000005, None, 3 << 30)
    child.close()
    child.close()
    assert system.diary[5:] == ["kill", "kill", "close"]
    assert os.read(child.output_fd, 100) == b"said\n"
    assert os.read(child.output_fd, 100) == b"", "nobody holds the other end any more"
    os.close(child.output_fd)


def test_one_that_does_not_go_is_given_up():
    system = System(undead=True)
    child = start(system)
    child.close()
    assert system.diary[-1] == "close"
    os.close(child.output_fd)


@pytest.mark.parametrize(
    ("fails", "says", "diary"),
    [
        ("job", "no job object", ["job"]),
        ("limits", "no limits", ["job", "limits", "close"]),
        ("start", "not a valid Win32 application", ["job", "limits", "close"]),
        ("assign", "under guard", ["job", "limits", "start", "into the job", "kill the one", "close"]),
        ("resume", "gone", ["job", "limits", "start", "into the job", "kill the one", "close"]),
    ],
)
def test_what_cannot_be_guarded_does_not_run_and_leaves_nothing(fails, says, diary):
    system, before = System(**{fails: True}), open_files()
    with pytest.raises(LaunchError, match=says):
        start(system)
    assert system.diary == diary
    assert open_files() == before


def open_files():
    return sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []


@pytest.mark.parametrize("path", ["C:\\x\\llama-server.bat", "run.CMD", "run.cmd. "])
def test_a_batch_file_is_never_started(path):
    system = System()
    with pytest.raises(LaunchError, match="batch file"):
        start(system, ProcessSpec((path,)))
    assert system.diary == []
    refuse_script("C:\\x.bat\\llama-server.exe")


def test_a_bundle_takes_its_libraries_out_of_the_way_while_a_child_starts(monkeypatch):
    monkeypatch.setattr(sys, "_MEIPASS", "C:\\kvstudio", raising=False)
    system = System()
    child = start(system)
    assert system.diary[2:5] == ["libraries None", "start", "libraries C:\\kvstudio"]
    child.close()
    os.close(child.output_fd)


def test_elsewhere_there_are_no_libraries_to_take_out_of_the_way(monkeypatch):
    monkeypatch.setattr(sys, "_MEIPASS", "/opt/kvstudio", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(environment, "windows_kernel", lambda: pytest.fail("asked Windows"))
    with environment.outside_bundle():
        pass
