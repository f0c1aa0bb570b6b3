"""Command lines of llama.cpp's programs <-> LaunchConfig, keeping order, spelling and everything we do not know."""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from kvstudio.errors import ConfigError
from kvstudio.launch.config import Arg, LaunchConfig
from kvstudio.launch.flags import (
    BENCH,
    COMMON,
    ONE_VALUE,
    SECRET_FLAGS,
    SECRET_NAME,
    TRUTHY,
    TWO_VALUES,
    Flag,
    flags_of,
    plain,
    program_name,
)
from kvstudio.launch.words import is_program, split_command
from kvstudio.launch.wrappers import host_path, unwrap

__all__ = ["build_argv", "build_env", "format_command", "parse_argv", "split_command"]

MASK = "***"
_PATHS = ("model_path", "mmproj", "model_draft")
_ADDING = ("override_tensor", "rpc", "spec_type")
_NUMBER = re.compile(r"-[0-9.]+")
_BENCH_SIZES = {"-p": "p", "--n-prompt": "p", "-n": "n", "--n-gen": "n", "-d": "d", "--n-depth": "d"}


def parse_argv(tokens: Iterable[str], env: Iterable[tuple[str, str]] = ()) -> LaunchConfig:
    """The settings of a command line, program first (or an option first, then llama-server is meant).

    Leading `A=1` words, `env`, `sudo`, `docker run IMAGE` and the like are taken off; their variables join `env`.
    Variables `LLAMA_ARG_*` count as typed, an option wins over its variable.

    Raises: ConfigError naming the option and its value.
    """
    found = unwrap(tuple(tokens))
    program = found.program or "llama-server"
    if "/" not in program and "\\" not in program:
        program = program_name(program) if is_program(program) else program
    flags = flags_of(program)
    layout = _layout(found.args, flags)
    merged = tuple((dict(env) | dict(found.env)).items())
    values = _values(layout, merged, flags)
    for field in _PATHS:
        if found.volumes and field in values:
            values[field] = host_path(values[field], found.volumes)
    if program_name(program) == "llama-bench":
        values |= _bench_context(layout)
    return LaunchConfig(program=program, env=merged, layout=layout, **values)


def build_argv(config: LaunchConfig) -> tuple[str, ...]:
    """The command line of the settings, program first.

    What was typed stays as typed and where it was; only a setting that has changed is written anew, and what was
    never typed is added at the end. A setting that is None is left out.
    """
    return (config.program, *(word for arg in arranged(config) for word in arg.tokens))


def build_env(config: LaunchConfig) -> tuple[tuple[str, str], ...]:
    """The variables of the settings without those that contradict them, since no option could undo these."""
    flags = flags_of(config.program)
    contradicting = set()
    for name, value in config.env:
        for field, said in _values((), ((name, value),), flags).items():
            wanted = getattr(config, field)
            if wanted in (None, "", ()) or (field in _ADDING and _after(wanted, said) is None):
                contradicting.add(name)
    return tuple(pair for pair in config.env if pair[0] not in contradicting)


def format_command(config: LaunchConfig, mask_secrets: bool = False) -> str:
    """The command as one line for a POSIX shell, variables first; secrets as `***` if asked."""
    words = []
    for name, value in build_env(config):
        secret = mask_secrets and SECRET_NAME.search(name) and not name.startswith("LLAMA_ARG_")
        words.append(f"{name}={MASK if secret else shlex.quote(value)}")
    words.append(shlex.quote(config.program))
    for arg in arranged(config):
        hidden = mask_secrets and arg.tokens and plain(arg.tokens[0]) in SECRET_FLAGS
        words += [arg.tokens[0], MASK] if hidden else [shlex.quote(word) for word in arg.tokens]
    return " ".join(words)


def arranged(config: LaunchConfig) -> tuple[Arg, ...]:
    """The arguments of the command line, one for each option, in order."""
    flags = flags_of(config.program)
    env = build_env(config)
    before = _values((), env, flags)
    typed = _values(config.layout, env, flags)
    args: list[Arg] = []
    done: set[str] = set()
    for arg in config.layout:
        if arg.field is None:
            args.append(arg)
        elif _same(typed.get(arg.field), getattr(config, arg.field)):
            args.append(arg)
            done.add(arg.field)
        elif arg.field not in done:
            args += _written(arg.field, config, before, flags, arg.tokens)
            done.add(arg.field)
    for field in dict.fromkeys(flag.field for flag in flags):
        if field not in done and not _same(before.get(field), getattr(config, field)):
            args += _written(field, config, before, flags)
    return tuple(args)


