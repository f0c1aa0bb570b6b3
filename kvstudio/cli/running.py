"""What launch and fix share: the binary, a watched test launch with a progress line, and the kept run."""

import argparse
import threading
from dataclasses import replace

from kvstudio.budget.values import Budget
from kvstudio.case import overhead
from kvstudio.case.history import History
from kvstudio.cli.inputs import Inputs
from kvstudio.cli.output import Progress, message
from kvstudio.errors import LaunchError, StoreError
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.places import data_dir, history_dir
from kvstudio.runlog.values import Phase
from kvstudio.units import parse_size
from kvstudio.verify.launch import test_launch
from kvstudio.verify.options import DEFAULT_PROMPT, LaunchOptions
from kvstudio.verify.values import Run

PHASES = {
    Phase.FIT: "measuring",
    Phase.WEIGHTS: "loading weights",
    Phase.KV: "KV cache",
    Phase.RS: "recurrent state",
    Phase.COMPUTE: "compute buffers",
    Phase.WARMUP: "warm-up",
    Phase.LISTENING: "listening",
    Phase.GENERATE: "asking",
    Phase.REPEAT: "asking again",
}


#: More than the clocks of the system can wait for.
_LONGEST_S = 1e9


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options of a test launch."""
    parser.add_argument("--prompt", default=DEFAULT_PROMPT, metavar="TEXT", help="what to ask (default: %(default)r)")
    parser.add_argument("--n-predict", type=_count, default=16, metavar="N", help="tokens per answer (default: 16)")
    parser.add_argument(
        "--repeat", type=_count, default=3, metavar="N", help="requests one after the other (default: 3)"
    )
    parser.add_argument("--concurrent", type=_count, metavar="N", help="requests at once (default: one per slot)")
    parser.add_argument("--fill-context", type=_share, default=0.0, metavar="SHARE",
                        help="also fill this share of a slot's context, 0 to 1 (default: 0)")  # fmt: skip
    parser.add_argument(
        "--timeout", type=_seconds, default=1800.0, metavar="S", help="for the whole launch (default: 1800)"
    )
    parser.add_argument("--limit-memory", type=parse_size, metavar="SIZE",
                        help="cap the address space of the launch, to see an allocation refused")  # fmt: skip


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if not 0 < value < _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error


def options_of(args: argparse.Namespace) -> LaunchOptions:
    """LaunchOptions from the parsed options."""
    return LaunchOptions(
        prompt=args.prompt,
        n_predict=args.n_predict,
        repeat=args.repeat,
        concurrent=args.concurrent,
        fill_context=args.fill_context,
        timeout_s=args.timeout,
        address_space_limit_bytes=args.limit_memory,
    )


def need_binary(inputs: Inputs) -> Binary:
    """The program of the command.

    Raises: LaunchError when it is nowhere.
    """
    if inputs.binary is None:
        raise LaunchError(
            f"{inputs.config.program} was not found on this machine.",
            "Give its path in the command, or put its folder on PATH.",
        )
    return inputs.binary


def run_once(
    inputs: Inputs, config: LaunchConfig, budget: Budget | None, options: LaunchOptions, title: str = ""
) -> Run:
    """One test launch with a progress line; the run is kept in the history. Ctrl+C cancels it in good order."""
    binary, history = need_binary(inputs), History(history_dir())
    try:
        number, folder = history.begin(config)
        options = replace(options, number=number, log_dir=str(folder))
    except StoreError as error:
        message(f"it is launched, but {error.message}")
        number = 0
    run = _watched(inputs, config, binary, budget, options, title)
    try:
        overhead.learn(data_dir(), run, inputs.devices)
    except StoreError as error:
        message(error.message)
    if number:
        try:
            return history.finish(number, run, model_name=inputs.model.name, budget=budget).run
        except StoreError as error:
            message(f"it was launched, but {error.message}")
    return run


def _watched(
    inputs: Inputs, config: LaunchConfig, binary: Binary, budget: Budget | None, options: LaunchOptions, title: str
) -> Run:
    """The launch on a thread of its own, so that Ctrl+C reaches us at once and the child is ended by the runner."""
    progress, cancel, over = Progress(), threading.Event(), threading.Event()
    finished: list[Run] = []
    failure: list[BaseException] = []

    def on_phase(phase: Phase, state: str, _at: float) -> None:
        if state == "running":
            progress.show(f"{title} {PHASES.get(phase, phase.value)}\u2026".strip())

    def work() -> None:
        try:
            finished.append(
                test_launch(
                    config,
                    binary,
                    options=options,
                    on_phase=on_phase,
                    cancel=cancel,
                    budget=budget,
                    machine=inputs.machine,
                )
            )
        except BaseException as error:  # handed to the waiting thread, which raises it
            failure.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=work, name="kvstudio-launch")
    thread.start()
    # Not thread.join: where Ctrl+C interrupts that, Python 3.11 takes the thread for ended while it still runs.
    while not over.is_set():
        try:
            over.wait(0.2)
        except KeyboardInterrupt:
            cancel.set()
    progress.clear()
    if failure:
        raise failure[0]
    return finished[0]
