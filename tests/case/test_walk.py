"""What a finished run teaches the plan."""

from pathlib import Path

from kvstudio.advise.plan import World, start
from kvstudio.case.walk import attempt_of, to_json
from kvstudio.diagnose.values import Outcome
from kvstudio.launch.config import LaunchConfig
from kvstudio.verify.values import RunOutcome
from tests.advise.world import device
from tests.budget import zoo
from tests.fakes.launches import fake_config, fake_launch

LOGS = Path(__file__).parent.parent / "data" / "logs"
WANTED = LaunchConfig(model_path="m.gguf", fit=False, n_ctx=4096)


def plan():
    return start(World(zoo.model("llama32-1b-f16"), (device(0, 24),)), WANTED)


def test_an_end_that_the_log_is_silent_about_is_told_by_how_the_process_ended(tmp_path):
    run = fake_launch(tmp_path, fake_config(signal=9))
    assert run.outcome is RunOutcome.KILLED
    begun = plan()
    found = attempt_of(begun.pending, run)
    assert "SIGKILL" in found.diagnosis.summary
    assert "No line" not in found.diagnosis.summary
    row = to_json(begun.ran(found), None)["runs"][0]
    assert (row["outcome"], row["diagnosis"]) == ("killed", found.diagnosis.summary)


def test_a_refusal_that_the_log_tells_stays_as_it_is(tmp_path):
    run = fake_launch(tmp_path, fake_config(log=LOGS / "cpu-kv-128gib.log", exit=1))
    assert run.diagnosis.outcome is Outcome.FAILED
    assert attempt_of(plan().pending, run).diagnosis == run.diagnosis
