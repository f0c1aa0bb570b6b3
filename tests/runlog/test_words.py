"""runlog.words: every word that is in a text is found, wherever it stands and whatever stands around it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kvstudio.runlog.lookup import WORDS
from kvstudio.runlog.words import Finder

FINDER = Finder(WORDS)
SHORT = tuple(FINDER.short)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 =:_()[]/é段\t"


def in_text(text: str) -> set[str]:
    return {word for word in SHORT if word in text}


def test_a_longer_word_is_told_by_a_shorter_one_in_it() -> None:
    for word in WORDS:
        assert any(word in FINDER.short[short] for short in FINDER.find(f"xx{word}yy")), word


def test_every_word_is_found_at_both_ends_and_twice() -> None:
    for word in SHORT:
        assert word in FINDER.find(word)
        assert FINDER.find(f"{word}#{word}").count(word) == 2


@given(st.lists(st.one_of(st.text(LETTERS, max_size=12), st.sampled_from(WORDS)), max_size=20))
def test_no_other_and_no_fewer_words_are_found(parts: list[str]) -> None:
    text = "".join(parts)
    assert set(FINDER.find(text)) == in_text(text)


@given(st.lists(st.sampled_from(("ab", "aba", "bab", "caa", "aac", "abc")), min_size=1), st.text("abc", max_size=60))
def test_words_that_overlap_are_all_found(words: list[str], text: str) -> None:
    finder = Finder(words)
    assert set(finder.find(text)) == {word for word in finder.short if word in text}


@given(st.lists(st.one_of(st.text(LETTERS, max_size=40), st.sampled_from(WORDS)), max_size=20), st.integers(0, 200))
def test_the_first_word_from_a_place_on(parts: list[str], start: int) -> None:
    text = "".join(parts)
    at = FINDER.first(text, start)
    if at is None:
        assert not in_text(text[start:])
    else:
        assert any(text.startswith(word, at) for word in SHORT)
        assert not any(0 <= text.find(word, start) < at - 60 for word in SHORT)


def test_lines_of_random_letters_are_no_words() -> None:
    rng = random.Random(1)
    lines = ["".join(rng.choices("etaoinshrdlucmfwyp ", k=100)) for _ in range(2000)]
    assert sum(bool(FINDER.find(line)) for line in lines) < 60
