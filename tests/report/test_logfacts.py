"""What a log says of the program that wrote it."""

import pytest

from kvstudio.report.logfacts import read_facts
from kvstudio.runlog.lines import LineReader


@pytest.mark.parametrize(
    ("line", "build", "commit", "compiler"),
    [
        ("build: 6710 (74b8fc17f) with cc (GCC) 14.2 for x86_64-linux-gnu", "6710", "74b8fc17f", "cc (GCC) 14.2"),
        ("common_params_print_info: build 11434 (unknown) with GNU 12.2.0 for Linux x86_64", "11434", "", "GNU 12.2.0"),
        ("main: build = 3000 (abcdef1)", "3000", "abcdef1", ""),
        ("build is unknown", "", "", ""),
    ],
)
def test_build_and_commit(line, build, commit, compiler):
    facts = read_facts(LineReader().feed(f"{line}\n".encode()))
    assert (facts.build, facts.commit, facts.compiler) == (build, commit, compiler)
