"""Settings as typed -> the same settings in the spellings that one binary understands, and what had to change."""

from collections.abc import Callable
from dataclasses import dataclass

from kvstudio.launch.argv import arranged, build_argv, parse_argv
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import Arg, LaunchConfig
from kvstudio.launch.flags import SECRET_FLAGS, Flag, flags_of, plain

#: More layers than any model has: what `all` was before the word existed.
ALL_LAYERS = 999
#: Source: pull request 15434, first release with it: `-fa` takes a value since then.
FLASH_ATTN_VALUE_BUILD = 6325
#: Values that are what a program does anyway when nothing is typed, so that leaving them out loses nothing.
_DEFAULTS: dict[str, tuple[object, ...]] = {
    "load_mode": ("auto", "mmap"),
    "lazy_mode": ("auto", "off"),
    "flash_attn": ("auto", "off"),
    "kv_offload": (True,),
    "op_offload": (True,),
    "repack": (True,),
    "fit": (False,),
    "mmproj_offload": (True,),
    "mmproj_auto": (True,),
    "warmup": (True,),
    "kv_unified": (False,),
    "split_mode": ("layer",),
    "spec_type": ("none",),
}


@dataclass(frozen=True, slots=True)
class Translated:
    """`config` builds to words the binary takes; `notes` say each change, `lost` those that change the launch."""

    config: LaunchConfig
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Step:
    """What became of one argument."""

    args: tuple[Arg, ...]
    note: str = ""
    lost: bool = False


def for_binary(config: LaunchConfig, binary: Binary) -> Translated:
    """The settings in the binary's own spellings.

    Every argument it does not list in `--help` is spelled otherwise, or left out and named; options that are not
    settings of ours stay, and are named. A binary whose options are not known changes nothing.
    """
    if not binary.flags:
        return Translated(config)
    flags = flags_of(config.program)
    by_name = {name: flag for flag in flags for name in (*flag.names, *flag.no)}
    layout: list[Arg] = []
    notes: list[str] = []
    lost: list[str] = []
    args, note = _one_load_mode(arranged(config), config, binary)
    notes += filter(None, (note,))
    for arg in args:
        step = _step(arg, by_name, binary)
        layout += step.args
        if step.note:
            notes.append(step.note)
        if step.lost:
            lost.append(step.note)
    if not notes:
        return Translated(config)
    words = (config.program, *(word for arg in layout for word in arg.tokens))
    again = parse_argv(words, config.env)
    translated = again.evolve(program=config.program, build=config.build)
    assert build_argv(translated) == words
    return Translated(translated, tuple(notes), tuple(lost))


def _step(arg: Arg, by_name: dict[str, Flag], binary: Binary) -> _Step:
    word = arg.tokens[0]
    name = plain(word)
    flag = by_name.get(name) if arg.field else None
    if flag is None:
        known = name in binary.flags or not name.startswith("-")
        return _Step((arg,), "" if known else f"{binary.title} does not list {word}; it was kept")
    value = _value(flag, arg)
    special = _SPECIAL.get(flag.field)
    if special is not None:
        step = special(arg, value, binary)
        if step is not None:
            return step
    if name in binary.flags:
        return _Step((arg,))
    other = _other_spelling(flag, name, binary)
    if other:
        return _Step((Arg(arg.field, (other, *arg.tokens[1:])),), f"{word} is {other} in {binary.title}")
    return _left_out(arg, value, binary)


def _value(flag: Flag, arg: Arg) -> object:
    if flag.kind is None:
        return flag.no_value if plain(arg.tokens[0]) in flag.no else flag.value
    return flag.kind.read(arg.tokens[1]) if len(arg.tokens) > 1 else flag.bare


def _other_spelling(flag: Flag, name: str, binary: Binary) -> str | None:
    """Another name of the same option, with the same sign."""
    return next((other for other in (flag.no if name in flag.no else flag.names) if other in binary.flags), None)


def _left_out(arg: Arg, value: object, binary: Binary) -> _Step:
    # What is said of an option may end in a screenshot or a log: a secret is named, never shown.
    secret = plain(arg.tokens[0]) in SECRET_FLAGS
    typed = arg.tokens[0] if secret else " ".join(arg.tokens)
    if arg.field is not None and value in _DEFAULTS.get(arg.field, ()):
        return _Step((), f"{typed} was left out: {binary.title} always does that")
    return _Step((), f"{typed}: {binary.title} has no such option", lost=True)


