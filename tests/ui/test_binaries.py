"""The programs of the window: which are offered, and when devices are listed anew."""

from dataclasses import replace

import pytest

from kvstudio.errors import LaunchError
from kvstudio.ui import binaries
from kvstudio.ui.binaries import Binaries, Chosen
from tests.fakes.launches import fake_binary

SERVER = "a:50052"


@pytest.fixture
def asked(monkeypatch):
    """What was asked of programs; the answers are taken from the list `answers`."""
    asked = type("Asked", (), {"calls": [], "answer": Chosen(fake_binary(), "first"), "error": None})()

    def listing(*call):
        asked.calls.append(call)
        if asked.error:
            raise asked.error
        return asked.answer

    monkeypatch.setattr(binaries, "_inspect_and_list", listing)
    return asked


@pytest.fixture
def found(qtbot, inline_tasks, asked):
    programs = Binaries()
    programs.set_env((), (SERVER,))
    programs.choose("/x/llama-server")
    return programs


def polls(programs, n):
    for _ in range(n):
        programs.on_polled()


def test_remote_memory_is_asked_again_now_and_then(found, asked, qtbot):
    asked.answer = replace(asked.answer, listed="second")
    before = len(asked.calls)
    polls(found, binaries._RELIST_EVERY - 1)
    assert len(asked.calls) == before
    with qtbot.waitSignal(found.relisted) as told, qtbot.assertNotEmitted(found.chosen):
        polls(found, 1)
    assert told.args == ["second"]


def test_without_remote_devices_no_program_is_started_again(found, asked):
    found.set_env((), ())
    before = len(asked.calls)
    polls(found, 3 * binaries._RELIST_EVERY)
    assert len(asked.calls) == before


def test_a_server_that_went_away_is_told_once(found, asked, qtbot):
    asked.answer = replace(asked.answer, away=((SERVER, "no answer"),))
    with qtbot.waitSignal(found.chosen) as told:
        polls(found, binaries._RELIST_EVERY)
    assert told.args[0].away == ((SERVER, "no answer"),)
    with qtbot.assertNotEmitted(found.chosen):
        polls(found, binaries._RELIST_EVERY)


def test_a_program_that_cannot_answer_now_changes_nothing(found, asked, qtbot):
    asked.error = LaunchError("it hangs")
    with qtbot.assertNotEmitted(found.failed), qtbot.assertNotEmitted(found.relisted):
        polls(found, binaries._RELIST_EVERY)
    assert found.current == fake_binary()


def test_only_programs_that_answer_are_offered_and_the_one_chosen_by_hand(qtbot, inline_tasks, asked, monkeypatch):
    paths = ("/a/llama-server", "/a/llama-bench", "/a/ggml-rpc-server", "/a/llama-cli", "/a/mine")
    monkeypatch.setattr(binaries, "_find", lambda preferred: paths)
    monkeypatch.setattr(binaries, "_inspect", lambda path: fake_binary(path=path))
    programs = Binaries()
    programs.look("/a/mine")
    offered = [path for path, _ in programs.entries()]
    assert offered == ["/a/llama-server", "/a/llama-cli", "/a/mine", fake_binary().path]
    assert asked.calls == [("/a/mine", (), ())]
