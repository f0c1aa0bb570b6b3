"""Options of a command line that llama.cpp does not know: typing errors, which it refuses to start with."""

from difflib import get_close_matches

from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.flags import COMMON, ONE_VALUE, SWITCHES, TWO_VALUES, flags_of, plain

#: How alike two options are, 0 to 1, before one is taken for the other misspelt.
_CLOSE = 0.8
#: A word up to this long begins like too many others.
_SHORTEST = 4
_KNOWN = SWITCHES | ONE_VALUE | TWO_VALUES | {name for flag in COMMON for name in (*flag.names, *flag.no)}


def unknown_options(config: LaunchConfig, binary: Binary | None = None) -> tuple[str, ...]:
    """A sentence for each option that the program does not have, with what was probably meant.

    Without a binary the options of the newest known build decide, for programs that share them.
    """
    if binary is None or not binary.flags:
        if flags_of(config.program) is not COMMON:
            return ()
        return tuple(_says(word, "is no option of llama.cpp", _KNOWN) for word in _foreign(config, _KNOWN))
    said = f"is no option of {binary.title}"
    return tuple(_says(word, said, binary.flags) for word in _foreign(config, binary.flags))


def _foreign(config: LaunchConfig, known: frozenset[str]) -> tuple[str, ...]:
    """Typed options that are in nobody's list; a setting that an older build spells otherwise is not among them."""
    words = [arg.tokens[0] for arg in config.layout if arg.field is None and arg.tokens]
    return tuple(word for word in dict.fromkeys(words) if plain(word) not in known)


def _says(word: str, said: str, known: frozenset[str]) -> str:
    near = _near(plain(word), known)
    meant = f" Did you mean {near}?" if near else ""
    return f"{word} {said}, which refuses to start with it.{meant}"


def _near(word: str, known: frozenset[str]) -> str | None:
    """The known option that was probably meant: nearly the same letters, else the shortest that begins like it."""
    dashes = "--" if word.startswith("--") else "-"
    names = sorted(name for name in known if name.startswith(dashes) and name[len(dashes)] != "-")
    close = get_close_matches(word, names, n=1, cutoff=_CLOSE)
    begin = [name for name in names if name.startswith(word[:-1])] if len(word) > _SHORTEST else []
    return next(iter(close), min(begin, key=len, default=None))
