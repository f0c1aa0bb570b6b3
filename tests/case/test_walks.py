"""A walk is on disk after each run, comes back as it was, and goes once it has an end."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvstudio.advise.plan import World, can_undo, start
from kvstudio.budget.extra_files import read_extras
from kvstudio.case.walks import Walks, candidates
from kvstudio.errors import StoreError
from kvstudio.launch.config import LaunchConfig
from tests.advise.world import Reality, binary, device
from tests.budget import zoo

WANTED = LaunchConfig(model_path="m.gguf", fit=False, n_gpu_layers=99, n_ctx=131072, tensor_split=(1.0, 1.0))


@pytest.fixture
def begun():
    world = World(zoo.model("llama31-8b"), (device(0, 12), device(1, 12, 6)), binary=binary("/b/llama-server", 11434))
    reality = Reality(world)
    plan = start(world, WANTED)
    for _ in range(2):
        plan = plan.ran(reality.attempt(plan.pending))
    assert plan.pending is not None
    return reality, plan


def test_a_kept_walk_goes_on_where_it_was(begun, tmp_path):
    reality, plan = begun
    Walks(tmp_path).keep(plan)
    back = Walks(tmp_path).load(WANTED).plan(plan.world.model)
    assert back.attempts == plan.attempts
    assert back.pending == plan.pending
    assert back.world == plan.world
    assert reality.walk(back).verdict == reality.walk(plan).verdict


def test_a_walk_that_goes_on_counts_the_draft_model_again(tmp_path):
    tiny = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
    wanted = WANTED.evolve(model_draft=tiny)
    world = World(zoo.model("llama31-8b"), (device(0, 12), device(1, 12, 6)), extras=read_extras(wanted))
    reality = Reality(world)
    plan = start(world, wanted)
    plan = plan.ran(reality.attempt(plan.pending))
    Walks(tmp_path).keep(plan)
    back = Walks(tmp_path).load(wanted).plan(world.model)
    assert back.world.extras.draft is not None
    assert back.world.estimate(wanted) == world.estimate(wanted)
    drafts = [b for b in back.pending.predicted.buffers if b.context == "draft"]
    assert drafts


def test_skipped_variables_stay_skipped(begun, tmp_path):
    _, plan = begun
    skipped = plan.skip()
    Walks(tmp_path).keep(skipped)
    assert Walks(tmp_path).load(WANTED).plan(plan.world.model).pending == skipped.pending


def test_undone_changes_and_cancelled_launches_are_kept(begun, tmp_path):
    reality, plan = begun
    while not (can_undo(plan.attempts[-1].trial) and plan.attempts[-1].worked):
        plan = plan.ran(reality.attempt(plan.pending))
    plan = plan.undo()
    plan = plan.broke_off(reality.attempt(plan.pending))
    Walks(tmp_path).keep(plan)
    back = Walks(tmp_path).load(WANTED).plan(plan.world.model)
    assert back.undone == plan.undone
    assert back.launched == plan.launched
    assert back.pending == plan.pending


def test_a_walk_with_an_end_is_forgotten_and_a_stopped_one_is_not(begun, tmp_path):
    reality, plan = begun
    walks = Walks(tmp_path)
    walks.keep(plan.stop())
    assert walks.load(WANTED) is not None
    end = reality.walk(plan)
    walks.keep(end)
    assert walks.load(WANTED) is None
    assert walks.newest() is None
    told = walks.told(WANTED).plan(plan.world.model)
    assert told.attempts == end.attempts
    assert told.verdict == end.verdict


def test_the_newest_is_found_and_a_damaged_one_is_not_in_the_way(begun, tmp_path):
    _, plan = begun
    walks = Walks(tmp_path)
    assert walks.newest() is None
    walks.keep(plan, saved_at=1.0)
    walks.keep(replace(plan, wanted=WANTED.evolve(n_ctx=65536)), saved_at=2.0)
    (tmp_path / "torn.json").write_text('{"schema": "kvstudio.walk/1", "world"')
    (tmp_path / "other.json").write_text("[]")
    assert walks.newest().wanted.n_ctx == 65536
    assert walks.load(LaunchConfig()) is None


def test_a_folder_that_cannot_be_written_is_said(begun, tmp_path):
    _, plan = begun
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not be kept"):
        Walks(tmp_path / "file").keep(plan)


def test_builds_are_ranked_older_and_nearest_first():
    own, near, far, newer = (binary(f"/b{n}/llama-server", n) for n in (11000, 10990, 9000, 11434))
    same = binary("/copy/llama-server", 11000)
    assert candidates(own, [newer, far, near, own, same], (), WANTED) == (near, far, newer)
