"""A child process on Windows: in a job object that the system ends with us, grandchildren included."""

import contextlib
import os
import subprocess
import sys

from kvstudio.errors import LaunchError
from kvstudio.launch.process_values import ChildExit, ProcessSpec

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _KILL_ON_JOB_CLOSE = 0x2000
    _LIMIT_PROCESS_MEMORY = 0x100
    _EXTENDED_LIMIT_INFORMATION = 9

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

    class _ExtendedLimits(ctypes.Structure):
        _fields_ = [
            ("basic", _BasicLimits),
            ("io_counters", ctypes.c_uint64 * 6),
            ("process_memory_limit", ctypes.c_size_t),
            ("job_memory_limit", ctypes.c_size_t),
            ("peak_process_memory", ctypes.c_size_t),
            ("peak_job_memory", ctypes.c_size_t),
        ]

    def _job(address_space_limit_bytes: int | None) -> int:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = wintypes.HANDLE
        job = kernel.CreateJobObjectW(None, None)
        limits = _ExtendedLimits()
        limits.basic.limit_flags = _KILL_ON_JOB_CLOSE
        if address_space_limit_bytes is not None:
            limits.basic.limit_flags |= _LIMIT_PROCESS_MEMORY
            limits.process_memory_limit = address_space_limit_bytes
        kernel.SetInformationJobObject(
            wintypes.HANDLE(job), _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
        )
        return int(job)

    class WindowsChild:
        """A child in its own job; console children ignore a polite request, so terminate kills at once."""

        def __init__(self, spec: ProcessSpec) -> None:
            self._job = _job(spec.address_space_limit_bytes)
            self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            self.output_fd, write = os.pipe()
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
            try:
                self._process = subprocess.Popen(
                    spec.argv,
                    env=dict(spec.env),
                    cwd=spec.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=write,
                    stderr=subprocess.STDOUT,
                    creationflags=flags,
                )
            except OSError as error:
                os.close(self.output_fd)
                raise LaunchError(f"{spec.argv[0]} could not be started: {error.strerror}") from error
            finally:
                os.close(write)
            handle = wintypes.HANDLE(int(self._process._handle))  # type: ignore[attr-defined]
            self._kernel.AssignProcessToJobObject(wintypes.HANDLE(self._job), handle)
            self.pid = self._process.pid

        def poll(self, timeout_s: float) -> ChildExit | None:
            try:
                return ChildExit(self._process.wait(timeout_s), None)
            except subprocess.TimeoutExpired:
                return None

        def terminate(self) -> None:
            self.kill()

        def kill(self) -> None:
            self._kernel.TerminateJobObject(wintypes.HANDLE(self._job), 1)

        def close(self) -> None:
            with contextlib.suppress(OSError):
                self.kill()
                self._process.wait(10)
            self._kernel.CloseHandle(wintypes.HANDLE(self._job))
