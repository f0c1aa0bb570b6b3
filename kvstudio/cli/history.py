"""kvstudio-cli history: kept runs, and two of them side by side."""

import argparse
import time
from dataclasses import asdict

from kvstudio.case.history import Comparison, History, compare
from kvstudio.cli.output import DONE, emit, emit_json, message, table
from kvstudio.places import history_dir
from kvstudio.units import format_bytes
from kvstudio.verify.json import to_json
from kvstudio.verify.values import Run


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--compare", nargs=2, type=int, metavar=("RUN", "RUN"), help="two runs by number, side by side")
    parser.add_argument("--show", type=int, metavar="RUN", help="one run, whole")


def run(args: argparse.Namespace) -> int:
    history = History(history_dir())
    if args.compare:
        _show_comparison(compare(*(history.load(number) for number in args.compare)), as_json=args.json)
        return DONE
    if args.show is not None:
        emit_json(to_json(history.load(args.show).run))
        return DONE
    listing = history.list()
    for note in listing.notes:
        message(note)
    if args.json:
        runs = [{"number": entry.number, "model": entry.title, **to_json(entry.run)} for entry in listing.entries]
        emit_json({"schema": "kvstudio.history/1", "runs": runs})
        return DONE
    rows = [
        [str(e.number), _when(e.run), e.run.outcome.value.replace("_", " "), f"{e.run.seconds:.0f} s", e.title]
        for e in listing.entries
    ]
    for line in table(rows, right=(0,)):
        emit(line)
    if not rows:
        emit("No run was kept yet.")
    return DONE


def _when(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at))


def _show_comparison(found: Comparison, *, as_json: bool) -> None:
    first, second = found.before.number, found.after.number
    if as_json:
        emit_json({
            "schema": "kvstudio.compare/1",
            "runs": [first, second],
            "says": found.says,
            "regression": found.regression,
            "changes": [{"setting": name, "before": old, "after": new} for name, old, new in found.changes],
            "sizes": [asdict(row) for row in found.sizes],
            "outcomes": [outcome.value for outcome in found.outcomes],
        })  # fmt: skip
        return
    emit(found.says)
    rows = [["", f"run {first}", f"run {second}"]]
    rows += [[name, str(old), str(new)] for name, old, new in found.changes]
    rows += [[f"{r.device} {r.kind}", _size(r.before_printed), _size(r.after_printed)] for r in found.sizes]
    rows.append(["outcome", *(outcome.value.replace("_", " ") for outcome in found.outcomes)])
    for line in table(rows):
        emit(line)


def _size(n_bytes: int | None) -> str:
    return "-" if n_bytes is None else format_bytes(n_bytes)
