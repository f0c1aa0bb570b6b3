"""Pasted text -> the words of the command in it: quotes, continued lines and comments of three systems' shells."""

import re
from dataclasses import dataclass

from kvstudio.errors import ConfigError
from kvstudio.launch.flags import OLD_PROGRAMS

#: Text that can only come from Windows: there a backslash is a letter of a path.
_WINDOWS = re.compile(r"""(?:^|[\s"'=])(?:[A-Za-z]:\\|\.{1,2}\\|\\\\)|\\[\w.-]+\.(?:exe|gguf)\b|[\^`][ \t]*\r?\n""")
_PROMPT = re.compile(
    r"^\s*(?:[\w.-]+@[\w.-]+[^$#\n]*[$#]|PS(?: [^>\n]*)?>|[A-Za-z]:\\[^>\n]*>|\([\w.-]+\)\s*[$#]|[$>%]"
    r"|#(?=\s+(?:\S+=\S+\s+|sudo\s+)*\S*(?:llama|ggml)-))\s+"  # else it starts a comment
)
_ASSIGN = re.compile(r"(?:\$env:)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PROGRAM = re.compile(rf"(?:^|[/\\])(?:(?:llama|ggml)-[\w-]+|llama|{'|'.join(OLD_PROGRAMS)})(?:\.exe)?$")
_ENDS = ("&&", "||", "|", ";", "&", "\n")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the shell would pass it; `quoted` tells a quoted `|` from the operator."""

    text: str
    quoted: bool


def split_command(text: str) -> tuple[str, ...]:
    """The words of the llama.cpp command in a pasted text, without prompt, pipes, redirections and comments.

    Of several commands the last that names a program of llama.cpp is taken; variables that lines before it set
    (`export A=1`, `set A=1`, `$env:A=1`) come first, as `A=1`. Nothing is expanded, neither `~` nor `$HOME`.

    Raises: ConfigError when a quote is not closed or no word is left.
    """
    assigned: dict[str, str] = {}
    commands: list[tuple[str, ...]] = []
    for words in _commands(text):
        setting = _assignments(words)
        if setting is None:
            commands.append(words)
        else:
            assigned |= setting
    if not commands:
        raise ConfigError("the text holds no command.", "Paste a command like: llama-server -m model.gguf -c 32768")
    chosen = next((words for words in reversed(commands) if any(map(is_program, words))), commands[0])
    return (*(f"{name}={value}" for name, value in assigned.items()), *chosen)


def is_program(word: str) -> bool:
    """Whether a word names a program of llama.cpp, today's or of old builds."""
    return _PROGRAM.search(word) is not None


def is_assignment(word: str) -> tuple[str, str] | None:
    """`A=1` as its two parts."""
    match = _ASSIGN.fullmatch(word)
    return (match[1], match[2]) if match else None


def _commands(text: str) -> list[tuple[str, ...]]:
    """All simple commands of the text, redirections left out."""
    commands: list[tuple[str, ...]] = []
    current: list[str] = []
    skip = False
    for word in (*_lex(_without_prompts(text)), Word("\n", False)):
        if word.text in _ENDS and not word.quoted:
            if current:
                commands.append(tuple(current))
            current, skip = [], False
        elif skip:
            skip = False
        elif not word.quoted and (match := re.fullmatch(r"[0-9&]?(?:>>?|<)(&?[^>]*)", word.text)):
            skip = not match[1]
        else:
            current.append(word.text)
    return commands


def _without_prompts(text: str) -> str:
    return "\n".join(_PROMPT.sub("", line) for line in text.replace("\r\n", "\n").split("\n"))


def _assignments(words: tuple[str, ...]) -> dict[str, str] | None:
    """Variables set by a command that does nothing else, None for any other command."""
    if words[0] in ("export", "set", "setx", "setenv"):
        words = words[1:]
    if len(words) == 3 and words[0].startswith("$env:") and words[1] == "=":
        words = (f"{words[0]}={words[2]}",)
    pairs = [is_assignment(word) for word in words]
    found = [pair for pair in pairs if pair]
    return dict(found) if found and len(found) == len(pairs) else None


def _lex(text: str) -> list[Word]:
    """Words and operators. A backslash, caret or backtick before a line's end joins lines, in any shell."""
    windows = _WINDOWS.search(text) is not None
    words: list[Word] = []
    current: list[str] | None = None
    quoted = False
    position = 0

    def close() -> None:
        nonlocal current, quoted
        if current is not None:
            words.append(Word("".join(current), quoted))
        current, quoted = None, False

    while position < len(text):
        letter = text[position]
        joined = re.compile(r"[\\^`][ \t]*\n").match(text, position)
        if joined:
            close()
            position = joined.end()
        elif letter in " \t\n":
            close()
            if letter == "\n":
                words.append(Word("\n", False))
            position += 1
        elif letter in "'\"" and not (windows and letter == "'" and current):
            part, position = _quoted(text, position, windows)
            current, quoted = (current or []) + [part], True
        elif letter == "\\" and not windows:
            current = (current or []) + [text[position + 1 : position + 2]]
            position += 2
        elif letter == "#" and current is None:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif letter in "|;&" and not (letter == "&" and current and current[-1].endswith(">")):
            close()
            operator = text[position : position + 2] if text[position : position + 2] in ("&&", "||") else letter
            words.append(Word(operator, False))
            position += len(operator)
        else:
            current = (current or []) + [letter]
            position += 1
    close()
    return words


def _quoted(text: str, start: int, windows: bool) -> tuple[str, int]:
    """The text between two quotes and the position after the second."""
    quote, position = text[start], start + 1
    letters: list[str] = []
    while position < len(text):
        letter = text[position]
        if letter == quote:
            return "".join(letters), position + 1
        follows = text[position + 1 : position + 2]
        if letter == "\\" and quote == '"' and (follows == '"' or (not windows and follows in "\\$`\n")):
            letters.append("" if follows == "\n" else follows)
            position += 2
            continue
        letters.append(letter)
        position += 1
    raise ConfigError(f"the quote {quote} at character {start + 1} is not closed.", "Close the quote or remove it.")
