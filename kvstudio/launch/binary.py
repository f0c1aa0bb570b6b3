"""A llama.cpp program on this machine: where it is and what it can do."""

import mmap
import os
import re
import site
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kvstudio.errors import LaunchError
from kvstudio.launch.ask import Answer, ask
from kvstudio.launch.environment import child_env
from kvstudio.launch.flags import program_name
from kvstudio.launch.places import find_programs, packages_of
from kvstudio.launch.version import VersionText, build_from_place, parse_help, parse_version

VERSION_TIMEOUT_S = 10.0
#: A first contact with a driver may compile shaders.
DEVICES_TIMEOUT_S = 60.0

#: Backend by the end of its library's name, or by its registration function. Source: ggml/src/ggml-backend-reg.cpp.
BACKENDS = {
    "cuda": "CUDA",
    "hip": "ROCm",
    "musa": "MUSA",
    "vulkan": "Vulkan",
    "vk": "Vulkan",
    "metal": "Metal",
    "sycl": "SYCL",
    "opencl": "OpenCL",
    "cann": "CANN",
    "rpc": "RPC",
    "blas": "BLAS",
    "webgpu": "WebGPU",
    "hexagon": "Hexagon",
    "openvino": "OpenVINO",
    "zdnn": "zDNN",
    "zendnn": "ZenDNN",
    "virtgpu": "VirtGPU",
    "cpu": "CPU",
}
_LIBRARY = re.compile(r"(?:lib)?ggml-([a-z]+)(?:-[\w.]+)?\.(?:so|dylib|dll)(?:\.[\d.]+)?$")
_REGISTERED = re.compile(rb"ggml_backend_([a-z]+)_reg\b")
_MISSING_LIBRARY = re.compile(r"(?:loading shared libraries:|Library not loaded:)\s*(?:@rpath/)?([^\s:]+)")
#: Statically linked programs with CUDA reach a gigabyte; more is not searched.
_MAX_SEARCHED_BYTES = 3 * 1024**3


@dataclass(frozen=True, slots=True)
class Binary:
    """A program as it described itself.

    `build` is the upstream build number (11434), None when it does not say and nothing around it does; `flags` every
    option of `--help`, `valued` those that take a value; `defaults` what `--help` says holds when an option is not
    typed, by spelling. `env` are variables it needs (a wheel's library path). `source`: path, package, or folder.
    """

    path: str
    program: str
    version: str
    build: int | None
    commit: str | None
    compiler: str | None
    backends: tuple[str, ...]
    flags: frozenset[str]
    source: str = "path"
    env: tuple[tuple[str, str], ...] = ()
    valued: frozenset[str] = frozenset()
    defaults: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """`llama-server b11434`, or the version when no build is known."""
        return f"{self.program} b{self.build}" if self.build else f"{self.program} {self.version}".strip()

    def default(self, flag: str) -> str | None:
        """What `--help` says holds when `flag` is not typed."""
        return dict(self.defaults).get(flag)


@dataclass(slots=True)
class InspectCache:
    """Binaries already inspected, by path, the file it leads to, size and time of change: each is started once.

    Plain data in and out of JSON: `InspectCache(entries)` of `to_json()` is the same cache.
    """

    entries: dict[str, Any] = field(default_factory=dict)

    def get(self, path: str) -> Binary | None:
        entry = self.entries.get(path)
        stamp = _stamp(path)
        if not isinstance(entry, dict) or not stamp or entry.get("stamp") != stamp:
            return None
        try:
            return _from_json(entry["binary"])
        except (KeyError, TypeError, ValueError):
            return None

    def put(self, binary: Binary) -> None:
        self.entries[binary.path] = {"stamp": _stamp(binary.path), "binary": _to_json(binary)}

    def to_json(self) -> dict[str, Any]:
        return dict(self.entries)


def find(env: Mapping[str, str] | None = None, home: str | None = None) -> tuple[str, ...]:
    """Paths of all llama.cpp programs on this machine, llama-server first.

    `env` and `home` default to those of this process.
    """
    return find_programs(
        os.environ if env is None else env, _home() if home is None else home, dict.fromkeys(_package_folders())
    )


def _home() -> str | None:
    try:
        return str(Path.home())
    except RuntimeError:  # a user without a home folder
        return None


def _package_folders() -> list[str]:
    """Folders with Python packages; a bundle has none of its own."""
    if getattr(sys, "frozen", False):
        return []
    return [*site.getsitepackages(), site.getusersitepackages(), *sys.path]


def inspect(path: str, cache: InspectCache | None = None, timeout_s: float = VERSION_TIMEOUT_S) -> Binary:
    """Ask a program for its version and options.

    Raises: LaunchError with its own message for a program that is missing, not executable, for another CPU, lacks a
    library, crashes, hangs, or is none of llama.cpp's.
    """
    path = os.path.abspath(path)
    known = cache.get(path) if cache else None
    if known is not None:
        return known
    binary = _inspect(path, timeout_s)
    if cache is not None:
        cache.put(binary)
    return binary


def list_devices(
    binary: Binary,
    env: Iterable[tuple[str, str]] = (),
    timeout_s: float = DEVICES_TIMEOUT_S,
    rpc: tuple[str, ...] = (),
) -> str:
    """What `--list-devices` prints, with the variables of the settings and the devices of the RPC servers `rpc`.

    Raises: LaunchError when the program has no such option, or fails.
    """
    if binary.flags and "--list-devices" not in binary.flags:
        says = f"{binary.path} ({binary.title}) has no --list-devices."
        raise LaunchError(says, "Use a newer llama.cpp, or type the devices.")
    if rpc and binary.flags and "--rpc" not in binary.flags:
        raise LaunchError(f"{binary.path} ({binary.title}) has no --rpc.", "Choose a build with the RPC backend.")
    # The list is printed as soon as the option is met, so the servers have to be named before it.
    servers = ("--rpc", ",".join(rpc)) if rpc else ()
    named = {"LLAMA_ARG_RPC"} if rpc else set()
    variables = tuple((name, value) for name, value in env if name not in named)
    answer = ask((binary.path, *servers, "--list-devices"), child_env(variables, binary), timeout_s)
    if answer.code != 0:
        raise _failed(binary.path, "--list-devices", answer)
    return answer.text


