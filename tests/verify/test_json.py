"""The command line's JSON of a run."""

import json

from kvstudio.verify.json import to_json
from tests.fakes.launches import fake_config, fake_launch


def test_the_contract_of_a_verified_run(tmp_path):
    run = fake_launch(tmp_path)
    plain = json.loads(json.dumps(to_json(run)))
    assert plain["schema"] == "kvstudio.launch/1"
    assert plain["outcome"] == "verified"
    assert plain["reached"] == "repeat"
    assert plain["binary"] == {"path": run.binary.path, "version": "10434 (7e4c0a9)", "build": "b10434"}
    assert {"name", "device", "kind", "bytes"} <= set(plain["buffers"][0])
    assert [check["check"] for check in plain["checks"]] == [
        "binary", "buffers", "context", "placement", "generation", "repeated",
    ]  # fmt: skip
    assert plain["peak"]["Vulkan0"] > 0
    assert plain["diagnosis"] is None
    assert plain["log"] == run.log_path
    assert plain["seconds"] > 0


def test_a_failed_run_carries_its_diagnosis_and_no_fit_stage(tmp_path):
    plain = to_json(fake_launch(tmp_path, fake_config(exit=1)))
    assert plain["outcome"] == "failed"
    assert plain["diagnosis"]["schema"].startswith("kvstudio.diagnosis/")
    log = tmp_path / "fit.log"
    log.write_text("0.0 I common_params_fit_impl: getting device memory data for initial parameters:\n")
    plain = to_json(fake_launch(tmp_path, fake_config(signal=6, log=log)))
    assert (plain["outcome"], plain["reached"], plain["signal"]) == ("crashed", None, 6)
