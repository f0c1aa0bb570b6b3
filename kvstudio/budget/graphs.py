"""Compute buffers by the best means there is: the graph followed step by step, else a closed form."""

from bisect import bisect_right
from dataclasses import dataclass, replace

from kvstudio.budget import closed_forms, compute
from kvstudio.budget.closed_forms import Compute
from kvstudio.budget.compute.capacity import overflow, stranded
from kvstudio.budget.compute.families import BUILDERS, STYLES
from kvstudio.budget.kv import cache_specs
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.pooling import asked_pooling
from kvstudio.budget.values import EffectiveConfig, Provenance
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.architectures import CacheClass
from kvstudio.model.values import ModelInfo

_KEPT = 256
_FOLLOWED = "The graph llama.cpp reserves for {tokens} tokens, allocated step by step{copies}."

Key = tuple[int, EffectiveConfig, tuple[int, ...], str | None]


def compute_buffers(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None = None
) -> Compute:
    """Bytes, provenance and a sentence by buffer type name; remembered per model."""
    key, n_cells = _family(model, effective, placement, config)
    families: dict[Key, _Family] = model.memo.setdefault("compute", {})
    family = families.get(key)
    if family is None or family.placement is not placement:
        if len(families) >= _KEPT:
            families.clear()
        family = families[key] = _Family(placement, {}, _is_straight(model, effective, placement))
    found = family.at(n_cells)
    if found is None and family.straight and len(family.points) >= _GRID_AFTER:
        for length in _grid(n_cells):
            other = _with_cells(effective, length)
            if length not in family.points and _family(model, other, placement, config)[0] == key:
                family.points[length] = _compute(model, other, placement, config)
        found = family.at(n_cells)
    if found is None:
        found = family.points[n_cells] = _compute(model, effective, placement, config)
    return found


#: Asked so often for one family, it is worth knowing the lengths around: somebody is moving the slider.
_GRID_AFTER = 2
_SMALLEST_GRID = 4096


def _grid(n_cells: int) -> tuple[int, ...]:
    """The powers of two around a length, and one more to see that they lie on a line."""
    low = max(_SMALLEST_GRID, 1 << (n_cells.bit_length() - 1))
    return (low, 2 * low, 4 * low)


def _with_cells(effective: EffectiveConfig, n_cells: int) -> EffectiveConfig:
    n_ctx = n_cells if effective.kv_unified else n_cells * effective.n_parallel
    return replace(effective, n_ctx=n_ctx, n_ctx_seq=n_cells)


@dataclass(slots=True)
class _Family:
    """Launches that differ by the length of the context alone.

    Their buffers grow in straight lines: masks and copied caches are proportional to the cells, all else stays. So
    between two known lengths that lie on one line with a third, the sizes are read off the line.
    """

    placement: Placement
    points: dict[int, Compute]
    straight: bool

    def at(self, n_cells: int) -> Compute | None:
        """The sizes for a context of that many cells; None when they are not known or not on a line."""
        known = self.points.get(n_cells)
        if known is not None or not self.straight or len(self.points) < _LINE_POINTS:
            return known
        lengths = sorted(self.points)
        at = bisect_right(lengths, n_cells)
        if not 0 < at < len(lengths):
            return None
        for first in (at - 2, at - 1):
            three = lengths[first : first + _LINE_POINTS] if first >= 0 else []
            if len(three) == _LINE_POINTS and _on_a_line(three, [self.points[length] for length in three]):
                return _read_off(n_cells, three[0], three[-1], self.points[three[0]], self.points[three[-1]])
        return None


_LINE_POINTS = 3


_STRAIGHT_CACHES = (CacheClass.UNIFIED, CacheClass.ISWA, CacheClass.HYBRID, CacheClass.RECURRENT, CacheClass.NONE)


def _is_straight(model: ModelInfo, effective: EffectiveConfig, placement: Placement) -> bool:
    """Whether sizes follow straight lines: not with scores of a whole context, nor with copies from host memory, which
    take each other's place as they grow.
    """
    if model.hparams["cache"] not in _STRAIGHT_CACHES:
        return False
    whole = not placement.devices or (effective.kv_offload and None not in placement.layer_device[:-1])
    return whole and effective.flash_attn_on is True and not effective.overrides


