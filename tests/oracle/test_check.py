# ruff: noqa: E501 - log lines are as long as they are
"""The dry run against the fake server and a fake llama-fit-params: what is read, remembered and left running."""

import stat
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from kvstudio.budget.values import Buffer, BufferKind, Provenance
from kvstudio.header.values import Header
from kvstudio.model.values import ModelInfo
from kvstudio.oracle import check as oracle
from kvstudio.oracle.cache import OracleCache, cache_key
from kvstudio.oracle.read import TableReader
from kvstudio.oracle.values import Measured, OracleRow
from tests.fakes.launches import fake_binary, fake_config
from tests.verify.budgets import budget_of as sums_of
from tests.verify.budgets import effective

MIB = 1 << 20


def a_model(**changes):
    header = Header(
        **{f: changes.pop(f) for f in list(changes) if f in Header.__dataclass_fields__} | header_defaults()
    )
    values = {
        "header": header, "architecture": "llama", "name": "a", "size_label": None, "file_type": None, "n_layer": 18,
        "n_layer_all": 18, "n_embd": 640, "n_vocab": 1000, "n_ctx_train": 4096, "n_expert": 0, "n_expert_used": 0,
        "n_swa": 0, "layers": (), "n_params": 1, "tensor_bytes": 1, "known_architecture": True,
    }  # fmt: skip
    return ModelInfo(**(values | changes))


def header_defaults():
    from dataclasses import MISSING

    blank = {"int": 0, "str": "", "dict": {}, "tuple": ()}
    return {
        name: blank.get(str(field.type).split("[")[0], ())
        for name, field in Header.__dataclass_fields__.items()
        if field.default is MISSING and field.default_factory is MISSING
    }


def budget_of(config=None, **places):
    """A budget with one buffer per size."""
    made = sums_of(config=config, **places)
    buffers = tuple(
        Buffer(place.name, None if place is made.host else place.name, kind, size, Provenance.EXACT, "")
        for place in (*made.devices, made.host)
        for kind in BufferKind
        if (size := place.of(kind))
    )
    return replace(made, buffers=buffers)


