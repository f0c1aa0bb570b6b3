"""The fix wizard's story: the split is the cause; as a page by hand, and as plans on their way and at their end."""

from dataclasses import replace
from typing import Any

from kvstudio.advise.plan import Plan, World
from kvstudio.advise.plan_values import Attempt, RootCause, Trial, TrialKind, Verdict
from kvstudio.budget.values import Budget
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.diagnose.values import Cause, Diagnosis, Outcome
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import Phase
from kvstudio.ui.widgets_run.phase_strip import PhaseState
from kvstudio.ui.wizard.values import (
    Action,
    Change,
    Fact,
    Page,
    Picture,
    Progress,
    RunEntry,
    RunState,
    Step,
    WizardView,
)
from kvstudio.verify.values import Check
from tests.ui import samples

DEVICES = (
    Device("CUDA0", "CUDA", total_bytes=samples.CARD, free_bytes=samples.CARD - samples.CUDA0_OTHER),
    Device(
        "CUDA1",
        "CUDA",
        total_bytes=samples.CARD,
        free_bytes=samples.CARD - samples.CUDA1_OTHER,
        processes=(DeviceProcess(4182, "python3", samples.CUDA1_OTHER),),
    ),
)
REFUSED = Diagnosis(
    outcome=Outcome.FAILED,
    memory_class="memory",
    stage="kv",
    device="CUDA1",
    backend="CUDA",
    requested_bytes=samples.FAILURE.bytes,
    free_bytes=samples.FAILURE.free_bytes,
    limit_bytes=None,
    cause=Cause.PLACEMENT,
    key_line=None,
    evidence=(),
    title="The KV cache did not fit on CUDA1",
    summary="CUDA1 refused 7936.0 MiB.",
)
PROGRESS = Progress(
    (
        PhaseState(Phase.FIT, "done"),
        PhaseState(Phase.WEIGHTS, "done"),
        PhaseState(Phase.KV, "running"),
        PhaseState(Phase.COMPUTE, "todo"),
        PhaseState(Phase.LISTENING, "todo"),
    ),
    "0:14",
    "Loading the weights took 9 s.",
)
_WHY = (
    "The split 1,1 gives both cards half of the layers, but CUDA1 has only 16.4 GiB free because python3 holds "
    "7.6 GiB. Without -ts, llama.cpp shares the layers out by free memory: 39 on CUDA0, 25 and the output on CUDA1."
)
CHECKS = (
    Check("binary", True, "llama-server b11434 (4f1c2a97), as chosen", (1,)),
    Check("buffers", True, "KV 9984.0 + 6400.0 MiB = 16.0 GiB, compute on both", (167, 171)),
    Check("context", True, "n_ctx 65536, 4 slots, unified, as asked", (164, 165)),
    Check("placement", True, "65 of 65 layers on GPU: 39 on CUDA0, 25 + output on CUDA1", (158, 161)),
    Check("generation", True, "38 prompt tokens, 128 generated at 31.4 tokens/s", (203,)),
    Check("repeated", True, "3 in a row and 4 at once answered, memory unchanged", (204, 241)),
)
WORKS = samples.CONFIG.evolve(tensor_split=None)


def story() -> WizardView:
    """The page where the split is given back to llama.cpp."""
    page = Page(
        section="Split ratio",
        title="Let llama.cpp split by free memory",
        change=Change("-ts 1,1", "no -ts", "the only change from run 1: context, slots and K/V types stay"),
        why_label="Why",
        why=_WHY,
        flags=("-ts",),
        pictures=(
            Picture("Before", "Run 1, failed", "bad", samples.FAILS),
            Picture("After", "Predicted to fit", "good", samples.FITS),
        ),
        facts=(
            Fact("Quality", "Unchanged", "same weights, same cache"),
            Fact("Speed", "About the same", "both cards keep working in turn"),
            Fact("Room left", "1.8 GiB", "on CUDA1, the tighter card"),
            Fact("This try", "About 20 s", "weights are in the page cache"),
        ),
        command_label="Command for this try",
        config=WORKS,
    )
    return WizardView(
        title="Fix: make this launch work",
        wanted="Wanted: context 65536, as typed",
        entries=(
            RunEntry("Baseline", "b11434, 2 devices; python3 holds 7.6 GiB", RunState.NOTE),
            RunEntry("As given", "KV cache on CUDA1, 0.9 GiB short", RunState.FAILED, "1"),
            RunEntry("Smallest: context 4096, 1 slot", "works, CUDA1 17.8 of 24.0 GiB", RunState.WORKED, "2"),
            RunEntry("Context 32768", "works, CUDA1 21.3 of 24.0 GiB", RunState.WORKED, "3"),
            RunEntry("Split ratio 1,1 → by free memory", "predicted to fit", RunState.NEXT, "next"),
        ),
        later=(
            Step("Put every other change back, one by one"),
            Step("Verify with six checks"),
            Step("Result: root cause and working command"),
        ),
        page=page,
        actions=(Action.STOP, Action.BACK, Action.SKIP, Action.TRY),
        primary=Action.TRY,
        note="Every run is kept. You can close this window and go on later.",
    )


def trial(kind: TrialKind, config: LaunchConfig, parent: int | None, change: tuple[str, Any, Any] | None) -> Trial:
    variable, before, after = change or (None, None, None)
    predicted: Budget = samples.FITS if config.tensor_split is None else samples.FAILS
    titles = {None: "As given", "n_ctx": "Smallest: context 4096", "tensor_split": "Split by free memory"}
    cost = {None: "", "n_ctx": "only a test", "tensor_split": "no cost"}[variable]
    if variable == "n_ctx":
        predicted = replace(samples.estimate(config), first_failure=None)
    return Trial(kind, config, parent, variable, before, after, titles[variable], _WHY, cost, predicted)


AS_GIVEN = Attempt(
    trial(TrialKind.AS_GIVEN, samples.CONFIG, None, None),
    False,
    "failed",
    REFUSED,
    {"CUDA0": samples.mib(9169), "CUDA1": samples.mib(9254), "Host": samples.mib(417)},
    4.1,
    1,
)
SMALLEST = Attempt(
    trial(TrialKind.SMALLEST, samples.CONFIG.evolve(n_ctx=4096), 0, ("n_ctx", 65536, 4096)),
    True,
    "verified",
    None,
    {"CUDA0": samples.mib(10100), "CUDA1": samples.mib(10200)},
    18.2,
    2,
)
SPLIT = trial(TrialKind.CHANGE, WORKS, 0, ("tensor_split", (1.0, 1.0), None))


def world() -> World:
    return World(model=None, devices=DEVICES, build=11434)  # type: ignore[arg-type]


def walking() -> Plan:
    """Two runs are made; giving the split back is next."""
    return Plan(world(), samples.CONFIG, (AS_GIVEN, SMALLEST), pending=SPLIT)


def walked() -> Plan:
    """The third run worked."""
    worked = Attempt(SPLIT, True, "verified", None, {"CUDA0": samples.mib(21272), "CUDA1": samples.mib(14500)}, 22.0, 3)
    says = "It was the split ratio. With tensor_split 1,1 the launch fails: The KV cache did not fit on CUDA1."
    verdict = Verdict("verified", says, WORKS, RootCause("tensor_split", says, 0, 2))
    return Plan(world(), samples.CONFIG, (AS_GIVEN, SMALLEST, worked), verdict=verdict)
