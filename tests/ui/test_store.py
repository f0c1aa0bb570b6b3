"""The store: every action gives a new case and keeps the old one."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kvstudio.advise.values import Fix
from kvstudio.case import evolve as evolving
from kvstudio.case import store as case_file
from kvstudio.case.values import Case
from kvstudio.devices.values import Device, DeviceSource, Machine
from kvstudio.errors import ConfigError
from kvstudio.launch.config import LaunchConfig
from kvstudio.ui.store import Store
from kvstudio.units import GIB, MIB
from kvstudio.work import task

TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
CARDS = (
    Device("CUDA0", "CUDA", "RTX 4090", 24 * GIB, 23 * GIB, DeviceSource.NVML),
    Device("CUDA1", "CUDA", "RTX 4090", 24 * GIB, 16 * GIB, DeviceSource.NVML),
)
HOST = Device("Host", "CPU", "RAM", 64 * GIB, 50 * GIB)
MACHINE = Machine(CARDS, HOST)


@pytest.fixture
def store(qapp, inline_tasks):
    made = Store()
    made.errors = []
    made.failed.connect(made.errors.append)
    return made


@pytest.fixture
def opened(store):
    store.set_machine(MACHINE)
    store.open_path(TINY)
    return store


def test_opening_a_model_gives_a_budget(opened):
    assert opened.case.model.architecture == "llama"
    assert opened.case.config.model_path == TINY
    assert opened.case.budget.fits is True
    assert opened.errors == []


def test_each_change_tells_old_and_new(opened, qtbot):
    before = opened.case
    with qtbot.waitSignal(opened.changed) as got:
        opened.edit({"n_ctx": 2048})
    assert got.args[0] is before
    assert got.args[1] is opened.case
    assert (before.config.n_ctx, opened.case.config.n_ctx) == (None, 2048)
    assert before.budget.config.n_ctx == 4096
    assert opened.case.budget.config.n_ctx == 2048


def test_an_edit_that_changes_nothing_is_silent(opened, qtbot):
    opened.edit({"n_ctx": 2048})
    with qtbot.assertNotEmitted(opened.changed):
        opened.edit({"n_ctx": 2048})


def test_undo_and_redo(opened):
    opened.edit({"n_ctx": 2048})
    opened.edit({"n_parallel": 2})
    opened.undo()
    assert (opened.case.config.n_ctx, opened.case.config.n_parallel) == (2048, None)
    opened.undo()
    assert opened.case.config.n_ctx is None
    opened.redo()
    assert opened.case.config.n_ctx == 2048
    opened.edit({"n_ctx": 1024})
    assert not opened.can_redo


def test_a_drag_is_one_undo_step(opened, qtbot):
    for n_ctx in (512, 768, 1024):
        opened.drag({"n_ctx": n_ctx})
        qtbot.waitUntil(lambda n_ctx=n_ctx: opened.case.config.n_ctx == n_ctx)
    assert opened.is_dragging
    opened.end_live()
    opened.drag({"n_ctx": 2048})
    opened.end_live()
    assert opened.case.config.n_ctx == 2048
    assert not opened.is_dragging
    opened.undo()
    assert opened.case.config.n_ctx == 1024
    opened.undo()
    assert opened.case.config.n_ctx is None


def test_values_that_come_too_fast_are_skipped(opened):
    seen = []
    opened.changed.connect(lambda old, new: seen.append(new.config.n_ctx))
    for n_ctx in range(512, 4096, 256):
        opened.drag({"n_ctx": n_ctx})
    opened.end_live()
    assert seen == [3840]


def test_undo_keeps_live_devices(opened):
    opened.edit({"n_ctx": 2048})
    later = replace(MACHINE, devices=(replace(CARDS[0], free_bytes=1 * GIB), CARDS[1]))
    opened.set_machine(later)
    opened.undo()
    assert opened.case.machine == later


def test_a_bad_file_leaves_the_case_as_it_was(opened, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\xff" * 8)
    before = opened.case
    opened.open_path(str(bad))
    assert opened.case is before
    assert "bad.gguf" in opened.errors[0].message


def test_another_model_keeps_the_settings_but_not_what_belonged_to_the_first(opened, tmp_path):
    opened.edit({"n_ctx": 2048, "mmproj": "p.gguf", "override_tensor": (("a", "CPU"),)})
    copy = tmp_path / "other.gguf"
    copy.write_bytes(Path(TINY).read_bytes())
    opened.open_path(str(copy))
    config = opened.case.config
    assert (config.n_ctx, config.mmproj, config.override_tensor) == (2048, None, None)


def test_unticking_a_device_is_said_to_llama_cpp(opened):
    opened.tick("CUDA1", False)
    assert opened.case.chosen == ("CUDA0",)
    assert opened.case.config.device == ("CUDA0",)
    assert [d.name for d in opened.case.budget.devices] == ["CUDA0"]
    opened.tick("CUDA1", True)
    assert opened.case.config.device is None


def test_no_device_ticked_means_cpu_only(opened):
    opened.tick("CUDA0", False)
    opened.tick("CUDA1", False)
    assert opened.case.config.device == ("none",)
    assert opened.case.budget.devices == ()


def test_integrated_devices_are_left_out_beside_others(store):
    store.set_machine(Machine((replace(CARDS[0], name="Vulkan0", integrated=True), CARDS[1]), HOST))
    assert store.case.chosen == ("CUDA1",)


def test_a_user_tick_survives_the_next_poll(opened):
    opened.tick("CUDA1", False)
    opened.set_machine(replace(MACHINE, devices=(CARDS[0], replace(CARDS[1], free_bytes=2 * GIB))))
    assert opened.case.chosen == ("CUDA0",)


def test_a_few_mib_are_no_change(opened, qtbot):
    with qtbot.assertNotEmitted(opened.changed):
        opened.set_machine(replace(MACHINE, host=replace(HOST, free_bytes=HOST.free_bytes - 5 * MIB)))
    with qtbot.waitSignal(opened.changed):
        opened.set_machine(replace(MACHINE, host=replace(HOST, free_bytes=HOST.free_bytes - 500 * MIB)))


def test_what_if_devices_get_free_names(opened):
    opened.add_what_if((Device("CUDA0", "CUDA", "24 GB", 24 * GIB, 24 * GIB, DeviceSource.WHAT_IF),))
    assert [d.name for d in opened.case.devices] == ["CUDA0", "CUDA1", "CUDA2"]
    assert opened.case.chosen == ("CUDA0", "CUDA1", "CUDA2")
    opened.remove_what_if("CUDA2")
    assert opened.case.what_if == ()
    assert opened.case.chosen == ("CUDA0", "CUDA1")


def test_a_fix_takes_over_what_it_changes_and_nothing_else(opened):
    base = opened.case.config
    fixed = base.evolve(cache_type_k="q8_0", cache_type_v="q8_0")
    opened._fixes_for = base
    opened.edit({"n_ubatch": 256})
    opened.apply_fix(Fix("cache_type_k", "f16", "q8_0", "t", "w", "c", fixed, opened.case.budget, 0))
    config = opened.case.config
    assert (config.cache_type_k, config.cache_type_v, config.n_ubatch) == ("q8_0", "q8_0", 256)


def test_fixes_follow_a_budget_that_does_not_fit(store, qtbot):
    small = replace(CARDS[0], total_bytes=40 * MIB, free_bytes=3 * MIB)
    store.set_machine(Machine((small,), HOST))
    store.open_path(TINY)
    store.edit({"n_gpu_layers": 99, "fit": False})
    assert store.case.budget.fits is False
    qtbot.waitUntil(lambda: bool(store.case.fixes), timeout=8000)


def test_a_pasted_command_opens_its_model(store):
    store.open_text(f"llama-server -m {TINY} -c 2048 -np 2 --unknown-flag 7")
    assert store.case.model.name == "Tiny llama"
    assert store.case.config.n_parallel == 2
    assert store.case.budget.config.n_ctx == 2048


def test_a_pasted_command_with_a_missing_model_says_so(store):
    store.open_text("llama-server -m /gone/x.gguf -c 2048")
    assert store.case.config.n_ctx == 2048
    assert store.case.model is None
    assert "x.gguf" in store.errors[0].message


def test_a_pasted_command_without_a_model_keeps_the_open_one(opened):
    opened.open_text("llama-server -c 1024")
    assert opened.case.model is not None
    assert opened.case.config.model_path == TINY


def test_device_flag_of_a_command_ticks_devices(opened):
    opened.open_text(f"llama-server -m {TINY} -dev CUDA1")
    assert opened.case.chosen == ("CUDA1",)


def test_a_saved_case_comes_back(opened, tmp_path):
    path = str(tmp_path / "a.kvcase")
    opened.edit({"n_ctx": 512})
    opened.save_case(path)
    opened.close_case()
    assert opened.case.model is None
    opened.open_path(path)
    assert opened.case.config.n_ctx == 512
    assert opened.case.budget is not None


def test_a_case_from_another_machine_brings_its_devices(opened, tmp_path):
    path = tmp_path / "a.kvcase"
    elsewhere = Machine((Device("CUDA0", "CUDA", "3060", 12 * GIB, 11 * GIB),), HOST)
    case_file.save(Case(model=opened.case.model, machine=elsewhere, chosen=("CUDA0",)), path)
    opened.open_path(str(path))
    assert opened.case.machine == MACHINE
    assert [(d.name, d.total_bytes) for d in opened.case.chosen_devices] == [("CUDA0", 12 * GIB)]


def test_a_projector_asks_for_its_model(opened, qtbot, tmp_path):
    path = tmp_path / "mmproj.gguf"
    _write_projector(path)
    with qtbot.waitSignal(opened.asked) as got:
        opened.open_path(str(path))
    assert got.args[0].path == str(path)
    assert opened.case.config.mmproj is None
    opened.use_projector(str(path))
    assert opened.case.config.mmproj == str(path)


def test_a_projector_alone_is_refused(store, tmp_path):
    path = tmp_path / "mmproj.gguf"
    _write_projector(path)
    store.open_path(str(path))
    assert "projector" in store.errors[0].message


def test_reset_keeps_the_model(opened):
    opened.edit({"n_ctx": 512, "env": (("A", "1"),)})
    opened.reset_settings()
    assert opened.case.config == LaunchConfig(model_path=TINY)


def _write_projector(path):
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "clip")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


LOG = "llama_model_loader: loaded meta data with 20 key-value pairs and 147 tensors from {} (version GGUF V3)\n" + (
    "llama_kv_cache: CUDA0 KV buffer size = 8448.00 MiB\n"
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7936.00 MiB on device 1: cudaMalloc failed: out of memory\n"
)


@pytest.mark.parametrize(
    ("named", "stays"),
    [("/elsewhere/tiny.gguf", True), ("/blobs/sha256-00ff", True), (None, True), ("/elsewhere/other.gguf", False)],
)
def test_a_log_waits_for_its_model(store, tmp_path, named, stays):
    log = tmp_path / "server.log"
    log.write_text(LOG.format(named) if named else LOG.partition("\n")[2])
    store.open_path(str(log))
    assert store.case.model is None
    assert store.case.diagnosis is not None
    store.open_path(TINY)
    assert store.case.model is not None
    assert (store.case.diagnosis is not None) is stays


def test_a_model_chosen_for_the_log_keeps_it_whatever_it_is_called(store, tmp_path):
    log = tmp_path / "server.log"
    log.write_text(LOG.format("/elsewhere/other.gguf"))
    store.open_path(str(log))
    store.open_for_log(TINY)
    assert store.case.config.model_path == TINY
    assert store.case.diagnosis is not None
    assert store.case.log
    assert store.errors == []


@pytest.fixture
def slow(qtbot, monkeypatch):
    """A store whose budgets of more than one slot wait until `gate` is set."""
    gate, with_budget = threading.Event(), evolving.with_budget

    def gated(case: Case) -> Case:
        if case.config.n_parallel == 13:
            raise ConfigError("no such number of slots")
        if case.config.n_parallel not in (None, 1):
            assert gate.wait(5)
        return with_budget(case)

    monkeypatch.setattr(evolving, "with_budget", gated)
    made = Store()
    # Long enough for what is quick on a busy machine.
    made._budgets._soon._grace_s = 0.5
    made.gate, made.errors, made.said = gate, [], []
    made.failed.connect(made.errors.append)
    made.working_changed.connect(made.said.append)
    made.set_machine(MACHINE)
    made.open_path(TINY)
    qtbot.waitUntil(lambda: made.case.budget is not None)
    yield made
    gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)


def test_settings_whose_budget_takes_long_are_shown_at_once(slow, qtbot):
    before = slow.case
    slow.edit({"n_parallel": 2})
    assert slow.case.config.n_parallel == 2
    assert slow.case.budget is before.budget
    assert (slow.case.fixes, slow.case.fitted) == ((), None)
    assert slow.is_working
    qtbot.waitUntil(lambda: slow.said == [True])
    slow.set_note("kept")
    slow.gate.set()
    qtbot.waitUntil(lambda: not slow.is_working)
    assert slow.said == [True, False]
    assert slow.case.budget.config.n_parallel == 2
    assert slow.case.note == "kept"
    slow.undo()
    assert slow.case.config.n_parallel is None
    assert slow.case.budget.config == before.budget.config


def test_a_quick_change_after_a_slow_one_counts(slow, qtbot):
    slow.edit({"n_parallel": 2})
    assert slow.is_working
    slow.edit({"n_parallel": 1})
    assert not slow.is_working
    assert slow.case.budget.config.n_parallel == 1
    slow.gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert slow.case.budget.config.n_parallel == 1
    assert slow.said == []


def test_another_model_does_not_keep_the_bars_of_the_one_before(slow, qtbot):
    slow.edit({"n_parallel": 2})
    model = replace(slow.case.model, name="another")
    slow.show_model(model, "/m/another.gguf")
    assert slow.case.model is model
    assert slow.case.budget is None
    slow.gate.set()
    qtbot.waitUntil(lambda: not slow.is_working)
    assert slow.case.budget is not None


def test_closing_the_case_waits_for_nothing(slow, qtbot):
    slow.edit({"n_parallel": 2})
    slow.close_case()
    assert not slow.is_working
    slow.gate.set()
    qtbot.waitUntil(lambda: task.pending() == 0)
    assert (slow.case.model, slow.case.budget) == (None, None)


def test_a_change_that_is_refused_leaves_what_was_under_way(slow, qtbot):
    slow.edit({"n_parallel": 2})
    slow.edit({"n_parallel": 13})
    assert [error.message for error in slow.errors] == ["no such number of slots"]
    assert slow.case.config.n_parallel == 2
    slow.gate.set()
    qtbot.waitUntil(lambda: not slow.is_working)
    assert slow.case.budget.config.n_parallel == 2
