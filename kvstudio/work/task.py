"""Work off the GUI thread: a function and its values go to a pool, the result comes back on the GUI thread."""

import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QCoreApplication, QObject, QRunnable, QThread, QThreadPool, Signal, Slot

from kvstudio.errors import KvStudioError

Done = Callable[[Any], None]
Failed = Callable[[KvStudioError], None]


@dataclass(frozen=True, slots=True)
class _Ticket:
    """Who waits for a result; a newer ticket with the same key makes this one stale."""

    number: int
    key: str | None
    done: Done | None
    failed: Failed | None


class _Desk(QObject):
    """Lives in the GUI thread; results queue here from the pool's threads."""

    arrived = Signal(object, object, object)

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[str, int] = {}
        self.issued = 0
        self.pending = 0
        self.arrived.connect(self._on_arrived)

    def issue(self, key: str | None, done: Done | None, failed: Failed | None) -> _Ticket:
        self.issued += 1
        self.pending += 1
        if key is not None:
            self.newest[key] = self.issued
        return _Ticket(self.issued, key, done, failed)

    def stale(self, ticket: _Ticket) -> bool:
        return ticket.key is not None and self.newest.get(ticket.key) != ticket.number

    @Slot(object, object, object)
    def _on_arrived(self, ticket: _Ticket, result: Any, error: BaseException | None) -> None:
        self.pending -= 1
        if self.stale(ticket):
            return
        if error is None:
            if ticket.done is not None:
                ticket.done(result)
            return
        if not isinstance(error, KvStudioError):
            # A defect, not an expected failure: the excepthook shows it with a copy button.
            sys.excepthook(type(error), error, error.__traceback__)
        if ticket.failed is not None:
            ticket.failed(_told(error))


class _Job(QRunnable):
    """`quick`: somebody waits for it, so it does not stand in line behind what takes long."""

    def __init__(
        self, desk: _Desk, ticket: _Ticket, fn: Callable[..., Any], values: tuple[Any, ...], quick: bool = False
    ) -> None:
        super().__init__()
        self.quick = quick
        self._desk = desk
        self._ticket = ticket
        self._fn = fn
        self._values = values

    def run(self) -> None:
        if self._desk.stale(self._ticket):
            result, error = None, None
        else:
            with computing():
                result, error = _call(self._fn, self._values)
        try:
            self._desk.arrived.emit(self._ticket, result, error)
        except RuntimeError:
            # The application ended while the job ran and took the desk with it: nobody waits any more.
            return


_desk: _Desk | None = None


def run(
    fn: Callable[..., Any],
    *values: Any,
    done: Done | None = None,
    failed: Failed | None = None,
    key: str | None = None,
) -> None:
    """Call `fn(*values)` in the pool; `done(result)` or `failed(error)` follows on the GUI thread.

    A later call with the same `key` makes this one stale: its result is dropped. Errors that are not a KvStudioError
    go to `sys.excepthook` as well.
    """
    desk = _the_desk()
    start(_Job(desk, desk.issue(key, done, failed), fn, values))


def forget(key: str) -> None:
    """Drop whatever is under way for `key`."""
    _the_desk().newest.pop(key, None)


class Latest:
    """One function, one job at a time: what is asked while it runs waits, and only the newest of it is run.

    For work that takes longer than the values it depends on stay the same.
    """

    def __init__(self, fn: Callable[..., Any], done: Done, failed: Failed | None = None) -> None:
        self._fn, self._done, self._failed = fn, done, failed
        self._busy = False
        self._next: tuple[Any, ...] | None = None
        self._wanted = True

    def ask(self, *values: Any) -> None:
        """Work out `fn(*values)`; results that were overtaken are not delivered."""
        self._wanted = True
        if self._busy:
            self._next = values
            return
        self._busy = True
        run(self._fn, *values, done=self._on_done, failed=self._on_failed)

    def drop(self) -> None:
        """Nobody wants what is under way any more."""
        self._wanted, self._next = False, None

    def _on_done(self, result: Any) -> None:
        if not self._go_on() and self._wanted:
            self._done(result)

    def _on_failed(self, error: KvStudioError) -> None:
        if not self._go_on() and self._wanted and self._failed is not None:
            self._failed(error)

    def _go_on(self) -> bool:
        self._busy = False
        values, self._next = self._next, None
        if values is None:
            return False
        self.ask(*values)
        return True


@dataclass(frozen=True, slots=True)
class Early:
    """What a job came to while it was waited for."""

    result: Any = None
    error: KvStudioError | None = None


