"""diagnose.json: the shape scripts rely on."""

import json

import pytest

from kvstudio.diagnose.json import to_json
from kvstudio.diagnose.read import read_log
from kvstudio.diagnose.values import STAGES, Cause, Outcome
from tests.diagnose.samples import Sample, load

KEYS = [
    "schema", "outcome", "class", "stage", "device", "backend", "requested_bytes", "free_bytes", "limit_bytes", "cause",
    "key_line", "evidence", "summary", "next_steps", "missing",
]  # fmt: skip


@pytest.mark.parametrize("sample", load(), ids=lambda s: s.name)
def test_every_diagnosis_has_the_shape(sample: Sample) -> None:
    told = to_json(read_log(sample.data).diagnosis)
    assert json.loads(json.dumps(told)) == told
    assert list(told) == KEYS
    assert told["schema"] == "kvstudio.diagnosis/1"
    assert told["outcome"] in list(Outcome)
    assert told["class"] in ("memory", "not_memory", "unknown")
    assert told["stage"] is None or told["stage"] in STAGES
    assert told["cause"] in list(Cause)
    assert told["key_line"] is None or list(told["key_line"]) == ["number", "text"]
    assert all(list(e) == ["number", "says"] for e in told["evidence"])
    assert all(list(s) == ["change", "why"] for s in told["next_steps"])
    assert told["class"] != "not_memory" or told["stage"] is None or told["cause"] == "bug"
