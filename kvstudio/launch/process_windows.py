"""A child process on Windows: in a job object that the system ends with us, grandchildren included.

Nothing here needs Windows to be imported: the system's calls come in as `kernel`, so that every path can be tried.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Callable
from ctypes import wintypes
from typing import Any

from kvstudio.errors import LaunchError
from kvstudio.launch.environment import outside_bundle, windows_kernel
from kvstudio.launch.process_values import ChildExit, ProcessSpec

#: Flags of CreateProcess. Source: Microsoft's "Process Creation Flags".
CREATE_SUSPENDED, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW = 0x4, 0x200, 0x08000000
#: Source: Microsoft's JOBOBJECT_BASIC_LIMIT_INFORMATION and JOBOBJECTINFOCLASS.
KILL_ON_JOB_CLOSE, LIMIT_PROCESS_MEMORY, EXTENDED_LIMIT_INFORMATION = 0x2000, 0x100, 9
_SCRIPTS = (".bat", ".cmd")
#: How long a killed process may take to be gone.
_GONE_S = 10.0


class _BasicLimits(ctypes.Structure):
    _fields_ = [
        ("per_process_user_time", ctypes.c_int64),
        ("per_job_user_time", ctypes.c_int64),
        ("limit_flags", wintypes.DWORD),
        ("minimum_working_set", ctypes.c_size_t),
        ("maximum_working_set", ctypes.c_size_t),
        ("active_process_limit", wintypes.DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority_class", wintypes.DWORD),
        ("scheduling_class", wintypes.DWORD),
    ]


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = [
        ("basic", _BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory_limit", ctypes.c_size_t),
        ("job_memory_limit", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    ]


class MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = [
        ("size", wintypes.DWORD),
        ("page_faults", wintypes.DWORD),
        ("peak_working_set", ctypes.c_size_t),
        ("working_set", ctypes.c_size_t),
        ("quota", ctypes.c_size_t * 4),
        ("pagefile", ctypes.c_size_t),
        ("peak_pagefile", ctypes.c_size_t),
    ]


class Job:
    """A job object that kills what is in it when its last handle is closed, which the system does when we die."""

    def __init__(self, kernel: Any, address_space_limit_bytes: int | None) -> None:
        self._kernel = kernel
        # Made with no attributes, so that no child inherits the handle and keeps the job alive after us.
        self._handle: Any = kernel.CreateJobObjectW(None, None)
        if not self._handle:
            raise LaunchError("Windows made no job object for the process, so it was not started.", "Try again.")
        limits = ExtendedLimits()
        limits.basic.limit_flags = KILL_ON_JOB_CLOSE
        if address_space_limit_bytes is not None:
            limits.basic.limit_flags |= LIMIT_PROCESS_MEMORY
            limits.process_memory_limit = address_space_limit_bytes
        size = ctypes.sizeof(limits)
        if not kernel.SetInformationJobObject(self._handle, EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), size):
            self.close()
            raise LaunchError("Windows set no limits for the process, so it was not started.", "Try again.")

    def add(self, process_handle: int) -> bool:
        """Put a process in; what it starts from then on is in it too."""
        return bool(self._kernel.AssignProcessToJobObject(self._handle, process_handle))

    def kill(self) -> None:
        self._kernel.TerminateJobObject(self._handle, 1)

    def close(self) -> None:
        if self._handle:
            self._kernel.CloseHandle(self._handle)
            self._handle = None


def kernel32() -> Any:
    """The system's own calls, with the types of what goes in and out: a handle is as wide as a pointer."""
    kernel = windows_kernel()
    handle, dword, pointer = wintypes.HANDLE, wintypes.DWORD, ctypes.c_void_p
    for name, result, takes in (
        ("CreateJobObjectW", handle, (pointer, wintypes.LPCWSTR)),
        ("SetInformationJobObject", wintypes.BOOL, (handle, ctypes.c_int, pointer, dword)),
        ("AssignProcessToJobObject", wintypes.BOOL, (handle, handle)),
        ("TerminateJobObject", wintypes.BOOL, (handle, wintypes.UINT)),
        ("CloseHandle", wintypes.BOOL, (handle,)),
        ("K32GetProcessMemoryInfo", wintypes.BOOL, (handle, pointer, dword)),
    ):
        call = getattr(kernel, name)
        call.restype, call.argtypes = result, takes
    return kernel


def resume(pid: int) -> None:
    """Let a process run that was started suspended."""
    import psutil

    psutil.Process(pid).resume()


class WindowsChild:
    """A child in its own job; console children ignore a polite request, so terminate kills at once."""

    def __init__(
        self,
        spec: ProcessSpec,
        kernel: Any = None,
        popen: Callable[..., Any] = subprocess.Popen,
        let_run: Callable[[int], None] = resume,
    ) -> None:
        refuse_script(spec.argv[0])
        self._kernel = kernel if kernel is not None else kernel32()
        self._job = Job(self._kernel, spec.address_space_limit_bytes)
        self._closed = False
        self.output_fd, write = os.pipe()
        try:
            self._process = self._start(spec, write, popen)
            self.pid: int = self._process.pid
            self._enter(spec, let_run)
        except BaseException:
            self._job.close()
            os.close(self.output_fd)
            raise
        finally:
            os.close(write)

    def _start(self, spec: ProcessSpec, write: int, popen: Callable[..., Any]) -> Any:
        # Suspended, so that it can start nothing of its own before it is in the job.
        flags = CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW
        try:
            with outside_bundle(self._kernel):
                return popen(
                    spec.argv,
                    env=dict(spec.env),
                    cwd=spec.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=write,
                    stderr=subprocess.STDOUT,
                    creationflags=flags,
                )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise LaunchError(f"{spec.argv[0]} could not be started: {why}", "Choose another program.") from error

    def _enter(self, spec: ProcessSpec, let_run: Callable[[int], None]) -> None:
        """Into the job, then on its way; one that cannot be guarded does not run."""
        try:
            if not self._job.add(self._handle):
                raise LaunchError(f"{spec.argv[0]} could not be put under guard, so it was not started.")
            let_run(self.pid)
        except Exception as error:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GONE_S)
            if isinstance(error, LaunchError):
                raise
            raise LaunchError(f"{spec.argv[0]} could not be started: {error}") from error

    @property
    def _handle(self) -> int:
        return int(self._process._handle)

    def poll(self, timeout_s: float) -> ChildExit | None:
        try:
            return ChildExit(self._process.wait(timeout_s), None, self._peak())
        except subprocess.TimeoutExpired:
            return None

    def _peak(self) -> int | None:
        """The most memory it held; the system still knows while we hold the handle."""
        counters = MemoryCounters()
        counters.size = ctypes.sizeof(counters)
        known = self._kernel.K32GetProcessMemoryInfo(self._handle, ctypes.byref(counters), counters.size)
        return int(counters.peak_working_set) if known else None

    def terminate(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._job.kill()

    def close(self) -> None:
        """Kill what is left, grandchildren too; then nobody holds the other end of the output."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.wait(_GONE_S)
        self._job.close()


def refuse_script(path: str) -> None:
    """Windows hands a batch file to cmd.exe, which reads the arguments as a shell does: never started.

    Raises: LaunchError for one.
    """
    # Blanks and dots at the end of a name are dropped by Windows before it looks at the kind of file.
    if path.rstrip(" .").lower().endswith(_SCRIPTS):
        raise LaunchError(f"{path} is a batch file.", "Choose the program it starts, such as llama-server.exe.")
