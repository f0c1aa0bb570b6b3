"""Every field from what was observed, and nothing made up for what was not."""

from dataclasses import replace

from kvstudio.case.values import Case
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.argv import parse_argv
from kvstudio.launch.config import LaunchConfig
from kvstudio.report import markdown
from kvstudio.report.build import build, build_from_log, hide_selection
from kvstudio.report.values import BlockKind, Identity
from kvstudio.runlog.values import LogLine
from kvstudio.verify.values import RunOutcome
from tests.report.conftest import KEY, binary, lines_of, make_run


def test_every_field_of_a_failed_run_comes_from_what_was_observed(case: Case) -> None:
    report = build(case, case.runs[0])

    values = {f.id: f.value for f in report.fields}
    assert len(values) == 21
    assert values["version"] == "version: 11434 (4f1c2a97)\nbuilt with GCC 13.3.0 for x86_64-linux-gnu"
    assert values["binary_path"] == "/home/alice/llama.cpp/build/bin/llama-server"
    assert values["os"] == "Linux 6.8.0 (Ubuntu 24.04)"
    assert values["cpu"] == "AMD Ryzen 9 7950X, 62.0 GiB RAM"
    assert values["gpus"] is not None and values["gpus"].count("NVIDIA GeForce RTX 4090, 24564 MiB") == 2
    assert values["driver"] == "570.133.07"
    assert values["backend"] == "CUDA"
    assert values["build_options"] is not None and "CUDA : ARCHS = 890" in values["build_options"]
    assert values["gguf"] == "Qwen3-32B-Q4_K_M.gguf"
    assert values["n_ctx"] == "65536 (-c 65536)"
    assert values["n_parallel"] == "4 slots, unified (-np not given)"
    assert (values["cache_type_k"], values["cache_type_v"]) == ("f16", "f16")
    assert values["n_gpu_layers"] == "65 of 65 layers on GPU (-ngl 99)"
    assert values["split"] == "layer (-sm not given), -ts 1,1"
    assert values["free_memory"] == "CUDA0 24152 MiB of 24564 MiB, CUDA1 16782 MiB of 24564 MiB, RAM 52224 MiB"
    assert values["command"] is not None and values["command"].startswith("CUDA_VISIBLE_DEVICES=0,1 llama-server -m")
    assert values["allocator_error"] is not None and values["allocator_error"].startswith(f"{KEY}: 0.03.902.100 E")
    assert values["log"] == "12 lines"
    assert values["model_source"] is None and values["known_good"] is None
    assert report.n_collected == 19


def test_sections_are_those_of_the_upstream_form_in_its_order(case: Case) -> None:
    report = build(case, case.runs[0])

    assert [s.title for s in report.sections] == [
        "Name and Version", "Operating systems", "GGML backends", "Hardware", "Models",
        "Problem description & steps to reproduce", "Key line", "First Bad Commit", "Relevant log output",
    ]  # fmt: skip
    assert report.title == "Eval bug: The KV cache did not fit on CUDA1"
    problem = report.sections[5]
    assert "python3 (4182) of bob held 7782 MiB on CUDA1" in " ".join(b.text for b in problem.blocks)
    assert "# started as\nCUDA_VISIBLE_DEVICES=0,1 /home/alice/llama.cpp" in problem.blocks[0].text


def test_a_missing_field_says_what_would_tell(case: Case) -> None:
    report = build(case, case.runs[0])

    first_bad = next(s for s in report.sections if s.title == "First Bad Commit")
    assert first_bad.blocks[0].kind is BlockKind.MISSING
    assert all(f.how for f in report.fields)


def test_an_older_build_that_worked_with_the_same_settings_is_the_known_good_commit(case: Case) -> None:
    failed = case.runs[0]
    worked = make_run(case.config, 2, outcome=RunOutcome.VERIFIED, binary=binary(11300, "abcdef12"))
    other_settings = make_run(LaunchConfig(n_ctx=4096), 3, outcome=RunOutcome.VERIFIED, binary=binary(11400, "ffffff1"))

    report = build(case.replace(runs=(failed, worked, other_settings)), failed)

    assert report.field("known_good").value == "b11300 (abcdef12): the same command works, run 2"


def test_a_newer_build_that_worked_is_not_an_older_commit(case: Case) -> None:
    failed = case.runs[0]
    worked = make_run(case.config, 2, outcome=RunOutcome.VERIFIED, binary=binary(11500, "abcdef12"))

    assert build(case.replace(runs=(failed, worked)), failed).field("known_good").value is None


def test_a_log_from_elsewhere_says_nothing_of_this_machine(log: tuple[LogLine, ...], diagnosis: Diagnosis) -> None:
    report = build_from_log(log, diagnosis, source="server.log")

    values = {f.id: f.value for f in report.fields}
    assert values["version"] == "version: 11434 (4f1c2a97)\nbuilt with GCC 13.3.0 for x86_64-linux-gnu"
    assert values["os"] == "Linux (from the build line of the log)"
    assert values["n_ctx"] == "65536"
    assert values["n_parallel"] == "4 slots, unified"
    assert values["n_gpu_layers"] == "65 of 65 layers on GPU"
    assert values["gguf"] == "Qwen3-32B-Q4_K_M.gguf"
    assert values["backend"] == "CUDA"
    for unknown in ("binary_path", "cpu", "gpus", "driver", "command", "split", "free_memory", "known_good"):
        assert values[unknown] is None, unknown
    assert report.subtitle == "server.log: The KV cache did not fit on CUDA1"


