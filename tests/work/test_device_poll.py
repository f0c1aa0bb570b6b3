"""Polling of free memory: one probe at a time, paused for each reason apart."""

import pytest

from kvstudio.devices.values import Device, Machine
from kvstudio.errors import ProbeError
from kvstudio.work import task
from kvstudio.work.device_poll import DevicePoll

MACHINE = Machine((), Device("Host", "CPU"))


@pytest.fixture
def probe():
    def answer(listed):
        answer.asked.append(listed)
        return MACHINE

    answer.asked = []
    return answer


@pytest.fixture
def poll(qapp, inline_tasks, probe):
    made = DevicePoll(probe)
    yield made
    made.stop()


def test_start_probes_at_once(poll, probe, qtbot):
    with qtbot.waitSignal(poll.polled) as got:
        poll.start()
    assert got.args == [MACHINE]
    assert probe.asked == [None]
    assert poll.is_active()


def test_listed_text_is_passed_on(poll, probe):
    poll.set_listed("Available devices:")
    assert probe.asked == ["Available devices:"]


def test_every_reason_has_to_end(poll, probe):
    poll.start()
    poll.hold("hidden")
    poll.hold("launch")
    assert not poll.is_active()
    poll.release("hidden")
    assert not poll.is_active()
    poll.poll_now()
    assert len(probe.asked) == 1
    poll.release("launch")
    assert poll.is_active()
    assert len(probe.asked) == 2


def test_one_probe_at_a_time(qapp, monkeypatch, probe):
    waiting = []
    monkeypatch.setattr(task, "start", waiting.append)
    poll = DevicePoll(probe)
    poll.start()
    poll.poll_now()
    poll.poll_now()
    assert len(waiting) == 1
    waiting[0].run()
    poll.poll_now()
    assert len(waiting) == 2
    waiting[1].run()
    poll.stop()


def test_failure_is_told_and_polling_goes_on(qapp, inline_tasks, qtbot):
    def broken(listed):
        raise ProbeError("NVML does not answer")

    poll = DevicePoll(broken)
    with qtbot.waitSignal(poll.failed) as got:
        poll.start()
    assert got.args[0].message == "NVML does not answer"
    assert poll.is_active()
    poll.stop()
