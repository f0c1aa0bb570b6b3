"""kvstudio-cli diagnose: the key line of a log and what it means."""

import argparse

from kvstudio.cli.logs import open_log
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, emit_words
from kvstudio.diagnose.json import to_json
from kvstudio.diagnose.values import Diagnosis, Outcome


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
    emit_words(f"{diagnosis.title} [{diagnosis.cause.value.replace('_', ' ')}]")
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
        change = ", ".join(f"{name} {value}" for name, value in step.change.items())
        emit_words(f"try: {change}: {step.why}", 2)
    for missing in diagnosis.missing:
        emit_words(f"missing: {missing}", 2)
