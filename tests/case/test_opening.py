"""Whatever is dropped or pasted is recognised by what is in it, not by its name."""

import pytest

from kvstudio.case import opening, store
from kvstudio.case.values import Case
from kvstudio.errors import KvStudioError


def test_a_saved_case_is_known_by_its_content(tmp_path):
    path = tmp_path / "any.txt"
    store.save(Case(note="n"), path)
    what = opening.open_path(str(path))
    assert isinstance(what, opening.OpenedCase)
    assert what.case.note == "n"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.bin", b"", "empty"),
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 20, "neither"),
        ("a.gguf", b"not a model at all", "a.gguf"),
        ("a.gguf", b"", "a.gguf"),
    ],
)
def test_other_files_are_refused_with_their_name(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(KvStudioError) as error:
        opening.open_path(str(path))
    assert says in error.value.message
    assert error.value.hint


def test_a_missing_file_is_said():
    with pytest.raises(KvStudioError, match=r"gone\.gguf could not be read"):
        opening.open_path("/nowhere/gone.gguf")


def test_a_folder_lists_first_shards_and_logs(tmp_path):
    for name in ("a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "deep/c.GGUF", "run.log", "x.txt"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    what = opening.open_path(str(tmp_path))
    names = [path.removeprefix(f"{tmp_path}/") for path in what.models]
    assert names == ["a.gguf", "b-00001-of-00002.gguf", "deep/c.GGUF"]
    assert [path.removeprefix(f"{tmp_path}/") for path in what.logs] == ["run.log"]


def test_an_empty_folder_is_said(tmp_path):
    with pytest.raises(KvStudioError, match="No model and no log"):
        opening.open_path(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "llama-server -m gone.gguf -c 32768",
        "$ llama-server -m gone.gguf -c 32768\n",
        "  CUDA_VISIBLE_DEVICES=0 /opt/bin/llama-server -m gone.gguf -c 32768",
        "llama-server \\\n  -m gone.gguf \\\n  -c 32768",
        "# my server\nexport A=1\nexec llama-server -m gone.gguf -c 32768\n",
        "C:\\llama\\llama-server.exe -m gone.gguf -c 32768",
    ],
)
def test_a_command_line_is_recognised(text):
    what = opening.open_text(text)
    assert isinstance(what, opening.OpenedCommand)
    assert what.config.n_ctx == 32768
    assert what.config.model_path == "gone.gguf"
    assert what.model is None
    assert what.problem is not None


def test_variables_before_the_command_are_kept():
    what = opening.open_text("GGML_VK_VISIBLE_DEVICES=0,0 llama-server -m gone.gguf")
    assert what.config.env == (("GGML_VK_VISIBLE_DEVICES", "0,0"),)


def test_a_pasted_path_is_opened(tmp_path):
    store.save(Case(note="pasted"), tmp_path / "a b.kvcase")
    what = opening.open_text(f' "{tmp_path}/a b.kvcase"\n')
    assert what.case.note == "pasted"


def test_bare_flags_count_as_a_command():
    assert opening.open_text("-m x.gguf -c 4096 -np 2").config.n_parallel == 2


@pytest.mark.parametrize("text", ["", "   \n", "hello"])
def test_other_text_is_refused(text):
    with pytest.raises(KvStudioError) as error:
        opening.open_text(text)
    assert error.value.hint


def test_a_script_file_is_a_command(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text("#!/bin/sh\nllama-server -m gone.gguf -c 8192\n")
    assert opening.open_path(str(path)).config.n_ctx == 8192
