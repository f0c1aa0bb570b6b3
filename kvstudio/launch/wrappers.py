"""What stands before a program (variables, env, sudo, docker run...) -> the program, its options and variables."""

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from kvstudio.errors import ConfigError
from kvstudio.launch.places import PROGRAMS
from kvstudio.launch.words import is_assignment, is_program, split_command


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Wrappers and their options that take a value; what follows is the program.
_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": _set("-u -g -h -p -C -T -r -t --user --group"),
    "doas": _set("-u -C"),
    "env": _set("-u -C -S --unset --chdir"),
    "nohup": frozenset(),
    "exec": frozenset({"-a"}),
    "time": _set("-f -o --format --output"),
    "nice": _set("-n --adjustment"),
    "ionice": _set("-c -n -p"),
    "stdbuf": _set("-i -o -e"),
    "numactl": _set("-N -m -C -i -p"),
    "taskset": frozenset(),
    "timeout": _set("-s -k --signal --kill-after"),
    "setsid": frozenset(),
    "start": frozenset(),
    "call": frozenset(),
    "&": frozenset(),
    "command": frozenset(),
    "mangohud": frozenset(),
    "gdb": _set("-ex -x"),
    "strace": _set("-o -e -p"),
    "valgrind": frozenset(),
}
#: Wrappers whose first bare word is theirs.
_OWN_WORD = frozenset({"taskset", "timeout"})

_DOCKER = frozenset({"docker", "podman", "nerdctl"})
_DOCKER_SWITCHES = _set(
    "-d --detach -i --interactive -t --tty -it -ti -dit -itd -td -dt --rm --init --privileged --read-only -P"
    " --publish-all --no-healthcheck --oom-kill-disable -q --quiet --replace --tls-verify"
)
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "fish"})
#: Programs that run GGUF models with options of their own.
_FOREIGN = re.compile(r"python[\d.]*|ollama|koboldcpp|vllm|lms|llamafile|llama-swap|text-generation")
_FOREIGN_HINT = "Write the llama-server command with the same settings, or open the program's log."
#: First words of the one program that holds the others.
_COMMANDS = {"serve": "llama-server", "server": "llama-server", "cli": "llama-cli", "run": "llama-cli",
             "completion": "llama-completion", "bench": "llama-bench"}  # fmt: skip
#: What an image of llama.cpp starts, by the start of its tag. Source: the Dockerfiles in .devops, build 11434.
_IMAGES = (("server", "llama-server"), ("light", "llama-cli"), ("full", "full"))
#: First word of the image `full`. Source: .devops/tools.sh.
_FULL = {
    "--server": "llama-server",
    "-s": "llama-server",
    "--run": "llama-cli",
    "-r": "llama-cli",
    "--run-legacy": "llama-completion",
    "-l": "llama-completion",
    "--bench": "llama-bench",
    "-b": "llama-bench",
    "--perplexity": "llama-perplexity",
    "-p": "llama-perplexity",
}


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """`program` is "" when the words start with an option; `volumes` maps folders of a container to ours."""

    program: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()


def unwrap(tokens: tuple[str, ...]) -> Unwrapped:
    """Take off leading variables and wrappers, of containers also the volumes that give paths a meaning here."""
    env: dict[str, str] = {}
    words = list(tokens)
    while words:
        pair = is_assignment(words[0])
        name = PurePosixPath(words[0]).name
        if pair and pair[0] == "ExecStart":  # a line of a systemd unit
            words[0] = pair[1]
        elif pair and not words[0].startswith("-"):
            env[pair[0]] = pair[1]
            words.pop(0)
        elif name in _SHELLS and "-c" in words[1:4]:
            return _joined(unwrap(split_command(words[words.index("-c") + 1])), env)
        elif name in _WRAPPERS:
            words = _after_wrapper(words, env)
        elif name in _DOCKER and "run" in words[1:4]:
            return _container(words[words.index("run") + 1 :], env)
        else:
            break
    words = _from_program(words)
    program = words.pop(0) if words and not words[0].startswith("-") else ""
    if PurePosixPath(program).name in ("llama", "llama.exe") and words and words[0] in _COMMANDS:
        program = _COMMANDS[words.pop(0)]
    return Unwrapped(program, tuple(words), tuple(env.items()))


def host_path(path: str, volumes: tuple[tuple[str, str], ...]) -> str:
    """A path inside the container as the path here; itself when no volume holds it."""
    for inside, outside in sorted(volumes, key=lambda pair: -len(pair[0])):
        if path == inside or path.startswith(inside.rstrip("/") + "/"):
            return outside.rstrip("/") + path[len(inside.rstrip("/")) :]
    return path


def _from_program(words: list[str]) -> list[str]:
    """Without an unknown wrapper (`ssh box`, `srun --gpus 1`) when a program of llama.cpp comes later.

    Raises: ConfigError for a program of others, whose options mean something else.
    """
    if not words or words[0].startswith("-") or is_program(words[0]):
        return words
    for index, word in enumerate(words):
        if PurePosixPath(word.replace("\\", "/")).name.removesuffix(".exe") in PROGRAMS:
            return words[index:]
    name = PurePosixPath(words[0].replace("\\", "/")).name.lower()
    if _FOREIGN.match(name):
        raise ConfigError(f"{words[0]} is not a program of llama.cpp, its options mean other things.", _FOREIGN_HINT)
    return words


def _joined(inner: Unwrapped, env: dict[str, str]) -> Unwrapped:
    return replace(inner, env=tuple((env | dict(inner.env)).items()))


def _after_wrapper(words: list[str], env: dict[str, str]) -> list[str]:
    name, rest = PurePosixPath(words[0]).name, words[1:]
    own = name in _OWN_WORD
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("--", "--args"):
            break
        if option in _WRAPPERS[name] and rest:
            rest.pop(0)
    if own and rest and not is_program(rest[0]):
        rest.pop(0)
    return rest


def _container(words: list[str], env: dict[str, str]) -> Unwrapped:
    volumes: list[tuple[str, str]] = []
    entry = ""
    while words and words[0].startswith("-"):
        option, equals, value = words.pop(0).partition("=")
        if not equals and option not in _DOCKER_SWITCHES and words:
            value = words.pop(0)
        if option in ("-e", "--env") and (pair := is_assignment(value)):
            env[pair[0]] = pair[1]
        elif option in ("-v", "--volume"):
            volumes += _volume(value)
        elif option == "--mount":
            volumes += _mount(value)
        elif option == "--entrypoint":
            entry = value
    image = words.pop(0) if words else ""
    program = entry or _image_program(image)
    if words and is_program(words[0]):
        program = words.pop(0)
    elif program == "full" and words:
        program = _FULL.get(words[0], "llama-cli")
        words = words[1:] if words[0] in _FULL else words
    return Unwrapped(program, tuple(words), tuple(env.items()), tuple(volumes))


def _image_program(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    return next((program for start, program in _IMAGES if tag.startswith(start)), "llama-server")


def _volume(value: str) -> list[tuple[str, str]]:
    parts = value.split(":")
    if len(parts) > 2 and len(parts[0]) == 1:  # a Windows drive
        parts = [":".join(parts[:2]), *parts[2:]]
    return [(parts[1], parts[0])] if len(parts) > 1 and parts[1].startswith("/") else []


def _mount(value: str) -> list[tuple[str, str]]:
    given = dict(part.partition("=")[::2] for part in value.split(","))
    inside = given.get("target") or given.get("destination") or given.get("dst") or ""
    outside = given.get("source") or given.get("src") or ""
    return [(inside, outside)] if inside and outside else []
