"""Text of --version and --help -> version, build, compiler, options and their defaults."""

import re
from dataclasses import dataclass

#: Builds from shallow clones and archives count 0 or 1 commits; the upstream count passed this in 2023.
SMALLEST_BUILD = 200

#: Column where descriptions start. Source: `common_arg::to_string` in common/arg.cpp.
_COLUMN = 40

_NEW = re.compile(r"version:\s*(?P<version>\S+)\s*\(build\s+(?P<build>\d+),\s*commit\s+(?P<commit>[\w.-]+)\)")
_OLD = re.compile(r"version:\s*b?(?P<build>\d+)\s*\((?P<commit>[\w.-]+)\)")
_ANY = re.compile(r"^version:\s*(?P<version>\S.*?)\s*$", re.MULTILINE)
_COMPILER = re.compile(r"built with\s+(?P<compiler>.+?)\s+for\s+(?P<target>.+?)\s*$", re.MULTILINE)
_NAME = r"-{1,2}[A-Za-z0-9][\w.-]*"
_OPTION = re.compile(rf"^ {{0,4}}(?P<names>{_NAME}(?:\s*,\s*{_NAME})*)(?P<rest>.*)$")
_DEFAULT = re.compile(r"\(default: '?([^,;)']*)")
_PACKAGE = re.compile(r"(?:^|\D)(?:0\.)?(?P<build>[1-9]\d{3,5})\.\d+(?:\.\d+)?$")
_FOLDER = re.compile(r"(?:^|[-_./\\])b(\d{4,6})(?=$|[-_./\\])")
_BREW = re.compile(r"/Cellar/llama\.cpp/(\d{4,6})/")


@dataclass(frozen=True, slots=True)
class VersionText:
    """`build` is None when the text gives none or one that only counts a shallow clone."""

    version: str
    build: int | None
    commit: str | None
    compiler: str | None


@dataclass(frozen=True, slots=True)
class HelpText:
    """Options by every spelling; `valued` those that take a value; `defaults` by spelling, as printed."""

    flags: frozenset[str]
    valued: frozenset[str]
    defaults: tuple[tuple[str, str], ...]


def parse_version(text: str) -> VersionText | None:
    """What `--version` printed; None when it is not an answer of llama.cpp."""
    found = _COMPILER.search(text)
    compiler = f"{found['compiler']} for {found['target']}" if found else None
    for pattern in (_NEW, _OLD):
        match = pattern.search(text)
        if match:
            groups = match.groupdict()
            build = int(groups["build"])
            commit = None if groups["commit"] == "unknown" else groups["commit"]
            version = groups.get("version") or groups["build"]
            return VersionText(version, build if build >= SMALLEST_BUILD else None, commit, compiler)
    match = _ANY.search(text)
    return VersionText(match["version"], None, None, compiler) if match and compiler else None


def parse_help(text: str) -> HelpText:
    """The options of `--help`; those it lists only to say that they were removed are left out."""
    flags: set[str] = set()
    valued: set[str] = set()
    defaults: dict[str, str] = {}
    for names, placeholder, description in _options(text):
        if "argument has been removed" in description:
            continue
        flags.update(names)
        if placeholder:
            valued.update(names)
        match = _DEFAULT.search(description)
        if match:
            defaults.update(dict.fromkeys(names, match[1].strip()))
    return HelpText(frozenset(flags), frozenset(valued), tuple(sorted(defaults.items())))


def build_from_place(path: str, package_version: str | None) -> int | None:
    """The upstream build by the package's version (`0.10434.0`, `11434.0.0`) or a folder's name (`llama-b6345-bin`)."""
    if package_version and (match := _PACKAGE.search(package_version)):
        return int(match["build"])
    if match := _BREW.search(path):
        return int(match[1])
    found = _FOLDER.findall(path)
    return int(found[-1]) if found else None


def _options(text: str) -> list[tuple[tuple[str, ...], str, str]]:
    """Spellings, value's name and description of each option."""
    options: list[tuple[tuple[str, ...], str, list[str]]] = []
    for line in text.splitlines():
        match = _OPTION.match(line)
        if match:
            rest = match["rest"]
            room = max(0, _COLUMN - match.start("rest"))
            # Before the column comes the value's name; older builds parted it from the description by spaces only.
            value, _, says = rest.strip().partition("  ") if not rest.startswith("  ") else ("", "", rest)
            if len(rest) > room and rest[:room].strip() and not rest.startswith("  "):
                value, says = rest[:room].strip(), rest[room:]
            names = tuple(re.findall(rf"(?:^|(?<=[\s,])){_NAME}", match["names"]))
            options.append((names, value.strip(), [says.strip()]))
        elif options and line.startswith(" "):
            options[-1][2].append(line.strip())
    return [(names, value, " ".join(says)) for names, value, says in options]
