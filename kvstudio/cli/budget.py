"""kvstudio-cli budget: need, room and first failure of a launch."""

import argparse
from typing import Any

from kvstudio.advise.verdict import Answer, Verdict, verdict
from kvstudio.budget.fit import fit
from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.json import to_json
from kvstudio.budget.values import Budget, BufferKind, DeviceBudget, EffectiveConfig
from kvstudio.cli.inputs import Inputs, add_device_options, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, emit_table, emit_words, message
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.units import format_bytes

KINDS = {
    BufferKind.MODEL: "weights",
    BufferKind.KV: "KV cache",
    BufferKind.RS: "RS",
    BufferKind.COMPUTE: "compute",
    BufferKind.OUTPUT: "output",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_device_options(parser)
    parser.description = (
        f"{parser.description} The exit code is that of the settings as typed: 0 they fit, 3 they do not or llama.cpp "
        "refuses them. What -fit, which is on by default, would launch instead is shown beside it."
    )


def run(args: argparse.Namespace) -> int:
    inputs = gather(args)
    launch = inputs.launch
    budget = launch.budget()
    fitted = fit(
        launch.model, launch.config, launch.devices, launch.host, launch.build, launch.overhead, budget, launch.extras
    )
    if args.json:
        emit_json(document(inputs, budget, fitted))
    else:
        show(inputs.model, budget, inputs.config, inputs.devices, fitted)
    return DOES_NOT_FIT if fits(budget) is False else DONE


def fits(budget: Budget) -> bool | None:
    """Whether the launch as typed has room everywhere; settings that llama.cpp refuses fit nowhere."""
    return False if budget.config.errors else budget.fits


def document(inputs: Inputs, budget: Budget, fitted: FitResult) -> dict[str, Any]:
    """The budget as typed, with what llama.cpp refuses about it, what is doubtful in it and what `-fit` makes of it."""
    plain = to_json(inputs.model, budget)
    return {
        **plain,
        "fits": fits(budget),
        "notes": [*plain["notes"], *inputs.doubts],
        "errors": list(budget.config.errors),
        "fit": fit_json(fitted),
    }


def fit_json(fitted: FitResult) -> dict[str, Any]:
    """What llama.cpp's own fit makes of the launch; everything else in the document is as typed."""
    launched = fitted.budget
    devices = launched.all_devices if launched else ()
    return {
        "status": fitted.status,
        "says": fitted.why,
        "changes": dict(fitted.changes),
        "fits": launched.fits if launched else None,
        "offloaded_layers": list(launched.offloaded_layers) if launched else None,
        "devices": [{"name": d.name, "need_bytes": d.need_bytes, "fits": d.fits} for d in devices],
    }


def show(model: ModelInfo, budget: Budget, typed: LaunchConfig, devices: tuple[Device, ...], fitted: FitResult) -> None:
    """The verdict, then the budget as a table; where `-fit` changes the launch, first as it will be launched."""
    config = budget.config
    emit_words(heading(model, config))
    said = verdict(budget, typed, devices, fitted=fitted)
    emit_words(_sentences(said))
    if fitted.budget is None:
        _table("", budget)
    else:
        _table("As launched, after -fit: ", fitted.budget)
        _table("As typed: ", budget, _sentences(verdict(budget, typed, devices)))
    if fitted.status == "blocked":
        emit("")
        emit_words(f"llama.cpp's -fit cannot help: {fitted.why}")
    if said.answer is Answer.ADJUSTED and fits(budget) is False:
        message("note: the exit code is that of the settings as typed, 3; llama.cpp starts all the same, after -fit.")


def heading(model: ModelInfo, config: EffectiveConfig) -> str:
    """What an answer is about: the model and the program with the build whose rules were followed."""
    size = format_bytes(model.size_bytes)
    return f"{model.name} ({model.architecture}), {size}, {config.program} b{config.build}"


def _sentences(said: Verdict) -> str:
    return f"{said.headline} {said.detail}".strip()


def _table(title: str, budget: Budget, said: str = "") -> None:
    """One budget: its settings in a line, whether it fits where that was not said, a row per device, what to note."""
    config = budget.config
    unified = ", unified" if config.kv_unified else ""
    slots = "1 slot" if config.n_parallel == 1 else f"{config.n_parallel} slots"
    offloaded, layers = budget.offloaded_layers
    where = f"{offloaded} of {layers} layers on devices" if budget.devices else f"{layers} layers in RAM"
    emit("")
    emit_words(
        f"{title}n_ctx {config.n_ctx}, {slots}{unified}, K {config.cache_type_k}, V {config.cache_type_v}, {where}"
    )
    if said:
        emit_words(said)
    rows = [["device", *KINDS.values(), "need", "free", "total", ""]]
    rows += [_row(device) for device in (*budget.all_devices, budget.host)]
    emit_table(rows, right=range(1, 9))
    for note in budget.notes:
        emit_words(f"note: {note}", 2)


def _row(device: DeviceBudget) -> list[str]:
    sizes = [format_bytes(device.of(kind) or 0) if device.of(kind) else "-" for kind in KINDS]
    free = "unknown" if device.free_bytes is None else format_bytes(device.free_bytes)
    total = "unknown" if device.total_bytes is None else format_bytes(device.total_bytes)
    mark = "" if device.fits is not False else f"{format_bytes(-(device.room_bytes or 0))} over"
    return [device.name, *sizes, format_bytes(device.need_bytes), free, total, mark]
