"""kvstudio-cli diagnose: the key line of a log and what it means."""

import argparse
from collections.abc import Mapping
from typing import Any

from kvstudio.cli.logs import open_log
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, emit_words
from kvstudio.diagnose.json import to_json
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome
from kvstudio.launch.argv import build_argv
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.flags import COMMON


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", help="a log file, or - for standard input")


def run(args: argparse.Namespace) -> int:
    diagnosis = open_log(args.log).diagnosis
    if args.json:
        emit_json(to_json(diagnosis))
    else:
        show(diagnosis)
    return DOES_NOT_FIT if diagnosis.outcome is Outcome.FAILED else DONE


def show(diagnosis: Diagnosis) -> None:
    """Sentence, key line, evidence, what to try and what is missing."""
    emit_words(f"{diagnosis.title}{_cause(diagnosis)}")
    emit_words(diagnosis.summary)
    if diagnosis.key_line:
        emit("")
        emit(f"{diagnosis.key_line.number:>6}: {diagnosis.key_line.text}")
    if diagnosis.evidence:
        emit("")
        emit("evidence:")
        for item in diagnosis.evidence:
            emit_words(f"{item.number if item.number is not None else item.source:>6}  {item.says}", 8)
    for step in diagnosis.next_steps:
        emit_words(f"try: {_typed(step.change)}: {step.why}", 2)
    for missing in diagnosis.missing:
        emit_words(f"missing: {missing}", 2)


def _cause(diagnosis: Diagnosis) -> str:
    """The class of the cause after the title; nothing where nothing failed and so nothing had a cause."""
    if diagnosis.cause is not Cause.UNKNOWN:
        return f" [{diagnosis.cause.value.replace('_', ' ')}]"
    return " [cause unknown]" if diagnosis.outcome is Outcome.FAILED else ""


def _typed(change: Mapping[str, Any]) -> str:
    """Settings as they are typed, `-c 8192`; one that is taken away as `no -md`."""
    set_to = {name: value for name, value in change.items() if value is not None}
    words = build_argv(LaunchConfig(**set_to))[1:]
    taken = [
        f"no {next(flag.names[0] for flag in COMMON if flag.field == name)}" for name in change if name not in set_to
    ]
    return ", ".join([" ".join(words)] * bool(words) + taken)
