"""A command line in pieces that are never broken: a flag with its value, the changed ones marked, secrets as dots."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kvstudio.launch.config import LaunchConfig
from kvstudio.ui.settings_table import BY_FIELD, NOT_MARKED

_DOTS = "••••••••"
_SECRETS = ("--api-key", "--hf-token", "-hft", "LLAMA_API_KEY", "LLAMA_ARG_API_KEY", "HF_TOKEN")
_FLAG = re.compile(r"--?[A-Za-z]")
_NEEDS_QUOTES = re.compile(r"[\s\"'$`|&;<>()*?\\]")


@dataclass(frozen=True, slots=True)
class Word:
    """One piece; `changed` ones stand out."""

    text: str
    changed: bool = False


def command_text(config: LaunchConfig, mask_secrets: bool = False) -> str:
    """The command line as a shell takes it."""
    from kvstudio.launch.argv import format_command

    return format_command(config, mask_secrets=mask_secrets)


def words_of(config: LaunchConfig) -> tuple[Word, ...]:
    """The command in pieces as the window shows it: variables, program, then each flag with its value."""
    from kvstudio.launch.argv import build_argv

    typed = [field for field in config.typed() if field in BY_FIELD and field not in NOT_MARKED]
    unmarked = Counter(_pieces(build_argv(config.evolve(**dict.fromkeys(typed)))))
    words = [Word(_quoted(_masked((f"{name}={value}",))[0])) for name, value in config.env]
    tokens = build_argv(config)
    if not tokens or tokens[0] != config.program:
        words.append(Word(_quoted(config.program)))
    for piece in _pieces(tokens):
        changed = unmarked[piece] == 0
        unmarked[piece] -= not changed
        words.append(Word(" ".join(_quoted(homed(part)) for part in _masked(piece)), changed))
    return tuple(words)


def _pieces(tokens: Iterable[str]) -> list[tuple[str, ...]]:
    pieces: list[tuple[str, ...]] = []
    for token in tokens:
        last = pieces[-1] if pieces else ()
        if len(last) == 1 and _FLAG.match(last[0]) and "=" not in last[0] and not _FLAG.match(token):
            pieces[-1] = (*last, token)
        else:
            pieces.append((token,))
    return pieces


def _masked(piece: tuple[str, ...]) -> tuple[str, ...]:
    name, equals, _ = piece[0].partition("=")
    if name not in _SECRETS:
        return piece
    return (f"{name}={_DOTS}",) if equals else (name, *(_DOTS for _ in piece[1:]))


def homed(part: str) -> str:
    """A path below the home folder as people write it."""
    home = os.path.expanduser("~")
    return "~" + part[len(home) :] if len(home) > 1 and part.startswith(home + os.sep) else part


def _quoted(part: str) -> str:
    if part and not _NEEDS_QUOTES.search(part):
        return part
    return "'" + part.replace("'", "'\\''") + "'"


def equivalent_names() -> tuple[str, ...]:
    """Other programs a command can be shown for."""
    return ("Ollama", "LM Studio", "vLLM")


def equivalent_text(
    target: str, config: LaunchConfig, model_name: str, n_ctx: int | None
) -> tuple[str, str, tuple[str, ...]]:
    """Another program's lines to copy, the same with secrets as dots, and what has no equivalent there."""
    from kvstudio.launch.equivalents import equivalents

    parts = [e for e in equivalents(config, model_name, n_ctx) if e.program == target]
    titled = len(parts) > 1
    text = "\n".join(f"# {e.where}\n{e.text.strip()}" if titled else e.text.strip() for e in parts)
    secret = rf"(?<![\w-]){re.escape(config.api_key)}(?![\w-])" if config.api_key else ""
    shown = re.sub(secret, _DOTS, text) if secret else text
    return text, shown, tuple(note for e in parts for note in e.notes)
