"""The binding itself: PySide6 6.12.0 on Python 3.11 loses a reference to True with each emit and aborts later."""

import sys

from PySide6.QtCore import QObject, Signal


class _Sender(QObject):
    happened = Signal(object)
    counted = Signal(bool)


def test_emits_leave_the_reference_count_of_true_alone(qapp):
    sender, seen = _Sender(), []
    sender.happened.connect(seen.append)
    sender.counted.connect(lambda on: None)
    before = sys.getrefcount(True)
    for _ in range(50):
        sender.happened.emit(True)
        sender.counted.emit(True)
    seen.clear()
    # Immortal since 3.12, counted in 3.11: there a handful may come from pytest itself, but not one per emit.
    assert abs(sys.getrefcount(True) - before) < 25


def test_bytes_beyond_32_bits_arrive_whole(qapp):
    sender, seen = _Sender(), []
    sender.happened.connect(seen.append)
    sender.happened.emit(8 * 1024**3)
    assert seen == [8 * 1024**3]
