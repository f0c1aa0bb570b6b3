"""Where llama.cpp's programs usually are, on each system."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from glob import escape, iglob
from itertools import islice
from pathlib import Path

#: In the order in which they are offered.
PROGRAMS = (
    "llama-server",
    "llama-cli",
    "llama-completion",
    "llama-fit-params",
    "llama-bench",
    "llama-mtmd-cli",
    "llama-perplexity",
    "ggml-rpc-server",
    "rpc-server",
)

#: A pattern in a crowded folder is not followed further than this.
MAX_PER_PATTERN = 64

_UNIX = ("/usr/local/bin", "/usr/bin", "/opt/llama.cpp/bin", "/opt/llama.cpp/build/bin", "/opt/llama.cpp", "/app",
         "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/opt/local/bin", "/snap/bin",
         "/run/current-system/sw/bin", "/usr/lib/ollama", "/usr/local/lib/ollama",
         "/Applications/Ollama.app/Contents/Resources",
         "/Applications/Ollama.app/Contents/Resources/lib/ollama")  # fmt: skip
_HOME = (".local/bin", "bin", ".nix-profile/bin", ".linuxbrew/bin", ".docker/bin", "llama.cpp", "llama.cpp/build/bin",
         "llama.cpp/build/bin/Release", "llama.cpp/build-*/bin", "*/llama.cpp/build/bin", "*/llama.cpp/build-*/bin",
         "llama-b*", "llama-b*/build/bin", "Downloads/llama-b*", "Downloads/llama-b*/build/bin",
         "miniconda3/bin", "miniforge3/bin", "anaconda3/bin", "miniconda3/envs/*/bin", "miniforge3/envs/*/bin",
         ".lmstudio/extensions/backends/*", ".cache/lm-studio/extensions/backends/*",
         ".local/share/Jan/data/llamacpp/backends/*/*/build/bin",
         "Library/Application Support/Jan/data/llamacpp/backends/*/*/build/bin",
         "AppData/Roaming/Jan/data/llamacpp/backends/*/*/build/bin", ".cache/lemonade/bin/llamacpp/*",
         "AppData/Local/Microsoft/WinGet/Links", "AppData/Local/Microsoft/WinGet/Packages/ggml.llamacpp*",
         "AppData/Local/Programs/Ollama/lib/ollama", "scoop/apps/llama.cpp/current", "scoop/shims")  # fmt: skip
_WINDOWS = ("C:\\llama.cpp", "C:\\llama.cpp\\build\\bin\\Release", "C:\\Program Files\\llama.cpp", "C:\\llama-b*",
            "C:\\ProgramData\\chocolatey\\bin", "C:\\msys64\\ucrt64\\bin", "C:\\msys64\\clang64\\bin")  # fmt: skip
#: Where Python keeps its packages, for those that our own Python does not know of, as a bundle's knows none.
_PYTHONS = ("/usr/lib/python3*", "/usr/local/lib/python3*", "/opt/homebrew/lib/python3*", "C:\\Python3*\\Lib")
_PYTHONS_HOME = (".local/lib/python3*", ".local/share/uv/tools/*/lib/python3*",
                 ".local/share/pipx/venvs/*/lib/python3*", ".local/pipx/venvs/*/lib/python3*",
                 "miniconda3/lib/python3*", "miniforge3/lib/python3*", "Library/Python/3*/lib/python",
                 "AppData/Local/Programs/Python/Python3*/Lib", "AppData/Roaming/Python/Python3*",
                 "AppData/Roaming/uv/tools/*/Lib", "pipx/venvs/*/Lib")  # fmt: skip
_PACKAGES = ("*llama*/bin", "*llama*/build/bin", "*llama*")


def find_programs(env: Mapping[str, str], home: str | None, search_path: Iterable[str] = ()) -> tuple[str, ...]:
    """Paths of llama.cpp's programs, llama-server first, then by place: PATH, usual folders, installed packages.

    A file is named once, however many links lead to it. `search_path` are folders with Python packages; those of the
    system, of the user and of an active environment are searched as well.
    """
    found: dict[str, tuple[int, int, str]] = {}
    for place, folder in enumerate(_folders(env, home, search_path)):
        for rank, name in enumerate(PROGRAMS):
            path = os.path.join(folder, name + (".exe" if sys.platform == "win32" else ""))
            if is_program_file(path):
                found.setdefault(os.path.realpath(path), (rank, place, path))
    return tuple(path for _, _, path in sorted(found.values()))


def is_program_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def packages_of(path: str) -> str | None:
    """Version of the Python package that a program belongs to, by the metadata folder beside the package."""
    parts = Path(path).parts
    for index, part in enumerate(parts):
        if part in ("site-packages", "dist-packages") and index + 2 < len(parts):
            stem = parts[index + 1].replace("-", "_").lower()
            for info in islice(Path(*parts[: index + 1]).glob("*.dist-info"), 5000):
                name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
                if name.replace("-", "_").lower() == stem:
                    return version
    return None


def _folders(env: Mapping[str, str], home: str | None, search_path: Iterable[str]) -> Iterator[str]:
    yield from filter(None, env.get("PATH", "").split(os.pathsep))
    for folder in _WINDOWS if sys.platform == "win32" else _UNIX:
        yield from _expand(folder)
    if home:
        for pattern in _HOME:
            yield from _expand(os.path.join(escape(home), pattern))
    for folder in dict.fromkeys((*search_path, *_package_folders(env, home))):
        if os.path.basename(folder) in ("site-packages", "dist-packages"):
            for pattern in _PACKAGES:
                yield from _expand(os.path.join(escape(folder), pattern))


def _package_folders(env: Mapping[str, str], home: str | None) -> Iterator[str]:
    pythons = list(_PYTHONS)
    pythons += [os.path.join(escape(home), pattern) for pattern in _PYTHONS_HOME] if home else []
    for prefix in filter(None, (env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX"))):
        pythons += [os.path.join(escape(prefix), inner) for inner in ("lib/python3*", "Lib")]
    for python in pythons:
        for name in ("site-packages", "dist-packages"):
            yield from _expand(os.path.join(python, name))


def _expand(pattern: str) -> Iterator[str]:
    if "*" not in pattern:
        yield pattern
    else:
        yield from sorted(islice(iglob(pattern), MAX_PER_PATTERN))
