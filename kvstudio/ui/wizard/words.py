"""What a walk says of its runs, in words: pure, and used by every page."""

import re
from collections import Counter

from kvstudio.advise.plan import Plan
from kvstudio.advise.plan_values import Attempt, Trial
from kvstudio.advise.predict import DOES_NOT_FIT, FITS, UNKNOWN
from kvstudio.budget.values import Budget, DeviceBudget
from kvstudio.devices.values import Device
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.config import LaunchConfig
from kvstudio.ui import text
from kvstudio.ui.command_words import words_of
from kvstudio.ui.settings_table import BY_FIELD
from kvstudio.ui.widgets import bar_geometry
from kvstudio.ui.wizard.values import Change
from kvstudio.units import GIB, format_bytes, format_gib, format_room

#: A flag in a sentence: after a space or an opening bracket, one dash or two, then a letter.
_FLAG = re.compile(r"(?<![^\s(])--?[a-zA-Z][\w-]*")
#: What an attempt is called that was no launch.
PREDICTED = (FITS, DOES_NOT_FIT, UNKNOWN)


def wanted_words(plan: Plan) -> str:
    """What the launch was meant to be: `Wanted: context 65536, as typed`."""
    first = plan.attempts[0].trial.predicted if plan.attempts else plan.pending.predicted if plan.pending else None
    n_ctx = plan.wanted.n_ctx or (first.config.n_ctx if first else 0)
    typed = text.tr("as typed") if plan.wanted.n_ctx else text.tr("the default")
    return text.tr("Wanted: context {}, {}").format(n_ctx, typed) if n_ctx else text.tr("Wanted: the command as typed")


def number_of(attempt: Attempt) -> str:
    """The number of a run; what was read from a log, or only predicted, has none."""
    if attempt.run_number is not None:
        return str(attempt.run_number)
    return "" if attempt.outcome in PREDICTED else text.tr("log")


def source_of(attempt: Attempt) -> str:
    """Who says what came of it: `Run 3`, `The log`, `The budget`."""
    if attempt.run_number is not None:
        return text.tr("Run {}").format(attempt.run_number)
    return text.tr("The budget") if attempt.outcome in PREDICTED else text.tr("The log")


def baseline_words(plan: Plan) -> str:
    """Build, number of devices, and who holds most of one: `b11434, 2 devices; python3 holds 7.6 GiB`."""
    devices = plan.world.devices
    build = f"b{plan.world.build}, " if plan.world.build else ""
    count = text.tr("{} devices").format(len(devices)) if devices else text.tr("no device, CPU alone")
    count = text.tr("1 device") if len(devices) == 1 else count
    holder = competing_words(devices)
    return f"{build}{count}; {holder}" if holder else f"{build}{count}"


def competing_words(devices: tuple[Device, ...]) -> str:
    """The process that holds most memory of any device; empty where it is little or unknown."""
    held = [(p.bytes, p.name) for d in devices for p in d.processes if p.bytes and d.total_bytes]
    biggest = max(held, default=None)
    total = max((d.total_bytes or 0 for d in devices), default=0)
    if biggest is None or biggest[0] * 20 < total:
        return ""
    return text.tr("{} holds {}").format(biggest[1], format_room(biggest[0]))


def competing_notice(plan: Plan) -> str:
    """Who to end before anything is changed, where the wanted launch is short and others hold memory."""
    words = competing_words(plan.world.devices)
    first = plan.attempts[0].trial if plan.attempts else plan.pending
    if not words or first is None or first.predicted is None or first.predicted.fits is not False:
        return ""
    return text.tr("{}: ending it may be all that is needed.").format(words)


def outcome_words(attempt: Attempt) -> str:
    """`works, CUDA1 17.8 of 24.0 GiB` or `KV cache on CUDA1, 0.9 GiB short`."""
    if attempt.outcome in PREDICTED:
        return prediction_words(attempt.trial.predicted)
    if attempt.worked:
        tight = tightest(attempt.trial.predicted)
        if tight is None or tight.total_bytes is None:
            return text.tr("works")
        used = round(sum(a.bytes for a in bar_geometry.amounts(tight)))
        total = format_gib(tight.total_bytes)
        return text.tr("works, {} {} of {} GiB").format(tight.name, format_gib(used), total)
    return failure_words(attempt.diagnosis, attempt.outcome)


