"""The usual folders of model files -> the models in them, each by the name its header or its catalogue gives."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvstudio.errors import HeaderError
from kvstudio.header.parse import parse_general
from kvstudio.units import format_bytes

#: Bounds that keep a search short, whatever the folders hold.
MAX_MODELS = 200
MAX_ENTRIES = 20_000
MAX_DEPTH = 6
MAX_MANIFEST_BYTES = 1024**2

_SHARD = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf", re.IGNORECASE | re.DOTALL)
_OLLAMA_MODEL = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model file; `name` is for people, `detail` says architecture and size, `source` whose folder it lies in."""

    path: str
    name: str
    detail: str
    source: str
    size_bytes: int


@dataclass(slots=True)
class _Search:
    """What was seen so far, for the bounds and against naming a file twice."""

    entries_left: int = MAX_ENTRIES
    seen: set[str] = field(default_factory=set)
    found: list[FoundModel] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.found) >= MAX_MODELS


def find_models(home: str | None = None, env: Mapping[str, str] | None = None) -> tuple[FoundModel, ...]:
    """Models that other programs keep: Ollama, Hugging Face, llama.cpp, LM Studio, Jan, and the usual own folders.

    Projectors, adapters, further files of a split model and damaged files are left out. `home` and `env` default to
    those of this process. Folders that are links are not followed, nothing is changed, and nothing raises.
    """
    env = os.environ if env is None else env
    home = home_folder() if home is None else home
    search = _Search()
    for folder in _ollama_folders(home, env):
        _ollama(folder, search)
    for source, folder in _folders(home, env):
        for path in _gguf_files(folder, search, MAX_DEPTH):
            _add(path, source, "", search)
    return tuple(sorted(search.found, key=lambda model: (model.source, model.name.lower(), model.path)))


def home_folder() -> str:
    """This user's home; a folder that cannot exist for a user without one."""
    try:
        return str(Path.home())
    except RuntimeError:
        return os.devnull


def _ollama_folders(home: str, env: Mapping[str, str]) -> tuple[str, ...]:
    own = env.get("OLLAMA_MODELS")
    usual = (os.path.join(home, ".ollama/models"), "/usr/share/ollama/.ollama/models", "/var/lib/ollama/models")
    return (own, *usual) if own else usual


def _folders(home: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    cache = env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    hub = env.get("HF_HUB_CACHE") or os.path.join(env.get("HF_HOME") or os.path.join(cache, "huggingface"), "hub")
    yield "Hugging Face", hub
    own = env.get("LLAMA_CACHE")
    for folder in (own, os.path.join(cache, "llama.cpp"), os.path.join(home, "Library/Caches/llama.cpp"),
                   os.path.join(env["LOCALAPPDATA"], "llama.cpp") if env.get("LOCALAPPDATA") else None):  # fmt: skip
        if folder:
            yield "llama.cpp", folder
    for name in (".lmstudio/models", ".cache/lm-studio/models"):
        yield "LM Studio", os.path.join(home, name)
    for name in (".local/share/Jan/data/llamacpp/models", "Library/Application Support/Jan/data/llamacpp/models",
                 "AppData/Roaming/Jan/data/llamacpp/models"):  # fmt: skip
        yield "Jan", os.path.join(home, name)
    for name in ("models", "Models", "llama.cpp/models", "Downloads"):
        yield f"~/{name}", os.path.join(home, name)


def _gguf_files(folder: str, search: _Search, depth: int) -> Iterator[str]:
    """Files that end in .gguf, without following links to folders."""
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                search.entries_left -= 1
                if search.entries_left < 0 or search.full:
                    return
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.lower().endswith(".gguf"):
                    yield entry.path
    except OSError:
        return
    if depth > 1:
        for inner in sorted(folders):
            yield from _gguf_files(inner, search, depth - 1)


def _ollama(folder: str, search: _Search) -> None:
    """Models by their manifests (registry/owner/name/tag), since the blobs are named by their hash."""
    manifests = Path(folder, "manifests")
    for path in _files(manifests, search, 3):
        digest = _model_digest(path)
        if digest:
            _registry, owner, name, tag = path.relative_to(manifests).parts
            title = f"{name}:{tag}" if owner == "library" else f"{owner}/{name}:{tag}"
            _add(os.path.join(folder, "blobs", digest.replace(":", "-")), "Ollama", title, search)


def _files(folder: Path, search: _Search, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        search.entries_left -= 1
        if search.entries_left < 0 or search.full:
            return
        if entry.is_dir() and not entry.is_symlink():
            if depth:
                yield from _files(entry, search, depth - 1)
        elif not depth:
            yield entry


def _model_digest(manifest: Path) -> str | None:
    try:
        with manifest.open("rb") as file:
            plain = json.loads(file.read(MAX_MANIFEST_BYTES))
        layers = plain["layers"]
        digests = [layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_MODEL]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    digest = digests[0] if digests else None
    return digest if isinstance(digest, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", digest) else None


def _add(path: str, source: str, title: str, search: _Search) -> None:
    shard = _SHARD.fullmatch(os.path.basename(path))
    real = os.path.realpath(path)
    if search.full or real in search.seen or (shard and int(shard[2]) != 1):
        return
    search.seen.add(real)
    try:
        general = parse_general(path)
        size = _size(path)
    except (HeaderError, OSError):
        return
    architecture = general.get("general.architecture")
    if not isinstance(architecture, str) or architecture == "clip" or general.get("general.type") in _NO_MODELS:
        return
    name = title or _title(general.get("general.name"), path)
    search.found.append(FoundModel(path, name, f"{architecture}, {format_bytes(size)}", source, size))


#: Source: `GGUFType` of the package gguf.
_NO_MODELS = ("adapter", "imatrix", "mmproj", "vocab")


def _title(name: object, path: str) -> str:
    """The header's name; the file's where the header has none, plus the quantization that only the file names."""
    shard = _SHARD.fullmatch(os.path.basename(path))
    stem = shard[1] if shard else os.path.basename(path)[: -len(".gguf")]
    if not isinstance(name, str) or not name.strip():
        return stem
    quantization = re.search(r"(?:^|[-._])((?:UD-)?I?Q\d[\w]*|B?F16|F32|MXFP4\w*)$", stem, re.IGNORECASE)
    title = " ".join(name.split())[:120]
    return f"{title} {quantization[1]}" if quantization and quantization[1].lower() not in title.lower() else title


def _size(path: str) -> int:
    """Bytes of the file, of a split model of all its files that are there."""
    shard = _SHARD.fullmatch(path)
    if shard is None:
        return os.stat(path).st_size
    count = min(int(shard[3]), 1024)
    paths = (f"{shard[1]}-{index + 1:05d}-of-{shard[3]}.gguf" for index in range(count))
    return sum(os.stat(each).st_size for each in paths if os.path.isfile(each))
