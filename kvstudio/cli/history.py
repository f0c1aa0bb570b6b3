"""kvstudio-cli history: kept runs, and two of them side by side."""

import argparse
import time

from kvstudio.case.history import History, compare
from kvstudio.cli.output import DONE, emit, emit_json, table
from kvstudio.cli.places import history_dir
from kvstudio.errors import StoreError
from kvstudio.verify.json import to_json
from kvstudio.verify.values import Run


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--compare", nargs=2, type=int, metavar=("RUN", "RUN"), help="two runs by number, side by side")
    parser.add_argument("--show", type=int, metavar="RUN", help="one run, whole")


def run(args: argparse.Namespace) -> int:
    history = History(history_dir())
    runs = {run.number: run for run in history.load()}
    if args.compare:
        first, second = (_find(runs, number) for number in args.compare)
        _compare(first, second, as_json=args.json)
    elif args.show is not None:
        emit_json(to_json(_find(runs, args.show)))
    elif args.json:
        emit_json({"schema": "kvstudio.history/1", "runs": [{"number": n, **to_json(r)} for n, r in runs.items()]})
    else:
        rows = [[str(n), _when(r), r.outcome.value, f"{r.seconds:.0f} s", r.config.model_path] for n, r in runs.items()]
        for line in table(rows, right=(0,)):
            emit(line)
        if not rows:
            emit("No run was kept yet.")
    return DONE


def _when(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at))


def _find(runs: dict[int, Run], number: int) -> Run:
    if number not in runs:
        raise StoreError(f"there is no run {number}.", "kvstudio-cli history lists them.")
    return runs[number]


def _compare(first: Run, second: Run, *, as_json: bool) -> None:
    rows = [(row.what, row.first, row.second) for row in compare(first, second)]
    if as_json:
        emit_json({"schema": "kvstudio.compare/1", "rows": [dict(zip(("what", "first", "second"), r)) for r in rows]})
        return
    for line in table([["", f"run {first.number}", f"run {second.number}"], *(list(map(str, row)) for row in rows)]):
        emit(line)
