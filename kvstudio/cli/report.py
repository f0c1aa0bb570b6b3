"""kvstudio-cli report: a filled, redacted bug report."""

import argparse
import getpass
import os
import socket
from pathlib import Path

from kvstudio.case.evolve import evolve
from kvstudio.case.store import load as load_case
from kvstudio.case.store import to_json as case_json
from kvstudio.case.values import Case
from kvstudio.case.walks import Walks
from kvstudio.cli.inputs import choose_binary, live_machine, load_model, parse_command
from kvstudio.cli.logs import open_log
from kvstudio.cli.output import DONE, emit, emit_json, message
from kvstudio.diagnose.config import config_from_log
from kvstudio.errors import ConfigError
from kvstudio.places import data_dir
from kvstudio.report import markdown, text
from kvstudio.report.archive import write as write_zip
from kvstudio.report.build import build, build_from_log
from kvstudio.report.json import to_json
from kvstudio.report.save import save_text
from kvstudio.report.values import Identity, Report


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log", metavar="LOG", help="a log file, or - for standard input")
    parser.add_argument("--case", metavar="FILE", help="a saved case")
    parser.add_argument("--format", choices=("md", "text", "zip"), default="md", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")


def run(args: argparse.Namespace) -> int:
    if args.format == "zip" and not args.output:
        raise ConfigError("a zip needs a file to go to.", "Add -o report.zip.")
    if args.log and args.case:
        raise ConfigError("--log and --case both say what the report is about.", "Leave one of them away.")
    report, case = _build(args)
    if args.format == "zip":
        write_zip(report, args.output, case_json(case) if case else None)
    else:
        words = markdown.render(report) if args.format == "md" else text.render(report)
        if args.output:
            save_text(args.output, words)
        elif not args.json:
            emit(words)
    if args.json:
        emit_json(to_json(report))
    for redaction in report.redactions:
        if redaction.hidden and redaction.places:
            message(f"redacted: {redaction.token}, {redaction.places} places ({redaction.reason})")
    if args.output:
        message(f"saved {args.output}, {report.n_collected} of {len(report.fields)} fields collected")
    return DONE


def _build(args: argparse.Namespace) -> tuple[Report, Case | None]:
    identity = _identity()
    config = parse_command(args.command) if args.command else None
    if args.log:
        log = open_log(args.log)
        known = config or config_from_log(log.events, log.lines)
        name = "standard input" if args.log == "-" else Path(args.log).name
        return build_from_log(log.lines, log.diagnosis, known, source=name, identity=identity), None
    if args.case:
        case = load_case(args.case)
        return build(case, case.runs[-1] if case.runs else None, identity=identity), case
    if config is None:
        raise ConfigError("nothing to report on.", "Give --log LOG, --case FILE or a command line after --.")
    binary = choose_binary(config)
    machine = live_machine(binary, config.env, config.rpc)
    case = evolve(
        Case(),
        config=config,
        model=load_model(config),
        machine=machine,
        chosen=tuple(device.name for device in machine.devices),
        binary=binary,
    )
    kept = Walks(data_dir() / "walks").told(config)
    walk = kept.plan(case.model) if kept is not None and case.model is not None else None
    return build(case, identity=identity, walk=walk), case


def _identity() -> Identity:
    """What tells this user and machine, to be hidden."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return Identity(home=os.path.expanduser("~"), user=user, hosts=(socket.gethostname(),))
