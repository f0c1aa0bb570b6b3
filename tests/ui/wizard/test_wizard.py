"""The wizard walks a plan with real threads and a launch that is decided by the budget."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from kvstudio.advise.plan import World, start
from kvstudio.case.values import Case
from kvstudio.devices.values import Device, Machine
from kvstudio.diagnose.config import config_from_log
from kvstudio.diagnose.read import read_log
from kvstudio.launch.config import LaunchConfig
from kvstudio.runlog.values import Phase
from kvstudio.ui.widgets.basic import Label
from kvstudio.ui.wizard.beginning import begin_again, first_plan, foreign_device
from kvstudio.ui.wizard.side_pages import away_words, baseline_view
from kvstudio.ui.wizard.values import Action, RunState
from kvstudio.ui.wizard.wizard import FixWizard
from kvstudio.verify.values import Check, PrintedBuffer, Run, RunOutcome
from kvstudio.work.launch_worker import LaunchWorker
from tests.advise.world import Reality, binary, device
from tests.budget import zoo

WANTED = LaunchConfig(model_path="m.gguf", fit=False, n_gpu_layers=99, n_ctx=131072)
CHECKS = (Check("binary", True, "as chosen"),)


@pytest.fixture(scope="module")
def world():
    return World(zoo.model("llama31-8b"), (device(0, 12),))


@pytest.fixture
def case(world):
    return Case(
        config=WANTED, model=world.model, machine=Machine(world.devices, Device("Host", "CPU")), chosen=("CUDA0",)
    )


def finished(config, number, outcome, diagnosis=None, printed=()):
    return Run(
        number=number,
        config=config,
        argv=(),
        env=(),
        binary=None,
        outcome=outcome,
        reached=Phase.KV,
        phases=(),
        seconds=1.0,
        started_at=0.0,
        exit_code=0,
        signal=None,
        buffers=tuple(PrintedBuffer(name, name, "model", size, 1) for name, size in printed),
        peak=(),
        free_before=(),
        samples=(),
        checks=CHECKS if outcome is RunOutcome.VERIFIED else (),
        diagnosis=diagnosis,
        log_path=None,
        says="The program could not be started." if outcome is RunOutcome.COULD_NOT_START else "",
    )


def launcher(world):
    reality = Reality(world)

    def launch(config, binary, *, options, on_phase, cancel, **_):
        on_phase(Phase.WEIGHTS, "running", 0.0)
        worked, diagnosis, printed = reality.run(config)
        outcome = RunOutcome.VERIFIED if worked else RunOutcome.FAILED
        return finished(config, options.number, outcome, diagnosis, tuple(printed.items()))

    return launch


@pytest.fixture
def make(qtbot, case, world, tmp_path):
    def made(launch=None, show_baseline=False, **options):
        window = FixWizard(
            case, worker=LaunchWorker(launch=launch or launcher(world)), folder=tmp_path / "history", **options
        )
        qtbot.addWidget(window)
        window.show()
        qtbot.waitUntil(lambda: window.plan is not None, timeout=20000)
        if Action.NEXT in window.offered() and not show_baseline:
            press(qtbot, window, Action.NEXT)
        return window

    return made


def press(qtbot, window, action):
    qtbot.mouseClick(window.button(action), Qt.MouseButton.LeftButton)


def ready(window, runs):
    return len(window.plan.attempts) == runs and Action.CANCEL not in window.offered()


def decided(window, runs):
    return ready(window, runs) and not {Action.KEEP, Action.NEXT}.isdisjoint(window.offered())


def go_on(qtbot, window, runs):
    """Wait for the page that says what came of the try, and go on from it."""
    qtbot.waitUntil(lambda: decided(window, runs), timeout=20000)
    press(qtbot, window, Action.KEEP if Action.KEEP in window.offered() else Action.NEXT)


def test_trying_until_the_end_names_the_cause_and_the_command(qtbot, make):
    window = make()
    heard = []
    window.run_finished.connect(lambda run, lines, budget: heard.append(run))
    for runs in range(1, 9):
        press(qtbot, window, Action.TRY)
        go_on(qtbot, window, runs)
        if window.plan.verdict is not None:
            break
    assert window.plan.verdict.outcome == "verified"
    assert window.plan.verdict.root_cause.variable == "n_ctx"
    assert [run.number for run in heard] == list(range(1, len(window.plan.attempts) + 1))
    chosen = []
    window.config_chosen.connect(chosen.append)
    press(qtbot, window, Action.USE)
    assert chosen == [window.plan.verdict.config]


def test_skipping_can_be_taken_back(qtbot, make, world):
    window = make(plan=start(world, WANTED))
    press(qtbot, window, Action.TRY)
    go_on(qtbot, window, 1)
    proposed = window.plan.pending
    press(qtbot, window, Action.SKIP)
    qtbot.waitUntil(lambda: window.plan.pending != proposed and Action.BACK in window.offered(), timeout=20000)
    press(qtbot, window, Action.BACK)
    assert window.plan.pending == proposed


def test_stopping_keeps_what_was_found(qtbot, make):
    window = make()
    press(qtbot, window, Action.STOP)
    qtbot.waitUntil(lambda: window.plan.verdict is not None, timeout=20000)
    assert window.plan.verdict.outcome == "stopped"
    qtbot.waitUntil(lambda: Action.REPORT in window.offered(), timeout=5000)
    with qtbot.waitSignal(window.report_requested):
        press(qtbot, window, Action.REPORT)


def test_a_program_that_does_not_start_is_no_attempt(qtbot, make):
    window = make(lambda config, binary, *, options, **_: finished(config, 1, RunOutcome.COULD_NOT_START))
    with qtbot.waitSignal(window.run_finished, timeout=20000):
        press(qtbot, window, Action.TRY)
    assert window.plan.attempts == ()
    assert Action.TRY in window.offered()


def test_cancel_ends_the_try_and_closing_waits_for_it(qtbot, make):
    def launch(config, binary, *, options, cancel, **_):
        cancel.wait(30)
        return finished(config, options.number, RunOutcome.CANCELLED)

    window = make(launch)
    press(qtbot, window, Action.TRY)
    qtbot.waitUntil(lambda: window.offered() == (Action.CANCEL,), timeout=20000)
    assert window.side.rows()[-1].entry().state is RunState.RUNNING
    press(qtbot, window, Action.CANCEL)
    qtbot.waitUntil(lambda: Action.TRY in window.offered(), timeout=20000)
    press(qtbot, window, Action.TRY)
    qtbot.waitUntil(lambda: window.offered() == (Action.CANCEL,), timeout=20000)
    with qtbot.waitSignal(window.left, timeout=20000):
        window.close()
    assert not window.isVisible()


def test_a_failed_run_of_the_same_settings_is_not_made_again(case, world):
    worked, diagnosis, printed = Reality(world).run(WANTED)
    assert not worked
    before = first_plan(case)
    after = first_plan(case.replace(runs=(finished(WANTED, 4, RunOutcome.FAILED, diagnosis, tuple(printed.items())),)))
    assert before.attempts == ()
    assert [a.run_number for a in after.attempts] == [4]
    other = case.replace(runs=(finished(WANTED.evolve(n_ctx=1024), 4, RunOutcome.FAILED, diagnosis),))
    assert first_plan(other).attempts == ()


def test_a_try_with_another_build_runs_that_build(qtbot, make, case):
    old = binary("/old/llama-server", 11000)
    roomy = World(case.model, (device(0, 24),), binaries=(old,))
    reality, used = Reality(roomy, broken=("llama-server",)), []

    def launch(config, program, *, options, **_):
        used.append(program)
        worked, diagnosis, printed = reality.run(config)
        outcome = RunOutcome.VERIFIED if worked else RunOutcome.FAILED
        return finished(config, options.number, outcome, diagnosis, tuple(printed.items()))

    window = make(launch, plan=start(roomy, WANTED.evolve(n_ctx=8192)))
    while window.plan.verdict is None:
        runs = len(window.plan.attempts) + 1
        press(qtbot, window, Action.TRY)
        go_on(qtbot, window, runs)
    assert used[-1] is old
    assert window.plan.verdict.root_cause.variable == "binary"


def test_an_unfinished_walk_is_offered_again(qtbot, make):
    window = make()
    press(qtbot, window, Action.TRY)
    go_on(qtbot, window, 1)
    tried = window.plan.attempts
    qtbot.waitUntil(lambda: any((window._folder.parent / "walks").glob("*.json")), timeout=5000)
    window.close()
    again = make(show_baseline=True)
    assert again.offered() == (Action.AGAIN, Action.NEXT)
    assert again.plan.attempts == tried
    press(qtbot, again, Action.AGAIN)
    qtbot.waitUntil(lambda: again.offered() == (Action.NEXT,), timeout=20000)
    assert again.plan.attempts == ()


def test_reasons_are_told_and_left_again(qtbot, make):
    window = make()
    press(qtbot, window, Action.TRY)
    go_on(qtbot, window, 1)
    proposed = window.plan.pending
    press(qtbot, window, Action.WHY_NOT)
    qtbot.waitUntil(lambda: window.offered() == (Action.BACK,), timeout=20000)
    press(qtbot, window, Action.BACK)
    assert Action.TRY in window.offered()
    assert window.plan.pending == proposed


def test_a_change_that_works_can_be_undone_where_its_result_is_shown(qtbot, make):
    window = make()
    for runs in range(1, 9):
        press(qtbot, window, Action.TRY)
        qtbot.waitUntil(lambda runs=runs: decided(window, runs), timeout=20000)
        if Action.UNDO in window.offered() and window.plan.attempts[-1].worked:
            break
        press(qtbot, window, Action.KEEP if Action.KEEP in window.offered() else Action.NEXT)
    undone = window.plan.attempts[-1].trial
    press(qtbot, window, Action.UNDO)
    qtbot.waitUntil(lambda: window.plan.undone != () and window.offered() != (Action.CLOSE,), timeout=20000)
    assert window.plan.pending is None or window.plan.pending.variable != undone.variable


def test_a_try_that_was_cancelled_is_one_launch_less(qtbot, make):
    def launch(config, binary, *, options, cancel, **_):
        cancel.wait(30)
        return finished(config, options.number, RunOutcome.CANCELLED)

    window = make(launch)
    left = window.plan.launches_left
    press(qtbot, window, Action.TRY)
    qtbot.waitUntil(lambda: window.offered() == (Action.CANCEL,), timeout=20000)
    press(qtbot, window, Action.CANCEL)
    qtbot.waitUntil(lambda: Action.TRY in window.offered(), timeout=20000)
    assert window.plan.launches_left == left - 1
    assert window.plan.attempts == ()


LOG = (
    "llama_context: n_ctx         = 131072",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory",
    "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
)


@pytest.fixture
def of_log(case):
    read = read_log("\n".join(LOG).encode())
    config = config_from_log(read.events, read.lines)
    return case.replace(
        machine=None,
        what_if=case.machine.devices,
        config=config.evolve(model_path="m.gguf"),
        log=tuple(read.lines),
        log_source="/elsewhere/server.log",
        diagnosis=read.diagnosis,
    )


def test_a_log_stands_for_the_first_run_as_long_as_its_settings_do(qtbot, of_log, world, tmp_path):
    window = FixWizard(of_log, worker=LaunchWorker(launch=launcher(world)), folder=tmp_path / "history")
    qtbot.addWidget(window)
    window.show()
    qtbot.waitUntil(lambda: window.offered() == (Action.NEXT,), timeout=20000)
    assert [a.run_number for a in window.plan.attempts] == [None]
    rows = window.side.rows()
    assert rows[1].entry().number == "log"
    said = [label.text() for label in window.page.findChildren(Label)]
    assert "server.log" in said
    assert any(words.startswith("CUDA0 is not in this machine") for words in said), "the devices are imagined"
    press(qtbot, window, Action.NEXT)
    said = [label.text() for label in window.page.findChildren(Label)]
    assert any(words.startswith("CUDA0 is not in this machine") for words in said)
    assert Action.TRY not in window.offered(), "nothing can be tried on devices of another machine"
    press(qtbot, window, Action.PREDICT)
    qtbot.waitUntil(lambda: Action.COPY in window.offered(), timeout=20000)
    assert window.plan.verdict.predicted
    assert "Predicted: this command fits" in [label.text() for label in window.page.findChildren(Label)]
    assert first_plan(of_log.replace(config=of_log.config.evolve(n_ctx=8192))).attempts == ()


def test_several_devices_of_elsewhere_are_named_together():
    assert away_words(("CUDA0", "CUDA1", "CUDA2")).startswith("CUDA0, CUDA1 and CUDA2 are not in this machine")


def test_a_log_of_a_device_that_nothing_is_known_of_stands_for_no_run_here(of_log):
    assert foreign_device(of_log) == ""
    named = replace(of_log.diagnosis, device="CUDA0")
    assert foreign_device(of_log.replace(diagnosis=named)) == ""
    here = of_log.replace(what_if=(device(0, 12, backend="Vulkan"),), chosen=("Vulkan0",), diagnosis=named)
    assert foreign_device(here) == "CUDA0"
    begun = begin_again(here)
    assert (begun.plan.attempts, begun.log, begun.foreign) == ((), "", "CUDA0")
    assert baseline_view(begun.plan, foreign="CUDA0").page.notice.startswith("The log is about CUDA0, which is not in")
    on_host = here.replace(diagnosis=replace(here.diagnosis, device="CUDA_Host"))
    assert foreign_device(on_host) == ""
