"""kvstudio-cli launch: a real test launch with one outcome."""

import argparse

from kvstudio.budget.estimate import estimate
from kvstudio.budget.explain import incomplete
from kvstudio.cli.diagnose import show as show_diagnosis
from kvstudio.cli.inputs import gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, message, table
from kvstudio.cli.running import add_run_options, need_binary, options_of, run_once
from kvstudio.launch.process_command import spelled
from kvstudio.units import format_bytes
from kvstudio.verify.json import to_json
from kvstudio.verify.values import Run, RunOutcome

MARKS = {True: "ok", False: "FAILED", None: "-"}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.set_defaults(cpu_only=False, devices=None, device=[], build=None)


def run(args: argparse.Namespace) -> int:
    inputs = gather(args, need_binary=True)
    need_binary(inputs)
    for shard in inputs.model.header.shards:
        if not shard.complete:
            message(f"warning: {incomplete(shard)}")
    changed, lost = spelled(inputs.config, inputs.binary)
    for note in changed:
        message(f"note: {note}")
    for note in lost:
        message(f"warning: {note}; it is passed as typed")
    budget = estimate(
        inputs.model, inputs.config, inputs.devices, host=inputs.host, build=inputs.build, overhead=inputs.overhead
    )
    finished = run_once(inputs, inputs.config, budget, options_of(args))
    if args.json:
        emit_json(to_json(finished))
    else:
        show(finished)
    return DONE if finished.outcome is RunOutcome.VERIFIED else DOES_NOT_FIT


def show(run: Run) -> None:
    """Outcome, checks, buffers, and the diagnosis of a failure."""
    reached = f", reached {run.reached.value}" if run.reached else ""
    emit(f"{run.outcome.value.replace('_', ' ')} after {run.seconds:.1f} s{reached}")
    if run.message:
        emit(run.message)
    if run.outcome in (RunOutcome.VERIFIED, RunOutcome.STARTED):
        emit("")
        for line in table([[MARKS[check.ok], check.check, check.evidence] for check in run.checks]):
            emit(line)
    for pause in run.pauses:
        emit(f"nothing was printed for {pause.seconds:.1f} s after line {pause.line}, during {pause.phase.value}")
    if run.buffers:
        emit("")
        rows = [[b.name, b.kind, format_bytes(b.bytes)] for b in run.buffers]
        for line in table(rows, right=(2,)):
            emit(line)
    if run.diagnosis is not None and run.outcome is not RunOutcome.VERIFIED:
        emit("")
        show_diagnosis(run.diagnosis)
    if run.log_path:
        emit(f"log: {run.log_path}")
