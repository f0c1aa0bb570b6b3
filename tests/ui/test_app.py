"""The application around the window: garbage goes on the window's thread, and not while jobs compute."""

import gc
import weakref

import pytest

from kvstudio.ui import app as application
from kvstudio.work import task


class Ring:
    """Nothing but the collector frees it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def collector(qapp, monkeypatch):
    monkeypatch.setattr(application, "_YOUNG", 0)
    made = application.Collector()
    yield made
    gc.unfreeze()


def test_only_its_own_look_frees_what_is_garbage(collector):
    assert not gc.isenabled()
    ring = weakref.ref(Ring())
    assert ring() is not None
    collector.look()
    assert ring() is None


def test_it_does_not_look_while_a_job_computes(collector):
    ring = weakref.ref(Ring())
    with task.computing():
        collector.look()
        assert ring() is not None
    collector.look()
    assert ring() is None


def test_it_looks_at_everything_now_and_then(collector, monkeypatch):
    looks = []
    monkeypatch.setattr(application.gc, "collect", looks.append)
    for _ in range(application._OLD):
        collector.look()
    assert looks == [1] * (application._OLD - 1) + [2]
    monkeypatch.setattr(application, "_YOUNG", 10**9)
    collector.look()
    assert len(looks) == application._OLD
