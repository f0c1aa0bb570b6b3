"""A case goes to a file and comes back the same; damage is named, and the file before stays."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.case import store
from kvstudio.case.values import Case
from kvstudio.devices.values import Device, DeviceProcess, DeviceSource, Machine
from kvstudio.diagnose.values import Cause, Diagnosis, Evidence, KeyLine, NextStep, Outcome
from kvstudio.errors import StoreError
from kvstudio.header.values import ArrayValue, Header, Shard, TensorInfo
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import Arg, LaunchConfig
from kvstudio.model.describe import describe
from kvstudio.runlog.values import LogLine

CARD = Device(
    "CUDA0", "CUDA", "RTX 4090", 24 * 2**30, 20 * 2**30, DeviceSource.NVML, processes=(DeviceProcess(1, "x", None),)
)
MACHINE = Machine((CARD,), Device("Host", "CPU", "RAM", 64 * 2**30, None, reason="not asked"))
HEADER = Header(
    "m.gguf",
    3,
    {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.embedding_length": 64,
        "llama.context_length": 8192,
        "llama.attention.head_count": 4,
        "llama.rope.freq_base": 1e6,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.tokens": ArrayValue(8, 100, None),
    },
    (TensorInfo("token_embd.weight", (64, 100), 1, 0, 12800),),
    (Shard("m.gguf", 20000, 7200, 32, 1, 20000),),
)
DIAGNOSIS = Diagnosis(
    Outcome.FAILED, "memory", "kv", "CUDA0", "CUDA", 8321499136, None, None, Cause.CAPACITY,
    KeyLine(168, "cudaMalloc failed: <b>out</b> of memory"), (Evidence(168, "refused"),), "t", "s",
    (NextStep({"n_ctx": 4096}, "less"),),
)  # fmt: skip
CONFIG = LaunchConfig(
    model_path="m.gguf", n_ctx=0, tensor_split=(3.0, 1.0), override_tensor=(("exps", "CPU"),), env=(("A", "1"),)
)
CASE = Case(
    config=CONFIG,
    machine=MACHINE,
    what_if=(replace(CARD, name="CUDA1", source=DeviceSource.WHAT_IF),),
    chosen=("CUDA0", "CUDA1"),
    binary=Binary("/b", "llama-server", "1", 11434, None, None, ("CUDA",), frozenset({"-c", "-b"})),
    log=(LogLine(1, "x\u0000y", "x", "I", 0.5),),
    diagnosis=DIAGNOSIS,
    note="<b>note</b>",
)


def test_a_case_comes_back_the_same(tmp_path):
    path = tmp_path / "a.kvcase"
    store.save(CASE, path)
    assert store.load(path) == CASE


def test_the_typed_order_of_a_command_is_kept(tmp_path):
    layout = (Arg("n_ctx", ("-c", "0")), Arg(None, ("--unknown", "7")))
    store.save(Case(config=LaunchConfig(n_ctx=0, layout=layout)), tmp_path / "a.kvcase")
    assert store.load(tmp_path / "a.kvcase").config.layout == layout


def test_a_model_is_kept_by_its_header(tmp_path):
    model = describe(HEADER)
    plain = json.loads(json.dumps(store.to_json(Case(model=model, config=LaunchConfig(n_ctx=4096)))))
    loaded = store.from_json(plain)
    assert loaded.model.header == HEADER
    assert loaded.model == model
    assert loaded.budget.config.n_ctx == 4096


def test_what_can_be_worked_out_is_not_kept():
    assert not {"budget", "fixes"} & store.to_json(CASE).keys()


@given(
    st.builds(
        LaunchConfig,
        n_ctx=st.none() | st.integers(0, 2**31),
        tensor_split=st.none() | st.lists(st.floats(0, 100), max_size=4).map(tuple),
        fit=st.none() | st.booleans(),
        api_key=st.none() | st.text(),
        env=st.lists(st.tuples(st.text(), st.text()), max_size=3).map(tuple),
    )
)
def test_settings_survive_json(config):
    plain = json.loads(json.dumps(store.to_json(Case(config=config))))
    assert store.from_json(plain).config == config


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"schema": "kvstudio.budget/1"}, "schema"),
        ({"config": 7}, "config"),
        ({"config": {"n_ctx": "many"}}, "config.n_ctx"),
        ({"config": {"n_ctx": True}}, "config.n_ctx"),
        ({"config": {"env": [["A"]]}}, "config.env[0]"),
        ({"machine": {"devices": [{"name": "CUDA0"}]}}, "backend is missing"),
        ({"what_if": [{"name": "a", "backend": "b", "source": "moon"}]}, "what_if[0].source"),
    ],
)
def test_damage_is_named(tmp_path, damage, named):
    path = tmp_path / "bad.kvcase"
    path.write_text(json.dumps({**store.to_json(Case()), **damage}))
    with pytest.raises(StoreError) as error:
        store.load(path)
    assert named in error.value.message
    assert "bad.kvcase" in error.value.message


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "\x00\x01"])
def test_other_files_are_refused_in_one_sentence(tmp_path, text):
    path = tmp_path / "bad.kvcase"
    path.write_text(text)
    with pytest.raises(StoreError) as error:
        store.load(path)
    assert "bad.kvcase" in error.value.message


def test_unknown_keys_of_a_newer_version_are_left_out():
    plain = {**store.to_json(Case(note="n")), "colour": "red"}
    plain["config"]["n_moons"] = 3
    assert store.from_json(plain).note == "n"


def test_a_failed_save_keeps_the_file_before(tmp_path, monkeypatch):
    path = tmp_path / "a.kvcase"
    store.save(Case(note="before"), path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StoreError) as error:
        store.save(Case(note="after"), path)
    assert "No space left" in error.value.message
    monkeypatch.undo()
    assert store.load(path).note == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.kvcase"]


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(StoreError, match="could not be saved"):
        store.save(Case(), tmp_path / "none" / "a.kvcase")
