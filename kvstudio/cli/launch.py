"""kvstudio-cli launch: a real test launch with one outcome."""

import argparse

from kvstudio.budget.estimate import estimate
from kvstudio.budget.explain import incomplete
from kvstudio.budget.values import Budget
from kvstudio.cli.diagnose import show as show_diagnosis
from kvstudio.cli.inputs import Inputs, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, emit_table, emit_words, message
from kvstudio.cli.running import PHASES, add_run_options, need_binary, options_of, run_once
from kvstudio.diagnose.values import Outcome
from kvstudio.launch import process_command
from kvstudio.launch.argv import format_command, parse_argv
from kvstudio.units import format_bytes
from kvstudio.verify.compare import ComparedSize, compare
from kvstudio.verify.json import to_json
from kvstudio.verify.values import Run, RunOutcome

MARKS = {True: "ok", False: "FAILED", None: "-"}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be started, with its variables")
    parser.set_defaults(cpu_only=False, devices=None, device=[], build=None)


def run(args: argparse.Namespace) -> int:
    inputs = gather(args, need_binary=True)
    need_binary(inputs)
    _say_before(inputs)
    options = options_of(args)
    if args.dry_run:
        _show_command(inputs, options.prompt, options.n_predict, as_json=args.json)
        return DONE
    budget = estimate(
        inputs.model, inputs.config, inputs.devices, host=inputs.host, build=inputs.build, overhead=inputs.overhead
    )
    finished = run_once(inputs, inputs.config, budget, options)
    if args.json:
        emit_json(to_json(finished, budget))
    else:
        show(finished, budget)
    return DONE if finished.outcome is RunOutcome.VERIFIED else DOES_NOT_FIT


def _say_before(inputs: Inputs) -> None:
    """What a person should know before anything is started."""
    for shard in inputs.model.header.shards:
        if not shard.complete:
            message(f"warning: {incomplete(shard)}")
    changed, lost = process_command.spelled(inputs.config, inputs.binary)
    doubted = [doubt.partition(" ")[0] for doubt in inputs.doubts]
    for note in changed:
        if not any(f" {word};" in note for word in doubted):  # said already, as a warning
            message(f"note: {note}")
    for note in lost:
        message(f"warning: {note}; it is passed as typed")


def _show_command(inputs: Inputs, prompt: str, n_predict: int, *, as_json: bool) -> None:
    tested = process_command.config_to_test(inputs.config, inputs.binary, process_command.free_port())
    argv = process_command.argv_to_test(tested, inputs.binary, prompt, n_predict)
    if as_json:
        emit_json({"schema": "kvstudio.command/1", "argv": list(argv), "env": dict(tested.env)})
    else:
        emit(_command(argv, tested.env))


def _command(argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> str:
    return format_command(parse_argv(argv, env), mask_secrets=True)


def show(run: Run, budget: Budget | None) -> None:
    """Outcome, what was started, its steps, the checks, sizes, and the diagnosis of a failure."""
    reached = f", reached {run.reached.value}" if run.reached else ""
    emit_words(f"{run.outcome.value.replace('_', ' ')} after {run.seconds:.1f} s{reached}")
    emit_words(run.says or run.message)
    if run.argv:
        emit(f"command: {_command(run.argv, run.env)}")
    if run.phase_times:
        emit_words(f"steps: {_steps(run)}", 2)
    for pause in run.pauses:
        emit_words(f"nothing was printed for {pause.seconds:.1f} s after line {pause.line}, in {PHASES[pause.phase]}")
    if run.checks and run.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED):
        emit("")
        marks, names = (max(map(len, column)) for column in zip(*((MARKS[c.ok], c.check) for c in run.checks)))
        for check in run.checks:
            emit_words(f"{MARKS[check.ok]:<{marks}}  {check.check:<{names}}  {check.evidence}", marks + 2)
    _show_sizes(run, budget)
    # A log that only stops has nothing to say about a launch that was stopped.
    if run.diagnosis is not None and run.diagnosis.outcome in (Outcome.FAILED, Outcome.RECOVERED):
        emit("")
        show_diagnosis(run.diagnosis)
    if run.log_path:
        emit(f"log: {run.log_path}")


def _steps(run: Run) -> str:
    """When each step began, in that order; those of one moment share it."""
    moments: dict[str, list[str]] = {}
    for phase, at in sorted(run.phase_times, key=lambda step: step[1]):
        moments.setdefault(f"{at:.1f} s", []).append(PHASES[phase])
    return "; ".join(f"{', '.join(names)} at {at}" for at, names in moments.items())


def _show_sizes(run: Run, budget: Budget | None) -> None:
    """What was printed beside what was estimated, and what the devices held at most."""
    if run.buffers:
        head = ["device", "kind", "estimated", "printed", "difference"]
        emit("")
        emit_table([head, *(_size_row(row) for row in compare(budget, run))], right=(2, 3, 4))
    if run.peak:
        emit_words("most in use: " + ", ".join(f"{name} {format_bytes(used)}" for name, used in run.peak))
    learned = [f"{name} {format_bytes(size)}" for name, size in run.overhead if size is not None]
    if learned:
        emit_words("memory no buffer explains: " + ", ".join(learned))


def _size_row(row: ComparedSize) -> list[str]:
    sizes = ["-" if size is None else format_bytes(size) for size in (row.estimated, row.measured)]
    return [row.device, row.kind, *sizes, difference(row.difference, row.agrees)]


def difference(n_bytes: int | None, agrees: bool | None) -> str:
    """`agrees`, or by how much the second size is larger."""
    if n_bytes is None:
        return "-"
    return "agrees" if agrees else f"{'+' if n_bytes > 0 else '-'}{format_bytes(abs(n_bytes))}"
