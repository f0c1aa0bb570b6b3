"""A change in, the next case out; measured sizes take the place of estimates."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvstudio.budget.values import BufferKind, Provenance
from kvstudio.case.evolve import evolve, evolve_budget, learned_overhead, measured
from kvstudio.case.opening import read_model
from kvstudio.case.values import Case, Checked
from kvstudio.devices.values import Device, DeviceSource, Machine
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.oracle.values import OracleResult, OracleRow
from kvstudio.units import GIB, MIB
from kvstudio.verify.values import PrintedBuffer, Run, RunOutcome

TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
CARD = Device("CUDA0", "CUDA", "", 24 * GIB, 23 * GIB)
HOST = Device("Host", "CPU", "", 64 * GIB, 50 * GIB)


@pytest.fixture(scope="module")
def case():
    start = Case(machine=Machine((CARD,), HOST), chosen=("CUDA0",), config=LaunchConfig(n_ctx=1024))
    return evolve(start, model=read_model(TINY))


def run_of(case, outcome=RunOutcome.VERIFIED, kv=7 * MIB, overhead=()):
    printed = (PrintedBuffer("CUDA0", "CUDA0", "kv", kv, 12),)
    return Run(
        1, case.config, (), (), case.binary, outcome, None, (), 1.0, 0.0, 0, None, printed, (), (), (), (), None, None,
        overhead=overhead,
    )  # fmt: skip


def test_the_old_case_stays_as_it_was(case):
    new = evolve(case, config=case.config.evolve(n_ctx=2048))
    assert (case.budget.config.n_ctx, new.budget.config.n_ctx) == (1024, 2048)


def test_a_note_recomputes_nothing(case):
    assert evolve(case, note="n").budget is case.budget


def test_without_a_model_there_is_no_budget():
    assert evolve(Case(), config=LaunchConfig(n_ctx=1)).budget is None


def test_fixes_go_when_it_fits(case):
    small = Machine((replace(CARD, free_bytes=2 * MIB),), HOST)
    tight = evolve(case, machine=small, config=LaunchConfig(n_ctx=4096, n_gpu_layers=99, fit=False))
    assert tight.budget.fits is False
    assert tight.fixes
    assert evolve_budget(tight, machine=case.machine).fixes == ()


@pytest.mark.parametrize("overhead", [0, 3 * MIB])
def test_a_fix_leaves_room_for_a_draft_and_for_what_was_learned(case, overhead):
    config = LaunchConfig(n_ctx=65536, n_parallel=1, n_gpu_layers=99, fit=False, model_draft=TINY)
    seen = (run_of(case, overhead=(("CUDA0", overhead),)),) if overhead else ()
    with_draft = evolve(case, config=config, runs=seen).budget.devices[0]
    alone = evolve(case, config=config.evolve(model_draft=None)).budget.devices[0]
    # Without the draft and what was learned nearly all of it would fit, so that a fix which forgets them is too small.
    free = alone.need_bytes + (with_draft.need_bytes - alone.need_bytes) // 8
    tight = evolve(case, config=config, runs=seen, machine=Machine((replace(CARD, free_bytes=free),), HOST))
    assert tight.budget.fits is False
    assert tight.fixes
    for fix in tight.fixes:
        assert evolve(tight, config=fix.config).budget.fits, fix.title
        assert fix.budget == evolve(tight, config=fix.config).budget


def test_fixes_go_by_the_rules_of_the_chosen_binary(case):
    old = Binary("/b", "llama-server", "1", 10434, None, None, (), frozenset())
    config = LaunchConfig(n_ctx=65536, n_gpu_layers=99, fit=False)
    tight = evolve(case, config=config, binary=old, machine=Machine((replace(CARD, free_bytes=8 * MIB),), HOST))
    assert tight.fixes
    assert {fix.budget.config.build for fix in tight.fixes} == {10434}


def test_rules_follow_the_chosen_binary(case):
    binary = Binary("/b", "llama-server", "1", 10434, None, None, (), frozenset())
    assert evolve(case, binary=binary).budget.config.build == 10434


def test_what_a_run_printed_replaces_the_estimate(case):
    new = evolve(case, runs=(run_of(case),))
    assert new.budget.devices[0].kv_bytes == 7 * MIB
    assert new.budget.devices[0].model_bytes == case.budget.devices[0].model_bytes
    kv = [b for b in new.budget.buffers if b.kind is BufferKind.KV]
    assert [b.provenance for b in kv] == [Provenance.MEASURED]
    assert "line 12" in kv[0].why


def test_nothing_was_measured_on_a_device_that_is_not_here(case):
    measured_here = evolve(case, runs=(run_of(case),))
    imagined = Device("CUDA1", "CUDA", "", 16 * GIB, 16 * GIB, DeviceSource.WHAT_IF)
    other = evolve(measured_here, what_if=(imagined,), chosen=("CUDA1",))
    assert other.not_here == ("CUDA1",)
    assert all(b.provenance is not Provenance.MEASURED for b in other.budget.buffers)
    remote = replace(imagined, name="RPC0[10.0.0.2:50052]", source=DeviceSource.RPC)
    assert evolve(case, what_if=(remote,), chosen=(remote.name,)).not_here == ()


@pytest.mark.parametrize("change", [{"n_ctx": 2048}, {"flash_attn": "off"}])
def test_other_settings_are_estimated_again(case, change):
    new = evolve(case, runs=(run_of(case),), config=case.config.evolve(**change))
    assert all(b.provenance is not Provenance.MEASURED for b in new.budget.buffers)


def test_a_failed_run_measures_nothing(case):
    new = evolve(case, runs=(run_of(case, RunOutcome.FAILED, overhead=(("CUDA0", MIB),)),))
    assert new.budget.devices[0].kv_bytes == case.budget.devices[0].kv_bytes
    assert learned_overhead(new) is None


def test_what_no_buffer_explains_is_learned(case):
    new = evolve(case, runs=(run_of(case, overhead=(("CUDA0", 300 * MIB), ("CUDA1", None))),))
    assert learned_overhead(new) == {"CUDA0": 300 * MIB}
    later = evolve(new, config=case.config.evolve(n_ctx=2048))
    assert later.budget.devices[0].overhead_bytes == 300 * MIB


def test_measured_sums_equal_their_buffers(case):
    seen = measured(case.budget, run_of(case))
    for device in seen.devices:
        total = sum(b.bytes or 0 for b in seen.buffers if b.device == device.name)
        assert total == device.need_bytes - (device.overhead_bytes or 0)


def test_a_dry_run_corrects_only_what_differs(case):
    device = case.budget.devices[0]
    rows = (
        OracleRow("CUDA0", "model", device.model_bytes, MIB, device.model_bytes),
        OracleRow("CUDA0", "compute", device.compute_bytes + 5 * MIB, MIB, device.compute_bytes),
    )
    checked = Checked(case.config, case.chosen, OracleResult("llama-server", (), rows, ""))
    new = evolve(case, checked=checked)
    assert new.budget.devices[0].model_bytes == device.model_bytes
    assert new.budget.devices[0].compute_bytes == device.compute_bytes + 5 * MIB
    assert evolve(new, chosen=()).budget.devices == ()
