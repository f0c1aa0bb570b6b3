"""A short soak with every test run; the long one is `python -m tests.soak.soak`."""

from tests.soak.soak import soak


def test_a_dozen_launches_lose_nothing(capsys):
    assert soak(12, 0, seed=7, minutes=1.5) == 0, capsys.readouterr().out