def failure_words(found: Diagnosis | None, outcome: str) -> str:
    """Stage, device and shortage of a failed run, or what its log says."""
    if found is None:
        return outcome.replace("_", " ")
    if found.memory_class == "memory" and found.requested_bytes and found.free_bytes is not None and found.device:
        short = found.requested_bytes - found.free_bytes
        if short > 0:
            stage = _STAGES.get(found.stage or "", text.tr("memory"))
            return text.tr("{} on {}, {} short").format(stage, found.device, format_room(short))
    return found.title or found.summary


_STAGES = {
    "weights": "weights",
    "kv": "KV cache",
    "rs": "recurrent state",
    "compute": "compute buffer",
    "output": "output buffer",
}


def prediction_words(budget: Budget | None) -> str:
    """What is expected of a run."""
    if budget is None or budget.fits is None:
        return text.tr("not known whether it fits")
    if budget.fits:
        return text.tr("predicted to fit")
    failure = budget.first_failure
    if failure is None:
        return text.tr("predicted to be too large")
    return text.tr("predicted to be {} short on {}").format(format_room(failure.short_bytes), failure.device)


def tightest(budget: Budget | None) -> DeviceBudget | None:
    """The device with least room; the host where there is no other."""
    places = (budget.devices or (budget.host,)) if budget is not None else ()
    known = [d for d in places if d.room_bytes is not None]
    return min(known, key=lambda d: d.room_bytes or 0, default=None)


def change_of(before: LaunchConfig, trial: Trial) -> Change:
    """The change as typed: the pieces of the command that go, and those that come."""
    if trial.variable == "other_process":
        return Change(str(trial.before).partition(":")[0], text.tr("ended"))
    if trial.variable == "binary":
        return Change(str(trial.before), str(trial.after))
    old, new = (Counter(word.text for word in words_of(config)) for config in (before, trial.config))
    gone, come = list((old - new).elements()), list((new - old).elements())
    flag = _flag(trial.variable, gone + come)
    return Change(" ".join(gone) or f"no {flag}", " ".join(come) or f"no {flag}")


def _flag(variable: str | None, pieces: list[str]) -> str:
    if variable in BY_FIELD:
        return BY_FIELD[variable].flag
    return pieces[0].split(" ")[0] if pieces else str(variable)


#: Variables that are no control of the settings panel.
_CAPTIONS = {
    "cache_type": "K and V type",
    "split_ratio": "Another split ratio",
    "other_process": "Other processes",
    "binary": "Build of llama.cpp",
}


def caption(variable: str | None) -> str:
    """What the settings panel calls a variable."""
    if variable in _CAPTIONS:
        return _CAPTIONS[variable]
    return BY_FIELD[variable].caption if variable in BY_FIELD else str(variable or "")


def title_of(trial: Trial) -> str:
    """What a try is called, with the settings panel's word for its variable."""
    name, words = caption(trial.variable), trial.title
    if not trial.variable or trial.variable not in words:
        return words
    inner = words.partition(trial.variable)[0] and name[1:2].islower()
    return words.replace(trial.variable, name[:1].lower() + name[1:] if inner else name, 1)


def lower_first(words: str) -> str:
    """A title inside a sentence."""
    return words[:1].lower() + words[1:]


def flags_in(words: str) -> tuple[str, ...]:
    """The flags that a sentence names."""
    return tuple(dict.fromkeys(_FLAG.findall(words)))


def sizes(of: dict[str, int]) -> str:
    """`CUDA0 21.2, CUDA1 14.6`, in GiB; with units of their own where that would only say nothing."""
    small = max(of.values(), default=0) < GIB // 10
    return ", ".join(f"{name} {format_bytes(size) if small else format_gib(size)}" for name, size in of.items()) or "–"
