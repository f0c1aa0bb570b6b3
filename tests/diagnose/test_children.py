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
