"""kvstudio-cli max: the largest context, most slots or fewest CPU layers that fit, and what is in the way of more."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from kvstudio.advise.verdict import fit_words, noun, verdict
from kvstudio.budget.effective import resolve
from kvstudio.budget.fit import fit
from kvstudio.budget.json import to_json
from kvstudio.budget.solve import Launch, largest_n_ctx, most_gpu_layers, most_parallel
from kvstudio.budget.values import Budget
from kvstudio.cli.budget import heading
from kvstudio.cli.inputs import add_device_options, gather
from kvstudio.cli.output import DOES_NOT_FIT, DONE, emit, emit_json, emit_words
from kvstudio.units import format_room

SOLVERS: dict[str, Callable[[Launch], int | None]] = {
    "n_ctx": largest_n_ctx,
    "n_parallel": most_parallel,
    "n_gpu_layers": most_gpu_layers,
}
_CELL_PAD = 256


@dataclass(frozen=True, slots=True)
class Limit:
    """What keeps the value from being larger: `trained`, `layers`, `slots` (as many as there can be), or `device`."""

    by: str
    says: str
    device: str | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    add_device_options(parser)
    parser.add_argument(
        "--for", dest="variable", choices=tuple(SOLVERS), default="n_ctx", help="what to make as large as possible"
    )


def run(args: argparse.Namespace) -> int:
    inputs = gather(args)
    launch, variable = inputs.launch, args.variable
    best = SOLVERS[variable](launch)
    budget = launch.budget(**{variable: best}) if best is not None else launch.budget()
    if budget.config.errors:
        best = None
    limit = _limit(launch, variable, best, budget) if best is not None else None
    notes = _notes(launch, variable, best)
    if args.json:
        emit_json({
            "schema": "kvstudio.max/1",
            "variable": variable,
            "value": best,
            "per_slot": budget.config.n_ctx_seq if best is not None else None,
            "limit": {"by": limit.by, "device": limit.device, "says": limit.says} if limit else None,
            "errors": list(budget.config.errors),
            "notes": [*notes, *inputs.doubts],
            "budget": to_json(inputs.model, budget) if best is not None else None,
        })  # fmt: skip
    elif best is None:
        emit_words(heading(inputs.model, budget.config))
        emit_words(_why_none(launch, variable, budget))
    else:
        emit(f"{variable} {best}")
        emit_words(heading(inputs.model, budget.config))
        emit_words(_means(launch, variable, budget))
        emit_words(limit.says if limit else "")
        for note in notes:
            emit_words(f"note: {note}", 2)
    return DONE if best is not None else DOES_NOT_FIT


def _why_none(launch: Launch, variable: str, typed: Budget) -> str:
    """Why there is no value: settings that are refused, memory that is not known, or too little of it."""
    if typed.config.errors:
        return f"Will not start as it is: {typed.config.errors[0]}"
    if typed.fits is None:
        said = verdict(typed, launch.config, launch.devices)
        return f"{said.headline} {said.detail}".strip()
    least = 0 if variable == "n_gpu_layers" else _step(launch) if variable == "n_ctx" else 1
    said = verdict(launch.budget(**{variable: least}), launch.config, launch.devices)
    return f"Nothing fits, not even {variable} {least}. {said.headline} {said.detail}".strip()


def _step(launch: Launch) -> int:
    """The cells by which a context grows: a multiple of 256 for each pool of them."""
    config = launch.budget().config
    return _CELL_PAD * (1 if config.kv_unified else config.n_parallel)


def _means(launch: Launch, variable: str, budget: Budget) -> str:
    """The value in other words."""
    config = budget.config
    slots = "1 slot" if config.n_parallel == 1 else f"{config.n_parallel} slots"
    if variable == "n_gpu_layers":
        on_devices, layers = budget.offloaded_layers
        if not budget.devices:
            return f"There is no device, so all {layers} layers are in RAM, n_ctx {config.n_ctx}."
        return f"{on_devices} of {layers} layers on devices, {layers - on_devices} in RAM, n_ctx {config.n_ctx}."
    if config.n_parallel == 1:
        return f"1 slot of {config.n_ctx_seq} tokens."
    if config.kv_unified:
        return f"{slots} share the {config.n_ctx} cells: one alone can have {config.n_ctx_seq} tokens."
    return f"{slots} of {config.n_ctx_seq} tokens each, {config.n_ctx} cells together."


def _limit(launch: Launch, variable: str, best: int, budget: Budget) -> Limit:
    trained = launch.model.n_ctx_train
    config = budget.config
    if variable == "n_ctx" and trained and config.n_ctx_seq >= trained:
        return Limit(
            "trained", f"The model was trained for {trained} tokens, so more would not help it. {_room(budget)}"
        )
    if variable == "n_gpu_layers" and budget.offloaded_layers[0] == budget.offloaded_layers[1]:
        every = "Every layer is on a device. " if budget.devices else ""
        return Limit("layers", f"{every}{_room(budget)}")
    step = _step(launch) if variable == "n_ctx" else 1
    more = launch.config.evolve(**{variable: best + step})
    if resolve(launch.model, more, len(launch.devices), launch.build).errors:
        return Limit("slots", f"llama.cpp has no more slots than that. {_room(budget)}")
    next_budget = launch.budget(**{variable: best + step})
    failure = next_budget.first_failure
    short = [d for d in (*next_budget.devices, next_budget.host) if d.fits is False]
    if failure is None:
        name = short[0].name if short else None
        return Limit("device", f"With {variable} {best + step} {name or 'a device'} has too little memory.", name)
    where = "the host" if failure.device == next_budget.host.name else failure.device
    missing = f"{format_room(failure.short_bytes)} short for {noun(failure.kind)}"
    return Limit("device", f"With {variable} {best + step} {where} would be {missing}.", failure.device)


def _room(budget: Budget) -> str:
    rooms = [f"{format_room(d.room_bytes)} on {d.name}" for d in budget.devices if d.room_bytes is not None]
    if budget.host.room_bytes is not None:
        rooms.append(f"{format_room(budget.host.room_bytes)} of RAM")
    return f"Left over: {', '.join(rooms)}." if rooms else ""


def _notes(launch: Launch, variable: str, best: int | None) -> tuple[str, ...]:
    """What has to be typed beside the value, where llama.cpp would change the launch otherwise."""
    if best is None:
        return ()
    typed = launch.config.evolve(**{variable: best})
    fitted = fit(launch.model, typed, launch.devices, launch.host, launch.build, launch.overhead, extras=launch.extras)
    if not fitted.changes:
        return ()
    what = fit_words(fitted, fitted.budget.offloaded_layers[1] if fitted.budget else launch.model.n_layer + 1)
    return (f"with this value -fit {what}, to keep its margin free; add -fit off to have it as it stands here.",)