def test_the_case_with_a_foreign_log_leaves_this_machine_out_too(case: Case) -> None:
    foreign = case.replace(
        log=lines_of("main: error: unable to load model"), log_source="their.log", config=LaunchConfig()
    )

    report = build(foreign)

    assert report.field("cpu").value is None and report.field("gpus").value is None
    assert report.field("command").value is None


def test_settings_a_log_prints_are_no_command_but_a_command_in_it_is(log: tuple[LogLine, ...]) -> None:
    printed = build_from_log(log, None, LaunchConfig(n_ctx=8192, n_gpu_layers=-2, model_path="/data/other.gguf"))
    assert printed.field("command").value is None
    assert printed.field("n_gpu_layers").value == "65 of 65 layers on GPU"
    only = build_from_log((), None, LaunchConfig(n_ctx=8192, n_gpu_layers=-2))
    assert (only.field("n_ctx").value, only.field("n_gpu_layers").value) == ("8192", "all")

    words = ("llama-server", "-m", "/data/my model.gguf", "-c", "8192", "--api-key", "sesame-street")
    typed = build_from_log(log, None, replace(parse_argv(words), n_batch=2048))
    assert typed.field("command").value == "llama-server -m '/data/my model.gguf' -c 8192 --api-key sesame-street"
    assert "[KEY 1]" in markdown.render(typed)
    assert typed.field("n_parallel").value == "4 slots, unified (-np not given)"
    beside = build_from_log((), None, replace(parse_argv(words), n_parallel=4))
    assert beside.field("n_ctx").value == "-c 8192"


def test_devices_and_their_free_memory_are_read_from_a_listing_in_the_log() -> None:
    report = build_from_log(
        lines_of(
            "0.00.030.326 I cmn  common_param:   - Vulkan0 : AMD Radeon RX 7900 XTX (RADV NAVI31) "
            "(24560 MiB, 23100 MiB free)\n"
            "0.00.030.391 I cmn  common_param:   - CPU     : Intel(R) Xeon(R) Processor (24105 MiB, 20105 MiB free)\n"
            "ggml_vulkan: 0 = AMD Radeon RX 7900 XTX (radv) | uma: 0 | fp16: 1\n"
        )
    )

    assert report.field("cpu").value == "Intel(R) Xeon(R) Processor"
    assert report.field("gpus").value == "Vulkan0: AMD Radeon RX 7900 XTX (RADV NAVI31)"
    assert report.field("free_memory").value == "Vulkan0 23100 MiB"
    assert report.field("driver").value == "radv"
    assert report.field("backend").value == "Vulkan"


def test_hub_paths_name_repository_and_revision() -> None:
    path = (
        "/home/user/.cache/huggingface/hub/models--unsloth--Qwen3.5-27B-GGUF/snapshots/"
        "3221f178a6b842d04f1fb42f1c413534adcc0a6a/Qwen3.5-27B-Q4_K_M.gguf"
    )
    report = build_from_log(lines_of(f"common_init_result: failed to create context with model '{path}'"))

    source = report.field("model_source").value
    assert source == "unsloth/Qwen3.5-27B-GGUF, revision 3221f178a6b842d04f1fb42f1c413534adcc0a6a"
    assert report.field("gguf").value == "Qwen3.5-27B-Q4_K_M.gguf"


def test_an_empty_log_makes_a_report_of_gaps() -> None:
    report = build_from_log(())

    assert report.n_collected == 0
    assert report.redactions == ()
    assert report.sections[-1].blocks[0].kind is BlockKind.MISSING


def test_rocm_is_called_hip_upstream() -> None:
    report = build_from_log(
        lines_of(
            "ggml_cuda_init: found 2 ROCm devices:\n  Device 0: AMD Instinct MI210, gfx90a:sramecc+:xnack- (0x90a)"
        )
    )

    assert report.field("backend").value == "HIP"
    assert report.field("gpus").value == "ROCm0: AMD Instinct MI210"


def test_without_a_gpu_the_backend_is_the_cpu_whatever_the_binary_could_do(case: Case) -> None:
    assert case.machine is not None
    bare = replace(case.machine, devices=())
    report = build(case.replace(machine=bare, log=(), diagnosis=None), make_run(case.config))

    assert (report.field("backend").value, report.field("gpus").value) == ("CPU", "none")
    assert report.sections[2].blocks[0].text == "CPU"


def test_selecting_text_hides_it_everywhere(case: Case) -> None:
    report = build(case, case.runs[0], identity=Identity(home="/home/alice", user="alice"))

    more = hide_selection(report, " Ryzen 9 ")

    mine = more.redactions[-1]
    assert (mine.token, mine.places, mine.hidden) == ("HIDDEN 1", 1, True)
    assert hide_selection(more, "Ryzen 9") == more
    assert hide_selection(more, "   ") == more


def test_without_a_device_no_layers_are_said_to_be_on_one(case: Case) -> None:
    assert case.machine is not None
    alone = case.replace(machine=replace(case.machine, devices=()))
    told = build(alone, case.runs[0]).field("n_gpu_layers").value
    assert told == "no GPU; the log counts 65 of 65 layers as offloaded (-ngl 99)"
