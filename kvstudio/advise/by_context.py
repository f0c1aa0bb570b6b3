"""Memory of each device against n_ctx: curves, where they cross the capacity, and tables of limits and costs."""

from collections.abc import Callable
from dataclasses import dataclass

from kvstudio.advise.choices import Choice
from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.devices.values import Device, DeviceSource
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB

#: llama.cpp rounds the context up to whole multiples of this.
N_CTX_STEP = 256
CURVE_TYPES = ("f16", "q8_0", "q4_0")
LIMIT_TYPES = ("f16", "q8_0", "q5_1", "q4_0")
CARDS_GB = (8, 12, 16, 24, 32, 48, 80)

_POINTS = 16
_SHORTEST_AXIS = 8192
_COST_CONTEXTS = (8192, 16384, 32768, 65536, 131072)

Estimate = Callable[[LaunchConfig], Budget]
#: Settings and devices (None: this machine's) -> the largest n_ctx that fits, None when not even the smallest does.
Largest = Callable[[LaunchConfig, tuple[Device, ...] | None], int | None]


@dataclass(frozen=True, slots=True)
class Point:
    """What each device holds at one n_ctx."""

    n_ctx: int
    devices: tuple[DeviceBudget, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory against n_ctx for one K/V type. `fits` has the largest n_ctx per device by itself: None when not even
    the shortest fits, the axis' end when all do.
    """

    cache_type: str
    points: tuple[Point, ...]
    fits: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """Largest n_ctx per K/V type on some memory; None where the model itself does not fit."""

    label: str
    n_ctx: tuple[int | None, ...]
    is_this_machine: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What the KV cache takes at one n_ctx, per K/V type, in bytes over all devices."""

    n_ctx: int
    kv_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContextView:
    """Everything the view by context shows. The first curve is the current type's.

    `largest` fits on every device at once, `deciding` is the device that ends it; `weights_bytes` what the model
    needs on one card before any context. `streams` share n_ctx: the slots, or 1 where they have a common pool.
    """

    n_ctx_now: int
    n_ctx_max: int
    n_ctx_train: int
    curves: tuple[Curve, ...]
    largest: int | None
    deciding: str | None
    limit_types: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    cost_types: tuple[str, ...] = ()
    costs: tuple[Cost, ...] = ()
    weights_bytes: int = 0
    choices: tuple[Choice, ...] = ()
    streams: int = 1

    @property
    def n_ctx_trained(self) -> int:
        """The n_ctx that gives every stream the trained context; llama.cpp warns of more, and serves no more of it."""
        return self.n_ctx_train * self.streams


def axis_end(n_ctx_now: int, n_ctx_train: int) -> int:
    """A round end of the axis that shows twice the present context and all of the trained one."""
    wanted = max(2 * n_ctx_now, n_ctx_train, _SHORTEST_AXIS)
    return 1 << (wanted - 1).bit_length()


def type_name(budget: Budget) -> str:
    """`f16`, or `q8_0/q4_0` where K and V differ."""
    k, v = budget.config.cache_type_k, budget.config.cache_type_v
    return k if k == v else f"{k}/{v}"


def with_type(config: LaunchConfig, cache_type: str) -> LaunchConfig:
    """The settings with K and V of one type, or of two written as `q8_0/q4_0`."""
    k, _, v = cache_type.partition("/")
    return config.evolve(cache_type_k=k, cache_type_v=v or k)


def largest_step(fits: Callable[[int], bool], limit: int) -> int | None:
    """The largest multiple of N_CTX_STEP up to `limit` for which `fits` holds; None when the first does not.

    `fits` must hold up to some point and not after it.
    """
    low, high = 0, limit // N_CTX_STEP
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle * N_CTX_STEP):
            low = middle
        else:
            high = middle - 1
    return low * N_CTX_STEP or None


def places(budget: Budget) -> tuple[DeviceBudget, ...]:
    """What a curve is drawn for: the devices, or the host where there is none."""
    return budget.devices or (budget.host,)


def remembered(estimate: Estimate) -> Estimate:
    """The same estimates, each made once: curves, marks and costs meet at the same contexts."""
    seen: dict[tuple[object, ...], Budget] = {}

    def at(config: LaunchConfig) -> Budget:
        key = (config.n_ctx, config.cache_type_k, config.cache_type_v)
        if key not in seen:
            seen[key] = estimate(config)
        return seen[key]

    return at


