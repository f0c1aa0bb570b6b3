"""runlog.sieve: no line that holds a word is lost, wherever the word stands; most others are passed over."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.runlog.lookup import WORDS
from kvstudio.runlog.patterns import SIGNATURES
from kvstudio.runlog.sieve import Sieve
from tests.diagnose.samples import load
from tests.runlog.phrases import PHRASES

SIEVE = Sieve(WORDS)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 =:_()[]/é段\t"


def lines_with_words(data: bytes) -> list[int]:
    starts, at = [], 0
    for raw in data.split(b"\n"):
        if any(word.encode() in raw for word in WORDS):
            starts.append(at)
        at += len(raw) + 1
    return starts


@pytest.mark.parametrize("shift", range(4))
def test_every_word_is_found_at_any_place(shift: int) -> None:
    for word in WORDS:
        data = ("#" * shift + "\n" + "#" * shift + word + "\n" + word).encode()
        assert SIEVE.starts(data) == lines_with_words(data), word


@pytest.mark.parametrize("row", SIGNATURES, ids=lambda row: row.name)
def test_a_row_of_the_table_is_enough(row: object) -> None:
    keys = row.keys  # type: ignore[attr-defined]
    assert set(keys) <= set(WORDS)
    if row.name in PHRASES:  # type: ignore[attr-defined]
        assert SIEVE.starts(b"\n" + PHRASES[row.name].encode()) == [1]  # type: ignore[attr-defined]


def test_no_line_of_a_real_log_is_lost() -> None:
    for sample in load():
        for data in (sample.data, b"x" + sample.data, sample.data.replace(b" ", b"  ")):
            assert set(lines_with_words(data)) <= set(SIEVE.starts(data)), sample.name


@given(st.lists(st.one_of(st.text(LETTERS, max_size=12), st.sampled_from((*WORDS, "\n"))), max_size=40))
def test_no_line_is_lost_whatever_stands_around_a_word(parts: list[str]) -> None:
    data = "".join(parts).encode()
    assert set(lines_with_words(data)) <= set(SIEVE.starts(data))


@given(st.binary(max_size=300))
def test_any_bytes_can_be_sieved(data: bytes) -> None:
    line_starts = {0, *(n + 1 for n, byte in enumerate(data) if byte == 10)}
    assert set(SIEVE.starts(data)) <= line_starts


def test_most_lines_without_a_word_are_passed_over() -> None:
    rng = random.Random(1)
    dumps = "".join(f"{rng.getrandbits(64):016x} {rng.getrandbits(64):016x} {n}\n" for n in range(5000))
    assert len(SIEVE.starts(dumps.encode())) < 50
