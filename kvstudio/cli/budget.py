"""kvstudio-cli budget: need, room and first failure of a launch."""

import argparse
from typing import Any

from kvstudio.advise.verdict import Verdict, verdict
from kvstudio.budget.fit import fit
from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.json import to_json
from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.cli.inputs import add_device_options, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, table
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


def run(args: argparse.Namespace) -> int:
    inputs = gather(args)
    launch = inputs.launch
    budget = launch.budget()
    fitted = fit(
        launch.model, launch.config, launch.devices, launch.host, launch.build, launch.overhead, budget, launch.extras
    )
    if args.json:
        emit_json({**to_json(inputs.model, budget), "fit": fit_json(fitted)})
    else:
        show(inputs.model, budget, inputs.config, inputs.devices, fitted)
    return DOES_NOT_FIT if budget.fits is False else DONE


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
    emit(f"{model.name} ({model.architecture}), {format_bytes(model.size_bytes)}, {config.program} b{config.build}")
    said = verdict(budget, typed, devices, fitted=fitted)
    emit(_sentences(said))
    if fitted.budget is None:
        _table("", budget)
    else:
        _table("As launched, after -fit: ", fitted.budget)
        _table("As typed: ", budget, _sentences(verdict(budget, typed, devices)))
    if fitted.status == "blocked":
        emit("")
        emit(f"llama.cpp's -fit cannot help: {fitted.why}")


def _sentences(said: Verdict) -> str:
    return f"{said.headline} {said.detail}".strip()


def _table(heading: str, budget: Budget, said: str = "") -> None:
    """One budget: its settings in a line, whether it fits where that was not said, a row per device, what to note."""
    config = budget.config
    unified = ", unified" if config.kv_unified else ""
    slots = "1 slot" if config.n_parallel == 1 else f"{config.n_parallel} slots"
    offloaded, layers = budget.offloaded_layers
    where = f"{offloaded} of {layers} layers on devices" if budget.devices else f"{layers} layers in RAM"
    emit("")
    emit(f"{heading}n_ctx {config.n_ctx}, {slots}{unified}, K {config.cache_type_k}, V {config.cache_type_v}, {where}")
    if said:
        emit(said)
    rows = [["device", *KINDS.values(), "need", "free", "total", ""]]
    rows += [_row(device) for device in (*budget.all_devices, budget.host)]
    for line in table(rows, right=range(1, 9)):
        emit(line)
    for note in budget.notes:
        emit(f"note: {note}")


def _row(device: DeviceBudget) -> list[str]:
    sizes = [format_bytes(device.of(kind) or 0) if device.of(kind) else "-" for kind in KINDS]
    free = "unknown" if device.free_bytes is None else format_bytes(device.free_bytes)
    total = "unknown" if device.total_bytes is None else format_bytes(device.total_bytes)
    mark = "" if device.fits is not False else f"{format_bytes(-(device.room_bytes or 0))} over"
    return [device.name, *sizes, format_bytes(device.need_bytes), free, total, mark]
