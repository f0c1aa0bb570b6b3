"""The sentence under the bars names device, buffer, shortage and reason."""

from dataclasses import replace

from kvstudio.advise.verdict import Answer, verdict
from kvstudio.budget.estimate import estimate
from kvstudio.budget.fit import fit
from kvstudio.budget.values import BufferKind, DeviceBudget, FirstFailure
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB, MIB
from tests.budget import zoo
from tests.budget.models import gpus
from tests.ui import samples

PYTHON = Device("CUDA1", "CUDA", processes=(DeviceProcess(4182, "python3", samples.CUDA1_OTHER),))
SPLIT = LaunchConfig(tensor_split=(1.0, 1.0))


def test_a_full_card_beside_an_empty_one_is_a_matter_of_placement():
    said = verdict(samples.FAILS, SPLIT, (PYTHON,))
    assert said.answer is Answer.SHORT
    assert said.headline == "Does not fit: CUDA1 is 0.9 GiB short for the KV cache."
    assert said.detail == (
        "CUDA0 keeps 5.5 GiB free, but -ts 1,1 puts half of the layers on CUDA1, where python3 holds 7.6 GiB."
    )
    assert said.flags == ("-ts 1,1",)
    assert (said.device, said.kind) == ("CUDA1", BufferKind.KV)


def test_without_a_typed_split_llama_cpp_is_the_one_who_placed():
    said = verdict(samples.FAILS)
    assert "llama.cpp puts half of the layers on CUDA1, where 7.6 GiB are in use" in said.detail
    assert said.flags == ()


def test_an_uneven_split_is_told_in_layers():
    devices = (replace(samples.FAILS.devices[0], n_layers=10), replace(samples.FAILS.devices[1], n_layers=54))
    said = verdict(replace(samples.FAILS, devices=devices), LaunchConfig(tensor_split=(1.0, 5.5)))
    assert "-ts 1,5.5 puts 54 layers and the output on CUDA1" in said.detail


def test_one_device_by_split_mode_none():
    budget = replace(samples.FAILS, config=replace(samples.EFFECTIVE, split_mode="none"))
    said = verdict(budget, LaunchConfig(split_mode="none"))
    assert "-sm none puts the whole model on CUDA1" in said.detail
    assert said.flags == ("-sm none",)


def test_a_device_that_split_mode_none_leaves_idle_is_named():
    only = replace(samples.FAILS, config=replace(samples.EFFECTIVE, split_mode="none"),
                   devices=samples.FAILS.devices[1:], idle=samples.FAILS.devices[:1])  # fmt: skip
    said = verdict(only, LaunchConfig(split_mode="none"))
    assert said.detail.startswith("CUDA0 keeps 5.5 GiB free, but -sm none puts the whole model on CUDA1")


def test_a_device_that_was_not_named_is_said_to_be_left_alone():
    only = replace(samples.FAILS, devices=samples.FAILS.devices[1:], idle=samples.FAILS.devices[:1])
    said = verdict(only, LaunchConfig(device=("CUDA1",)))
    assert said.detail.startswith("CUDA0 keeps 5.5 GiB free, but -dev CUDA1 leaves it alone")
    assert said.flags == ("-dev CUDA1",)


def test_an_idle_chip_that_no_setting_brings_in_is_not_named():
    only = replace(samples.FAILS, devices=samples.FAILS.devices[1:], idle=samples.FAILS.devices[:1])
    assert "CUDA0" not in verdict(only).detail


def test_another_process_alone_is_in_the_way():
    only = replace(samples.FAILS, devices=samples.FAILS.devices[1:])
    said = verdict(only, devices=(PYTHON,))
    assert said.detail == "On it python3 holds 7.6 GiB; without that it would fit."


def test_a_card_that_is_simply_too_small():
    device = replace(samples.FAILS.devices[1], other_bytes=0, kv_bytes=20 * GIB, free_bytes=samples.CARD)
    said = verdict(replace(samples.FAILS, devices=(device,), first_failure=None))
    assert said.headline == "Does not fit: CUDA1 is 5.5 GiB short for the KV cache."
    assert said.detail.startswith("It asks for 30.0 GiB, 24.0 GiB are free")


def test_all_devices_together_may_be_short():
    device = replace(samples.FAILS.devices[1], other_bytes=0, kv_bytes=20 * GIB, free_bytes=samples.CARD)
    pair = (device, replace(device, name="CUDA0"))
    said = verdict(replace(samples.FAILS, devices=pair, first_failure=None))
    assert "all devices together are 12.0 GiB short" in said.detail


def test_a_backend_limit_is_not_a_shortage():
    failure = FirstFailure("Vulkan0", BufferKind.KV, 8 * GIB, 0, 20 * GIB, limit_bytes=4 * GIB)
    said = verdict(replace(samples.FAILS, first_failure=failure))
    assert said.headline == "Does not fit: the KV cache on Vulkan0 is one allocation of 8.0 GiB."
    assert "over 4.0 GiB" in said.detail


