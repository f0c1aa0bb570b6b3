"""One process, watched: bytes of its output as they come, orders to it, and exactly one end, whatever happens."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kvstudio.errors import LaunchError
from kvstudio.launch import process_child
from kvstudio.launch.process_child import Child
from kvstudio.launch.process_log import MAX_BYTES, KeptLog
from kvstudio.launch.process_values import ChildExit, EndKind, ProcessEnd, ProcessSpec

#: Between asking to end and killing.
GRACE_S = 3.0
#: How long a killed process may take to go; a driver can hold it in the kernel.
KILL_PATIENCE_S = 10.0
#: How often orders, clocks and the cancel event are looked at.
TICK_S = 0.05
CHUNK_BYTES = 65536
#: A program that logs line by line is read in gulps: waking for each line costs more than understanding it. One that
#: says more than this at once is in a hurry and is not kept waiting.
GULP_S = 0.02
_LITTLE_BYTES = 8192


class Runner:
    """Runs one process once.

    `on_bytes` gets every chunk of the merged stdout and stderr, in order, on the reader thread; a slow one slows
    the process down instead of filling memory. `on_end` gets the one ProcessEnd, after the last chunk, on the keeper
    thread.
    `cancel` may be set by anybody at any time. Usable as a context manager: leaving it cancels and waits.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        log_path: str | Path | None = None,
        on_bytes: Callable[[bytes], None] | None = None,
        on_end: Callable[[ProcessEnd], None] | None = None,
        cancel: threading.Event | None = None,
        timeout_s: float | None = None,
        grace_s: float = GRACE_S,
        max_log_bytes: int = MAX_BYTES,
    ) -> None:
        self._spec = spec
        self._on_bytes = on_bytes
        self._on_end = on_end
        self._cancel = cancel or threading.Event()
        self._grace_s = grace_s
        self._log_path = log_path
        self._max_log_bytes = max_log_bytes
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._phase_limit: tuple[str, float, float] | None = None
        self._stop_asked = False
        self._abandoned = False
        self._started = threading.Event()
        self._ended = threading.Event()
        self._end: ProcessEnd | None = None
        self._pid: int | None = None
        self._start_time = 0.0
        self._draining = threading.Event()
        self._callback_error: Exception | None = None
        self._keeper = threading.Thread(target=self._keep, name="kvstudio-runner", daemon=True)

    def start(self) -> None:
        """Start it; returns at once. That it could not be started is told by the end, like everything else."""
        self._start_time = time.monotonic()
        self._keeper.start()

    def __enter__(self) -> "Runner":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned = True
        self._ended.wait()
        self._keeper.join()

    @property
    def pid(self) -> int | None:
        """The process's id, None before it runs."""
        return self._pid

    @property
    def end(self) -> ProcessEnd | None:
        return self._end

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start_time

    def wait_started(self, timeout_s: float | None = None) -> bool:
        """True once the process runs or could not be started."""
        return self._started.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> ProcessEnd | None:
        """The end, None when `timeout_s` passed before. An exception of `on_bytes` is raised here, once it is over."""
        if not self._ended.wait(timeout_s):
            return None
        if self._keeper is not threading.current_thread():
            self._keeper.join()
        error, self._callback_error = self._callback_error, None
        if error is not None:
            raise error
        return self._end

    def stop(self) -> None:
        """Ask it to end in good order; after the grace time it is killed. Returns at once."""
        self._stop_asked = True

    def limit_phase(self, name: str, timeout_s: float | None) -> None:
        """A new phase begins: its own clock starts now, the one before is forgotten. None lifts the limit."""
        with self._lock:
            self._phase_limit = None if timeout_s is None else (name, time.monotonic() + timeout_s, timeout_s)

    def _keep(self) -> None:
        # This thread owns the child from birth to death: nothing else may signal or collect it.
        log = KeptLog(self._log_path, self._max_log_bytes)
        try:
            end = self._run(log)
        except LaunchError as error:
            end = ProcessEnd(EndKind.COULD_NOT_START, None, None, self.seconds, message=error.message, hint=error.hint)
        except Exception as error:  # exactly one end, whatever happens: the waiting side must never hang
            end = ProcessEnd(EndKind.COULD_NOT_START, None, None, self.seconds, message=f"internal error: {error!r}")
        log.close()
        self._finish(end, log)

    def _finish(self, end: ProcessEnd, log: KeptLog) -> None:
        message = "; ".join(part for part in (end.message, log.message) if part)
        self._end = ProcessEnd(
            end.kind, end.exit_code, end.signal, end.seconds, end.peak_rss_bytes, end.forced, message, end.hint,
            log.bytes_written,
        )  # fmt: skip
        self._started.set()
        try:
            if self._on_end is not None:
                self._on_end(self._end)
        except Exception as error:
            self._callback_error = self._callback_error or error
        finally:
            self._ended.set()

    def _run(self, log: KeptLog) -> ProcessEnd:
        if self._cancel.is_set():
            return ProcessEnd(EndKind.CANCELLED, None, None, self.seconds, message="cancelled before it was started")
        child = process_child.start(self._spec)
        reader = threading.Thread(target=self._read, args=(child.output_fd, log), name="kvstudio-reader", daemon=True)
        try:
            self._pid = child.pid
            reader.start()
            self._started.set()
            kind, why, exit_, forced = self._watch(child)
        finally:
            child.close()
            self._draining.set()
            if reader.ident is not None:
                reader.join()
            os.close(child.output_fd)
        return self._describe(kind, why, exit_, forced)

    def _describe(self, kind: EndKind, why: str, exit_: ChildExit | None, forced: bool) -> ProcessEnd:
        if exit_ is None:
            gone = "it did not end even when killed; the system still holds it"
            return ProcessEnd(kind, None, None, self.seconds, None, True, "; ".join(p for p in (why, gone) if p))
        if kind is EndKind.EXITED and exit_.exit_code is None:
            kind = EndKind.SIGNALLED
        return ProcessEnd(kind, exit_.exit_code, exit_.signal, self.seconds, exit_.peak_rss_bytes, forced, why)

    def _watch(self, child: Child) -> tuple[EndKind, str, ChildExit | None, bool]:
        """Wait for its end or for a reason to end it."""
        while True:
            exit_ = child.poll(TICK_S)
            if exit_ is not None:
                return EndKind.EXITED, "", exit_, False
            reason = self._reason_to_end()
            if reason is not None:
                exit_, forced = self._put_down(child)
                return (*reason, exit_, forced)

    def _reason_to_end(self) -> tuple[EndKind, str] | None:
        if self._cancel.is_set() or self._abandoned:
            return EndKind.CANCELLED, ""
        if self._callback_error is not None:
            return EndKind.CANCELLED, f"stopped by an internal error: {self._callback_error!r}"
        if self._stop_asked:
            return EndKind.STOPPED, ""
        if self._timeout_s is not None and self.seconds > self._timeout_s:
            return EndKind.TIMED_OUT, f"the launch took longer than {self._timeout_s:g} s in all"
        with self._lock:
            limit = self._phase_limit
        if limit is not None and time.monotonic() > limit[1]:
            return EndKind.TIMED_OUT, f"{limit[0]} took longer than {limit[2]:g} s"
        return None

    def _put_down(self, child: Child) -> tuple[ChildExit | None, bool]:
        """Terminate, wait, kill; (exit, whether it had to be killed)."""
        child.terminate()
        exit_ = child.poll(self._grace_s)
        if exit_ is not None:
            return exit_, False
        child.kill()
        return child.poll(KILL_PATIENCE_S), True

    def _read(self, fd: int, log: KeptLog) -> None:
        wait = _waiting_for(fd)
        while chunk := self._next_chunk(fd, wait):
            log.write(chunk)
            if self._on_bytes is not None and self._callback_error is None:
                try:
                    self._on_bytes(chunk)
                except Exception as error:  # keep draining, else the process blocks on its output; raised by wait()
                    self._callback_error = error
            if len(chunk) < _LITTLE_BYTES:
                self._draining.wait(GULP_S)

    def _next_chunk(self, fd: int, wait: Callable[[int], bool]) -> bytes:
        """Bytes as they come, b"" at the end; after the process's end, what is still in the pipe and no more."""
        while True:
            last_look = self._draining.is_set()
            if wait(0 if last_look else 200):
                break
            if last_look:
                return b""
        try:
            return os.read(fd, CHUNK_BYTES)
        except OSError:
            return b""


def _waiting_for(fd: int) -> Callable[[int], bool]:
    """A question whether there is something to read, or the end, within so many milliseconds.

    Windows cannot ask a pipe: there the read itself waits, and ends since the job takes every writer with it.
    """
    if sys.platform == "win32":
        return lambda _: True
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLHUP)
    return lambda milliseconds: bool(poll.poll(milliseconds))
