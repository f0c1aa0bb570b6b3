"""Jobs off the GUI thread: results come back on it, stale ones are dropped, errors are told once."""

import threading

import pytest
from PySide6.QtCore import QThread

from kvstudio.errors import HeaderError
from kvstudio.work import task


def test_result_arrives_on_the_gui_thread(qtbot):
    seen = []
    task.run(threading.get_ident, done=lambda ident: seen.append((ident, QThread.currentThread())))
    qtbot.waitUntil(lambda: bool(seen))
    assert seen[0][0] != threading.get_ident()
    assert seen[0][1] is qtbot_thread()


def qtbot_thread():
    from PySide6.QtCore import QCoreApplication

    return QCoreApplication.instance().thread()


def test_older_result_of_the_same_key_is_dropped(qtbot):
    gate, seen = threading.Event(), []
    task.run(lambda: gate.wait(5) and "old", done=seen.append, key="k")
    task.run(lambda: "new", done=seen.append, key="k")
    qtbot.waitUntil(lambda: seen == ["new"])
    gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == ["new"]


def test_other_keys_do_not_disturb_each_other(qtbot):
    seen = []
    task.run(lambda: 1, done=seen.append, key="a")
    task.run(lambda: 2, done=seen.append, key="b")
    qtbot.waitUntil(lambda: sorted(seen) == [1, 2])


def test_forgotten_result_is_dropped(qtbot):
    seen = []
    task.run(lambda: 1, done=seen.append, key="k")
    task.forget("k")
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == []


def test_expected_failure_reaches_failed_only(qtbot, monkeypatch):
    hooked, errors, results = [], [], []
    monkeypatch.setattr("sys.excepthook", lambda *args: hooked.append(args))

    def read() -> None:
        raise HeaderError("x.gguf: not a GGUF", "Choose another file.")

    task.run(read, done=results.append, failed=errors.append)
    qtbot.waitUntil(lambda: bool(errors))
    assert errors[0].message == "x.gguf: not a GGUF"
    assert errors[0].hint == "Choose another file."
    assert (hooked, results) == ([], [])


def test_defect_is_shown_and_told(qtbot, monkeypatch):
    hooked, errors = [], []
    monkeypatch.setattr("sys.excepthook", lambda *args: hooked.append(args))
    task.run(lambda: 1 / 0, failed=errors.append)
    qtbot.waitUntil(lambda: bool(errors))
    assert hooked[0][0] is ZeroDivisionError
    assert "ZeroDivisionError" in errors[0].message
    assert "test_task.py" in errors[0].hint


def test_inline_tasks_answer_before_run_returns(qapp, inline_tasks):
    seen = []
    task.run(lambda a, b: a + b, 1, 2, done=seen.append)
    assert seen == [3]


def test_a_chain_of_tasks_keeps_its_order(qtbot):
    seen = []

    def on_first(value: int) -> None:
        seen.append(value)
        task.run(lambda: value + 1, done=seen.append)

    task.run(lambda: 1, done=on_first)
    qtbot.waitUntil(lambda: seen == [1, 2])


@pytest.mark.parametrize("value", [8 * 1024**3, 2**40, None, (1, 2), "text"])
def test_values_cross_unchanged(qtbot, value):
    seen = []
    task.run(lambda: value, done=seen.append)
    qtbot.waitUntil(lambda: len(seen) == 1)
    assert seen == [value]


def test_latest_runs_one_at_a_time_and_only_the_newest(qtbot):
    gate, ran, seen = threading.Event(), [], []

    def work(n: int) -> int:
        ran.append(n)
        gate.wait(5)
        return n

    latest = task.Latest(work, seen.append)
    for n in range(5):
        latest.ask(n)
    gate.set()
    qtbot.waitUntil(lambda: seen == [4])
    assert ran == [0, 4]


def test_latest_goes_on_after_a_failure(qtbot):
    seen, errors = [], []

    def work(n: int) -> int:
        if n == 0:
            raise HeaderError("no")
        return n

    latest = task.Latest(work, seen.append, errors.append)
    latest.ask(0)
    qtbot.waitUntil(lambda: len(errors) == 1)
    latest.ask(1)
    qtbot.waitUntil(lambda: seen == [1])


def test_latest_that_nobody_wants_is_dropped(qtbot):
    seen = []
    latest = task.Latest(lambda n: n, seen.append)
    latest.ask(1)
    latest.drop()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == []


def _soon(fn, seen, grace_s=0.05):
    return task.Soon(fn, lambda result: seen.append(("done", result)), lambda e: seen.append(("failed", e)), grace_s)


def test_what_is_quick_is_returned_and_not_delivered_again(qtbot):
    seen = []
    soon = _soon(lambda x: x + 1, seen, grace_s=5)
    assert soon.ask(1) == task.Early(2)
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == []


def test_what_is_slow_is_delivered_later_and_only_the_newest(qtbot):
    gate, seen = threading.Event(), []
    soon = _soon(lambda x: gate.wait(5) and x, seen)
    assert [soon.ask(1), soon.ask(2), soon.ask(3)] == [None, None, None]
    gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == [("done", 3)]


def test_an_overtaken_question_that_stood_in_line_is_not_begun(qtbot):
    gate, begun, seen = threading.Event(), [], []
    soon = _soon(lambda x: begun.append(x) or (gate.wait(5) and x), seen, grace_s=0.01)
    for x in range(6):
        soon.ask(x)
    gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == [("done", 5)]
    assert len(begun) < 6


def test_a_quick_question_overtakes_a_slow_one(qtbot):
    gate, seen = threading.Event(), []
    soon = _soon(lambda x: x or gate.wait(5), seen, grace_s=1)
    assert soon.ask(0) is None
    assert soon.ask(7) == task.Early(7)
    gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == []


def test_errors_come_the_same_two_ways(qtbot, monkeypatch):
    hooked = []
    monkeypatch.setattr("sys.excepthook", lambda *args: hooked.append(args))
    gate, seen = threading.Event(), []

    def fail(error, slow):
        if slow:
            gate.wait(5)
        raise error

    soon = _soon(fail, seen, grace_s=1)
    wrong = HeaderError("x.gguf: not a GGUF", "Choose another file.")
    assert soon.ask(wrong, False).error is wrong
    assert soon.ask(ZeroDivisionError("1/0"), False).error.message.startswith("Something unexpected happened")
    assert soon.ask(wrong, True) is None
    gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == [("failed", wrong)]
    assert [kind for kind, *_ in hooked] == [ZeroDivisionError]


def test_a_dropped_question_is_not_answered(qtbot):
    gate, seen = threading.Event(), []
    soon = _soon(lambda: gate.wait(5), seen)
    assert soon.ask() is None
    soon.drop()
    gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert seen == []


def test_run_at_once_it_is_always_in_time(inline_tasks):
    seen = []
    assert _soon(lambda x: x, seen).ask("x") == task.Early("x")
    assert seen == []


def test_it_is_known_while_jobs_compute(qtbot):
    states = []
    task.run(task.is_computing, done=states.append)
    qtbot.waitUntil(lambda: bool(states))
    assert states == [True]
    with task.computing(), task.computing():
        assert task.is_computing()
    assert not task.is_computing()


def test_what_a_long_job_leaves_is_not_looked_through_again(monkeypatch):
    frozen = []
    monkeypatch.setattr(task.gc, "freeze", lambda: frozen.append(True))
    with task.computing():
        pass
    assert frozen == []
    monkeypatch.setattr(task, "_MANY_OBJECTS_S", 0.0)
    with task.computing():
        sum(range(10_000))
    assert frozen == [True]
