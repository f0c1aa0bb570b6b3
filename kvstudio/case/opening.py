"""A path or a text that was dropped, pasted or named, to what it is: model, projector, log, case, folder or command."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvstudio.case import store
from kvstudio.case.values import Case
from kvstudio.errors import KvStudioError
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo

_MAGIC = b"GGUF"
_HEAD_BYTES = 4096
_COMMAND_BYTES = 64 * 1024
#: A llama.cpp program at the start of a line, perhaps behind variables, `$ `, `exec` or a path.
_COMMAND = re.compile(
    r"^\s*(?:[$#>]\s+)?(?:(?:export|env|exec|sudo|nohup|set)\s+)*(?:[A-Za-z_]\w*=\S*\s+)*\"?(?:\S*[/\\])?"
    r"llama-(?:server|cli|completion|bench|perplexity|embedding|mtmd-cli|fit-params|batched-bench)(?:\.exe)?\"?(?=\s|$)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model, its header read."""

    path: str
    model: ModelInfo


@dataclass(frozen=True, slots=True)
class OpenedProjector:
    """A multimodal projector (mmproj), which belongs to a model."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log with its diagnosis; `config` and `model` where the log or the disk has them."""

    path: str
    log: Any
    config: LaunchConfig | None
    model: ModelInfo | None


@dataclass(frozen=True, slots=True)
class OpenedCase:
    """A saved case."""

    path: str
    case: Case


@dataclass(frozen=True, slots=True)
class OpenedCommand:
    """A command line with the model it names, if that can be read; `problem` says why not."""

    config: LaunchConfig
    model: ModelInfo | None
    problem: KvStudioError | None = None


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """A folder's models and logs, as paths."""

    path: str
    models: tuple[str, ...]
    logs: tuple[str, ...]


Opened = OpenedModel | OpenedProjector | OpenedLog | OpenedCase | OpenedCommand | OpenedFolder


def open_path(path: str) -> Opened:
    """Read what `path` is.

    Raises: KvStudioError (mostly HeaderError or StoreError) with one sentence and a hint.
    """
    if os.path.isdir(path):
        return _open_folder(path)
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise KvStudioError(
            f"{Path(path).name} could not be read: {error.strerror or error}", "Check the path and its permissions."
        ) from error
    if head.startswith(_MAGIC) or Path(path).suffix.lower() == ".gguf":
        return _open_gguf(path)
    if not head:
        raise KvStudioError(f"{Path(path).name} is empty: 0 bytes", "A model, a log or a saved case was expected.")
    if store.is_case(head.decode("utf-8", "replace")):
        return OpenedCase(path, store.load(path))
    if _is_binary(head):
        raise KvStudioError(
            f"{Path(path).name} starts with {head[:4]!r}, which is neither a GGUF file nor text",
            "Drop a model (.gguf), a log, a saved case, or a folder.",
        )
    return _open_command_file(path) or _open_log(path)


def open_text(text: str) -> Opened:
    """Read a pasted text: a command line, a path, or a log.

    Raises: KvStudioError when it is none of these.
    """
    stripped = text.strip().strip('"').removeprefix("file://")
    if not stripped:
        raise KvStudioError("Nothing to paste: the clipboard holds no text", "Copy a llama-server command line first.")
    if "\n" not in stripped and os.path.exists(os.path.expanduser(stripped)):
        return open_path(os.path.expanduser(stripped))
    if looks_like_command(text):
        return open_command(text)
    if "\n" in stripped:
        return _read_log("pasted text", text.encode("utf-8", "replace"))
    if re.search(r"(?:^|\s)-{1,2}[a-z]", stripped):
        return open_command(stripped)
    raise KvStudioError(
        "The pasted text is neither a llama.cpp command line, nor a log, nor a file",
        "A command line starts with llama-server or llama-cli.",
    )


def looks_like_command(text: str) -> bool:
    """Whether a text holds a llama.cpp command line and little else."""
    return _COMMAND.search(text) is not None and len(_joined(text).strip().splitlines()) <= 20


