"""What lies outside the settings: other processes, caps on one allocation, other backends and builds, hard limits."""

from dataclasses import replace

import pytest

from kvstudio.advise.not_offered import not_offered
from kvstudio.advise.plan import MAX_LAUNCHES, World, start
from kvstudio.advise.plan_values import TrialKind
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.diagnose.values import Cause
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB
from tests.advise.world import Reality, binary, device
from tests.budget import zoo

WANTED = LaunchConfig(model_path="m.gguf", fit=False, n_gpu_layers=99, n_ctx=32768, n_parallel=1)
NEW, OLD = binary("/new/llama-server", 11434), binary("/old/llama-server", 11000)


@pytest.fixture
def model():
    return zoo.model("llama31-8b")


def busy(held_gib: float, total_gib: float = 12) -> Device:
    free = device(0, total_gib, total_gib - held_gib)
    return replace(free, processes=(DeviceProcess(4182, "python3", int(held_gib * GIB)),))


def test_memory_another_process_holds_is_asked_for_first(model):
    world = World(model, (busy(8),))
    reality = Reality(world)
    plan = start(world, WANTED)
    plan = plan.ran(reality.attempt(plan.pending))
    assert plan.pending.kind is TrialKind.FREE
    assert plan.pending.config == WANTED
    assert "python3 (process 4182) holds 8.0 GiB of CUDA0" in plan.pending.why
    assert plan.pending.predicted.fits
    plan = reality.walk(plan)
    assert plan.verdict.root_cause.variable == "other_process"
    assert plan.verdict.config == WANTED
    assert reality.launches == 2


def test_nobody_there_to_end_a_process_means_it_is_only_said(model):
    world = World(model, (busy(8),))
    plan = Reality(world).walk(start(world, WANTED, attended=False))
    assert plan.verdict.outcome == "verified"
    assert all(a.trial.kind is not TrialKind.FREE for a in plan.attempts)
    reasons = {each.variable: each.reason for each in not_offered(plan)}
    assert "python3 (4182) holds 8.0 GiB of CUDA0" in reasons["other_process"]


def test_a_process_whose_memory_would_not_be_enough_is_not_ended(model):
    world = World(model, (busy(0.5, 8),))
    plan = Reality(world).walk(start(world, WANTED.evolve(n_ctx=131072)))
    assert all(a.trial.kind is not TrialKind.FREE for a in plan.attempts)


def test_after_skipping_the_process_the_settings_are_changed(model):
    world = World(model, (busy(8),))
    reality = Reality(world)
    plan = start(world, WANTED)
    plan = plan.ran(reality.attempt(plan.pending)).skip()
    assert plan.pending.kind is not TrialKind.FREE
    assert reality.walk(plan).verdict.outcome == "verified"


def test_old_works_and_new_fails_is_a_regression_with_both_builds(model):
    world = World(model, (device(0, 24),), binary=NEW, build=11434, binaries=(OLD,))
    reality = Reality(world, broken=("llama-server",))
    plan = reality.walk(start(world, WANTED))
    cause = plan.verdict.root_cause
    assert cause.variable == "binary"
    assert "regression" in cause.says
    assert "b11434 (/new/llama-server)" in cause.says
    assert "b11000 (/old/llama-server)" in cause.says
    assert plan.verdict.config == WANTED.evolve(program=OLD.path)
    assert reality.launches <= MAX_LAUNCHES
    last = plan.attempts[-1].trial
    assert last.change == {"binary": ("llama-server", OLD.path)}


def test_a_newer_build_that_works_is_no_regression(model):
    world = World(model, (device(0, 24),), binary=OLD, build=11000, binaries=(NEW,))
    plan = Reality(world, broken=("llama-server",)).walk(start(world, WANTED))
    assert plan.verdict.root_cause.variable == "binary"
    assert "regression" not in plan.verdict.says


def test_where_no_build_is_the_answer_the_settings_are(model):
    world = World(model, (device(0, 24),), binary=NEW, binaries=(OLD,))
    reality = Reality(world, total_bytes=7 * GIB)
    plan = reality.walk(start(world, WANTED))
    assert plan.verdict.outcome == "verified"
    assert plan.verdict.root_cause.variable != "binary"
    assert reality.launches <= MAX_LAUNCHES