def _same(one: Any, other: Any) -> bool:
    """Equal, where an empty text or tuple is the same as none."""
    return bool((None if one in ("", ()) else one) == (None if other in ("", ()) else other))


def _layout(words: tuple[str, ...], flags: tuple[Flag, ...]) -> tuple[Arg, ...]:
    by_name = _by_name(flags)
    args = []
    position = 0
    while position < len(words):
        word = words[position]
        flag = by_name.get(plain(word))
        if flag is not None:
            n_values = _n_values(flag, words, position)
            arg = Arg(flag.field, words[position : position + 1 + n_values])
        else:
            _check_unknown(word, by_name)
            arg = Arg(None, words[position : position + 1 + _n_unknown(words, position)])
        args.append(arg)
        position += len(arg.tokens)
    return tuple(args)


def _n_values(flag: Flag, words: tuple[str, ...], position: int) -> int:
    if flag.kind is None:
        return 0
    follows = words[position + 1] if position + 1 < len(words) else None
    if flag.bare is not None:
        try:
            flag.kind.read(follows or "")
        except ValueError:
            return 0 if follows is None or follows.startswith("-") else 1
        return 1
    if follows is None:
        raise ConfigError(
            f"{words[position]} has no value, expected {flag.kind.wants}.", "Add the value, or leave the option away."
        )
    return 1


def _n_unknown(words: tuple[str, ...], position: int) -> int:
    """How many words after an unknown option are its values: llama.cpp has no bare words, so all up to the next."""
    name = plain(words[position])
    if name in ONE_VALUE or name in TWO_VALUES:
        return min(2 if name in TWO_VALUES else 1, len(words) - position - 1)
    count = 0
    for word in words[position + 1 :]:
        if word.startswith("-") and len(word) > 1 and _NUMBER.fullmatch(word) is None:
            break
        count += 1
    return count


def _check_unknown(word: str, by_name: Mapping[str, Flag]) -> None:
    name, equals, value = plain(word).partition("=")
    if equals and (name in by_name or name in ONE_VALUE):
        raise ConfigError(f"{word}: llama.cpp does not take {name}=VALUE.", f"Write it as two words: {name} {value}")
    if not word.startswith("-"):
        hint = f"For a model write: -m {word}" if word.endswith(".gguf") else "Put the option it belongs to before it."
        raise ConfigError(f"{word!r} stands alone; llama.cpp takes options only.", hint)


def _by_name(flags: tuple[Flag, ...]) -> Mapping[str, Flag]:
    return _NAMES[id(flags)]


#: By identity: hashing a table of options for a cache costs more than reading the line.
_NAMES = {id(flags): {name: flag for flag in flags for name in (*flag.names, *flag.no)} for flags in (COMMON, BENCH)}


def _values(layout: tuple[Arg, ...], env: Iterable[tuple[str, str]], flags: tuple[Flag, ...]) -> dict[str, Any]:
    """What variables, then arguments say, by field."""
    values: dict[str, Any] = {}
    variables = dict(env)
    for flag in flags if any(name.startswith("LLAMA_") for name in variables) else ():
        for name in flag.env:
            said = _from_variable(flag, name, variables)
            if said is not None:
                _set(values, flag, said)
    by_name = _by_name(flags)
    for arg in layout:
        if arg.field and (typed := by_name.get(plain(arg.tokens[0]))):
            _set(values, typed, _from_words(typed, arg.tokens))
    return values


def _set(values: dict[str, Any], flag: Flag, said: Any) -> None:
    values[flag.field] = flag.join(values.get(flag.field), said) if flag.join else said


def _from_words(flag: Flag, tokens: tuple[str, ...]) -> Any:
    if flag.kind is None:
        return flag.no_value if plain(tokens[0]) in flag.no else flag.value
    if len(tokens) == 1:
        return flag.bare
    try:
        return flag.kind.read(tokens[1])
    except ValueError as problem:
        raise ConfigError(f"{tokens[0]} {tokens[1]!r}: expected {flag.kind.wants}.", _hint(tokens[1])) from problem


