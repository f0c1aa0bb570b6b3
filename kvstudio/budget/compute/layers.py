"""Which layers a graph needs to build: equal neighbours do the same again, so a few stand for all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvstudio.budget.compute.inputs import Reserve
from kvstudio.budget.compute.kinds import kinds_of

#: Periods kept at the start of a repetition: two that may differ by what came before, and two to be compared.
KEPT_PERIODS = 4
_LONGEST_PERIOD = 12
#: Architectures whose layers each hold something for the whole graph.
HOLD_PER_LAYER = frozenset({"gemma3n", "gemma4", "t5", "t5encoder", "nanbeige", "hrm_text", "talkie", "kimi-k3"})


@dataclass(frozen=True, slots=True)
class Gap:
    """Layers left out behind `period`, the last ones kept of a repetition that goes on for `times` periods more."""

    period: tuple[int, ...]
    times: int


@dataclass(frozen=True, slots=True)
class Kept:
    """`layers` to build, in order; `twins` maps a device left out to the one with the same load.

    `gaps` between the layers kept, in order; `twin_times`: where a device left out repeats a period of its twin's more
    or less often than that, how often by the number of the gap. `periods`: how many of each repetition come first.
    """

    layers: tuple[int, ...]
    twins: dict[str, str]
    gaps: tuple[Gap, ...] = ()
    twin_times: dict[str, dict[int, int]] = field(default_factory=dict)
    periods: int = 0


def all_layers(reserve: Reserve) -> Kept:
    return Kept(tuple(range(reserve.model.n_layer)), {})


def kept_layers(reserve: Reserve, periods: int = KEPT_PERIODS) -> Kept:
    """The representative layers of a placement; of each repetition so many periods at its start, one or two at its end.

    Two where layers of a device have weights on the host: splits then cross layers, and what only the last layer reads
    enters with the one before it.
    """
    if reserve.arch in HOLD_PER_LAYER:
        return all_layers(reserve)
    kinds = kinds_of(reserve.model, reserve.placement)
    row = kinds.row
    layer_device = reserve.placement.layer_device
    shared = any(
        place is not None and place.on_host and device is not None
        for place, device in zip(kinds.places, layer_device, strict=False)
    )
    tail = 2 if shared or periods > KEPT_PERIODS else 1
    runs = _by_device(layer_device[: reserve.model.n_layer])
    twins: dict[str, str] = {}
    twin_times: dict[str, dict[int, int]] = {}
    keep: list[int] = []
    gaps: list[Gap] = []
    first_of: dict[Any, tuple[str, int]] = {}
    devices = [layer_device[run[0]] or "CPU" for run in runs]
    first_device = next(iter(reserve.placement.devices), "CPU")
    traits = dict(zip(reserve.placement.devices, reserve.placement.traits, strict=True))
    for at, (device, run) in enumerate(zip(devices, runs, strict=True)):
        layers, left_out = _compress(row, run, periods, tail)
        inner = 0 < at < len(runs) - 1 and devices.count(device) == 1 and device not in ("CPU", first_device)
        if inner and device != (layer_device[reserve.model.n_layer_all] or "CPU"):
            shape = tuple((gap.period[0] - run[0], len(gap.period)) for gap in left_out)
            # What enters a device depends on the layer before its first and on the backend that one is on.
            key = (
                tuple(row[il] for il in layers),
                shape,
                row[run[0] - 1],
                traits.get(device),
                traits.get(devices[at - 1]),
            )
            if key in first_of:
                twin, number = first_of[key]
                twins[device] = twin
                twin_times[device] = {number + i: gap.times for i, gap in enumerate(left_out)}
                continue
            first_of[key] = device, len(gaps)
        keep.extend(layers)
        gaps.extend(left_out)
    return Kept(tuple(keep), twins, tuple(gaps), twin_times, periods)


def _by_device(layer_device: Sequence[str | None]) -> list[list[int]]:
    runs: list[list[int]] = []
    last: str | None = None
    for il, device in enumerate(layer_device):
        if runs and device == last:
            runs[-1].append(il)
        else:
            runs.append([il])
        last = device
    return runs


def _compress(row: Sequence[Any], run: list[int], periods: int, tail: int) -> tuple[list[int], list[Gap]]:
    """The run without the middle of its repetitions, and the gaps."""
    kept: list[int] = []
    gaps: list[Gap] = []
    at, n = 0, len(run)
    kinds = [row[il] for il in run]
    while at < n:
        period, times = _repetition(kinds, at)
        if times > periods + tail:
            gap = at + period * periods
            end = at + period * times
            kept.extend(run[at:gap])
            gaps.append(Gap(tuple(run[gap - period : gap]), times - periods - tail))
            kept.extend(run[end - period * tail : end])
            at = end
        else:
            kept.append(run[at])
            at += 1
    return kept, gaps


def _repetition(row: Sequence[Any], at: int) -> tuple[int, int]:
    """The period and count of repetitions from `at` on that cover most."""
    best, n = (1, 1), len(row)
    for period in range(1, min(_LONGEST_PERIOD, (n - at) // 2) + 1):
        # Equal to the values a period later for so long.
        same = at
        while same + period < n and row[same] == row[same + period]:
            same += 1
        times = 1 + (same - at) // period
        if period * (times - 1) > best[0] * (best[1] - 1):
            best = (period, times)
    return best