def test_the_same_card_by_another_backend_is_tried(model):
    cuda = replace(device(0, 24), pci_id="0000:01:00.0")
    vulkan = replace(device(0, 24, backend="Vulkan"), pci_id="0000:01:00.0")
    world = World(model, (cuda,), other_devices=(vulkan,))
    true = World(model, (replace(cuda, free_bytes=6 * GIB),), other_devices=(vulkan,))
    plan = Reality(true).walk(start(world, WANTED))
    tried = next(a.trial for a in plan.attempts if a.trial.kind is TrialKind.BACKEND)
    assert tried.config.device == ("Vulkan0",)
    assert plan.verdict.root_cause.variable == "device"
    assert plan.verdict.config.n_ctx == WANTED.n_ctx


def test_a_cap_on_one_allocation_is_named_and_kept_to(model):
    world = World(model, (device(0, 24),))
    reality = Reality(world, cap_bytes=5 * GIB)
    wanted = WANTED.evolve(n_ctx=65536)
    assert world.estimate(wanted).fits
    plan = reality.walk(start(world, wanted))
    assert plan.verdict.outcome == "verified"
    assert "takes at most 5.0 GiB in one allocation" in plan.verdict.says
    assert reality.launches <= 5


def test_a_cap_the_device_tells_is_named_without_a_line_of_the_log(model):
    limited = replace(device(0, 200, backend="OpenCL"), max_buffer_bytes=768 * MIB)
    world = World(model, (limited,))
    wanted = WANTED.evolve(n_ctx=524288)
    predicted = world.estimate(wanted)
    assert predicted.first_failure is not None
    assert predicted.first_failure.limit_bytes == 768 * MIB
    assert all(place.fits is not False for place in (*predicted.devices, predicted.host))
    plan = Reality(world).walk(start(world, wanted))
    assert plan.first.diagnosis.cause is Cause.BACKEND_LIMIT
    assert "takes at most 768.0 MiB in one allocation" in plan.verdict.says


def test_a_limit_of_the_whole_process_is_learned(model):
    world = World(model, (device(0, 24),))
    reality = Reality(world, total_bytes=8 * GIB)
    plan = reality.walk(start(world, WANTED.evolve(n_ctx=65536)))
    assert plan.verdict.outcome == "verified"
    assert reality.launches <= 6
    assert reality.truth.estimate(plan.verdict.config).devices[0].need_bytes <= 8 * GIB


def test_a_hard_limit_says_what_is_needed_and_what_would_fit():
    model = zoo.model("llama33-70b")
    host = Device("Host", "CPU", total_bytes=16 * GIB, free_bytes=14 * GIB)
    world = World(model, (device(0, 16),), host)
    plan = Reality(world).walk(start(world, WANTED.evolve(load_mode="none")))
    verdict = plan.verdict
    assert verdict.outcome == "no_fit"
    limit = verdict.hard_limit
    assert limit.available_bytes == 30 * GIB
    assert limit.least_bytes > limit.available_bytes
    assert limit.short_bytes == limit.least_bytes - limit.available_bytes
    assert limit.bits_per_weight * model.n_params / 8 <= limit.weights_bytes
    assert limit.file_type in verdict.says


def test_a_model_far_too_large_is_told_in_parameters():
    model = zoo.model("deepseek-r1-671b")
    host = Device("Host", "CPU", total_bytes=16 * GIB, free_bytes=14 * GIB)
    world = World(model, (device(0, 24),), host)
    verdict = Reality(world).walk(start(world, WANTED.evolve(load_mode="none"))).verdict
    assert verdict.hard_limit.file_type is None
    assert "billion parameters" in verdict.says


def test_every_variable_that_is_not_offered_has_a_reason(model):
    world = World(model, (device(0, 12),))
    reality = Reality(world)
    plan = start(world, WANTED.evolve(n_ctx=131072))
    plan = plan.ran(reality.attempt(plan.pending))
    reasons = {each.variable: each.reason for each in not_offered(plan)}
    assert reasons["n_cpu_moe"] == "The model has no experts."
    assert reasons["tensor_split"] == "There is only one device."
    assert all(reasons.values())
    assert plan.pending.variable not in reasons


def test_a_command_that_is_too_large_may_still_be_a_regression(model):
    world = World(model, (device(0, 12),), binary=NEW, build=11434, binaries=(OLD,))
    reality = Reality(world, broken=("llama-server",))
    plan = reality.walk(start(world, WANTED.evolve(n_ctx=131072)))
    assert plan.verdict.outcome == "verified"
    assert plan.verdict.config.program == OLD.path
    assert "binary" in {name for a in plan.attempts for name in a.trial.change}
    assert reality.launches <= MAX_LAUNCHES