def rows_of(result):
    return {(row.device, row.kind): row.measured // MIB for row in result.rows}


def children():
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_the_first_table_is_read_and_the_server_stopped_before_its_load():
    began = time.monotonic()
    result = oracle.check(fake_config(line_delay=0.01), fake_binary())
    assert rows_of(result) == {
        ("Vulkan0", "model"): 35, ("Vulkan0", "context"): 11, ("Vulkan0", "compute"): 33,
        ("Host", "model"): 170, ("Host", "context"): 0, ("Host", "compute"): 14,
    }  # fmt: skip
    assert result.method == "llama-server"
    assert "-fit" in result.argv
    assert time.monotonic() - began < 10
    assert not children()


def test_estimates_stand_beside_and_within_a_mib_they_agree():
    budget = budget_of(
        Vulkan0={"model": 35 * MIB + 7, "kv": 10 * MIB, "rs": MIB, "compute": 35 * MIB}, host={"model": 170 * MIB}
    )
    result = oracle.check(fake_config(), fake_binary(), budget=budget)
    table = {(row.device, row.kind): row.difference for row in result.rows}
    assert table[("Vulkan0", "model")] == 0
    assert table[("Vulkan0", "context")] == 0
    assert table[("Vulkan0", "compute")] == 35 * MIB - (34 * MIB - 1)
    assert table[("Host", "compute")] == -14 * MIB
    assert result.worst.device == "Host"
    assert "4 of 6" in result.says
    assert "14.0 MiB too low" in result.says


def test_a_result_is_remembered_by_binary_model_config_and_devices(tmp_path):
    cache = OracleCache(tmp_path)
    config, model = fake_config(), a_model()
    first = oracle.check(config, fake_binary(), model, devices=("Vulkan0",), cache=cache)
    again = oracle.check(config, fake_binary(), model, devices=("Vulkan0",), cache=OracleCache(tmp_path))
    assert (first.cached, again.cached) == (False, True)
    assert again.rows == first.rows


def test_whatever_changes_a_buffer_changes_the_key_and_the_port_does_not():
    model, config, binary = a_model(), fake_config(), fake_binary()
    key = cache_key(binary, model, config, effective(), ("A",))
    assert key == cache_key(binary, model, config.evolve(port=1, host="::", threads=3), effective(), ("A",))
    others = [
        cache_key(fake_binary(build=1), model, config, effective(), ("A",)),
        cache_key(binary, a_model(n_params=2), config, effective(), ("A",)),
        cache_key(binary, model, config.evolve(tensor_split=(1.0, 3.0)), effective(), ("A",)),
        cache_key(binary, model, config.evolve(env=(("GGML_X", "1"),)), effective(), ("A",)),
        cache_key(binary, model, config, effective(n_ctx=8192), ("A",)),
        cache_key(binary, model, config, effective(), ("A", "B")),
    ]
    assert len({key, *others}) == 7


def test_an_inherited_variable_that_hides_devices_changes_the_key_and_others_do_not():
    model, config, binary = a_model(), fake_config(), fake_binary()

    def key(**env):
        return cache_key(binary, model, config, effective(), ("A",), env)

    assert key(GGML_VK_VISIBLE_DEVICES="0") != key(GGML_VK_VISIBLE_DEVICES="0,0")
    assert key(CUDA_VISIBLE_DEVICES="1") != key()
    assert key(LANG="de", PWD="/a") == key()


def test_a_projector_is_no_part_of_the_table():
    budget = budget_of(Vulkan0={"model": 35 * MIB + 7, "kv": 10 * MIB, "rs": MIB, "compute": 33 * MIB},
                       host={"model": 170 * MIB, "compute": 14 * MIB})  # fmt: skip
    more = Buffer("Vulkan0", "Vulkan0", BufferKind.MODEL, 800 * MIB, Provenance.EXACT, "", "mmproj")
    place = replace(budget.devices[0], model_bytes=835 * MIB + 7)
    budget = replace(budget, devices=(place,), buffers=(*budget.buffers, more))
    assert "agrees: 6 of 6" in oracle.check(fake_config(), fake_binary(), budget=budget).says


def test_a_device_the_estimate_knows_nothing_of_is_said():
    result = oracle.check(fake_config(), fake_binary(), budget=budget_of(host={"model": 170 * MIB}))
    assert result.says.startswith("llama.cpp used Vulkan0, which the estimate was not made for")


def test_a_broken_cache_file_is_as_good_as_none(tmp_path):
    cache = OracleCache(tmp_path)
    cache.put("k", (Measured("Vulkan0", True, 1, 2, 3),))
    assert OracleCache(tmp_path).get("k") == (Measured("Vulkan0", True, 1, 2, 3),)
    for text in ("", "{", "[]", '{"schema": "x"}', '{"schema": "kvstudio.oracle/1", "rows": [{"name": 1}]}'):
        (tmp_path / "k.json").write_text(text)
        assert OracleCache(tmp_path).get("k") is None


def test_a_dry_run_that_fails_says_why(tmp_path):
    log = tmp_path / "log"
    log.write_text("0.00.1 E llama_model_load: error loading model: unknown model architecture: 'zebra'\n")
    result = oracle.check(fake_config(log=log, exit=1), fake_binary())
    assert not result.ok
    assert result.diagnosis is not None
    assert result.diagnosis.summary in result.says


def test_timeout_and_cancel_leave_nothing():
    result = oracle.check(fake_config(hang=2), fake_binary(), timeout_s=0.8)
    assert not result.ok
    assert "0.8 s" in result.says
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    result = oracle.check(fake_config(hang=2), fake_binary(), cancel=cancel)
    assert result.cancelled
    assert not children()


def test_a_binary_without_a_dry_run_says_so(tmp_path):
    result = oracle.check(fake_config(), fake_binary(path=str(tmp_path / "llama-server"), flags=frozenset({"-m"})))
    assert not result.ok
    assert "no dry run" in result.says


@pytest.mark.skipif(sys.platform == "win32", reason="a script as program")
def test_llama_fit_params_beside_the_server_is_used_when_the_server_has_no_fit(tmp_path):
    program = tmp_path / "llama-fit-params"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[-2:] == ['-fitp', 'on'], sys.argv\n"
        "assert '--port' not in sys.argv and '--parallel' not in sys.argv[:1]\n"
        "print('noise on the way'); print('CUDA0 100 20 30 '); print('Host 5 0 1 ')\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    server = fake_binary(path=str(tmp_path / "llama-server"), flags=frozenset({"-m", "-p", "-n", "-st"}))
    result = oracle.check(fake_config({"kv_unified": True, "port": 9}), server)
    assert result.method == "llama-fit-params"
    table = {(row.device, row.kind): row.measured for row in result.rows}
    assert table[("CUDA0", "model")] == 100 * MIB
    assert table[("CUDA0", "context")] == 20 * MIB
    assert table[("CUDA0", "compute")] is None
    assert any("at most 31.0 MiB" in row.note for row in result.rows)


def test_with_pipeline_copies_a_later_device_is_a_range():
    """Two devices, 4 copies of a 640-wide activation of 512 tokens: 5 MiB that a real load may not need."""
    reader = TableReader()
    reader.feed(
        b"common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |\n"
        b"common_memory_breakdown_print: |   - Vulkan0 (x) |  2048 = 2048 + (  80 =    35 +      11 +      33) +         -80 |\n"
        b"common_memory_breakdown_print: |   - Vulkan1 (x) |  2048 = 2048 + (  77 =    29 +      10 +      38) +         -77 |\n"
        b"common_memory_breakdown_print: |   - Host        |                  184 =   170 +       0 +      14                |\n"
    )
    assert not reader.complete
    reader.feed(b"common_params_fit_impl: projected memory use\n")
    assert reader.complete
    budget = budget_of(
        config=effective(pipeline_copies=4), Vulkan0={"compute": 33 * MIB + 5}, Vulkan1={"compute": 35201088}
    )
    rows = {(r.device, r.kind): r for r in oracle.rows_beside(reader.rows, budget, 640, "llama-server")}
    second = rows[("Vulkan1", "compute")]
    assert (second.measured, second.slack) == (33 * MIB, 6 * MIB - 1)
    assert second.agrees
    assert rows[("Vulkan0", "compute")].slack == MIB - 1


def test_a_later_table_of_the_same_run_is_not_taken():
    head = b"common_memory_breakdown_print: | memory breakdown [MiB] | total free self model context compute unaccounted |\n"
    row = b"common_memory_breakdown_print: |   - CUDA0 (x) |  2048 = 2048 + (  80 =    %d +      11 +      33) +         -80 |\n"
    reader = TableReader()
    reader.feed(head + row % 35 + b"other line\n" + head + row % 10 + b"other line\n")
    assert [r.model for r in reader.rows] == [35 * MIB]


def test_json_lines_hold_the_same_table():
    reader = TableReader()
    reader.feed(
        b'{"type":"log","time":1,"level":"info","msg":"common_memory_breakdown_print: |   - Host               |                 2637 =  1481 +    1024 +     132                |\\n"}\n'
        b'{"type":"log","time":2,"level":"info","msg":"common_memory_breakdown_print: |   - CPU_REPACK         |                 3204 =  3204 +       0 +       0                |\\n"}\n'
        b'{"type":"log","time":3,"level":"info","msg":"something else\\n"}\n'
    )
    assert reader.complete
    assert [(r.name, r.is_device, r.model) for r in reader.rows] == [
        ("Host", False, 1481 * MIB),
        ("CPU_REPACK", False, 3204 * MIB),
    ]


def test_a_difference_counts_from_the_nearer_end_of_the_range():
    assert OracleRow("A", "kv", 100, 10, 105).difference == 0
    assert OracleRow("A", "kv", 100, 10, 90).difference == -10
    assert OracleRow("A", "kv", 100, 10, 120).difference == 10
    assert OracleRow("A", "kv", None, 0, 120).difference is None
