"""The verdict's card is as tall as its words, whatever was shown before."""

from itertools import permutations

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QVBoxLayout, QWidget

from kvstudio.advise.verdict import Answer, Verdict
from kvstudio.ui.widgets.verdict_card import VerdictCard

FITS = Verdict(Answer.FITS, "Fits: 5.9 GiB to spare on CUDA0.", "All 49 layers are on the device.")
SHORT = Verdict(Answer.SHORT, "Does not fit: CUDA0 is 6.6 GiB short for the KV cache.", "It asks for 36.0 GiB.")
LONG = Verdict(
    Answer.SHORT,
    "Does not fit: CUDA0 is 6.6 GiB short for the KV cache.",
    "It asks for 19.0 GiB, 12.0 GiB are free; all devices together are 1.5 GiB short.",
)


@pytest.fixture(params=range(620, 720, 20))
def card(request, qtbot):
    holder = QWidget()
    qtbot.addWidget(holder)
    layout = QVBoxLayout(holder)
    made = VerdictCard()
    layout.addWidget(made)
    layout.addStretch(1)
    holder.resize(request.param, 400)
    holder.show()
    yield made


@pytest.mark.parametrize("shown", tuple(permutations((FITS, SHORT, LONG))))
def test_all_words_have_room(card, shown):
    for said in shown:
        card.show_verdict(said)
        for _ in range(3):
            QCoreApplication.processEvents()
        assert card.height() == card.heightForWidth(card.width())
        assert card.rect().contains(card._detail.geometry())
        assert card._detail.height() >= card._detail.heightForWidth(card._detail.width())
