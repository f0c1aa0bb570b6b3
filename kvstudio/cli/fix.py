"""kvstudio-cli fix: the wizard without a window."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from kvstudio.advise.plan import MAX_LAUNCHES, Plan, World, start
from kvstudio.advise.plan_values import Attempt, Trial, TrialKind
from kvstudio.advise.predict import predict
from kvstudio.case.history import History
from kvstudio.case.walk import attempt_of, step, to_json
from kvstudio.case.walks import KeptWalk, Walks, candidates
from kvstudio.cli.inputs import Inputs, add_device_options, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, emit_words, message
from kvstudio.cli.running import add_run_options, need_binary, options_of, run_once
from kvstudio.errors import ConfigError, KvStudioError, StoreError
from kvstudio.launch.argv import build_argv, format_command, split_command
from kvstudio.launch.binary import Binary, find, inspect
from kvstudio.launch.config import NOT_SETTINGS, LaunchConfig
from kvstudio.launch.flags import program_name
from kvstudio.places import data_dir, history_dir
from kvstudio.units import format_bytes
from kvstudio.verify.values import Run

#: Other programs that are asked for their version; each may take a second.
_MAX_OTHERS = 6


def add_options(parser: argparse.ArgumentParser) -> None:
    add_device_options(parser)
    add_run_options(parser)
    parser.add_argument("--want", action="append", default=[], metavar="NAME=VALUE",
                        help="a setting that matters most, by llama.cpp's name: n_ctx=65536")  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="launch without asking before each run")
    parser.add_argument(
        "--dry-run", action="store_true", help="plan by the budget alone; nothing is launched, so nothing is verified"
    )
    parser.add_argument("--resume", action="store_true",
                        help="go on with the unfinished walk of this command; without one, the last")  # fmt: skip
    parser.add_argument("--other-binary", action="append", default=[], metavar="PATH",
                        help="another build to compare with where the launch should fit, repeatable")  # fmt: skip
    parser.add_argument(
        "--max-launches", type=int, default=MAX_LAUNCHES, metavar="N", help="at most (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    walks = Walks(data_dir() / "walks")
    kept = _kept(args, walks) if args.resume else None
    inputs = gather(args, need_binary=not args.dry_run)
    wanted = inputs.config.evolve(**wanted_settings(args.want))
    if kept is None and args.resume:
        kept = walks.load(wanted)
        if kept is None:
            message("there is no unfinished walk of this command; a new one begins.")
    if kept is not None:
        plan = kept.plan(inputs.model)
        message(f"going on after {len(plan.attempts)} runs.")
    else:
        plan = start(_world(args, inputs, wanted), wanted, max_launches=args.max_launches, attended=not args.yes)
    try:
        plan = predict(plan) if args.dry_run else _real_walk(args, inputs, plan, walks)
    except KeyboardInterrupt:
        plan = plan.stop()
    command = build_argv(plan.verdict.config) if plan.verdict and plan.verdict.config else None
    if args.json:
        emit_json(to_json(plan, command))
    else:
        _show(plan)
    return DONE if _found(plan) else DOES_NOT_FIT


def _found(plan: Plan) -> bool:
    """Whether a launch was verified, or where none was made, a fit is predicted."""
    verdict = plan.verdict
    return verdict is not None and (verdict.outcome == "verified" or (verdict.predicted and verdict.config is not None))


def _kept(args: argparse.Namespace, walks: Walks) -> KeptWalk | None:
    """The last unfinished walk, where no command says which; its command becomes the one of `args`."""
    if [word for word in args.command if word != "--"]:
        return None
    kept = walks.newest()
    if kept is None:
        raise ConfigError("there is no unfinished walk.", "Give a command after --.")
    args.command = list(split_command(format_command(kept.wanted)))
    return kept


def _world(args: argparse.Namespace, inputs: Inputs, wanted: LaunchConfig) -> World:
    others = () if args.dry_run else _other_binaries(args, inputs, wanted)
    return World(
        inputs.model,
        inputs.devices,
        inputs.host,
        inputs.build,
        inputs.overhead or {},
        inputs.binary,
        others,
        extras=inputs.launch.extras,
    )


def _other_binaries(args: argparse.Namespace, inputs: Inputs, wanted: LaunchConfig) -> tuple[Binary, ...]:
    """Other builds of the program: those that were typed first, then those on this machine.

    Raises: LaunchError for a typed one that is none.
    """
    typed = [inspect(path) for path in args.other_binary]
    name = program_name(wanted.program)
    found = []
    for path in [path for path in find() if program_name(path) == name][:_MAX_OTHERS]:
        try:
            found.append(inspect(path))
        except KvStudioError:
            continue  # one that cannot say what it is cannot be compared with either
    try:
        runs = [entry.run for entry in History(history_dir()).list().entries]
    except StoreError:
        runs = []
    ranked = candidates(inputs.binary, [*typed, *found], runs, wanted)
    paths = [binary.path for binary in typed]
    return tuple(sorted(ranked, key=lambda binary: paths.index(binary.path) if binary.path in paths else len(paths)))


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


def _real_walk(args: argparse.Namespace, inputs: Inputs, plan: Plan, walks: Walks) -> Plan:
    """Launches until there is a verdict, kept after each; Ctrl+C ends the walk with what was found so far."""
    own, options = need_binary(inputs), options_of(args)

    def launch(trial: Trial) -> Run:
        used = replace(inputs, binary=plan.world.other_binary(trial.config) or own)
        return run_once(used, trial.config, trial.predicted, options, title=f"{trial.title}:")

    made = len(plan.launched)

    def watch(trial: Trial, finished: Run) -> None:
        nonlocal made
        made += 1
        if not args.json:
            _emit_row(attempt_of(trial, finished), made)

    while plan.pending is not None:
        try:
            if not args.yes and not _ask(plan.pending):
                plan = plan.stop()
            else:
                plan = step(plan, launch, watch)
        except KeyboardInterrupt:  # while asking, or while the next step is worked out
            plan = plan.stop()
        try:
            walks.keep(plan)
        except StoreError as error:
            message(error.message)
    return plan


def _ask(trial: Trial) -> bool:
    """Whether the person wants this launch; without a terminal to ask on, --yes is needed."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("fix launches the program several times and there is no terminal to ask on.", "Add --yes.")
    message(f"\n{trial.title}. {trial.why}" + (f" Cost: {trial.cost}." if trial.cost else ""))
    message(f"  {format_command(trial.config, mask_secrets=True)}")
    sys.stderr.write("Have you ended it? [Y/n] " if trial.kind is TrialKind.FREE else "Run it? [Y/n] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    return bool(answer) and answer.strip().lower() in ("", "y", "yes")


def _emit_row(attempt: Attempt, number: int) -> None:
    """A launch in a line, and where it failed what was in the way in a second one."""
    trial, found = attempt.trial, attempt.diagnosis
    change = ", ".join(f"{name} {_text(old)} -> {_text(new)}" for name, (old, new) in trial.change.items())
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in attempt.printed_bytes.items() if size)
    took = f" in {attempt.seconds:.1f} s" if attempt.run_number is not None else ""
    got = f", buffers: {sizes}" if sizes else ""
    outcome = attempt.outcome.replace("_", " ")
    emit(f"{number}  {trial.title:<30}  {change:<32}  {outcome}{took}{got}")
    if found is not None and not attempt.worked:
        emit_words(f"   {found.title if found.memory_class == 'memory' else found.summary}", indent=3)


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
        for number, attempt in enumerate(plan.attempts, 1):
            _emit_row(attempt, number)
    emit("")
    emit_words(verdict.says)
    if verdict.not_separated:
        emit_words(f"No pair of runs tells whether these are needed: {', '.join(verdict.not_separated)}.")
    if verdict.outcome == "stopped" and not verdict.predicted and plan.launches_left > 0:
        message("To go on from here, add --resume.")
    if verdict.config is not None:
        emit("")
        emit(format_command(verdict.config))
