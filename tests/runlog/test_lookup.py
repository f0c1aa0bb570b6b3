"""runlog.lookup: what a line can be is told with its prefixes on as well as without them, and never too little."""

import re
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.runlog import lookup
from kvstudio.runlog.lookup import Shapes, look, phrases
from kvstudio.runlog.parse import parse
from kvstudio.runlog.patterns import SIGNATURES
from kvstudio.runlog.values import AllocationFailed, Note
from tests.diagnose.samples import VARIANTS, lines_of, load
from tests.runlog.phrases import MORE, PHRASES


def said(raw: str) -> set[str]:
    """Names of rows a line is read as, all prefixes taken off."""
    return {e.signature for e in parse(lines_of(raw)) if isinstance(e, Note | AllocationFailed)}


def covered(raw: str) -> bool:
    names = said(raw)
    hints = look(raw)
    if hints is None:
        # Escaped text may break a word apart; such a line is read as a whole.
        return not names or "\\" in raw or "\x1b" in raw
    found = phrases(raw, hints)
    return found is None or names <= set(found)


@pytest.fixture(scope="module")
def telling() -> list[str]:
    """Lines of real logs, some for each phrase, and those of the table."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for sample in load():
        for raw in sample.data.decode().split("\n"):
            for name in said(raw):
                if len(by_name[name]) < 3:
                    by_name[name].append(raw)
    return [*{raw for raws in by_name.values() for raw in raws}, *PHRASES.values(), *(line for _, line in MORE)]


#: Bytes that never reach a line.
BYTES = ("utf-16", "nul bytes")


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - set(BYTES)))
def test_a_line_in_a_wrapper_s_dress(telling: list[str], variant: str) -> None:
    change, _ = VARIANTS[variant]
    for raw in telling:
        for line in change((raw + "\n").encode()).decode("utf-8", "replace").split("\n"):
            assert covered(line.rstrip("\r")), line


@given(
    st.sampled_from(sorted(PHRASES.values())),
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(("x" * 50 + "   ", "0.00.000.001 E ", "[W] ", "WARNING: ", "HTTP ", "a\\n")),
    ),
    st.one_of(st.text(max_size=20), st.sampled_from(("   ggml_init: out of memory", "\\n", " (error)", '"}', "\t"))),
)
def test_a_phrase_among_other_text(line: str, before: str, after: str) -> None:
    for raw in (before + line + after).split("\n"):
        assert covered(raw)


def test_nothing_in_a_loose_pattern_looks_around() -> None:
    for row in SIGNATURES:
        loose = lookup._AROUND.sub("", row.pattern)
        assert not re.search(r"\(\?<?[=!](?<!\(\?=)|(?<![\[\\])\^|(?<!\\)\$", loose), row.name
        assert not re.search(loose, ""), row.name


def test_other_digits_may_make_another_word() -> None:
    shapes = Shapes()
    assert shapes.look("x 0xc0000007 y") is None
    assert shapes.look("x 0xc0000005 y") is not None
    assert shapes.look("ended: 3221225470") is None
    assert shapes.look("ended: 3221225477") is not None


def test_lines_alike_are_looked_through_once() -> None:
    shapes = Shapes()
    for n in range(100):
        assert shapes.look(f"slot {n} is idle") is None
        assert shapes.look(f"CUDA error {n} at x.cu:{n}: out of memory") is not None
    assert shapes.n_dull == 1
