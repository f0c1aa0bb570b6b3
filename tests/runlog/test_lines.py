"""runlog.lines: bytes in any chunks become the same numbered lines."""

import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.runlog.lines import MAX_LINE, LineReader
from kvstudio.runlog.values import LogLine


def read(*chunks: bytes) -> list[LogLine]:
    reader = LineReader()
    lines = [line for chunk in chunks for line in reader.feed(chunk)]
    return [*lines, *reader.close()]


def texts(*chunks: bytes) -> list[str]:
    return [line.text for line in read(*chunks)]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_chunks_do_not_matter(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert read(*pieces) == read(data)


@given(st.binary(max_size=300))
def test_numbers_count_up_from_one(data: bytes) -> None:
    assert [line.number for line in read(data)] == list(range(1, len(read(data)) + 1))


def test_crlf_and_a_last_line_without_end() -> None:
    assert texts(b"one\r\ntwo\r", b"\nthree") == ["one", "two", "three"]


def test_empty_lines_count() -> None:
    assert [(line.number, line.text) for line in read(b"\n\nx\n")] == [(1, ""), (2, ""), (3, "x")]


def test_broken_utf8_across_chunks() -> None:
    word = "Größe".encode()
    assert texts(word[:3], word[3:]) == ["Größe"]
    assert texts(b"a\xffb") == ["a\ufffdb"]


def test_nul_bytes_and_control_characters_go() -> None:
    assert texts(b"a\0b\x07c\td\n") == ["abc\td"]


@pytest.mark.parametrize("name", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_byte_order_marks(name: str) -> None:
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(name, b"")
    data = mark + "größer\r\nzwei\n".encode(name)
    assert texts(*(data[n : n + 1] for n in range(len(data)))) == ["größer", "zwei"]


def test_colours_go_from_the_text() -> None:
    assert texts(b"\x1b[34m0.00.691.827\x1b[0m \x1b[32mI \x1b[0mcmn  x: y\n\x1b]0;title\x07z") == [
        "0.00.691.827 I cmn  x: y",
        "z",
    ]


def test_a_line_without_end_is_bounded() -> None:
    tracemalloc.start()
    reader = LineReader()
    for _ in range(800):
        reader.feed(b"x" * 65536)
    (line,) = reader.close()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(line.text) <= MAX_LINE + 20
    assert line.text.endswith("[line cut]")
    assert reader.n_cut == 1
    assert peak < 2_000_000


def test_single_bytes_are_not_quadratic() -> None:
    start = time.perf_counter()
    read(*[b"x"] * 200_000)
    assert time.perf_counter() - start < 10
