"""The report's table of controlled runs."""

from kvstudio.case.values import Case
from kvstudio.report.build import build
from kvstudio.report.controlled import controlled_runs
from kvstudio.report.markdown import render
from tests.ui import wizard_samples


def test_each_run_is_a_row_with_one_change():
    (section,) = controlled_runs(wizard_samples.walked())
    table = section.blocks[-1].text.splitlines()
    assert table[0].split()[:2] == ["run", "changed"]
    assert len(table) == 1 + len(wizard_samples.walked().attempts)
    assert "as given" in table[1]
    assert any("tensor_split: 1,1 -> default" in row for row in table)


def test_without_a_walk_there_is_no_section():
    assert controlled_runs(None) == ()
    assert "Controlled runs" not in render(build(Case()))
    assert "Controlled runs" in render(build(Case(), walk=wizard_samples.walked()))
