"""A child process under guard, as the runner holds it: started, ordered to end, asked whether it ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Protocol

from kvstudio.errors import LaunchError
from kvstudio.launch import process_guard
from kvstudio.launch.process_values import ChildExit, ProcessSpec

#: How long the guard may take to say that the child runs: a small interpreter has to start first.
START_TIMEOUT_S = 20.0


class Child(Protocol):
    """A started process with its merged output."""

    @property
    def pid(self) -> int: ...

    @property
    def output_fd(self) -> int: ...

    def poll(self, timeout_s: float) -> ChildExit | None:
        """How it ended, waiting up to `timeout_s`; None while it runs."""

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None:
        """Release everything; kills what still runs."""


def start(spec: ProcessSpec) -> Child:
    """Start `spec.argv` under guard; raises LaunchError when the system refuses."""
    if sys.platform == "win32":
        from kvstudio.launch.process_windows import WindowsChild

        return WindowsChild(spec)
    return GuardedChild(spec)


def guard_command(status_fd: int) -> tuple[str, ...]:
    """The command that runs the guard: Python with its file, or a frozen program asked by its flag."""
    if getattr(sys, "frozen", False):
        return (sys.executable, process_guard.GUARD_FLAG, str(status_fd))
    return (sys.executable, "-I", "-S", process_guard.__file__, str(status_fd))


class GuardedChild:
    """A child of the guard process (POSIX); see `process_guard` for what travels over the pipes."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.output_fd, output_write = os.pipe()
        self._status, status_write = os.pipe()
        try:
            self._guard = subprocess.Popen(
                guard_command(status_write),
                stdin=subprocess.PIPE,
                stdout=output_write,
                stderr=output_write,
                pass_fds=(status_write,),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            os.close(self.output_fd)
            os.close(self._status)
            raise LaunchError(
                f"cannot start a process: {error.strerror}", "Close other programs and try again."
            ) from error
        finally:
            os.close(output_write)
            os.close(status_write)
        self._text = b""
        self._closed = False
        try:
            self._send(json.dumps(_as_json(spec)))
            self.pid = self._wait_started(spec)
        except BaseException:
            self.close()
            os.close(self.output_fd)
            raise

    def poll(self, timeout_s: float) -> ChildExit | None:
        line = self._status_line(timeout_s)
        if line is None:
            return None
        words = line.split()
        if words[:1] != ["ended"]:
            # The guard itself was killed. Its child goes with it; what that had started has to be ended here.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            return ChildExit(None, None)
        code, number, rss = (int(word) for word in words[1:4])
        # Linux counts in KiB, macOS in bytes.
        return ChildExit(None if number else code, number or None, rss * (1 if sys.platform == "darwin" else 1024))

    def terminate(self) -> None:
        self._send("term")

    def kill(self) -> None:
        self._send("kill")

    def close(self) -> None:
        """Hang up, which makes the guard kill what is left, and collect the guard."""
        if self._closed:
            return
        self._closed = True
        if self._guard.stdin is not None:
            with contextlib.suppress(OSError):
                self._guard.stdin.close()
        try:
            self._guard.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        os.close(self._status)

    def _send(self, line: str) -> None:
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            with contextlib.suppress(OSError):
                data = memoryview(line.encode() + b"\n")
                while data:
                    data = data[self._guard.stdin.write(data) or 0 :]

    def _wait_started(self, spec: ProcessSpec) -> int:
        line = self._status_line(START_TIMEOUT_S)
        words = (line or "").split(maxsplit=2)
        if words[:1] == ["started"]:
            return int(words[1])
        if words[:1] == ["failed"]:
            number, text = int(words[1]), words[2] if len(words) > 2 else "refused"
            raise LaunchError(f"{spec.argv[0]} could not be started: {text}", _hint(number))
        raise LaunchError(f"{spec.argv[0]} could not be started: its guard process did not answer")

    def _status_line(self, timeout_s: float) -> str | None:
        """The next report of the guard, "" after its end, None when `timeout_s` passed without one."""
        import select

        poll = select.poll()
        poll.register(self._status, select.POLLIN | select.POLLHUP)
        end = time.monotonic() + timeout_s
        while b"\n" not in self._text:
            left = end - time.monotonic()
            if not poll.poll(max(0.0, left) * 1000):
                return None
            data = os.read(self._status, 4096)
            if not data:
                return ""
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        return line.decode(errors="replace")


def _as_json(spec: ProcessSpec) -> dict[str, object]:
    return {
        "argv": list(spec.argv),
        "env": dict(spec.env),
        "cwd": spec.cwd,
        "address_space": spec.address_space_limit_bytes,
    }


def _hint(number: int) -> str:
    import errno

    hints = {
        errno.ENOENT: "The file, or the loader it asks for, does not exist.",
        errno.EACCES: "The file is not executable (chmod +x), or its folder does not allow programs.",
        errno.ENOEXEC: "It is not a program for this machine: another CPU or system, or a cut download.",
        errno.ENOMEM: "The system has no memory left for a new process.",
    }
    return hints.get(number, "")
