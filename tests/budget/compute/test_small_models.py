"""Small models of rare architectures beside what llama.cpp reserved on the CPU (build 11434)."""

from typing import Any

import pytest

from kvstudio.budget import graphs
from kvstudio.budget.compute.families import BUILDERS
from kvstudio.budget.effective import resolve
from kvstudio.budget.placement import place
from kvstudio.budget.values import Provenance
from kvstudio.launch.argv import parse_argv
from kvstudio.model.describe import describe
from tests.budget import zoo

_BUILD = 11434
_ROWS = zoo.small_models()["rows"]
_FORGOTTEN = frozenset({"glm5-next", "qwen4exp"})


def _host(row: dict[str, Any]) -> tuple[int, Provenance, str]:
    model = describe(zoo.header(row["model"], zoo.small_models()["shapes"]))
    config = parse_argv(("llama-server", "-m", "x.gguf", *row["args"])).evolve(build=_BUILD)
    effective = resolve(model, config, 0, _BUILD)
    (found,) = graphs.compute_buffers(model, effective, place(model, effective, (), config), config).values()
    return found


@pytest.mark.parametrize("row", _ROWS, ids=lambda r: r["model"])
def test_followed_graphs_meet_the_measured_bytes(row: dict[str, Any]) -> None:
    size, provenance, _ = _host(row)
    assert size == row["host"]
    assert provenance is Provenance.EXACT


@pytest.mark.parametrize("row", [r for r in _ROWS if r["model"] in _FORGOTTEN], ids=lambda r: r["model"])
def test_graphs_nobody_knows_are_estimated_on_the_high_side(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(BUILDERS, row["model"])
    size, provenance, why = _host(row)
    assert row["host"] <= size <= 3 * row["host"]
    assert provenance is Provenance.ESTIMATED
    assert "high side" in why
