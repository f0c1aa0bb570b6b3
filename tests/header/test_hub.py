"""header.hub: the file behind `-hf user/repo:quant`."""

from pathlib import Path

import pytest

from kvstudio.header.hub import find_repo_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = (
    "README.md",
    "a-BF16.gguf",
    "a-Q4_K_M.gguf",
    "a-Q8_0.gguf",
    "a-UD-Q6_K_XL-00001-of-00002.gguf",
    "a-UD-Q6_K_XL-00002-of-00002.gguf",
    "mmproj-a-Q4_K_M.gguf",
    "sub/a-IQ2_M.gguf",
)


def fill(hub: Path, names: tuple[str, ...] = FILES, repo: str = "user/repo", ref: str = "main") -> Path:
    base = hub / ("models--" + repo.replace("/", "--"))
    snapshot = base / "snapshots" / COMMIT
    for name in names:
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).touch()
    (base / "refs").mkdir(exist_ok=True)
    (base / "refs" / ref).write_text(COMMIT + "\n")
    return snapshot


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("user/repo", "a-Q4_K_M.gguf"),
        ("user/repo:Q4_K_M", "a-Q4_K_M.gguf"),
        ("user/repo:q8_0", "a-Q8_0.gguf"),
        ("user/repo:UD-Q6_K_XL", "a-UD-Q6_K_XL-00001-of-00002.gguf"),
        ("user/repo:IQ2_M", "sub/a-IQ2_M.gguf"),
        ("user/repo:Q5_K_M", None),
        ("user/other", None),
        ("not a repo", None),
        ("../../etc/passwd", None),
    ],
)
def test_the_quantization_decides(tmp_path: Path, repo: str, name: str | None) -> None:
    snapshot = fill(tmp_path / ".cache/huggingface/hub")
    assert find_repo_model(repo, home=str(tmp_path), env={}) == (str(snapshot / name) if name else None)


def test_a_named_file_wins(tmp_path: Path) -> None:
    snapshot = fill(tmp_path / ".cache/huggingface/hub")
    assert find_repo_model("user/repo", "a-BF16.gguf", str(tmp_path), {}) == str(snapshot / "a-BF16.gguf")
    assert find_repo_model("user/repo", "none.gguf", str(tmp_path), {}) is None


def test_without_a_usual_quantization_the_first_file_is_taken(tmp_path: Path) -> None:
    snapshot = fill(tmp_path / ".cache/huggingface/hub", ("mmproj.gguf", "b-Q5_0.gguf", "c-Q6_K.gguf"))
    assert find_repo_model("user/repo", home=str(tmp_path), env={}) == str(snapshot / "b-Q5_0.gguf")


@pytest.mark.parametrize(
    ("name", "folder"),
    [("HF_HOME", "x/hub"), ("HF_HUB_CACHE", "x"), ("LLAMA_CACHE", "x"), ("XDG_CACHE_HOME", "x/huggingface/hub")],
)
def test_variables_move_the_cache(tmp_path: Path, name: str, folder: str) -> None:
    snapshot = fill(tmp_path / folder, ref="pr-3")
    env = {name: str(tmp_path / "x")}
    assert find_repo_model("user/repo", home=str(tmp_path), env=env) == str(snapshot / "a-Q4_K_M.gguf")


def test_the_cache_of_older_builds_is_known(tmp_path: Path) -> None:
    own = tmp_path / ".cache/llama.cpp"
    own.mkdir(parents=True)
    (own / "user_repo_a-Q4_K_M.gguf").touch()
    (own / "user_repository_a-Q4_K_M.gguf").touch()
    assert find_repo_model("user/repo", home=str(tmp_path), env={}) == str(own / "user_repo_a-Q4_K_M.gguf")
    assert find_repo_model("user/repo", "a-Q4_K_M.gguf", str(tmp_path), {}) == str(own / "user_repo_a-Q4_K_M.gguf")


def test_broken_caches_are_no_model(tmp_path: Path) -> None:
    hub = tmp_path / ".cache/huggingface/hub"
    snapshot = fill(hub)
    (hub / "models--user--repo/refs/main").write_text("../../../../etc")
    assert find_repo_model("user/repo", home=str(tmp_path), env={}) is None
    (hub / "models--user--repo/refs/main").write_text(COMMIT)
    (snapshot / "a-Q4_K_M.gguf").unlink()
    (snapshot / "a-Q4_K_M.gguf").symlink_to(tmp_path / "gone")
    assert find_repo_model("user/repo:Q4_K_M", home=str(tmp_path), env={}) is None