def _inspect(path: str, timeout_s: float) -> Binary:
    env: tuple[tuple[str, str], ...] = ()
    answer = ask((path, "--version"), child_env((), None), timeout_s)
    if answer.code != 0 and (folder := _library_folder(path, answer.text)):
        env = (("DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH", folder),)
        answer = ask((path, "--version"), child_env(env, None), timeout_s)
    version = parse_version(answer.text)
    # A link in a folder of links says nothing; the place it leads to has the package's or the build's name.
    real = os.path.realpath(path)
    package = packages_of(real)
    draft = Binary(
        path=path,
        program=program_name(path),
        version=version.version if version else "",
        build=(version.build if version else None) or build_from_place(real, package),
        commit=version.commit if version else None,
        compiler=version.compiler if version else None,
        backends=(),
        flags=frozenset(),
        source="package" if package else "path",
        env=env,
    )
    return _with_abilities(draft, version, answer, timeout_s)


def _with_abilities(draft: Binary, version: VersionText | None, answer: Answer, timeout_s: float) -> Binary:
    """The binary with its options; raises when neither answer was one of llama.cpp."""
    if version is None and (answer.code < 0 or answer.code in (126, 127)):
        raise _failed(draft.path, "--version", answer)
    said = ask((draft.path, "--help"), child_env((), draft), timeout_s)
    options = parse_help(said.text)
    if version is None and not {"-h", "--help"} & options.flags:
        if answer.code != 0:
            raise _failed(draft.path, "--version", answer)
        says = f"{draft.path} answered --version with something that is not llama.cpp's: {_first_line(answer.text)}"
        raise LaunchError(says, "Choose a program of llama.cpp, such as llama-server.")
    if version is None and not re.search(r"ggml|llama|gguf", said.text, re.IGNORECASE):
        raise LaunchError(f"{draft.path} is not a program of llama.cpp.", "Choose one such as llama-server.")
    return replace(
        draft,
        flags=options.flags,
        valued=options.valued,
        defaults=options.defaults,
        backends=_backends(draft.path),
    )


def _library_folder(path: str, text: str) -> str | None:
    """Where the library lies that the loader did not find, if it lies near the program."""
    match = _MISSING_LIBRARY.search(text)
    if match is None:
        return None
    here = os.path.dirname(os.path.realpath(path))
    for folder in (here, os.path.join(here, "lib"), os.path.join(os.path.dirname(here), "lib")):
        if os.path.exists(os.path.join(folder, os.path.basename(match[1]))):
            return folder
    return None


def _failed(path: str, question: str, answer: Answer) -> LaunchError:
    match = _MISSING_LIBRARY.search(answer.text)
    if match:
        hint = "Install the driver or runtime that has it, or get a build for this machine."
        return LaunchError(f"{path} needs the library {match[1]}, which is not on this system.", hint)
    if answer.code < 0:
        name = {4: "SIGILL", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 7: "SIGBUS"}.get(-answer.code, "")
        hint = "It was built for another CPU." if answer.code == -4 else "Run it in a terminal to see what it says."
        return LaunchError(f"{path} {question} crashed with signal {-answer.code} {name}".strip() + ".", hint)
    said = _first_line(answer.err or answer.out)
    says = f"{path} {question} failed with exit code {answer.code} and printed {said}"
    return LaunchError(says, "Run it in a terminal to see what it says.")


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
    return line[:160]


def _backends(path: str) -> tuple[str, ...]:
    """By the libraries beside the program, else by what is linked into it."""
    here = os.path.dirname(os.path.realpath(path))
    found: set[str] = set()
    for folder in (here, os.path.join(os.path.dirname(here), "lib")):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found |= {match[1] for name in names if (match := _LIBRARY.match(name)) and match[1] in BACKENDS}
    return tuple(sorted({BACKENDS[name] for name in found or _linked(path)}))


def _linked(path: str) -> set[str]:
    try:
        with open(path, "rb") as file:
            if not 0 < os.fstat(file.fileno()).st_size < _MAX_SEARCHED_BYTES:
                return set()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                names = {match[1].decode() for match in _REGISTERED.finditer(data)}
    except (OSError, ValueError):
        return set()
    return names & BACKENDS.keys()


def _stamp(path: str) -> list[Any]:
    """What tells that a program is the same as before: the file behind all links, its size and time, and the time of
    its folder, since a program that only loads a library changes by that library's new file."""
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
        return [real, status.st_size, status.st_mtime_ns, os.stat(os.path.dirname(real)).st_mtime_ns]
    except OSError:
        return []


def _to_json(binary: Binary) -> dict[str, Any]:
    plain = asdict(binary)
    for name in ("flags", "valued"):
        plain[name] = sorted(plain[name])
    return plain | {name: [list(pair) for pair in plain[name]] for name in ("env", "defaults")}


def _from_json(plain: Mapping[str, Any]) -> Binary:
    sets = {name: frozenset(map(str, plain[name])) for name in ("flags", "valued")}
    pairs = {name: tuple((str(a), str(b)) for a, b in plain[name]) for name in ("env", "defaults")}
    return Binary(**{**plain, **sets, **pairs, "backends": tuple(plain["backends"])})
