"""LaunchConfig to the exact command of a test launch: same memory, our own port on loopback, buffer lines printed."""

import socket
from dataclasses import replace

from kvstudio.launch.argv import build_argv, build_env
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import Arg, LaunchConfig
from kvstudio.launch.translate import for_binary

#: At this verbosity llama-server prints its buffers. Above it, fitting prints those of contexts that are only measured,
#: and they could not be told from real ones.
BUFFER_VERBOSITY = 4
LOOPBACK = "127.0.0.1"
#: Typed options that decide where and how the server listens or logs, with the number of their values. They do not
#: touch memory, and a test launch listens and logs in its own way.
_LEFT_OUT = {
    "--api-prefix": 1,
    "--ssl-key-file": 1,
    "--ssl-cert-file": 1,
    "--path": 1,
    "--reuse-port": 0,
    "--log-disable": 0,
    "--log-file": 1,
    "--log-colors": 1,
    "--log-jsonl": 0,
    "--log-prompts-dir": 1,
    "--sleep-idle-seconds": 1,
}
_LEFT_OUT_ENV = frozenset(
    {
        "LLAMA_ARG_HOST",
        "LLAMA_ARG_PORT",
        "LLAMA_ARG_API_PREFIX",
        "LLAMA_ARG_SSL_KEY_FILE",
        "LLAMA_ARG_SSL_CERT_FILE",
        "LLAMA_ARG_STATIC_PATH",
        "LLAMA_LOG_FILE",
        "LLAMA_LOG_COLORS",
        "LLAMA_ARG_LOG_FILE",
        "LLAMA_ARG_LOG_JSONL",
        "LLAMA_LOG_VERBOSITY",
        "LLAMA_ARG_LOG_VERBOSITY",
    }
)


def free_port() -> int:
    """A loopback port nobody listens on at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_server(binary: Binary | None, config: LaunchConfig) -> bool:
    """Whether the program serves HTTP, so that prompts can be sent to it."""
    return "server" in (binary.program if binary else config.program)


def config_to_test(config: LaunchConfig, binary: Binary | None, port: int) -> LaunchConfig:
    """The settings of the test launch, in the binary's spellings; what decides memory is untouched.

    Settings that the binary has no option for stay as typed, so that it refuses them itself.
    """
    layout = tuple(arg for arg in config.layout if not _left_out(arg))
    env = tuple((name, value) for name, value in config.env if name not in _LEFT_OUT_ENV)
    changes = replace(config, layout=layout, env=env)
    changes = changes.evolve(env=build_env(changes))
    if binary is not None:
        translated = for_binary(changes, binary)
        changes = changes if translated.lost else translated.config
    flags = binary.flags if binary else frozenset({"-lv", "--host", "--port"})
    if flags & {"-lv", "--verbosity", "--log-verbosity"}:
        changes = changes.evolve(log_verbosity=BUFFER_VERBOSITY)
    if is_server(binary, config):
        changes = changes.evolve(host=LOOPBACK, port=port)
    return changes


def spelled(config: LaunchConfig, binary: Binary | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is written otherwise for this binary, and what it has no option for and will refuse; a sentence each."""
    if binary is None:
        return (), ()
    kept = replace(config, layout=tuple(arg for arg in config.layout if not _left_out(arg)))
    translated = for_binary(kept, binary)
    return (() if translated.lost else translated.notes), translated.lost


def argv_to_test(config: LaunchConfig, binary: Binary | None, prompt: str, n_predict: int) -> tuple[str, ...]:
    """The words to start, the binary's own path first; a program that is no server gets its prompt here."""
    argv = build_argv(config)
    argv = (binary.path, *argv[1:]) if binary else argv
    return argv if is_server(binary, config) else (*argv, *_prompt_words(binary, prompt, n_predict))


def _prompt_words(binary: Binary | None, prompt: str, n_predict: int) -> tuple[str, ...]:
    flags = binary.flags if binary else frozenset()
    words: tuple[str, ...] = ()
    if "-p" in flags:
        words += ("-p", prompt)
    if "-n" in flags:
        words += ("-n", str(n_predict))
    # A chat program would wait for the next message for ever.
    return words + next(((flag,) for flag in ("-st", "--single-turn", "-no-cnv") if flag in flags), ())


def _left_out(arg: Arg) -> bool:
    return arg.field is None and bool(arg.tokens) and arg.tokens[0].partition("=")[0] in _LEFT_OUT