def _on_a_line(lengths: list[int], sizes: list[Compute]) -> bool:
    """Whether every buffer of three launches grows exactly in proportion."""
    a, b, c = lengths
    first, second, third = sizes
    if not first.keys() == second.keys() == third.keys():
        return False
    return all(
        (second[name][0] - first[name][0]) * (c - b) == (third[name][0] - second[name][0]) * (b - a) for name in first
    )


_BETWEEN = "The graph llama.cpp reserves, which grows in proportion to the context: read off between two lengths."


def _read_off(n_cells: int, low: int, high: int, at_low: Compute, at_high: Compute) -> Compute:
    return {
        name: (size + (at_high[name][0] - size) * (n_cells - low) // (high - low), provenance, _BETWEEN)
        for name, (size, provenance, _) in at_low.items()
    }


def _family(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None
) -> tuple[Key, int]:
    """What launches of one family share, and the cells that tell them apart.

    Caches that do not follow the context's length (a window, compressed ones) are part of what they share.
    """
    cells = effective.n_ctx_seq
    fixed = tuple(spec.cells for spec in cache_specs(model, effective) if spec.cells != cells)
    tokens = min(effective.n_ctx, effective.n_ubatch)
    shared = replace(effective, n_ctx=tokens, n_ctx_seq=0, n_batch=0, notes=(), errors=())
    return (id(placement), shared, fixed, asked_pooling(config) if config else None), cells


def can_follow(model: ModelInfo) -> bool:
    """Whether the model's graph is known operation by operation."""
    return model.known_architecture and (model.architecture in STYLES or model.architecture in BUILDERS)


def _compute(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None
) -> Compute:
    if placement.shares:
        return closed_forms.compute_buffers(model, effective, placement)
    try:
        found = compute.compute_buffers(model, effective, placement, config)
    except (LookupError, ArithmeticError):  # the file lacks tensors or sizes the architecture's graph is made of
        found = {}
    if not found or not can_follow(model):
        return _high_side(model, effective, placement, found)
    return {
        name: (n_bytes, provenance, _sentence(why) or _why(effective, provenance))
        for name, (n_bytes, provenance, why) in found.items()
        if n_bytes
    }


def refusal(
    model: ModelInfo, effective: EffectiveConfig, placement: Placement, config: LaunchConfig | None
) -> str | None:
    """What to say where llama.cpp aborts as it plans a graph: too many tensors, or one that no backend takes."""
    if not can_follow(model) or placement.shares:
        return None
    try:
        weight = stranded(model, effective, placement, config)
        found = overflow(model, effective, placement, config)
    except (LookupError, ArithmeticError):
        return None
    if weight is not None:
        return (
            f"{weight} is kept in an AMX buffer, which cannot multiply what it meets: llama.cpp aborts, it needs -nr."
        )
    if found is None:
        return None
    tensors, room = found
    return (
        f"the graph has {tensors} tensors and llama.cpp made room for {room}, so it aborts: "
        "slots that share one pool (-kvu) or an unquantized cache make the graph smaller."
    )


_MARGIN_PERCENT = 15
_HIGH_SIDE = "Kept on the high side, since this architecture's graph is not followed."


def _high_side(model: ModelInfo, effective: EffectiveConfig, placement: Placement, plain: Compute) -> Compute:
    """The larger of the closed form and an ordinary decoder's graph, with room for what only this architecture does.

    Too much memory asked for is a smaller context; too little is a launch that fails.
    """
    more = closed_forms.unusual_bytes(model, effective)
    return {
        name: (
            max(n_bytes, plain[name][0] if name in plain else 0) * (100 + _MARGIN_PERCENT) // 100 + more,
            Provenance.ESTIMATED,
            f"{why} {_HIGH_SIDE}",
        )
        for name, (n_bytes, _, why) in closed_forms.compute_buffers(model, effective, placement).items()
    }


def _sentence(why: str) -> str:
    """A capital letter and a full stop, where there is something to say."""
    return f"{why[0].upper()}{why[1:].rstrip('.')}." if why else ""


def _why(effective: EffectiveConfig, provenance: Provenance) -> str:
    tokens = min(effective.n_ctx, effective.n_ubatch)
    copies = f" with {effective.pipeline_copies} pipeline copies" if effective.pipeline_copies > 1 else ""
    sentence = _FOLLOWED.format(tokens=tokens, copies=copies)
    return sentence if provenance is Provenance.EXACT else f"Estimated: {sentence[0].lower()}{sentence[1:]}"
