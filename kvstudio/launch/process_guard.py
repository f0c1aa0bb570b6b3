"""The small program between us and a launch: it starts the child and leaves nothing of it behind, whoever dies first.

It runs as its own process, reads one JSON line from standard input (argv, env, cwd, limits), starts the child in a
new session and reports on the status descriptor: `started PID`, `failed ERRNO TEXT`, `ended CODE SIGNAL MAXRSS`.
Later lines on standard input are orders, `term` or `kill`. The end of standard input means that our side is gone, even
by SIGKILL: then everything is killed. Being its own process makes it independent of which thread started it, keeps the
step between fork and exec out of a program with threads, and lets it adopt grandchildren that ran away from their
process group.
Standard library only: it is started by path, without site packages.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

#: First argument with which a frozen program (no Python beside it) is asked to act as the guard.
GUARD_FLAG = "--process-guard"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC: Any = None


def _prctl(option: int, value: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


def _load_libc() -> None:
    global _LIBC
    if sys.platform.startswith("linux"):
        import ctypes

        with contextlib.suppress(OSError):
            _LIBC = ctypes.CDLL(None)


def _limits(address_space: int | None) -> None:
    import resource

    # An aborting server with a model in memory would write a core file as large as the model.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if address_space is not None:
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


def _start(spec: dict[str, Any], status: int) -> subprocess.Popen[bytes] | None:
    guard = os.getpid()

    def before_exec() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(127)
        _limits(spec.get("address_space"))

    try:
        return subprocess.Popen(
            spec["argv"],
            executable=spec["argv"][0],
            env=spec["env"],
            cwd=spec.get("cwd"),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=True,
            preexec_fn=before_exec,  # noqa: PLW1509 - this program has one thread
        )
    except OSError as error:
        _report(status, f"failed {error.errno or 0} {error.strerror or error}")
    except (subprocess.SubprocessError, ValueError) as error:
        _report(status, f"failed 0 {error}")
    return None


def _report(status: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(status, (line.replace("\n", " ") + "\n").encode(errors="replace"))


def _children() -> list[int]:
    """Direct children, adopted ones included; empty where there is no /proc."""
    me = str(os.getpid())
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in brackets may hold spaces and brackets, so count from its end: state, then parent.
                parent = file.read().rpartition(b")")[2].split()[1].decode()
        except (OSError, IndexError):
            continue
        if parent == me:
            found.append(int(name))
    return found


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kill_all(pid: int) -> None:
    _signal_group(pid, signal.SIGKILL)
    for child in _children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)


def _sweep(pid: int, patience_s: float = 5.0) -> None:
    """Kill what the child left running and wait until it is gone: killing one may hand us its children."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        _kill_all(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


class _Orders:
    """Lines from our side; `gone` once it hung up."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.gone = False
        self._rest = b""
        self._waiting: list[str] = []

    def first(self) -> str | None:
        """The first line, however many reads it takes; None when our side hung up before."""
        while not self._waiting and not self.gone:
            self._waiting = self.read()
        return self._waiting.pop(0) if self._waiting else None

    def read(self) -> list[str]:
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        if not data:
            self.gone = True
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def _reap(pid: int) -> tuple[int, int] | None:
    """(wait status, peak resident KiB) once `pid` ended; adopted children are collected on the way."""
    ended = None
    while True:
        try:
            done, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if done == 0:
            return ended
        if done == pid:
            ended = (status, usage.ru_maxrss)


def _watch(pid: int, orders: _Orders, wake: int, parent: int) -> tuple[int, int] | None:
    """Pass orders on until the child ends; None when our side is gone and the child was killed for that."""
    poll = select.poll()
    poll.register(orders.fd, select.POLLIN | select.POLLHUP)
    poll.register(wake, select.POLLIN)
    while True:
        ended = _reap(pid)
        if ended is not None:
            return ended
        ready = {fd for fd, _ in poll.poll(1000)}
        if wake in ready:
            os.read(wake, 4096)
        if orders.fd in ready:
            for order in orders.read():
                if order == "term":
                    _signal_group(pid, signal.SIGTERM)
                elif order == "kill":
                    _kill_all(pid)
        if orders.gone or os.getppid() != parent:
            _kill_all(pid)
            return None


def main(status: int) -> int:
    """Guard one child; `status` is the descriptor for reports."""
    parent = os.getppid()
    _load_libc()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.set_inheritable(status, False)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    orders = _Orders(0)
    spec = orders.first()
    if spec is None:
        return 1
    child = _start(json.loads(spec), status)
    if child is None:
        return 127
    # Only the child may hold the write end of the log, else its end would never be seen.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    signal.signal(signal.SIGTERM, lambda *_: _kill_all(child.pid))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _report(status, f"started {child.pid}")
    ended = _watch(child.pid, orders, wake_read, parent)
    _sweep(child.pid)
    child.returncode = 0  # collected by wait4 above, so Popen must not complain
    if ended is not None:
        code, number = os.waitstatus_to_exitcode(ended[0]), 0
        if code < 0:
            code, number = -1, -code
        _report(status, f"ended {code} {number} {ended[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