def test_the_host_can_be_short_too():
    host = replace(samples.HOST, model_bytes=60 * GIB)
    budget = replace(samples.FITS, host=host, offloaded_layers=(20, 65))
    said = verdict(budget)
    assert said.headline == "Does not fit: the host is 8.8 GiB short for the weights."
    assert said.detail == "51.2 GiB of 62.6 GiB of RAM are free; 45 of 65 layers stay in RAM."


def test_what_fits_says_how_much_is_left():
    said = verdict(samples.FITS)
    assert said.answer is Answer.FITS
    assert said.headline == "Fits: 2.4 GiB to spare on CUDA0, 1.8 GiB on CUDA1."
    assert said.detail == "All 65 layers are on 2 devices."
    assert "run 6" in verdict(samples.FITS, measured_in="run 6").detail


def test_only_just_is_said():
    tight = replace(samples.FITS.devices[0], free_bytes=samples.FITS.devices[0].need_bytes + 30 * MIB)
    said = verdict(replace(samples.FITS, devices=(tight,)))
    assert said.headline == "Fits: 30.0 MiB to spare on CUDA0."
    assert "Only just" in said.detail


def test_many_devices_are_counted_not_listed():
    many = tuple(replace(samples.FITS.devices[i % 2], name=f"CUDA{i}") for i in range(6))
    said = verdict(replace(samples.FITS, devices=many))
    assert said.headline == "Fits: at least 1.8 GiB to spare on each device, least on CUDA1."


def test_no_device_at_all_is_a_normal_state():
    said = verdict(replace(samples.FITS, devices=(), offloaded_layers=(0, 65)))
    assert said.headline == "Fits: 50.4 GiB of RAM to spare."
    assert said.detail == "Everything stays in RAM."


def test_unknown_memory_is_not_a_verdict():
    blind = DeviceBudget("CUDA0", "", None, None, GIB, 0, 0, 0, 0, None, None)
    budget = replace(samples.FITS, devices=(blind,))
    said = verdict(budget, devices=(Device("CUDA0", "CUDA", reason="driver and library differ"),))
    assert said.answer is Answer.UNKNOWN
    assert "free memory of CUDA0 is unknown" in said.headline
    assert said.detail == "Driver and library differ. This launch asks for 1.0 GiB of CUDA0."


LLAMA = zoo.model("llama31-8b")


def after_fit(config: LaunchConfig, *free_gib: float):
    """The typed budget and the verdict with what `-fit` makes of it."""
    budget, fitted = estimate(LLAMA, config, gpus(*free_gib)), fit(LLAMA, config, gpus(*free_gib))
    return budget, verdict(budget, config, gpus(*free_gib), fitted=fitted)


def test_what_fit_will_change_comes_before_what_was_typed():
    typed = LaunchConfig(model_path="m.gguf")
    budget, said = after_fit(typed, 8)
    assert budget.fits is False
    assert said.answer is Answer.ADJUSTED
    assert said.headline.startswith("Fits once -fit shortens the context to ")
    assert said.headline.endswith(", with 1.0 GiB to spare on CUDA0.")
    assert said.detail.startswith("As typed, CUDA0 is 12.3 GiB short for the KV cache")
    assert after_fit(typed.evolve(fit=False), 8)[1].answer is Answer.SHORT


def test_what_fits_without_the_margin_is_changed_all_the_same():
    budget, said = after_fit(LaunchConfig(n_ctx=32768), 9.3)
    assert budget.fits is True
    assert said.answer is Answer.ADJUSTED
    assert said.headline.startswith("Fits, but -fit keeps ")
    assert said.flags == ("-fit off",)


def test_a_fit_that_is_not_enough_does_not_fit():
    typed = LaunchConfig(n_gpu_layers=33)
    _, said = after_fit(typed, 4)
    assert said.answer is Answer.SHORT
    assert said.headline.startswith("Does not fit: CUDA0 is ")
    assert said.detail.startswith("-fit shortens the context to 4096, which is not enough. ")


def test_what_fit_leaves_as_it_is_is_not_told_and_the_host_is_no_name():
    config = LaunchConfig(model_path="m.gguf", n_ctx=None)
    host = Device("Host", "CPU", "", 24 * GIB, 22 * GIB)
    model = zoo.model("qwen3-30b-a3b")
    budget = estimate(model, config, (), host=host)
    said = verdict(budget, config, (), fitted=fit(model, config, (), host))
    assert said.headline.startswith("Fits once -fit shortens the context to")
    assert "layers" not in said.headline
    assert said.detail.startswith("As typed, the host is ")
