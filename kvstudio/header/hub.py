"""`-hf user/repo:quant` -> the file that llama.cpp would load, if it has been downloaded."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvstudio.header.discover import home_folder

#: A repository has some hundred files at most.
MAX_FILES = 4096
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHARD = re.compile(r"-([0-9]{5})-of-[0-9]{5}\.gguf$")
_NO_MODEL = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
#: Taken in this order when no quantization is typed.
_USUAL = ("Q4_K_M", "Q8_0")


def find_repo_model(
    hf_repo: str, hf_file: str | None = None, home: str | None = None, env: Mapping[str, str] | None = None
) -> str | None:
    """Path of the downloaded model of a repository, the first file of a split one; None when there is none here.

    Both caches are searched: Hugging Face's, which builds of 2026 use, and llama.cpp's own of older builds. `home` and
    `env` default to those of this process.

    Source: `find_best_model` in common/download.cpp and `get_cached_files` in common/hf-cache.cpp, build 11434.
    """
    repo, _, tag = hf_repo.partition(":")
    if _REPO.fullmatch(repo) is None:
        return None
    env = os.environ if env is None else env
    home = home_folder() if home is None else home
    for files in (_hub_files(repo, home, env), _own_files(repo, home, env)):
        if hf_file:
            found = files.get(hf_file)
        else:
            name = _choose(list(files), tag)
            found = files[name] if name else None
        if found:
            return found
    return None


def _choose(names: list[str], tag: str) -> str | None:
    """The best file of a repository: by the typed quantization, else by the usual ones, else the first."""
    models = [name for name in names if _is_model(name)]
    for wanted in (tag,) if tag else _USUAL:
        pattern = re.compile(re.escape(wanted) + "[.-]", re.IGNORECASE)
        for name in models:
            if pattern.search(name):
                return name
    return models[0] if models and not tag else None


def _is_model(name: str) -> bool:
    base = name.rpartition("/")[2]
    shard = _SHARD.search(base)
    first = shard is None or int(shard[1]) == 1
    return base.endswith(".gguf") and first and not any(word in base for word in _NO_MODEL)


def _hub_files(repo: str, home: str, env: Mapping[str, str]) -> dict[str, str]:
    """Files of the current snapshot by their name in the repository."""
    for cache in _hub_folders(home, env):
        base = Path(cache, "models--" + repo.replace("/", "--"))
        commit = _commit(base / "refs")
        if commit is None:
            continue
        snapshot = base / "snapshots" / commit
        files = {path.relative_to(snapshot).as_posix(): str(path) for path in _walk(snapshot, 4)}
        if files:
            return files
    return {}


def _hub_folders(home: str, env: Mapping[str, str]) -> Iterator[str]:
    for name, inner in (("LLAMA_CACHE", ""), ("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"),
                        ("XDG_CACHE_HOME", "huggingface/hub")):  # fmt: skip
        if env.get(name):
            yield os.path.join(env[name], inner)
    yield os.path.join(home, ".cache/huggingface/hub")


def _commit(refs: Path) -> str | None:
    """What `main` points at, else any other name."""
    try:
        names = sorted(refs.iterdir(), key=lambda path: (path.name != "main", path.name))[:64]
    except OSError:
        return None
    for path in names:
        try:
            word = path.read_text("ascii", "replace").partition("\n")[0].strip()
        except OSError:
            continue
        if _COMMIT.fullmatch(word):
            return word
    return None


def _own_files(repo: str, home: str, env: Mapping[str, str]) -> dict[str, str]:
    """Files that builds before the Hugging Face cache named `user_repo_FILE` in llama.cpp's own."""
    prefix = repo.replace("/", "_") + "_"
    folders = [env.get("LLAMA_CACHE"), *(os.path.join(base, "llama.cpp") for base in _cache_folders(home, env))]
    for folder in filter(None, folders):
        files = {path.name[len(prefix) :]: str(path) for path in _walk(Path(folder), 1) if path.name.startswith(prefix)}
        if files:
            return files
    return {}


def _cache_folders(home: str, env: Mapping[str, str]) -> Iterator[str]:
    yield env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    yield os.path.join(home, "Library/Caches")
    if env.get("LOCALAPPDATA"):
        yield env["LOCALAPPDATA"]


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Files that exist, in order of their names; folders that are links are not followed."""
    try:
        entries = sorted(folder.iterdir())[:MAX_FILES]
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            if depth > 1:
                yield from _walk(entry, depth - 1)
        elif entry.is_file():
            yield entry
