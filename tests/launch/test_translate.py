"""launch.translate: the same settings for builds with other spellings, and nothing lost without a word."""

import pytest

from kvstudio.launch.argv import build_argv, parse_argv, split_command
from kvstudio.launch.binary import Binary
from kvstudio.launch.flags import COMMON
from kvstudio.launch.process_command import config_to_test
from kvstudio.launch.translate import Translated, for_binary

ALL = frozenset(name for flag in COMMON for name in (*flag.names, *flag.no))
SWITCHES = {"--no-mmap", "--mmap", "--mlock", "-dio", "--direct-io", "-ndio", "--no-direct-io"}
NEW = Binary(
    "/new", "llama-server", "", 11434, None, None, (),
    flags=ALL - SWITCHES - {"-cd", "--ctx-size-draft", "--draft-max", "--draft", "--draft-n"},
    valued=frozenset({"-fa", "--flash-attn", "-c", "-ngl"}), defaults=(("-ngl", "auto"), ("-np", "-1")),
)  # fmt: skip
OLD_FLAGS = """-m -c --ctx-size -np -ngl --n-gpu-layers -fa --flash-attn --no-mmap --mlock -nkvo -ctk -ctv -md -cd
    --draft-max -ts -sm -b -ub --no-warmup --jinja -lv"""
OLD = Binary(
    "/old", "llama-server", "", 4500, None, None, (), flags=frozenset(OLD_FLAGS.split()),
    valued=frozenset({"-c", "--ctx-size", "-ngl"}), defaults=(("-ngl", "0"), ("-np", "1")),
)  # fmt: skip


def translated(text: str, binary: Binary) -> tuple[str, Translated]:
    result = for_binary(parse_argv(split_command(f"llama-server {text}")), binary)
    return " ".join(build_argv(result.config)[1:]), result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-m a --no-mmap", "-m a -lm none"),
        ("--mlock", "-lm mmap+mlock"),
        ("--no-mmap --mlock", "-lm mlock"),
        ("-dio", "-lm dio"),
        ("-fa", "-fa on"),
        ("--flash-attn -c 1", "--flash-attn on -c 1"),
        ("--draft-max 8", "--spec-draft-n-max 8"),
    ],
)
def test_old_spellings_for_a_new_build(text: str, expected: str) -> None:
    words, result = translated(text, NEW)
    assert (
        parse_argv(("llama-server", *words.split())).typed()
        == parse_argv(split_command(f"llama-server {text}")).typed()
    )
    assert words.endswith(expected) or words == expected
    assert result.notes
    assert not result.lost


@pytest.mark.parametrize(
    ("text", "expected", "lost"),
    [
        ("-m a -fa on", "-m a -fa", 0),
        ("-fa off", "", 0),
        ("-fa auto", "", 0),
        ("-lm none", "--no-mmap", 0),
        ("-lm mlock", "--no-mmap --mlock", 0),
        ("-lm mmap+mlock", "--mlock", 0),
        ("-lm auto", "", 0),
        ("-lm dio", "", 1),
        ("-ngl all", "-ngl 999", 0),
        ("-ngl auto", "", 1),
        ("-np -1", "", 1),
        ("-np 4", "-np 4", 0),
        ("-fit off", "", 0),
        ("-fit on", "", 1),
        ("-ot exps=CPU", "", 1),
        ("--spec-draft-n-max 8", "--draft-max 8", 0),
        ("--gpu-layers 5", "-ngl 5", 0),
        ("-kvu", "", 1),
        ("-no-kvu", "", 0),
        ("--kv-offload", "", 0),
    ],
)
def test_new_spellings_for_an_old_build(text: str, expected: str, lost: int) -> None:
    words, result = translated(text, OLD)
    assert words == expected
    assert len(result.lost) == lost
    assert bool(result.notes) == (words != text)


def test_a_draft_context_is_reported_lost_where_there_is_none() -> None:
    words, result = translated("-cd 4096", NEW)
    assert words == ""
    assert "takes the context of the model" in result.lost[0]
    assert result.config.n_ctx_draft is None


def test_unknown_options_stay_and_are_named() -> None:
    words, result = translated("--foo 3 -c 1 --jinja", OLD)
    assert words == "--foo 3 -c 1 --jinja"
    assert result.notes == ("llama-server b4500 does not list --foo; it was kept",)


def test_what_fits_is_left_alone() -> None:
    config = parse_argv(split_command("A=1 llama-server -c 4096 -ngl 9 --no-warmup"))
    assert for_binary(config, OLD) == Translated(config)
    unknown = Binary("/x", "llama-server", "", None, None, None, (), frozenset())
    assert for_binary(config, unknown) == Translated(config)


def test_variables_program_and_build_are_kept() -> None:
    config = parse_argv(split_command("LLAMA_ARG_CTX_SIZE=5 ./b/llama-server -fa")).evolve(build=11434)
    result = for_binary(config, NEW).config
    assert (result.program, result.env, result.build, result.n_ctx) == ("./b/llama-server", config.env, 11434, 5)


def test_a_test_launch_is_spelled_for_its_binary_unless_something_would_be_lost() -> None:
    config = parse_argv(split_command("llama-server -m a --no-mmap -fa"))
    assert build_argv(config_to_test(config, NEW, 1))[3:7] == ("-lm", "none", "-fa", "on")
    lossy = parse_argv(split_command("llama-server -m a -ot exps=CPU -ngl all"))
    assert build_argv(config_to_test(lossy, OLD, 1))[1:7] == ("-m", "a", "-ot", "exps=CPU", "-ngl", "all")


def test_a_secret_that_is_left_out_is_named_but_not_shown() -> None:
    _, result = translated("-m a --api-key tops3cret", OLD)
    said = " ".join((*result.notes, *result.lost))
    assert "--api-key" in said
    assert "tops3cret" not in said
