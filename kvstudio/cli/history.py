"""kvstudio-cli history: kept runs, one of them whole, two of them side by side."""

import argparse
import time
from dataclasses import asdict

from kvstudio.case.history import Comparison, Entry, History, SizeRow, compare
from kvstudio.cli.launch import difference
from kvstudio.cli.launch import show as show_run
from kvstudio.cli.output import DONE, emit, emit_json, emit_table, emit_words, message
from kvstudio.errors import StoreError
from kvstudio.places import history_dir
from kvstudio.units import format_bytes
from kvstudio.verify.compare import PRINTED_STEP
from kvstudio.verify.json import to_json
from kvstudio.verify.values import Run


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compare", nargs=2, type=_run_number, metavar=("RUN", "RUN"), help="two runs by number, side by side"
    )
    parser.add_argument("--show", type=_run_number, metavar="RUN", help="one run, whole")


def _run_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a run; kvstudio-cli history lists them")
    return int(text)


def run(args: argparse.Namespace) -> int:
    history = History(history_dir())
    if args.compare:
        _show_comparison(compare(*(_load(history, number) for number in args.compare)), as_json=args.json)
    elif args.show is not None:
        _show_entry(_load(history, args.show), as_json=args.json)
    else:
        _show_list(history, as_json=args.json)
    return DONE


def _load(history: History, number: int) -> Entry:
    try:
        return history.load(number)
    except StoreError as error:
        raise StoreError(error.message, error.hint or "kvstudio-cli history lists those that were kept.") from error


def _show_entry(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        emit_json(to_json(entry.run, entry.budget))
        return
    emit_words(f"run {entry.number} of {_when(entry.run)}: {entry.title}")
    show_run(entry.run, entry.budget)


def _show_list(history: History, *, as_json: bool) -> None:
    listing = history.list()
    for note in listing.notes:
        message(note)
    if as_json:
        runs = [
            {"number": entry.number, "model": entry.title, **to_json(entry.run, entry.budget)}
            for entry in listing.entries
        ]
        emit_json({"schema": "kvstudio.history/1", "runs": runs})
        return
    rows = [_row(entry) for entry in listing.entries]
    if rows:
        emit_table([_HEADS, *rows], right=(0, 3))
    else:
        emit("No run was kept yet.")


_HEADS = ["run", "when", "outcome", "took", "program", "model", "n_ctx"]


def _row(entry: Entry) -> list[str]:
    run = entry.run
    binary = run.binary.title if run.binary else "-"
    n_ctx = str(run.config.n_ctx) if run.config.n_ctx else "-"
    outcome = run.outcome.value.replace("_", " ")
    return [str(entry.number), _when(run), outcome, f"{run.seconds:.1f} s", binary, entry.title, n_ctx]


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
    emit_words(found.says)
    names = [f"run {first}", f"run {second}"]
    settings = [["", *names]] + [[name, _word(old), _word(new)] for name, old, new in found.changes]
    settings.append(["outcome", *(outcome.value.replace("_", " ") for outcome in found.outcomes)])
    emit("")
    emit_table(settings)
    if found.sizes:
        heads = [f"{name} {side}" for name in names for side in ("estimated", "printed")]
        emit("")
        emit_table([["", *heads, "difference"], *(_size_row(row) for row in found.sizes)], right=(1, 2, 3, 4, 5))


def _size_row(row: SizeRow) -> list[str]:
    sizes = (row.before_estimated, row.before_printed, row.after_estimated, row.after_printed)
    known = row.before_printed is not None and row.after_printed is not None
    more = (row.after_printed or 0) - (row.before_printed or 0) if known else None
    same = None if more is None else abs(more) < PRINTED_STEP
    words = ["-" if size is None else format_bytes(size) for size in sizes]
    return [f"{row.device} {row.kind}", *words, "same" if same else difference(more, same)]


def _word(value: object) -> str:
    return "not set" if value is None else str(value)
