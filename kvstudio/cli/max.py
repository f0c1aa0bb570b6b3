"""kvstudio-cli max: the largest context, most slots or fewest CPU layers that fit."""

import argparse
from collections.abc import Callable

from kvstudio.budget.estimate import estimate
from kvstudio.budget.json import to_json
from kvstudio.budget.solve import fewest_cpu_layers, largest_n_ctx, most_parallel
from kvstudio.cli.inputs import Inputs, add_device_options, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json

VARIABLES = ("n_ctx", "n_parallel", "n_gpu_layers")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_device_options(parser)
    parser.add_argument(
        "--for", dest="variable", choices=VARIABLES, default="n_ctx", help="what to make as large as possible"
    )


def run(args: argparse.Namespace) -> int:
    inputs = gather(args)
    best = _solve(args.variable)(inputs)
    budget = None
    if best is not None:
        config = inputs.config.evolve(**{args.variable: best})
        budget = estimate(
            inputs.model, config, inputs.devices, host=inputs.host, build=inputs.build, overhead=inputs.overhead
        )
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


def _solve(variable: str) -> Callable[[Inputs], int | None]:
    def solve(inputs: Inputs) -> int | None:
        found = {"n_ctx": largest_n_ctx, "n_parallel": most_parallel, "n_gpu_layers": fewest_cpu_layers}[variable](
            inputs.model, inputs.config, inputs.devices, host=inputs.host, build=inputs.build
        )
        if variable == "n_gpu_layers" and found is not None:
            return inputs.model.n_layer_all + 1 - found
        return found

    return solve
