"""How a walk begins: from a case, a log that was read, or where an earlier one was left; no window in it."""

from dataclasses import dataclass
from pathlib import PurePath

from kvstudio.advise.plan import Plan, World, start
from kvstudio.case.evolve import build_of, extras_of, learned_overhead
from kvstudio.case.values import Case
from kvstudio.case.walk import NOT_TRIED, attempt_of
from kvstudio.case.walks import Walks, candidates
from kvstudio.diagnose.config import config_from_log
from kvstudio.diagnose.values import Diagnosis, Outcome
from kvstudio.errors import KvStudioError
from kvstudio.launch.binary import Binary, find, inspect
from kvstudio.launch.flags import program_name
from kvstudio.runlog.parse import parse
from kvstudio.verify.values import RunOutcome

_MAX_OTHERS = 6
#: Where the model lies is no part of what a log says of a launch.
_OF_THIS_MACHINE = ("model_path", "hf_repo", "hf_file")


@dataclass(frozen=True, slots=True)
class Begun:
    """The plan a window opens with, and whether it goes on from an earlier walk.

    `log` is the file whose diagnosis stands in for the first run; `away` are devices that this machine does not have;
    `foreign` is a device of the log that nothing is known of.
    """

    plan: Plan
    resumed: bool = False
    log: str = ""
    away: tuple[str, ...] = ()
    foreign: str = ""


def begin(case: Case, walks: Walks) -> Begun:
    """The unfinished walk of these settings, else a new one; takes seconds."""
    kept = kept_plan(case, walks)
    return Begun(kept, True, away=case.not_here) if kept is not None else begin_again(case)


def begin_again(case: Case) -> Begun:
    """A new walk, whatever was kept."""
    plan = first_plan(case, other_binaries(case))
    given = bool(plan.attempts) and plan.attempts[0].run_number is None
    log = PurePath(case.log_source).name if given else ""
    return Begun(plan, log=log, away=case.not_here, foreign=foreign_device(case))


def foreign_device(case: Case) -> str:
    """The device that refused in the log on screen, where it is neither here nor of a size that the log tells."""
    name = (case.diagnosis.device or "") if case.diagnosis is not None and case.log and not case.runs else ""
    on_host = name.startswith("CPU") or name.endswith("Host")
    # Some logs only count the devices: `device 1`.
    known = {device.name for device in case.devices} | {f"device {i}" for i in range(len(case.devices))}
    return "" if on_host or name in known else name


def world_of(case: Case, binaries: tuple[Binary, ...] = ()) -> World:
    """What stays the same during a walk from a case."""
    assert case.model is not None
    return World(
        case.model,
        case.chosen_devices,
        case.machine.host if case.machine is not None else None,
        build_of(case),
        learned_overhead(case) or {},
        case.binary,
        binaries,
        tuple(device for device in case.devices if device.name not in case.chosen),
        extras_of(case),
    )


def kept_plan(case: Case, walks: Walks) -> Plan | None:
    """The walk of these settings that was not finished; takes estimates."""
    kept = walks.load(case.config)
    return kept.plan(case.model) if kept is not None and case.model is not None else None


def other_binaries(case: Case) -> tuple[Binary, ...]:
    """Other builds of the case's program on this machine, best candidate first; starts each for its version."""
    if case.binary is None:
        return ()
    found = []
    for path in [path for path in find() if program_name(path) == case.binary.program][:_MAX_OTHERS]:
        try:
            found.append(inspect(path))
        except KvStudioError:
            continue  # one that cannot say what it is cannot be compared with either
    return candidates(case.binary, found, case.runs, case.config)


def first_plan(case: Case, binaries: tuple[Binary, ...] = ()) -> Plan:
    """A plan for the settings of a case; takes estimates, so it is called in a task.

    A run of these very settings that failed stands in for the first try.
    """
    world = world_of(case, binaries)
    run = next((r for r in reversed(case.runs) if r.config == case.config and r.outcome not in NOT_TRIED), None)
    if run is not None and run.outcome is not RunOutcome.VERIFIED:
        fresh = start(world, case.config)
        return fresh.ran(attempt_of(fresh.pending, run)) if fresh.pending is not None else fresh
    return start(world, case.config, _given(case))


def _given(case: Case) -> Diagnosis | None:
    """The diagnosis of a log that was opened, where no run of ours and no edit of its settings came after it."""
    found = case.diagnosis
    if found is None or case.runs or found.outcome is not Outcome.FAILED or foreign_device(case):
        return None
    told = config_from_log(parse(case.log), case.log)
    here = {name: getattr(case.config, name) for name in _OF_THIS_MACHINE}
    return found if told is None or told.evolve(**here) == case.config else None
