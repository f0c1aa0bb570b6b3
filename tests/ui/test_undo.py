"""Steps: back and forward, a drag as one step, nothing forward after a new change."""

from kvstudio.case.values import Case
from kvstudio.ui.undo import Steps

A, B, C = (Case(note=name) for name in "abc")


def test_back_and_forward_meet_again():
    steps = Steps()
    steps.remember(A)
    assert steps.back(B) is A
    assert steps.can_redo and not steps.can_undo
    assert steps.forward(A) is B
    assert steps.can_undo and not steps.can_redo


def test_without_a_step_nothing_is_moved():
    steps = Steps()
    assert steps.back(A) is None
    assert steps.forward(A) is None
    assert not steps.can_undo and not steps.can_redo


def test_changes_with_one_tag_are_one_step():
    steps = Steps()
    steps.remember(A, "drag n_ctx")
    steps.remember(B, "drag n_ctx")
    assert steps.is_merging
    assert steps.back(C) is A
    assert not steps.can_undo


def test_the_next_drag_is_another_step():
    steps = Steps()
    steps.remember(A, "drag n_ctx")
    steps.end_merge()
    steps.remember(B, "drag n_ctx")
    assert steps.back(C) is B
    assert steps.can_undo


def test_a_change_after_going_back_forgets_what_was_ahead():
    steps = Steps()
    steps.remember(A)
    steps.back(B)
    steps.remember(A)
    assert not steps.can_redo


def test_the_pile_has_an_end():
    steps = Steps()
    for _ in range(1000):
        steps.remember(A)
    found = 0
    while steps.back(B) is not None:
        found += 1
    assert 100 <= found < 1000
