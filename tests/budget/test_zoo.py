"""Budgets beside what llama.cpp really reserved, over a sample of measured runs."""

from typing import Any

import pytest

from tests.budget import zoo

_EVERY = 43  # prime to the number of configurations, so that all of them appear
_SAMPLE = [row for row in zoo.rows() if zoo.is_first_context(row)][::_EVERY]


@pytest.mark.parametrize("row", _SAMPLE, ids=lambda row: f"{row['model']}-{row['cfg']}")
def test_all_but_compute_is_exact(row: dict[str, Any]) -> None:
    fields = zoo.compare(row, zoo.budget(row))
    misses = [field for field in fields if field.want != field.got and field.name != "compute"]
    assert misses == []


def test_the_sample_is_broad() -> None:
    assert len({row["arch"] for row in _SAMPLE}) > 30
    assert len({row["cfg"] for row in _SAMPLE}) > 25
