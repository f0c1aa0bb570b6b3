"""kvstudio-cli max: the largest context, most slots or fewest CPU layers that fit."""

import argparse
from collections.abc import Callable

from kvstudio.budget.json import to_json
from kvstudio.budget.solve import Launch, largest_n_ctx, most_gpu_layers, most_parallel
from kvstudio.cli.inputs import add_device_options, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json

SOLVERS: dict[str, Callable[[Launch], int | None]] = {
    "n_ctx": largest_n_ctx,
    "n_parallel": most_parallel,
    "n_gpu_layers": most_gpu_layers,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_device_options(parser)
    parser.add_argument(
        "--for", dest="variable", choices=tuple(SOLVERS), default="n_ctx", help="what to make as large as possible"
    )


def run(args: argparse.Namespace) -> int:
    inputs = gather(args)
    launch = inputs.launch
    best = SOLVERS[args.variable](launch)
    budget = launch.budget(**{args.variable: best}) if best is not None else None
    if args.json:
        emit_json({
            "schema": "kvstudio.max/1",
            "variable": args.variable,
            "value": best,
            "budget": to_json(inputs.model, budget) if budget else None,
        })  # fmt: skip
    elif best is None:
        emit(f"Nothing fits: even the smallest {args.variable} is too much for these devices.")
    else:
        emit(f"{args.variable} {best}")
    return DONE if best is not None else DOES_NOT_FIT