def curve(estimate: Estimate, config: LaunchConfig, cache_type: str, n_ctx_max: int) -> Curve:
    """Follow one K/V type from the shortest context to the end of the axis."""
    typed = with_type(config, cache_type)
    steps = [max(N_CTX_STEP, n_ctx_max * i // _POINTS // N_CTX_STEP * N_CTX_STEP) for i in range(_POINTS + 1)]
    points = tuple(Point(n_ctx, places(estimate(typed.evolve(n_ctx=n_ctx)))) for n_ctx in dict.fromkeys(steps))

    def largest(index: int) -> int | None:
        good = [p.n_ctx for p in points if p.devices[index].fits is not False]
        if not good:
            return None
        # Only the gap after the last point that fits is searched.
        low = good[-1]
        high = next((p.n_ctx for p in points if p.n_ctx > low), low)
        found = largest_step(
            lambda more: places(estimate(typed.evolve(n_ctx=low + more)))[index].fits is not False, high - low
        )
        return low + (found or 0)

    return Curve(cache_type, points, tuple(largest(i) for i in range(len(points[0].devices))))


def _whole(estimate: Estimate, config: LaunchConfig, current: Curve) -> int | None:
    """The largest n_ctx that fits everywhere at once; the devices' own ends are nearly always the answer."""

    def fits(n_ctx: int) -> bool:
        return estimate(config.evolve(n_ctx=n_ctx)).fits is not False

    ends = [end for end in current.fits if end is not None]
    if len(ends) < len(current.fits) or not ends:
        return None
    least = min(ends)
    return least if fits(least) else largest_step(fits, least)


def _deciding(current: Curve, n_ctx_max: int) -> str | None:
    known = [(n or 0, d.name) for n, d in zip(current.fits, current.points[0].devices) if d.free_bytes is not None]
    least = min(known, default=None)
    return None if least is None or least[0] >= n_ctx_max else least[1]


def card(gigabytes: int) -> Device:
    """A card as sold: "24 GB" are GiB in the driver's figures, all of it free."""
    size = gigabytes * GIB
    return Device(f"GPU{gigabytes}", "CUDA", f"{gigabytes} GB card", size, size, DeviceSource.WHAT_IF)


def limits(largest: Largest, config: LaunchConfig, types: tuple[str, ...] = LIMIT_TYPES) -> tuple[Limit, ...]:
    """Largest n_ctx per memory size and type, as llama.cpp would place it unasked; sizes too small are one row.

    `types` from the widest to the narrowest.
    """
    free = config.evolve(tensor_split=None, main_gpu=None, device=None, split_mode=None)
    rows = []
    too_small: list[int] = []
    for size in CARDS_GB:
        device = (card(size),)
        # The smallest type first: where even that does not fit, none does.
        least = largest(with_type(free, types[-1]), device)
        if least is None:
            too_small.append(size)
        else:
            others = tuple(largest(with_type(free, t), device) for t in types[:-1])
            rows.append(Limit(f"{size} GB card", (*others, least)))
    here = tuple(largest(with_type(free, t), None) for t in types)
    first = [Limit(f"{', '.join(map(str, too_small))} GB card", (None,) * len(types))] if too_small else []
    return (*first, *rows, Limit("This machine", here, is_this_machine=True))


def costs(
    estimate: Estimate, config: LaunchConfig, contexts: tuple[int, ...], types: tuple[str, ...]
) -> tuple[Cost, ...]:
    """What the cache takes over all devices and the host, for some contexts and types."""

    def kv_bytes(n_ctx: int, cache_type: str) -> int:
        budget = estimate(with_type(config, cache_type).evolve(n_ctx=n_ctx))
        return sum(d.kv_bytes for d in (*budget.devices, budget.host))

    return tuple(Cost(n_ctx, tuple(kv_bytes(n_ctx, t) for t in types)) for n_ctx in contexts)


def cost_contexts(n_ctx_now: int, n_ctx_train: int, n_ctx_max: int) -> tuple[int, ...]:
    """Round contexts with the trained and the present one among them."""
    round_ones = {n for n in _COST_CONTEXTS if n <= n_ctx_max}
    return tuple(sorted(round_ones | {n for n in (n_ctx_now, n_ctx_train) if 0 < n <= n_ctx_max}))


def by_context(
    estimate: Estimate,
    config: LaunchConfig,
    budget: Budget,
    n_ctx_train: int,
    largest: Largest | None = None,
) -> ContextView:
    """Everything the view shows, from the budget of now and a function that estimates other settings.

    `largest` fills the table of limits, which is left out without it. Takes some hundred estimates: call it in a task.
    """
    estimate = remembered(estimate)
    now = budget.config.n_ctx
    end = axis_end(now, n_ctx_train)
    current = type_name(budget)
    names = (current, *(t for t in CURVE_TYPES if t != current))
    found = tuple(curve(estimate, config, name, end) for name in names)
    cost_types = tuple(dict.fromkeys((*CURVE_TYPES, current)))[: len(CURVE_TYPES) + 1]
    return ContextView(
        n_ctx_now=now,
        n_ctx_max=end,
        n_ctx_train=n_ctx_train,
        curves=found,
        largest=_whole(estimate, with_type(config, current), found[0]),
        deciding=_deciding(found[0], end),
        limit_types=LIMIT_TYPES if largest is not None else (),
        limits=limits(largest, config) if largest is not None else (),
        cost_types=cost_types,
        costs=costs(estimate, config, cost_contexts(now, n_ctx_train, end), cost_types),
        weights_bytes=sum(d.of(BufferKind.MODEL) or 0 for d in budget.devices),
        streams=max(1, now // budget.config.n_ctx_seq) if budget.config.n_ctx_seq else 1,
    )
