"""Markdown, text, JSON and zip of one report: complete, redacted, and never markup of a stranger."""

import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from kvstudio.case import store
from kvstudio.case.values import Case
from kvstudio.diagnose.values import Diagnosis, KeyLine
from kvstudio.errors import StoreError
from kvstudio.report import archive, markdown, text
from kvstudio.report.build import build, build_from_log
from kvstudio.report.excerpt import Gap, clean, excerpt
from kvstudio.report.json import to_json
from kvstudio.report.save import save_text
from kvstudio.report.values import Identity, Report
from kvstudio.runlog.values import LogLine
from tests.report.conftest import KEY, LOG, lines_of, make_run

ME = Identity("/home/alice", "alice", ("atlas",), prompts=())


@pytest.fixture
def report(case: Case) -> Report:
    return build(case, case.runs[0], identity=ME)


def test_markdown_has_headings_fences_the_key_line_and_the_whole_log(report: Report) -> None:
    shown = markdown.render(report)

    assert re.findall(r"^### (.*)$", shown, re.MULTILINE)[0] == "Name and Version"
    assert "```console\n10: 0.03.902.100 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7936.00 MiB" in shown
    assert "<summary>Logs (12 lines, whole)</summary>" in shown
    assert " 12: 0.03.981.100 E srv    load_model: failed to load model, '[HOME]/models/Qwen3-32B-Q4_K_M.gguf'" in shown


def test_nothing_that_is_hidden_leaks_into_any_format(report: Report, case: Case) -> None:
    packed = dict(archive.contents(report, store.to_json(case)))
    everything = [markdown.render(report), text.render(report), json.dumps(to_json(report))]
    everything += [data.decode() for name, data in packed.items() if name != "chart.png"]

    for shown in everything:
        for secret in ("alice", "192.168.1.20", "topsecret-1", "bob"):
            assert secret not in shown


def test_a_redaction_switched_off_shows_its_value_again(report: Report) -> None:
    shown = markdown.render(report.switched("IP 1", False))

    assert "--host 192.168.1.20" in shown and "[IP 1]" not in shown
    assert "[HOME]" in shown


@pytest.mark.parametrize(
    "hostile", ["```\n# owned", "~~~~ ````` `", "</details><script>alert(1)</script>", "@team #1 ![x](http://e)"]
)
def test_a_hostile_log_stays_inside_its_fence(hostile: str, diagnosis: Diagnosis) -> None:
    log = lines_of(LOG + hostile)
    shown = markdown.render(build_from_log(log, diagnosis))

    opening = re.search(r"^(`{3,})console$(?![\s\S]*^`{3,}console$)", shown, re.MULTILINE)
    assert opening is not None
    inside, closing, after = shown[opening.end() :].partition(f"\n{opening[1]}\n")
    assert closing and hostile.splitlines()[-1] in inside
    assert not re.search(rf"^{opening[1]}", inside.strip("\n"), re.MULTILINE)
    assert after.strip() == "</details>"


def test_prose_is_no_markup(case: Case, diagnosis: Diagnosis) -> None:
    nasty = replace(diagnosis, summary="<img src=x> @everyone [a](http://b) `x` *y*\n- z\n1. w")
    shown = markdown.render(build(case, make_run(case.config, diagnosis=nasty)))

    assert r"\<img src=x\> \@everyone \[a\]" in shown
    assert r"\`x\` \*y\*" in shown
    assert "\n\\- z\n1\\. w" in shown
    assert "http://" not in shown.split("### Key line")[0]


def test_terminal_colours_and_unseen_characters_do_not_survive() -> None:
    assert clean("\x1b[31mred\x1b[0m \x1b]0;title\x07x\x00y\u202ez") == "red x\\x00y\\x202ez"
    assert clean("plain\ttab") == "plain\ttab"


