"""What a launch that cannot fit would need: memory, or a smaller model, in numbers."""

from kvstudio.advise.fixes import same_cache_types
from kvstudio.advise.learned import capacities, total_capacity
from kvstudio.advise.plan_values import HardLimit
from kvstudio.advise.record import Record
from kvstudio.budget.values import Budget, DeviceBudget
from kvstudio.units import format_bytes

#: Common file types and their bits per weight over a whole model, densest first.
#: Source: the sizes that llama.cpp's tools/quantize prints for Llama 3.1 8B, b11434.
FILE_TYPES: tuple[tuple[str, float], ...] = (
    ("F16", 16.0),
    ("Q8_0", 8.5),
    ("Q6_K", 6.56),
    ("Q5_K_M", 5.7),
    ("Q4_K_M", 4.89),
    ("IQ4_XS", 4.46),
    ("Q3_K_M", 4.0),
    ("IQ3_XXS", 3.25),
    ("Q2_K", 3.16),
    ("IQ2_XXS", 2.38),
    ("IQ1_S", 2.0),
)
_USUAL = ("Q4_K_M", 4.89)
_LEAST_CTX = 2048
_LEAST_UBATCH = 32


def hard_limit(record: Record) -> HardLimit | None:
    """The numbers of a launch that nothing makes fit; None where they do not show it or memory is unknown."""
    budget = record.estimate(record.wanted)
    available = _available(record, budget)
    if available is None:
        return None
    least_budget = _least(record, budget)
    least = sum(map(_asked, _places(least_budget)))
    if least <= available:
        return None
    weights = sum(place.model_bytes - place.mapped_bytes for place in _places(least_budget))
    may_take = max(0, available - (least - weights))
    model = record.world.model
    bits = model.tensor_bytes * 8 / model.n_params if model.n_params else None
    # Mapped weights are page cache, so only the rest has to become smaller.
    allowed = bits * may_take / weights if bits and weights else None
    name = next((n for n, b in FILE_TYPES if allowed is not None and b <= allowed and b < (bits or 0)), None)
    return HardLimit(
        needed_bytes=sum(map(_asked, _places(budget))),
        least_bytes=least,
        available_bytes=available,
        weights_bytes=may_take,
        file_type=name,
        bits_per_weight=dict(FILE_TYPES).get(name) if name else None,
        n_params=model.n_params,
    )


def says(limit: HardLimit, record: Record) -> str:
    """The hard limit in sentences."""
    model = record.world.model
    words = [
        f"The launch as given asks for {format_bytes(limit.needed_bytes)} in all; with the shortest context, one slot "
        f"and the smallest batches it is {format_bytes(limit.least_bytes)}, and {format_bytes(limit.available_bytes)} "
        f"are free: at least {format_bytes(limit.short_bytes)} more memory is needed."
    ]
    now = f" instead of {model.file_type}" if model.file_type else ""
    if limit.file_type is not None:
        words.append(f"{limit.file_type}{now} (about {limit.bits_per_weight} bits per weight) would fit.")
    elif limit.weights_bytes > 0:
        billions = limit.weights_bytes * 8 / _USUAL[1] / 1e9
        words.append(
            f"No common quantization of this model is small enough; a model of at most about {billions:.1f} billion "
            f"parameters as {_USUAL[0]} would fit."
        )
    else:
        words.append("What is free does not even hold the caches and buffers, so no smaller quantization helps.")
    return " ".join(words)


def _least(record: Record, budget: Budget) -> Budget:
    """The budget with every cache and batch at its smallest; where layers lie does not change the sum."""
    effective = budget.config
    smaller: dict[str, object] = {
        "n_ctx": min(effective.n_ctx, _LEAST_CTX),
        "n_parallel": 1,
        "n_ubatch": min(effective.n_ubatch, _LEAST_UBATCH),
        "swa_full": None,
    }
    if effective.flash_attn_on is not False and not same_cache_types(record.world.model):
        smaller |= {"cache_type_k": "q4_0", "cache_type_v": "q4_0"}
    return record.estimate(record.wanted.evolve(**smaller))


def _available(record: Record, budget: Budget) -> int | None:
    """Free memory of everything together, as runs have shown it; None where some of it is unknown."""
    total = total_capacity(record)
    if total is not None:
        return total
    known = capacities(record)
    found = 0
    for place in _places(budget):
        free = known.get(place.name, place.free_bytes)
        if free is None:
            return None
        found += free
    return found


def _places(budget: Budget) -> tuple[DeviceBudget, ...]:
    return (*budget.devices, budget.host)


def _asked(place: DeviceBudget) -> int:
    return place.need_bytes - place.mapped_bytes
