"""A short soak with every test run; the long one is `python -m tests.soak.soak`."""

from tests.soak.soak import soak


def test_a_few_launches_lose_nothing(capsys):
    assert soak(6, 0, seed=7, minutes=1.0) == 0, capsys.readouterr().out
