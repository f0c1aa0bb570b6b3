"""diagnose.children: servers of one router are told apart although their lines are mixed."""

from itertools import chain, zip_longest

import pytest

from kvstudio.diagnose.diagnose import diagnose
from kvstudio.diagnose.values import Outcome
from tests.diagnose.samples import LOGS, lines_of

HEALTHY = (LOGS / "live-healthy.log").read_text().splitlines()
FAILED = (LOGS / "vulkan-compute-2sizes.log").read_text().splitlines()


def mixed(first: list[str], second: list[str], marks: tuple[str, str] = ("[34353] ", "[34354] ")) -> str:
    pairs = zip_longest((marks[0] + line for line in first), (marks[1] + line for line in second))
    return "\n".join(line for line in chain.from_iterable(pairs) if line is not None)


@pytest.mark.parametrize("text", [mixed(HEALTHY, FAILED), mixed(FAILED, HEALTHY)])
def test_the_child_that_failed_is_told(text: str) -> None:
    alone = diagnose(lines_of("\n".join(FAILED)))
    found = diagnose(lines_of(text))
    assert found.outcome is Outcome.FAILED
    assert (found.stage, found.device, found.requested_bytes) == (alone.stage, alone.device, alone.requested_bytes)
    assert alone.key_line is not None and found.key_line is not None
    assert found.key_line.text.endswith(alone.key_line.text)
    assert "2 servers" in found.notes[-1]


def test_two_healthy_children_are_no_failure() -> None:
    assert diagnose(lines_of(mixed(HEALTHY, HEALTHY))).outcome is Outcome.OK


def test_epoch_seconds_are_no_children() -> None:
    text = "\n".join(f"[{1717816557 + n // 3}] {line}" for n, line in enumerate(FAILED))
    assert diagnose(lines_of(text)).notes == diagnose(lines_of("\n".join(FAILED))).notes


ROUTER = "0.04.002.951 I srv          load: spawning server instance with name={} on port {}"
ENDED = "0.09.265.867 I srv           run: instance name={} exited with status {}"


def test_the_model_of_the_child_that_failed_is_named() -> None:
    started = [ROUTER.format("small", 34353), ROUTER.format("large", 34354)]
    found = diagnose(lines_of("\n".join(started) + "\n" + mixed(HEALTHY, FAILED)))
    assert found.notes[-1].endswith("this is about the one of large.")


def test_a_child_that_ended_without_a_word_is_told_by_the_router() -> None:
    started = [ROUTER.format("small", 34353), ROUTER.format("large", 34354)]
    text = "\n".join(started) + "\n" + mixed(HEALTHY[:-1], HEALTHY) + "\n" + ENDED.format("small", 9)
    text += "\n[34354] 0.10.000.000 I slot print_timing: id  3 | task 0 | prompt eval time = 6.00 ms / 56 tokens\n"
    found = diagnose(lines_of(text))
    assert found.outcome is Outcome.FAILED
    assert found.key_line is not None and "instance name=small" in found.key_line.text
    assert found.notes[-1].endswith("this is about the one of small.")


def test_a_child_that_was_unloaded_did_not_fail() -> None:
    started = [ROUTER.format("small", 34353), ROUTER.format("large", 34354)]
    text = "\n".join(started) + "\n" + mixed(HEALTHY, HEALTHY) + "\n" + ENDED.format("small", 0)
    assert diagnose(lines_of(text)).outcome is Outcome.OK