def test_a_long_log_is_cut_around_the_key_line_and_says_where(diagnosis: Diagnosis) -> None:
    log = lines_of("\n".join(f"line {i} " + "x" * 60 for i in range(1, 20001)))
    key = replace(diagnosis, key_line=KeyLine(9000, log[8999].text))
    report = build_from_log(log, key)
    shown = markdown.render(report)

    assert len(shown) <= markdown.LIMIT_CHARS
    assert len(shown) > 0.9 * markdown.LIMIT_CHARS
    for number in (1, 8990, 9000, 9010, 20000):
        assert f"{number}: line {number} " in shown
    gaps = re.findall(r"\[\.\.\. (\d+) lines left out here, (\d+) to (\d+) \.\.\.\]", shown)
    assert len(gaps) == 2
    kept = len(re.findall(r"^ *\d+: line ", shown, re.MULTILINE)) - 1  # the key line stands above the log too
    assert kept + 1 + sum(int(count) for count, _, _ in gaps) in (20000, 20001)
    assert "left out for length" in shown


@pytest.mark.parametrize("limit", [0, 50, 300, 1000, 5000])
@pytest.mark.parametrize("key", [None, 1, 57, 400, 999])
def test_an_excerpt_never_exceeds_its_limit_by_more_than_the_words_of_its_gaps(limit: int, key: int | None) -> None:
    log = lines_of("\n".join("y" * (i % 97) for i in range(1, 401)))
    seen = excerpt(log, key, (), limit)

    assert len(text.numbered(seen)) <= limit + 200
    numbers = [i.number for i in seen.items if not isinstance(i, Gap)]
    left_out = [n for g in seen.items if isinstance(g, Gap) for n in range(g.first, g.last + 1)]
    assert sorted(numbers + left_out) == list(range(1, 401))


def test_one_line_of_megabytes_is_cut_inside() -> None:
    report = build_from_log((LogLine(1, "z" * 5_000_000, "z"), LogLine(2, "end", "end")))
    shown = markdown.render(report)

    assert len(shown) < 10_000
    assert "characters left out]" in shown and "2: end" in shown


def test_a_dropped_part_of_the_log_is_said(log: tuple[LogLine, ...]) -> None:
    assert "5000 more lines were printed and not kept" in text.render(build_from_log(log, dropped_lines=5000))


def test_json_follows_the_fields_and_says_what_was_hidden(report: Report) -> None:
    shown = json.loads(json.dumps(to_json(report)))

    assert shown["schema"] == "kvstudio.report/1"
    assert len(shown["fields"]) == 21
    assert shown["key_line"]["number"] == KEY
    assert {"token": "IP 1", "reason": "address given to --host", "places": 1, "hidden": True} in shown["redactions"]
    missing = next(f for f in shown["fields"] if f["id"] == "known_good")
    assert missing["value"] is None and missing["how"]


def test_the_zip_has_log_case_environment_and_picture(report: Report, case: Case, tmp_path: Path) -> None:
    path = tmp_path / "report.zip"
    archive.write(report, path, store.to_json(case), b"\x89PNG picture")

    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as packed:
        assert packed.testzip() is None
        assert set(packed.namelist()) == {
            "report.md", "report.txt", "report.json", "environment.txt", "llama.log", "case.json", "chart.png",
        }  # fmt: skip
        assert packed.read("chart.png") == b"\x89PNG picture"
        assert packed.read("llama.log").decode().count("\n") == 12
        assert "CUDA_VISIBLE_DEVICES=0,1" in packed.read("environment.txt").decode()
        again = json.loads(packed.read("case.json"))
    assert again["config"]["n_ctx"] == 65536 and again["config"]["api_key"] == "[KEY 1]"


def test_equal_reports_make_equal_archives(report: Report) -> None:
    assert archive.to_bytes(report) == archive.to_bytes(report)


def test_a_file_that_cannot_be_saved_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    target.mkdir()

    with pytest.raises(StoreError, match=r"report\.md could not be saved"):
        save_text(target, "x")
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(StoreError, match="No such file or directory"):
        save_text(tmp_path / "nowhere" / "report.md", "x")
