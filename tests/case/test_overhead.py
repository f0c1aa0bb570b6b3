"""What launches show of a device's own memory: learned per build, kept, and used by later budgets."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvstudio.case import overhead
from kvstudio.case.evolve import evolve
from kvstudio.case.opening import read_model
from kvstudio.case.values import Case
from kvstudio.devices.values import Device, Machine
from kvstudio.errors import StoreError
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB
from kvstudio.verify.values import Run, RunOutcome

TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
CARD = Device("CUDA0", "CUDA", "RTX 4090", 24 * GIB, 23 * GIB)
OTHER = replace(CARD, name="CUDA1")
HOST = Device("Host", "CPU", "", 64 * GIB, 50 * GIB)
OLD = Binary("/old", "llama-server", "b10434", 10434, "a", None, ("CUDA",), frozenset())
NEW = replace(OLD, path="/new", version="b11434", build=11434)


def run_of(binary=OLD, outcome=RunOutcome.VERIFIED, **sizes):
    return Run(
        1, LaunchConfig(), (), (), binary, outcome, None, (), 1.0, 0.0, 0, None, (), (), (), (), (), None, None,
        overhead=tuple(sizes.items()),
    )  # fmt: skip


def test_a_later_start_counts_what_an_earlier_one_learned(tmp_path):
    overhead.learn(tmp_path, run_of(CUDA0=468 * MIB), (CARD,))
    kept = overhead.load(tmp_path)
    case = evolve(Case(remembered=kept, binary=OLD, machine=Machine((CARD,), HOST), chosen=("CUDA0",)),
                  model=read_model(TINY))  # fmt: skip
    assert case.budget.devices[0].overhead_bytes == 468 * MIB
    assert evolve(case, remembered=overhead.Overheads()).budget.devices[0].overhead_bytes is None


def test_each_build_has_its_own_and_an_unseen_one_takes_the_last(tmp_path):
    overhead.learn(tmp_path, run_of(OLD, CUDA0=1), (CARD,))
    overhead.learn(tmp_path, run_of(NEW, CUDA0=2), (CARD,))
    kept = overhead.learn(tmp_path, run_of(OLD, CUDA0=3), (CARD,))
    assert kept == overhead.load(tmp_path)
    assert [kept.of((CARD, OTHER), build) for build in (10434, 11434, 12000)] == [
        {"CUDA0": 3}, {"CUDA0": 2}, {"CUDA0": 3},
    ]  # fmt: skip
    assert kept.of((replace(CARD, description="RTX 3060"),), 10434) == {}
    assert len(kept.seen) == 2


@pytest.mark.parametrize("outcome", [RunOutcome.FAILED, RunOutcome.CANCELLED, RunOutcome.KILLED])
def test_a_run_that_did_not_load_teaches_nothing(tmp_path, outcome):
    assert overhead.learn(tmp_path, run_of(OLD, outcome, CUDA0=5), (CARD,)) == overhead.Overheads()
    assert overhead.learn(tmp_path, run_of(OLD, CUDA0=None), (CARD,)) == overhead.Overheads()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"schema": "kvstudio.overhead/1", "seen": [{"bytes": "x"}]}'])
def test_a_damaged_file_is_as_good_as_none_and_is_replaced(tmp_path, damage):
    (tmp_path / overhead.FILE).write_bytes(damage)
    assert overhead.load(tmp_path) == overhead.Overheads()
    overhead.learn(tmp_path, run_of(CUDA0=7), (CARD,))
    assert overhead.load(tmp_path).of((CARD,), 10434) == {"CUDA0": 7}


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="could not be kept"):
        overhead.learn(tmp_path / "file" / "data", run_of(CUDA0=7), (CARD,))