def _from_variable(flag: Flag, name: str, variables: Mapping[str, str]) -> Any:
    """None when the variable is not set, or says nothing. Source: `common_arg::get_value_from_env`."""
    negative = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")
    if flag.no and negative in variables:
        return flag.no_value
    if name not in variables:
        return None
    value = variables[name]
    if not value:
        return None
    if flag.kind is None and not flag.no:
        return flag.value if value in TRUTHY else None
    try:
        if flag.kind is not None:
            return flag.kind.read(value)
        if value not in _BOOLEAN:
            raise ValueError(value)
    except ValueError as problem:
        wants = flag.kind.wants if flag.kind else "on or off"
        raise ConfigError(f"{name}={value!r}: expected {wants}.", _hint(value)) from problem
    return flag.value if value in TRUTHY else flag.no_value


_BOOLEAN = (*TRUTHY, "off", "disabled", "false", "0")


def _hint(value: str) -> str:
    """What was probably meant."""
    match = re.fullmatch(r"([0-9]+)[kK]", value)
    if match:
        return f"llama.cpp would read {match[1]}; write {int(match[1]) * 1024}."
    return "Correct the value or leave the option away."


def _written(
    field: str, config: LaunchConfig, before: Mapping[str, Any], flags: tuple[Flag, ...], typed: tuple[str, ...] = ()
) -> list[Arg]:
    """One setting as arguments, in the typed spelling if there was one; nothing when it is not set."""
    value = getattr(config, field)
    if value is None or value == () or value == "":
        return []
    candidates = [flag for flag in flags if flag.field == field]
    spelled = plain(typed[0]) if typed else ""
    candidates.sort(key=lambda flag: spelled not in flag.names + flag.no)
    if field in _ADDING and field in before:
        value = _after(value, before[field])
    for flag in candidates:
        words = _spell(flag, value, typed)
        if words:
            return [Arg(field, words)]
    return []


def _after(value: Any, earlier: Any) -> Any:
    """What an option that adds up has to add to `earlier` to give `value`; None when it cannot."""
    if isinstance(value, str):
        return value[len(earlier) + 1 :] if value.startswith(f"{earlier},") else "" if value == earlier else None
    return value[len(earlier) :] if value[: len(earlier)] == earlier else None


def _spell(flag: Flag, value: Any, typed: tuple[str, ...]) -> tuple[str, ...]:
    """Empty when this option cannot say the value."""
    spelled = plain(typed[0]) if typed else ""
    if flag.kind is not None:
        name = typed[0] if spelled in flag.names else flag.names[0]
        return (name, flag.kind.write(value)) if _reads_back(flag, value) else ()
    if flag.join:
        return ()
    names = flag.names if value == flag.value else flag.no if value == flag.no_value else ()
    if spelled in names:
        return (typed[0],)
    style = [name for name in names if name.startswith("--") == spelled.startswith("--")] if spelled else []
    return ((style or list(names))[0],) if names else ()


def _reads_back(flag: Flag, value: Any) -> bool:
    assert flag.kind is not None
    try:
        return bool(flag.kind.read(flag.kind.write(value)) == value)
    except ValueError:
        return False


def _bench_context(layout: tuple[Arg, ...]) -> dict[str, int]:
    """The context llama-bench makes for its largest test: prompt, generated tokens and depth.

    Source: `cmd_params_instance::to_llama_cparams` in tools/llama-bench/llama-bench.cpp.
    """
    sizes: dict[str, int] = {}
    pair = 0
    for arg in layout:
        name = plain(arg.tokens[0])
        numbers = [int(number) for number in re.findall(r"[0-9]+", " ".join(arg.tokens[1:]))]
        if name == "-pg" and numbers:
            pair = max(pair, sum(numbers[:2]))
        elif name in _BENCH_SIZES and numbers:
            sizes[_BENCH_SIZES[name]] = max(numbers)
    prompt, generate, depth = sizes.get("p", 512), sizes.get("n", 128), sizes.get("d", 0)
    return {"n_ctx": max(prompt, generate, pair) + depth}
