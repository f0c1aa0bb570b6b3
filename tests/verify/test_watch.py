"""What is known of a launch while it runs: phases in order, bounded memory, lines without loss."""

import pytest

from kvstudio.runlog.values import Phase
from kvstudio.verify.watch import BothEnds, Watch


@pytest.fixture
def began():
    return []


@pytest.fixture
def watch(began):
    return Watch(began.append)


def states(watch):
    return {phase: state for phase, state, _ in watch.phases()}


def test_a_later_phase_ends_the_earlier_one(watch, began):
    watch.reach(Phase.FIT, False)
    watch.reach(Phase.WEIGHTS, False)
    assert states(watch) == {Phase.FIT: "done", Phase.WEIGHTS: "running"}
    assert began == [Phase.FIT, Phase.WEIGHTS]
    assert watch.reached() is Phase.WEIGHTS


def test_a_phase_told_late_does_not_stay_running(watch, began):
    watch.reach(Phase.KV, False)
    watch.reach(Phase.FIT, False)
    assert states(watch) == {Phase.FIT: "done", Phase.KV: "running"}
    assert began == [Phase.KV]


def test_lines_read_after_the_first_answer_do_not_begin_after_it(watch, monkeypatch):
    clock = iter((1.0, 2.0, 3.0, 3.0))
    monkeypatch.setattr(Watch, "seconds", property(lambda _: next(clock)))
    for phase in (Phase.FIT, Phase.LISTENING, Phase.KV, Phase.GENERATE):
        watch.reach(phase, True)
    assert [(phase, at) for phase, _, at in watch.phases()] == [
        (Phase.FIT, 1.0), (Phase.KV, 2.0), (Phase.LISTENING, 2.0), (Phase.GENERATE, 3.0),
    ]  # fmt: skip


def test_recurrent_state_before_and_after_a_kv_cache(watch):
    for phase in (Phase.RS, Phase.KV, Phase.COMPUTE):
        watch.reach(phase, True)
    assert set(states(watch).values()) == {"done"}


def test_a_failure_marks_one_phase_and_closes_the_others(watch):
    watch.reach(Phase.WEIGHTS, False)
    watch.fail(Phase.KV)
    assert states(watch) == {Phase.WEIGHTS: "done", Phase.KV: "failed"}


def test_lines_cross_chunks_and_the_last_needs_no_line_end(watch):
    for byte in b"one\ntwo\r\nthr":
        watch.feed(bytes([byte]))
    watch.close()
    lines, _ = watch.take()
    assert [line.text for line in lines] == ["one", "two", "thr"]
    assert watch.take() == ((), ())


def test_phases_come_from_buffer_lines(watch, began):
    watch.feed(b"load_tensors:      Vulkan0 model buffer size =    35.82 MiB\n")
    watch.feed(b"llama_kv_cache:    Vulkan0 KV buffer size =     2.00 MiB\n")
    assert began == [Phase.WEIGHTS, Phase.KV]
    assert watch.printed_per_device() == {"Vulkan0": round(37.82 * 1048576)}


def test_a_hundred_thousand_lines_stay_bounded_and_keep_both_ends():
    watch = Watch(lambda _: None, keep_lines=100)
    for start in range(0, 100_000, 1000):
        watch.feed(b"".join(b"line %d\n" % i for i in range(start, start + 1000)))
        watch.take()
    lines = watch.lines()
    assert len(lines) == 200
    assert (lines[0].text, lines[-1].text, lines[-1].number) == ("line 0", "line 99999", 100_000)


def test_both_ends_is_everything_while_it_is_short():
    ends = BothEnds(3)
    ends.extend(range(5))
    assert ends.all() == (0, 1, 2, 3, 4)
    ends.extend(range(5, 10))
    assert ends.all() == (0, 1, 2, 7, 8, 9)
