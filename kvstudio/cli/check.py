"""kvstudio-cli check: llama.cpp's own dry run beside the estimate."""

import argparse
from dataclasses import asdict

from kvstudio.cli.inputs import gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, Progress, emit, emit_json, emit_table, emit_words, message
from kvstudio.cli.running import need_binary
from kvstudio.oracle.cache import OracleCache
from kvstudio.oracle.check import check
from kvstudio.oracle.values import OracleResult, OracleRow
from kvstudio.places import data_dir
from kvstudio.units import MIB

#: What cutting off parts of a MiB, in up to three sums, can take away.
_ROUNDED = 3 * MIB


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--again", action="store_true", help="measure anew, even if this was measured before")
    parser.set_defaults(cpu_only=False, devices=None, device=[], build=None)


def run(args: argparse.Namespace) -> int:
    inputs = gather(args, need_binary=True)
    binary = need_binary(inputs)
    budget = inputs.launch.budget()
    cache = None if args.again else OracleCache(data_dir() / "checks")
    progress = Progress()
    progress.show(f"{binary.title} measures without allocating\u2026")
    names = tuple(device.name for device in inputs.devices)
    result = check(inputs.config, binary, inputs.model, budget=budget, devices=names, cache=cache)
    progress.clear()
    if args.json:
        emit_json({
            "schema": "kvstudio.check/1",
            "method": result.method,
            "says": result.says,
            "rows": [{**asdict(row), "difference": row.difference} for row in result.rows],
            "notes": list(result.notes),
            "cached": result.cached,
            "seconds": round(result.seconds, 2),
        })  # fmt: skip
    else:
        _show(result)
    return DONE if result.ok else DOES_NOT_FIT


def _show(result: OracleResult) -> None:
    emit_words(result.says)
    if result.rows:
        emit("")
        head = ["device", "kind", "estimated MiB", "measured MiB", "difference", ""]
        emit_table([head, *(_row(row) for row in result.rows)], right=(2, 3, 4))
    for note in result.notes:
        message(f"note: {note}")


def _row(row: OracleRow) -> list[str]:
    estimated = "-" if row.estimated is None else f"{row.estimated / MIB:.1f}"
    measured = "-" if row.measured is None else f"{row.measured / MIB:.0f}"
    difference = "-" if row.difference is None else f"{row.difference / MIB:+.1f}" if row.difference else _agrees(row)
    return [row.device, row.kind, estimated, measured, difference, row.note]


def _agrees(row: OracleRow) -> str:
    """`explained` where both figures are right although they differ, for the reason in the note."""
    apart = abs((row.estimated or 0) - (row.measured or 0))
    return "explained" if row.note and apart >= _ROUNDED else "agrees"
