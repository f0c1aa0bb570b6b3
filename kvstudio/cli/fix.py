"""kvstudio-cli fix: the wizard without a window."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from kvstudio.advise.plan import MAX_LAUNCHES, Plan, World, start
from kvstudio.advise.plan_values import Attempt, Trial
from kvstudio.advise.refusal import refusal
from kvstudio.case.walk import attempt_of, to_json, walk
from kvstudio.cli.inputs import Inputs, add_device_options, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, message
from kvstudio.cli.running import add_run_options, need_binary, options_of, run_once
from kvstudio.errors import ConfigError
from kvstudio.launch.argv import build_argv, format_command
from kvstudio.launch.config import NOT_SETTINGS, LaunchConfig
from kvstudio.units import format_bytes
from kvstudio.verify.values import Run


def add_options(parser: argparse.ArgumentParser) -> None:
    add_device_options(parser)
    add_run_options(parser)
    parser.add_argument("--want", action="append", default=[], metavar="NAME=VALUE",
                        help="a setting that matters most, by llama.cpp's name: n_ctx=65536")  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="launch without asking before each run")
    parser.add_argument("--dry-run", action="store_true", help="plan by the budget alone; nothing is launched")
    parser.add_argument(
        "--max-launches", type=int, default=MAX_LAUNCHES, metavar="N", help="at most (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    inputs = gather(args, need_binary=not args.dry_run)
    wanted = inputs.config.evolve(**wanted_settings(args.want))
    world = World(inputs.model, inputs.devices, inputs.host, inputs.build)
    plan = start(world, wanted, max_launches=args.max_launches)
    plan = _dry_walk(plan) if args.dry_run else _real_walk(args, inputs, plan)
    command = build_argv(plan.verdict.config) if plan.verdict and plan.verdict.config else None
    if args.json:
        emit_json(to_json(plan, command))
    else:
        _show(plan)
    return DONE if plan.verdict and plan.verdict.outcome == "verified" else DOES_NOT_FIT


def wanted_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`n_ctx=65536` as a LaunchConfig field.

    Raises: ConfigError for a name that is no setting or a value of the wrong kind.
    """
    known = {f.name: str(f.type) for f in fields(LaunchConfig) if f.name not in NOT_SETTINGS}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise ConfigError(f"--want {pair}: not a setting.", "Write it like n_ctx=65536 or cache_type_k=q8_0.")
        kind = known[name]
        if kind.startswith("int"):
            if not text.lstrip("-").isdigit():
                raise ConfigError(f"--want {name}: {text!r} is not a number.")
            found[name] = int(text)
        elif kind.startswith("bool"):
            found[name] = text.lower() in ("1", "true", "on", "yes")
        elif kind.startswith("tuple[float"):
            try:
                found[name] = tuple(float(part) for part in text.split(","))
            except ValueError as error:
                raise ConfigError(f"--want {name}: {text!r} are not numbers with commas between.") from error
        else:
            found[name] = text
    return found


def _real_walk(args: argparse.Namespace, inputs: Inputs, plan: Plan) -> Plan:
    need_binary(inputs)
    options = options_of(args)

    def launch(trial: Trial) -> Run:
        return run_once(inputs, trial.config, trial.predicted, options, title=f"{trial.title}:")

    def watch(trial: Trial, finished: Run) -> None:
        if not args.json:
            emit(_row(attempt_of(trial, finished)))

    if args.yes:
        return walk(plan, launch, watch)
    while plan.pending is not None:
        if not _ask(plan.pending):
            return plan.stop()
        finished = launch(plan.pending)
        watch(plan.pending, finished)
        plan = plan.ran(attempt_of(plan.pending, finished))
    return plan


def _ask(trial: Trial) -> bool:
    """Whether the person wants this launch; without a terminal to ask on, --yes is needed."""
    if not sys.stdin.isatty():
        raise ConfigError("fix launches the program several times and there is no terminal to ask on.", "Add --yes.")
    message(f"\n{trial.title}. {trial.why}" + (f" Cost: {trial.cost}." if trial.cost else ""))
    message(f"  {format_command(trial.config, mask_secrets=True)}")
    sys.stderr.write("Run it? [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _dry_walk(plan: Plan) -> Plan:
    """The plan as it would go if the budget were the world."""
    while plan.pending is not None:
        trial = plan.pending
        fits = trial.predicted is not None and trial.predicted.fits is not False
        refused = None if fits or trial.predicted is None else refusal(trial.predicted)
        plan = plan.ran(Attempt(trial, fits, "predicted to fit" if fits else "predicted not to fit", refused))
    return plan


def _row(attempt: Attempt) -> str:
    trial = attempt.trial
    change = ", ".join(f"{name} {_text(old)} -> {_text(new)}" for name, (old, new) in trial.change.items())
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in attempt.printed_bytes.items())
    why = f" ({attempt.diagnosis.title})" if attempt.diagnosis and not attempt.worked else ""
    return f"{trial.title:<34}  {change or '-':<28}  {attempt.outcome}{why}  {attempt.seconds:.0f} s  {sizes}"


def _text(value: Any) -> str:
    if value is None:
        return "default"
    return (
        ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value)
        if isinstance(value, tuple)
        else str(value)
    )


def _show(plan: Plan) -> None:
    verdict = plan.verdict
    if verdict is None:
        return
    if all(attempt.run_number is None for attempt in plan.attempts):
        for attempt in plan.attempts:
            emit(_row(attempt))
    emit("")
    emit(verdict.says)
    if verdict.not_separated:
        emit(f"Not separated by any pair of runs: {', '.join(verdict.not_separated)}.")
    if verdict.config is not None:
        emit("")
        emit(format_command(verdict.config))
