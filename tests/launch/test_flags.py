"""launch.flags: our table of options against what a real llama-server says of itself."""

import re
import subprocess

import pytest

from kvstudio.launch.binary import Binary, find, inspect
from kvstudio.launch.environment import child_env
from kvstudio.launch.flags import BENCH, COMMON, ONE_VALUE, TWO_VALUES, plain, program_name

VALUED = {name for flag in COMMON if flag.kind for name in flag.names}
SWITCHES = {name for flag in COMMON if not flag.kind for name in (*flag.names, *flag.no)}


def test_an_option_either_takes_a_value_or_does_not() -> None:
    assert VALUED.isdisjoint(SWITCHES)
    assert ONE_VALUE.isdisjoint(VALUED | SWITCHES | TWO_VALUES)
    assert all(name.startswith("-") for flag in (*COMMON, *BENCH) for name in (*flag.names, *flag.no))


def test_values_are_written_as_they_are_read() -> None:
    for flag in (*COMMON, *BENCH):
        if flag.kind is not None:
            assert flag.kind.wants
            with pytest.raises(ValueError):
                flag.kind.read("")


@pytest.mark.parametrize(
    ("word", "name"),
    [("--ctx_size", "--ctx-size"), ("-n_x", "-n_x"), ("--a", "--a"), ("a_b", "a_b")],
)
def test_underscores_in_long_options(word: str, name: str) -> None:
    assert plain(word) == name


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/opt/llama-server", "llama-server"),
        ("C:\\x\\llama-server.exe", "llama-server"),
        ("server", "llama-server"),
        ("./main", "llama-cli"),
        ("", ""),
    ],
)
def test_program_names(program: str, name: str) -> None:
    assert program_name(program) == name


@pytest.fixture(scope="module")
def server() -> Binary:
    return inspect(next(path for path in find() if path.endswith("llama-server")))


@pytest.mark.rig
def test_the_real_server_agrees_which_options_take_a_value(server: Binary) -> None:
    assert len(server.flags) > 300
    assert server.valued <= VALUED | ONE_VALUE | TWO_VALUES
    assert not (server.flags - server.valued) & (VALUED | ONE_VALUE)


@pytest.mark.rig
def test_the_real_server_agrees_on_the_variables(server: Binary) -> None:
    text = subprocess.run(
        (server.path, "--help"), env=child_env((), server), capture_output=True, text=True, timeout=60, check=True
    ).stdout
    for flag in COMMON:
        for line in re.findall(r"^-.*(?:\n .*)*", text, re.MULTILINE):
            names = set(re.findall(r"(?:^|(?<=[\s,]))-{1,2}[a-z][\w-]*", line.split("\n")[0][:60]))
            variable = re.search(r"\(env: (\w+)\)", line)
            if variable and names & set(flag.names) and "removed" not in line:
                assert variable[1] in flag.env
