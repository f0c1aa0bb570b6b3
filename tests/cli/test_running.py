"""A launch of the terminal that is interrupted."""

import signal
import time
from types import SimpleNamespace

import pytest

from kvstudio.cli.running import _watched
from kvstudio.verify.options import LaunchOptions


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no timer signals here")
def test_an_interrupt_waits_for_the_launch_to_end(monkeypatch):
    def slow(config, binary, *, cancel, **_):
        assert cancel.wait(20), "Ctrl+C was not passed on"
        time.sleep(0.5)
        return "the cancelled run"

    monkeypatch.setattr("kvstudio.cli.running.test_launch", slow)
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    # A shell's background job is started with interrupts ignored.
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        found = _watched(SimpleNamespace(machine=None), None, None, None, LaunchOptions(), "")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, interrupts)
    assert found == "the cancelled run"
