"""The parser of kvstudio-cli: one subcommand a question, each with one real example in its help."""

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from kvstudio import __version__
from kvstudio.cli.output import BAD_INPUT, DONE, fail, forget_output, message
from kvstudio.errors import ConfigError, KvStudioError

#: name: (module, one line, example). A module has `add_options(parser)` and `run(args) -> int`.
COMMANDS = {
    "budget": (
        "what a launch needs on each device, and whether it fits",
        "kvstudio-cli budget --device CUDA0=24GiB/22.5GiB -- llama-server -m Qwen3-32B-Q4_K_M.gguf -c 32768",
    ),
    "max": (
        "the largest context, most slots or fewest CPU layers that fit",
        "kvstudio-cli max --for n_ctx --device CUDA0=24GiB -- llama-server -m Qwen3-32B-Q4_K_M.gguf -np 1",
    ),
    "inspect": ("what the header of a GGUF file says", "kvstudio-cli inspect Qwen3-32B-Q4_K_M.gguf"),
    "devices": ("devices of this machine and their free memory", "kvstudio-cli devices --json > my-machine.json"),
    "diagnose": (
        "the line of a log that decided it, and what it means",
        "kvstudio-cli diagnose server.log",
    ),
    "launch": (
        "a real test launch: start, ask, check, stop",
        "kvstudio-cli launch --repeat 3 -- llama-server -m gemma-3-270m.gguf -c 8192",
    ),
    "check": (
        "the dry run of llama.cpp itself beside the estimate",
        "kvstudio-cli check -- llama-server -m gemma-3-270m.gguf -c 8192",
    ),
    "fix": (
        "one variable at a time to a verified command and a root cause",
        "kvstudio-cli fix --yes --want n_ctx=65536 -- llama-server -m Qwen3-32B-Q4_K_M.gguf -c 65536 -ngl 99",
    ),
    "report": (
        "a filled, redacted bug report",
        "kvstudio-cli report --log server.log -o report.md -- llama-server -m Qwen3-32B-Q4_K_M.gguf -c 65536",
    ),
    "history": ("runs that were kept, and two of them compared", "kvstudio-cli history --compare 1 2"),
}


#: Those that take a llama.cpp command line after `--`; the others answer about a file or this machine.
_ABOUT_A_LAUNCH = frozenset({"budget", "max", "launch", "check", "fix", "report"})


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as for every other bad input; the usage is what --help is for."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}.", f"See {self.prog} --help.")


def build_parser() -> argparse.ArgumentParser:
    """The whole parser; the modules behind the commands are imported only when their command is used."""
    parser = _Parser(
        prog="kvstudio-cli",
        description="What a GGUF model needs on each device under llama.cpp, and why a launch was refused.",
        epilog="Exit codes: 0 done (and it fits), 3 done and it does not fit or failed, 2 bad input.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kvstudio {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    for name, (line, example) in COMMANDS.items():
        commands.add_parser(
            name,
            help=line,
            description=line[0].upper() + line[1:] + ".",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
    return parser


def _command_parser(name: str) -> tuple[argparse.ArgumentParser, Callable[[argparse.Namespace], int]]:
    line, example = COMMANDS[name]
    module = import_module(f"kvstudio.cli.{name}")
    parser = _Parser(
        prog=f"kvstudio-cli {name}",
        description=line[0].upper() + line[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="the result as one JSON document on stdout")
    module.add_options(parser)
    if name in _ABOUT_A_LAUNCH:
        # argparse never sees what stands after `--`, so it cannot show it.
        usage = parser.format_usage().removeprefix("usage: ").rstrip().replace("%", "%%")
        indent = " " * len(f"usage: {parser.prog} ")
        parser.usage = f"{usage}\n{indent}" + ("[-- COMMAND]" if name in ("fix", "report") else "-- COMMAND")
    run: Callable[[argparse.Namespace], int] = module.run
    return parser, run


def _parse(words: Sequence[str]) -> tuple[argparse.Namespace, Callable[[argparse.Namespace], int]]:
    """Our options end at `--`; what follows is llama.cpp's command line and must not be read by argparse."""
    if not words:
        raise ConfigError(f"say what to do: {', '.join(COMMANDS)}.", "See kvstudio-cli --help.")
    if words[0] not in COMMANDS:
        build_parser().parse_args(list(words))
        raise SystemExit(BAD_INPUT)
    ours, theirs = list(words[1:]), []
    if "--" in ours and words[0] in _ABOUT_A_LAUNCH:
        at = ours.index("--")
        ours, theirs = ours[:at], ours[at + 1 :]
    parser, run = _command_parser(words[0])
    args, unknown = parser.parse_known_args(ours)
    if unknown:
        hint = f"See kvstudio-cli {words[0]} --help."
        if words[0] in _ABOUT_A_LAUNCH and not theirs and not unknown[0].startswith("-"):
            hint = f"Put -- before the llama.cpp command line: -- {unknown[0]} ..."
        raise ConfigError(f"unrecognized arguments: {' '.join(unknown)}.", hint)
    args.command = theirs
    return args, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and never raises for bad input.

    Errors: 2 with one clear line on stderr.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = DONE
    try:
        code = _answer(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()  # a full disk is noticed here, not while Python ends
        return code
    except KvStudioError as error:
        return fail(error)
    except KeyboardInterrupt:
        message("kvstudio-cli: interrupted")
        return 130
    except BrokenPipeError:
        forget_output()  # the reader went away before the last of it was written
        return code
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        forget_output()
        message(f"kvstudio-cli: the result could not be written: {error.strerror}.")
        return BAD_INPUT


def _answer(words: Sequence[str]) -> int:
    """The exit code of one command; `--help` and `--version` end argparse by an exception."""
    try:
        args, run = _parse(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else BAD_INPUT if stop.code else DONE
    return run(args)


def _open_closed_streams() -> None:
    """Python has None for a stream that was closed before the start (`>&-`); what is written to it goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long-lived as the stream