class Soon:
    """One function whose result is mostly there at once: it is waited for a moment, and delivered later otherwise.

    So what is quick needs no state in between, and what is slow keeps nobody waiting. Only the newest question counts.
    """

    def __init__(self, fn: Callable[..., Any], done: Done, failed: Failed, grace_s: float = 0.02) -> None:
        self._fn, self._done, self._failed, self._grace_s = fn, done, failed, grace_s
        self._newest = 0
        #: The question that is waited for: its result is returned, not delivered.
        self._waited = 0

    def ask(self, *values: Any) -> Early | None:
        """Work out `fn(*values)`: what it came to, or None where that is delivered later."""
        self._newest += 1
        number = self._waited = self._newest
        ended, found = threading.Event(), []

        def job() -> Any:
            try:
                # One that was overtaken while it stood in line is not begun.
                result = self._fn(*values) if number == self._newest else None
                found.append(Early(result))
                return result
            except Exception as error:
                found.append(Early(error=_told(error)))
                raise
            finally:
                ended.set()

        desk = _the_desk()
        ticket = desk.issue(None, lambda result: self._arrive(number, result), lambda error: self._fail(number, error))
        start(_Job(desk, ticket, job, (), quick=True))
        in_time = ended.wait(self._grace_s)
        early: Early | None = found[0] if in_time else None
        if early is None:
            self._waited = 0
        return early

    def drop(self) -> None:
        """Nobody wants what is under way any more."""
        self._newest += 1

    def _arrive(self, number: int, result: Any) -> None:
        if self._is_wanted(number):
            self._done(result)

    def _fail(self, number: int, error: KvStudioError) -> None:
        if self._is_wanted(number):
            self._failed(error)

    def _is_wanted(self, number: int) -> bool:
        return number == self._newest and number != self._waited


#: A job that computed for so long has made so many objects that looking through them would be felt.
_MANY_OBJECTS_S = 0.3
_count = threading.Lock()
_computing = 0


@contextmanager
def computing() -> Iterator[None]:
    """A job at work; Python's cycle collector is better held back until it is done (`is_computing`).

    A graph of a large model is a million objects, and the collector, once it looks through them, stops every thread for
    up to a second. They are no cycles: what a long job leaves in its caches is never looked through, and still freed.
    """
    global _computing
    with _count:
        _computing += 1
    began = time.thread_time()
    try:
        yield
    finally:
        with _count:
            _computing -= 1
        if time.thread_time() - began > _MANY_OBJECTS_S:
            gc.freeze()


def is_computing() -> bool:
    """Whether a job is at work."""
    return _computing > 0


def pending() -> int:
    """Jobs whose results have not arrived yet."""
    return _desk.pending if _desk is not None else 0


def start(job: QRunnable) -> None:
    """Hand a job to its pool; tests replace this to run jobs at once."""
    (_quick_pool() if getattr(job, "quick", False) else QThreadPool.globalInstance()).start(job)


def drain(timeout_ms: int) -> bool:
    """Wait for running jobs at the end of the program; False when some are still running."""
    done = True
    for pool in (QThreadPool.globalInstance(), _quick):
        if pool is not None:
            pool.clear()
            done = pool.waitForDone(timeout_ms) and done
    return done


#: One may be slow and overtaken while the newest runs.
_QUICK_THREADS = 2
_quick: QThreadPool | None = None


def _quick_pool() -> QThreadPool:
    global _quick
    if _quick is None:
        _quick = QThreadPool()
        _quick.setMaxThreadCount(_QUICK_THREADS)
    return _quick


def _the_desk() -> _Desk:
    global _desk
    if _desk is None:
        _desk = _Desk()
        app = QCoreApplication.instance()
        if app is not None and _desk.thread() is not app.thread():
            _desk.moveToThread(app.thread())
    assert QThread.currentThread() is _desk.thread(), "tasks are started from the GUI thread"
    return _desk


def _call(fn: Callable[..., Any], values: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    try:
        return fn(*values), None
    except Exception as error:
        return None, error


def _told(error: BaseException) -> KvStudioError:
    """An error as it is told; one that nobody expected says where it came from."""
    if isinstance(error, KvStudioError):
        return error
    return KvStudioError(f"Something unexpected happened: {type(error).__name__}: {error}", _where(error))


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"In {frames[-1].name}, line {frames[-1].lineno} of {frames[-1].filename}." if frames else ""