def open_command(text: str) -> OpenedCommand:
    """Read a command line and the model it names.

    Raises: ConfigError when the command line cannot be understood.
    """
    from kvstudio.launch.argv import parse_argv, split_command

    config = parse_argv(split_command(_command_of(text)))
    path = config.model_path or _downloaded(config)
    if not path:
        return OpenedCommand(config, None)
    try:
        return OpenedCommand(config, read_model(path))
    except KvStudioError as error:
        return OpenedCommand(config, None, error)


def _downloaded(config: LaunchConfig) -> str | None:
    """The file behind `-hf`, if it is here."""
    from kvstudio.header.hub import find_repo_model

    return find_repo_model(config.hf_repo, config.hf_file) if config.hf_repo else None


def read_model(path: str) -> ModelInfo:
    """Header and description of the model at `path`; `~` is the home folder, as in a shell.

    Raises: HeaderError.
    """
    from kvstudio.header.reader import read
    from kvstudio.model.describe import describe

    return describe(read(os.path.expanduser(path)))


def _open_gguf(path: str) -> OpenedModel | OpenedProjector:
    from kvstudio.header.reader import read
    from kvstudio.model.describe import describe

    header = read(path)
    if header.metadata.get("general.architecture") == "clip":
        return OpenedProjector(path, header.size_bytes)
    return OpenedModel(path, describe(header))


def _open_log(path: str) -> OpenedLog:
    return _read_log(path, path)


def _read_log(name: str, source: str | bytes) -> OpenedLog:
    from kvstudio.diagnose.config import config_from_log
    from kvstudio.diagnose.read import read_log

    log = read_log(source)
    config = config_from_log(log.events, log.lines)
    model = None
    if config is not None and config.model_path and os.path.isfile(os.path.expanduser(config.model_path)):
        try:
            model = read_model(config.model_path)
        except KvStudioError:
            # The log says what happened to its model better than our reader can.
            model = None
    return OpenedLog(name, log, config, model)


def _open_command_file(path: str) -> OpenedCommand | None:
    if os.path.getsize(path) > _COMMAND_BYTES:
        return None
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    return open_command(text) if looks_like_command(text) else None


def _open_folder(path: str) -> OpenedFolder:
    models: list[str] = []
    logs: list[str] = []
    try:
        for entry in sorted(Path(path).rglob("*")):
            if entry.suffix.lower() == ".gguf" and entry.is_file():
                models.append(str(entry))
            elif entry.suffix.lower() == ".log" and entry.is_file():
                logs.append(str(entry))
    except OSError as error:
        raise KvStudioError(f"{Path(path).name} could not be read: {error.strerror or error}") from error
    if not models and not logs:
        raise KvStudioError(f"No model and no log in {Path(path).name}", "Files named .gguf or .log were looked for.")
    return OpenedFolder(path, _first_shards(models), tuple(logs))


def _first_shards(models: list[str]) -> tuple[str, ...]:
    later = re.compile(r"-(?!00001-of-)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
    first = tuple(m for m in models if not later.search(m))
    return first or tuple(models[:1])


def _joined(text: str) -> str:
    """Lines that end with a continuation (`\\`, `^`, backtick) joined."""
    return re.sub(r"[\\^`]\s*\r?\n", " ", text)


def _command_of(text: str) -> str:
    """The command's own lines, without a shell's prompt or the comments around it."""
    joined = _joined(text)
    match = _COMMAND.search(joined)
    if match is None:
        return joined.strip()
    end = joined.find("\n", match.end())
    line = joined[match.start() : end if end >= 0 else None].strip()
    return re.sub(r"^(?:[$#>]\s+|(?:export|env|exec|sudo|nohup|set)\s+)+", "", line)


def _is_binary(head: bytes) -> bool:
    # A log may hold single NUL bytes (a killed writer leaves some), and UTF-16 has many in a pattern.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False
    control = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head)
    return control > len(head) // 5
