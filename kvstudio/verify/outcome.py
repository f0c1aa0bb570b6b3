"""How a launch ended, as one RunOutcome with one sentence."""

import signal
import sys
from dataclasses import dataclass

from kvstudio.diagnose.values import Diagnosis, Outcome
from kvstudio.launch.process_values import EndKind, ProcessEnd
from kvstudio.verify.requests import Talk
from kvstudio.verify.values import Check, RunOutcome

#: Signals a program raises by its own fault.
_CRASHES = frozenset({"SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"})
#: Exit codes a shell or a container makes of signals.
_SHELL_SIGNALS = range(129, 160)
#: Windows reports a crash as an NTSTATUS error code, and abort() as 3, which llama.cpp itself never ends with.
_WINDOWS_ABORT = 3
_NTSTATUS_ERRORS = range(0xC0000000, 0x100000000)
#: The dynamic loader's exit code when a library is missing or too old.
_LOADER_EXIT = 127
_LOADER_WORDS = ("error while loading shared libraries", "symbol lookup error", "Library not loaded", "GLIBC")


@dataclass(frozen=True, slots=True)
class Ending:
    """What decides the outcome besides the checks."""

    end: ProcessEnd
    talk: Talk
    cancelled: bool
    has_server: bool = True
    first_lines: tuple[str, ...] = ()


def signal_of(end: ProcessEnd) -> int | None:
    """The signal that ended it, also when a shell in between made an exit code of it."""
    if end.signal is not None:
        return end.signal
    code = end.exit_code
    return code - 128 if code is not None and code in _SHELL_SIGNALS else None


def decide(ending: Ending, checks: tuple[Check, ...]) -> RunOutcome:
    """The outcome. A launch that answered everything stays verified whatever its clean stop looked like."""
    end, talk = ending.end, ending.talk
    if end.kind is EndKind.COULD_NOT_START or _loader_failed(ending):
        return RunOutcome.COULD_NOT_START
    answered = talk.done and talk.listening and talk.first is not None
    if end.kind in (EndKind.STOPPED, EndKind.CANCELLED) and answered and not talk.timed_out:
        whole = all(check.ok is not False for check in checks) and all(reply.ok for reply in talk.replies)
        if whole:
            return RunOutcome.VERIFIED
        if end.kind is EndKind.STOPPED:
            return RunOutcome.STARTED
    if end.kind is EndKind.TIMED_OUT or talk.timed_out:
        return RunOutcome.TIMED_OUT
    if ending.cancelled or end.kind is EndKind.CANCELLED:
        return RunOutcome.CANCELLED
    if not ending.has_server and end.exit_code == 0:
        generated = any(check.check == "generation" and check.ok for check in checks)
        return RunOutcome.VERIFIED if generated and all(c.ok is not False for c in checks) else RunOutcome.STARTED
    return _own_end(end)


def _own_end(end: ProcessEnd) -> RunOutcome:
    number = signal_of(end)
    if number is not None:
        return RunOutcome.CRASHED if signal_name(number) in _CRASHES else RunOutcome.KILLED
    if end.kind is EndKind.SIGNALLED:
        return RunOutcome.KILLED
    code = end.exit_code
    if code is not None and (code in _NTSTATUS_ERRORS or (code == _WINDOWS_ABORT and sys.platform == "win32")):
        return RunOutcome.CRASHED
    return RunOutcome.FAILED


def _loader_failed(ending: Ending) -> bool:
    return ending.end.exit_code in (_LOADER_EXIT, 1) and any(
        word in line for line in ending.first_lines for word in _LOADER_WORDS
    )


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def says(outcome: RunOutcome, ending: Ending, checks: tuple[Check, ...], diagnosis: Diagnosis | None) -> str:
    """One sentence for a person."""
    end = ending.end
    if outcome is RunOutcome.VERIFIED:
        n = len(ending.talk.replies)
        done = (
            f"Started, answered {n} of {n} requests and stopped cleanly." if n else "It ran, generated and ended well."
        )
        recovered = diagnosis is not None and diagnosis.outcome is Outcome.RECOVERED
        return done + (f" On the way: {diagnosis.summary}" if recovered and diagnosis else "")
    if outcome is RunOutcome.STARTED:
        bad = [check for check in checks if check.ok is False]
        return f"It started, but is not verified: {bad[0].evidence}" if bad else "It started, but did not answer."
    if outcome is RunOutcome.COULD_NOT_START:
        return end.message or next((line for line in ending.first_lines if line.strip()), "It could not be started.")
    if outcome is RunOutcome.TIMED_OUT:
        late = next((r.says for r in ending.talk.replies if r.timed_out), "")
        return f"Timed out: {end.message or late}."
    if outcome is RunOutcome.CANCELLED:
        return "Cancelled."
    return f"{_how(outcome, end)} {diagnosis.summary if diagnosis is not None else ''}".strip()


def _how(outcome: RunOutcome, end: ProcessEnd) -> str:
    number = signal_of(end)
    if outcome is RunOutcome.KILLED:
        if number == 9:
            return "Killed from outside (SIGKILL), as the system does when memory runs out."
        return f"Ended from outside ({signal_name(number) if number else 'its guard was killed'})."
    if outcome is RunOutcome.CRASHED:
        return f"Crashed ({signal_name(number) if number else f'exit code 0x{end.exit_code or 0:X}'})."
    return f"Ended with exit code {end.exit_code}."
