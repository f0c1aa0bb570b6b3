"""Which layers a graph needs to build: equal neighbours leave the allocator as it was, so a few stand for all."""

from collections.abc import Sequence
from typing import Any

from kvstudio.budget.compute.inputs import Reserve
from kvstudio.header.values import ArrayValue

#: Layers kept at the start of a repetition, in whole periods: holes settle within five.
KEPT_FIRST_LAYERS = 5
KEPT_FIRST_PERIODS = 2
#: So many times more where devices work on what the host holds: copies of all sizes take longer to find their holes.
MIXED_TIMES = 3
_LONGEST_PERIOD = 12
#: Hidden rules by position that no weight and no number of the layer shows.
_MODULO_KEYS = ("n_no_rope_layer_step", "rescale_every_n_layers", "moe_every_n_layers")
#: Architectures whose layers each hold something for the whole graph.
HOLD_PER_LAYER = frozenset(
    {"gemma3n", "gemma4", "deepseek4", "t5", "t5encoder", "nanbeige", "hrm_text", "talkie", "kimi-k3"}
)
_DEFAULT_STEP = {"llama4": 4, "smollm3": 4}


class Kept:
    """`layers` to build, in order; `twins` maps a device left out to the one with the same load.

    `probation`: layers that must not make a buffer grow, else the repetition has not settled yet.
    """

    __slots__ = ("layers", "longer", "probation", "twins")

    def __init__(
        self, layers: tuple[int, ...], twins: dict[str, str], probation: frozenset[int], longer: bool = False
    ) -> None:
        self.layers = layers
        self.twins = twins
        self.probation = probation
        self.longer = longer


def all_layers(reserve: Reserve) -> Kept:
    return Kept(tuple(range(reserve.model.n_layer)), {}, frozenset())


def kept_layers(reserve: Reserve, times: int = 1) -> Kept:
    """The representative layers of a placement; `times` as many of each repetition as usual."""
    n = reserve.model.n_layer
    if reserve.arch in HOLD_PER_LAYER or n <= KEPT_FIRST_LAYERS:
        return all_layers(reserve)
    if reserve.placement.devices and _is_mixed(reserve):
        times = max(times, MIXED_TIMES)
    signatures = _signatures(reserve)
    runs = _by_device(reserve)
    probation: set[int] = set()
    compressed = [_compress(signatures, run, times, probation) for run in runs]
    twins: dict[str, str] = {}
    keep: list[int] = []
    first_of: dict[tuple[Any, ...], str] = {}
    devices = [reserve.device(run[0]) for run in runs]
    first_device = next(iter(reserve.placement.devices), "CPU")
    for at, (device, layers) in enumerate(zip(devices, compressed, strict=True)):
        inner = 0 < at < len(runs) - 1 and devices.count(device) == 1 and device not in ("CPU", first_device)
        if inner and device != (reserve.placement.layer_device[reserve.model.n_layer_all] or "CPU"):
            key = tuple(signatures[il] for il in layers)
            if key in first_of:
                twins[device] = first_of[key]
                continue
            first_of[key] = device
        keep.extend(layers)
    return Kept(tuple(keep), twins, frozenset(probation), times > 1)


def _is_mixed(reserve: Reserve) -> bool:
    """Whether some layers, or weights of layers, are not where the others are."""
    if not reserve.config.kv_offload or None in reserve.placement.layer_device[:-1]:
        return True
    return any(p.layer is not None and p.device is None for n, p in reserve.placed.items() if n.startswith("blk."))


def _by_device(reserve: Reserve) -> list[list[int]]:
    runs: list[list[int]] = []
    for il in range(reserve.model.n_layer):
        if runs and reserve.device(runs[-1][-1]) == reserve.device(il):
            runs[-1].append(il)
        else:
            runs.append([il])
    return runs


def _signatures(reserve: Reserve) -> list[tuple[Any, ...]]:
    """One value per layer; equal values build equal nodes."""
    model = reserve.model
    parts = _weights_by_layer(reserve)
    arrays = [v for v in model.hparams.values() if isinstance(v, tuple) and len(v) == model.n_layer_all]
    for value in model.header.metadata.values():
        if isinstance(value, ArrayValue) and value.count in (model.n_layer, model.n_layer_all) and value.values:
            arrays.append(value.values)
    steps = [reserve.whole(key, _DEFAULT_STEP.get(reserve.arch, 0)) for key in _MODULO_KEYS]
    result = []
    for il in range(model.n_layer):
        layer = model.layers[il]
        result.append(
            (
                parts.get(il, ()),
                layer.n_head,
                layer.n_head_kv,
                layer.n_embd_head_k,
                layer.n_embd_head_v,
                layer.n_ff,
                layer.is_swa,
                layer.is_recurrent,
                layer.has_kv,
                tuple(a[il] if il < len(a) else None for a in arrays),
                tuple((il + 1) % step if step else 0 for step in steps),
            )
        )
    return result


def _weights_by_layer(reserve: Reserve) -> dict[int, tuple[Any, ...]]:
    """Per layer the shapes of its weights; where one lives elsewhere also its home and size, since it is copied."""
    found: dict[int, list[Any]] = {}
    for name, placed in reserve.placed.items():
        if placed.layer is None or not name.startswith("blk."):
            continue
        il = placed.layer
        suffix = name.split(".", 2)[2]
        home = placed.device or placed.buffer_type
        own = home == reserve.device(il)
        where = ("", 0) if own else (home, placed.tensor.n_bytes)
        found.setdefault(il, []).append((suffix, placed.tensor.shape, where))
    return {il: tuple(sorted(parts)) for il, parts in found.items()}


def _compress(signatures: Sequence[tuple[Any, ...]], run: list[int], longer: int, probation: set[int]) -> list[int]:
    """The run without the middle of its repetitions; the last period before the gap goes on probation."""
    kept: list[int] = []
    at, n = 0, len(run)
    ids: dict[tuple[Any, ...], int] = {}
    row = [ids.setdefault(signatures[il], len(ids)) for il in run]
    while at < n:
        period, times = _repetition(row, at)
        first = max(KEPT_FIRST_PERIODS, -(-KEPT_FIRST_LAYERS // period)) * longer
        if times > first + 1:
            end = at + period * times
            kept.extend(run[at : at + period * first])
            probation.update(run[at + period * (first - 1) : at + period * first])
            kept.extend(run[end - period : end])
            at = end
        else:
            kept.append(run[at])
            at += 1
    return kept


def _repetition(row: list[int], at: int) -> tuple[int, int]:
    """The period and count of repetitions from `at` on that cover most."""
    best, n = (1, 1), len(row)
    for period in range(1, min(_LONGEST_PERIOD, (n - at) // 2) + 1):
        times = 1
        block = row[at : at + period]
        while row[at + period * times : at + period * (times + 1)] == block:
            times += 1
        if period * (times - 1) > best[0] * (best[1] - 1):
            best = (period, times)
    return best
