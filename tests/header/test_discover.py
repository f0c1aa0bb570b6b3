"""header.discover: models of other programs, found by name and without wandering off."""

import json
import struct
from pathlib import Path

import pytest

from kvstudio.header import discover
from kvstudio.header.discover import find_models
from tests.header.files import gguf_bytes, pair, tensor, text, write_split


def write(path: Path, name: str | None = "My Model", architecture: str | None = "llama", kind: str = "model") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = [pair("general.type", 8, text(kind))]
    if architecture:
        pairs.append(pair("general.architecture", 8, text(architecture)))
    if name is not None:
        pairs.append(pair("general.name", 8, text(name)))
    pairs.append(pair("tokenizer.ggml.model", 8, text("gpt2")))
    path.write_bytes(gguf_bytes(pairs, [tensor("a")], data=128))
    return path


def found(home: Path, env: dict[str, str] | None = None) -> list[tuple[str, str]]:
    return [(m.source, m.name) for m in find_models(str(home), env or {}) if str(home) in m.path]


def write_ollama(models: Path, name: str, digit: str, media: str = "application/vnd.ollama.image.model") -> Path:
    manifest = models / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [{"mediaType": "x", "digest": "y"}, {"mediaType": media, "digest": f"sha256:{digit * 64}"}]
    manifest.write_text(json.dumps({"layers": layers}))
    return write(models / "blobs" / f"sha256-{digit * 64}", name="hidden behind the tag")


def test_each_programs_folder_is_searched(tmp_path: Path) -> None:
    write(tmp_path / ".cache/huggingface/hub/models--a--b/snapshots/1/b-Q4_K_M.gguf", "B")
    write(tmp_path / ".cache/llama.cpp/user_repo_c.gguf", "C")
    write(tmp_path / ".lmstudio/models/user/repo/d-UD-Q5_K_XL.gguf", "D")
    write(tmp_path / "models/e.gguf", None)
    write_ollama(tmp_path / ".ollama/models", "registry.ollama.ai/library/f/8b", "a")
    write_ollama(tmp_path / ".ollama/models", "registry.ollama.ai/someone/g/latest", "b")
    assert found(tmp_path) == [
        ("Hugging Face", "B Q4_K_M"),
        ("LM Studio", "D UD-Q5_K_XL"),
        ("Ollama", "f:8b"),
        ("Ollama", "someone/g:latest"),
        ("llama.cpp", "C"),
        ("~/models", "e"),
    ]
    (model,) = [each for each in find_models(str(tmp_path), {}) if each.name == "C"]
    assert model.detail.startswith("llama, ")
    assert model.size_bytes == Path(model.path).stat().st_size


def test_variables_move_the_folders(tmp_path: Path) -> None:
    write(tmp_path / "hf/hub/models--a/snapshots/1/a.gguf", "A")
    write(tmp_path / "llama/b.gguf", "B")
    write_ollama(tmp_path / "oll", "registry.ollama.ai/library/c/1", "c")
    env = {"HF_HOME": f"{tmp_path}/hf", "LLAMA_CACHE": f"{tmp_path}/llama", "OLLAMA_MODELS": f"{tmp_path}/oll"}
    assert found(tmp_path, env) == [("Hugging Face", "A"), ("Ollama", "c:1"), ("llama.cpp", "B")]


def test_what_is_no_model_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "models/mmproj.gguf", architecture="clip")
    write(tmp_path / "models/lora.gguf", kind="adapter")
    write(tmp_path / "models/none.gguf", architecture=None)
    (tmp_path / "models/broken.gguf").write_bytes(b"GGUF\x03\0")
    (tmp_path / "models/text.gguf").write_text("<html>")
    (tmp_path / "models/folder.gguf").mkdir()
    (tmp_path / "models/part.gguf.incomplete").touch()
    assert found(tmp_path) == []


def test_split_models_are_one(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    paths = write_split(tmp_path / "models", (("a",), ("b",)), prefix="big-Q8_0")
    (model,) = [each for each in find_models(str(tmp_path), {}) if str(tmp_path) in each.path]
    assert (model.path, model.name) == (str(paths[0]), "big-Q8_0")
    assert model.size_bytes == sum(path.stat().st_size for path in paths)


def test_links_are_named_once_and_loops_end(tmp_path: Path) -> None:
    blob = write(tmp_path / ".cache/huggingface/hub/models--a/blobs/abc", "A")
    for snapshot in ("1", "2"):
        folder = tmp_path / ".cache/huggingface/hub/models--a/snapshots" / snapshot
        folder.mkdir(parents=True)
        (folder / "a.gguf").symlink_to(blob)
        (folder / "loop").symlink_to(tmp_path)
        (folder / "gone.gguf").symlink_to(tmp_path / "gone")
    assert found(tmp_path) == [("Hugging Face", "A")]


def test_damaged_catalogues_are_skipped(tmp_path: Path) -> None:
    base = tmp_path / ".ollama/models"
    write_ollama(base, "registry.ollama.ai/library/good/1", "a")
    manifests = base / "manifests/registry.ollama.ai/library/bad"
    manifests.mkdir(parents=True)
    wrong = ["", "[]", '{"layers": 3}', '{"layers": [{}]}', '{"layers": [{"mediaType": "%s", "digest": "%s"}]}']
    for index, raw in enumerate(wrong):
        digest = "sha256:../../../../etc/passwd"
        (manifests / str(index)).write_text(raw.replace("%s", "application/vnd.ollama.image.model", 1) % digest
                                            if "%s" in raw else raw)  # fmt: skip
    assert found(tmp_path) == [("Ollama", "good:1")]


def test_the_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        write(tmp_path / f"models/{number}.gguf", f"M{number}")
    deep = tmp_path / "models" / Path(*"abcdefgh")
    write(deep / "deep.gguf", "Deep")
    assert len(found(tmp_path)) == 12
    monkeypatch.setattr(discover, "MAX_MODELS", 5)
    assert len(found(tmp_path)) == 5
    assert find_models(str(tmp_path / "nothing"), {}) == find_models(str(tmp_path / "nothing"), {})


def test_the_vocabulary_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "models/a.gguf", "A")
    raw = path.read_bytes()
    cut = raw.index(b"tokenizer.ggml.model") + 20 + 4 + 8 + 4
    n_pairs = struct.pack("<Q", 9)
    path.write_bytes(raw[:16] + n_pairs + raw[24:cut] + b"\0" * 200)
    assert found(tmp_path) == [("~/models", "A")]
