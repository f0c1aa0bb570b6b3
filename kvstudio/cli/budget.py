"""kvstudio-cli budget: need, room and first failure of a launch."""

import argparse
from typing import Any

from kvstudio.advise.verdict import verdict
from kvstudio.budget.estimate import estimate
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
    budget = estimate(
        inputs.model, inputs.config, inputs.devices, host=inputs.host, build=inputs.build, overhead=inputs.overhead
    )
    fitted = fit(inputs.model, inputs.config, inputs.devices, inputs.host, inputs.build)
    if args.json:
        changes = dict(fitted.changes)
        emit_json({
            **to_json(inputs.model, budget),
            "fit": {"status": fitted.status, "says": fitted.why, "changes": changes},
        })  # fmt: skip
    else:
        show(inputs.model, budget, inputs.config, inputs.devices)
        for line in fit_lines(fitted):
            emit(line)
    return DOES_NOT_FIT if budget.fits is False else DONE


def show(model: ModelInfo, budget: Budget, typed: LaunchConfig, devices: tuple[Device, ...]) -> None:
    """The budget as a table, the verdict first."""
    config = budget.config
    emit(f"{model.name} ({model.architecture}), {format_bytes(model.size_bytes)}, {config.program} b{config.build}")
    unified = ", unified" if config.kv_unified else ""
    offloaded, layers = budget.offloaded_layers
    where = f"{offloaded} of {layers} layers on devices" if budget.devices else f"{layers} layers in RAM"
    emit(
        f"n_ctx {config.n_ctx}, {config.n_parallel} slots{unified}, K {config.cache_type_k}, V {config.cache_type_v}, "
        f"{where}"
    )
    emit("")
    said = verdict(budget, typed, devices)
    emit(f"{said.headline} {said.detail}".strip())
    emit("")
    rows = [["device", *KINDS.values(), "need", "free", "total", ""]]
    rows += [_row(device) for device in (*budget.all_devices, budget.host)]
    for line in table(rows, right=range(1, 9)):
        emit(line)
    for note in budget.notes:
        emit(f"note: {note}")


def fit_lines(fitted: FitResult) -> list[str]:
    """What llama.cpp's own fit would do to this launch, for the cases in which it does or cannot do something."""
    if fitted.status == "changed":
        changes = ", ".join(_change(name, value) for name, value in fitted.changes)
        return ["", f"As typed it is measured above; llama.cpp's -fit would start it with {changes}."]
    return ["", f"llama.cpp's -fit cannot help: {fitted.why}"] if fitted.status == "blocked" else []


def _change(name: str, value: Any) -> str:
    if name == "override_tensor":
        return f"experts of {len(value)} layers elsewhere"
    if name == "tensor_split":
        return f"tensor_split {','.join(f'{share:g}' for share in value)}"
    return f"{name} {value}"


def _row(device: DeviceBudget) -> list[str]:
    sizes = [format_bytes(device.of(kind) or 0) if device.of(kind) else "-" for kind in KINDS]
    free = "unknown" if device.free_bytes is None else format_bytes(device.free_bytes)
    total = "unknown" if device.total_bytes is None else format_bytes(device.total_bytes)
    mark = "" if device.fits is not False else f"{format_bytes(-(device.room_bytes or 0))} over"
    return [device.name, *sizes, format_bytes(device.need_bytes), free, total, mark]