def _one_load_mode(args: tuple[Arg, ...], config: LaunchConfig, binary: Binary) -> tuple[tuple[Arg, ...], str]:
    """The switches before `--load-mode` as that one option, where the binary has lost them; they count together."""
    own = [arg for arg in args if arg.field == "load_mode"]
    modern = "-lm" in binary.flags or "--load-mode" in binary.flags
    if not modern or all(plain(arg.tokens[0]) in binary.flags for arg in own) or config.load_mode is None:
        return args, ""
    typed = " ".join(word for arg in own for word in arg.tokens)
    one = Arg("load_mode", ("-lm", config.load_mode))
    kept = tuple(one if arg is own[0] else arg for arg in args if arg is own[0] or arg.field != "load_mode")
    return kept, f"{typed} is -lm {config.load_mode} in {binary.title}"


def _load_mode(arg: Arg, value: object, binary: Binary) -> _Step | None:
    """`--load-mode` for a binary that has the three switches before it."""
    typed = " ".join(arg.tokens)
    if plain(arg.tokens[0]) in binary.flags:
        return None
    switches = {"none": ("--no-mmap",), "mlock": ("--no-mmap", "--mlock"), "mmap+mlock": ("--mlock",), "dio": ("-dio",)}
    words = switches.get(str(value), ())
    if not words or any(word not in binary.flags for word in words):
        return None
    args = tuple(Arg("load_mode", (word,)) for word in words)
    return _Step(args, f"{typed} is {' '.join(words)} in {binary.title}")


def _flash_attn(arg: Arg, value: object, binary: Binary) -> _Step | None:
    """A switch in builds before 6325, an option with a value since."""
    name = plain(arg.tokens[0])
    if name not in binary.flags:
        return None
    typed = " ".join(arg.tokens)
    takes_value = name in binary.valued if binary.valued else (binary.build or 10**9) >= FLASH_ATTN_VALUE_BUILD
    if takes_value and len(arg.tokens) == 1:
        return _Step((Arg(arg.field, (arg.tokens[0], "on")),), f"{typed} is {typed} on in {binary.title}")
    if takes_value or len(arg.tokens) == 1:
        return None
    if value == "on":
        return _Step((Arg(arg.field, (arg.tokens[0],)),), f"{typed} is {arg.tokens[0]} in {binary.title}")
    return _Step((), f"{typed} was left out: {binary.title} has flash attention off unless {name} is typed")


def _layers(arg: Arg, value: object, binary: Binary) -> _Step | None:
    """`auto` and `all` are words of newer builds; a default that is a word tells them."""
    default = binary.default(plain(arg.tokens[0]))
    if value not in (-1, -2) or default in ("auto", "all") or default is None or len(arg.tokens) < 2:
        return None
    typed = " ".join(arg.tokens)
    if value == -2:
        words = (arg.tokens[0], str(ALL_LAYERS))
        return _Step((Arg(arg.field, words),), f"{typed} is {' '.join(words)} in {binary.title}")
    return _Step((), f"{typed}: {binary.title} cannot choose the layers by itself", lost=True)


def _slots(arg: Arg, value: object, binary: Binary) -> _Step | None:
    """-1 (auto) came with builds whose default it is."""
    default = binary.default(plain(arg.tokens[0]))
    if value != -1 or default in (None, "-1"):
        return None
    typed = " ".join(arg.tokens)
    return _Step((), f"{typed}: {binary.title} has no automatic slots and takes {default}", lost=True)


def _draft_context(arg: Arg, value: object, binary: Binary) -> _Step | None:
    if plain(arg.tokens[0]) in binary.flags:
        return None
    typed = " ".join(arg.tokens)
    return _Step((), f"{typed}: in {binary.title} the draft model takes the context of the model", lost=True)


_SPECIAL: dict[str, Callable[[Arg, object, Binary], _Step | None]] = {
    "load_mode": _load_mode,
    "flash_attn": _flash_attn,
    "n_gpu_layers": _layers,
    "n_gpu_layers_draft": _layers,
    "n_parallel": _slots,
    "n_ctx_draft": _draft_context,
}
