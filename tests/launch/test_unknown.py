"""Options that llama.cpp does not know."""

import pytest

from kvstudio.launch.argv import parse_argv
from kvstudio.launch.unknown import unknown_options
from tests.fakes.launches import fake_binary


def unknown(*words, program="llama-server", binary=None):
    return unknown_options(parse_argv((program, "-m", "m.gguf", *words)), binary)


@pytest.mark.parametrize(
    "words", [("--jinja",), ("-cnv",), ("--top_k", "40"), ("-c", "512"), ("--control-vector-layer-range", "1", "2")]
)
def test_what_it_has_is_no_typing_error(words):
    assert unknown(*words) == ()


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--flash-atn", "--flash-attn"),
        ("--ctxx", "--ctx-size"),
        ("--cache_type_kk", "--cache-type-k"),
        ("-nglx", "-ngl"),
    ],
)
def test_a_typing_error_is_told_with_what_was_meant(word, meant):
    (said,) = unknown(word, "4")
    assert said.startswith(f"{word} is no option of llama.cpp")
    assert said.endswith(f"Did you mean {meant}?")


def test_what_resembles_nothing_has_no_proposal():
    assert unknown("--zzzz") == ("--zzzz is no option of llama.cpp, which refuses to start with it.",)


def test_an_option_twice_is_told_once():
    assert len(unknown("--zzzz", "--zzzz")) == 1


def test_the_options_of_a_binary_are_its_own():
    binary = fake_binary(flags=frozenset({"-m", "--shiny"}))
    assert unknown("--shiny", binary=binary) == ()
    assert "llama-server b10434" in unknown("--jinja", binary=binary)[0]


def test_a_program_with_options_of_its_own_is_not_judged_by_those_of_the_others():
    assert unknown("--zzzz", "1", program="llama-bench") == ()


def test_a_binary_that_printed_no_options_is_not_asked():
    assert unknown("--jinja", binary=fake_binary(flags=frozenset())) == ()
