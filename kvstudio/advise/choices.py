"""A model and its settings to the choice in one picture: what each step of each wish leaves, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvstudio.budget.values import Budget
from kvstudio.launch.config import LaunchConfig

Estimate = Callable[[LaunchConfig], Budget]

_STEPS = 5
_SHORTEST = 4096
_SLOTS = (1, 2, 4, 8, 16)
_TYPES = ("q4_0", "q5_1", "q8_0", "f16")


@dataclass(frozen=True, slots=True)
class Step:
    """One value of a setting: `room_bytes` is what the tightest device keeps, negative when it does not fit, None
    where its memory is unknown. `beyond` says that the model was not trained for it.
    """

    label: str
    change: tuple[tuple[str, Any], ...]
    room_bytes: int | None
    is_now: bool
    beyond: bool = False

    @property
    def fits(self) -> bool | None:
        return None if self.room_bytes is None else self.room_bytes >= 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One wish, its steps from the cheapest in memory to the dearest, and what it takes away elsewhere."""

    field: str
    title: str
    costs: str
    steps: tuple[Step, ...]


def choices(estimate: Estimate, config: LaunchConfig, budget: Budget, n_ctx_train: int) -> tuple[Choice, ...]:
    """Four wishes, everything else as it is now; some twenty estimates, so call it in a task."""
    made = (
        _contexts(estimate, config, budget, n_ctx_train),
        _slots(estimate, config, budget, n_ctx_train),
        _types(estimate, config, budget),
        _layers(estimate, config, budget),
    )
    return tuple(choice for choice in made if len(choice.steps) > 1)


def room_of(budget: Budget) -> int | None:
    """What the tightest of devices and host keeps."""
    rooms = [place.room_bytes for place in (*budget.devices, budget.host)]
    known = [room for room in rooms if room is not None]
    return min(known) if known else None


def context_steps(now: int, trained: int) -> tuple[int, ...]:
    """Powers of two with the present and the trained context among them, one step beyond the longer of both."""
    most = max(now, trained, _SHORTEST)
    doubled = [_SHORTEST << i for i in range(24) if _SHORTEST << i <= most]
    top = 1 << most.bit_length()
    chosen = sorted({*doubled[-3:], now, top} | ({trained} if trained else set()))
    return tuple(chosen[-_STEPS - 1 :])


def _contexts(estimate: Estimate, config: LaunchConfig, budget: Budget, trained: int) -> Choice:
    now, per_slot = budget.config.n_ctx, budget.config.n_ctx_seq
    share = max(1, now // max(1, per_slot))

    def step(n_ctx: int) -> Step:
        at = estimate(config.evolve(n_ctx=n_ctx))
        return Step(str(n_ctx), (("n_ctx", n_ctx),), room_of(at), n_ctx == now, 0 < trained < n_ctx // share)

    steps = tuple(step(n) for n in context_steps(now, trained * share))
    return Choice("n_ctx", "Longer context", "every prompt takes longer as it fills", steps)


def _slots(estimate: Estimate, config: LaunchConfig, budget: Budget, trained: int) -> Choice:
    """Slots with the context of one slot kept as it is: more users, none of them cut short."""
    now, each = budget.config.n_parallel, budget.config.n_ctx_seq

    def step(slots: int) -> Step:
        n_ctx = budget.config.n_ctx if slots == now else each * slots
        change = (("n_parallel", slots), ("kv_unified", False), ("n_ctx", n_ctx))
        changed = config if slots == now else config.evolve(**dict(change))
        label = f"{slots} × {changed_context(budget, slots, now)}"
        return Step(label, change, room_of(estimate(changed)), slots == now, 0 < trained < each)

    steps = tuple(step(n) for n in sorted({*_SLOTS, now})[: _STEPS + 1])
    return Choice("n_parallel", "More slots", "each slot has a context of its own", steps)


def changed_context(budget: Budget, slots: int, now: int) -> str:
    """What each slot gets: the present context, shared where the cache is unified now."""
    if slots == now and budget.config.kv_unified and now > 1:
        return "shared"
    return str(budget.config.n_ctx_seq)


def _types(estimate: Estimate, config: LaunchConfig, budget: Budget) -> Choice:
    now = (budget.config.cache_type_k, budget.config.cache_type_v)

    def step(name: str) -> Step:
        change = (("cache_type_k", name), ("cache_type_v", name))
        return Step(name, change, room_of(estimate(config.evolve(**dict(change)))), now == (name, name))

    return Choice("cache_type_k", "K/V precision", "fewer bits, less exact answers", tuple(step(t) for t in _TYPES))


def _layers(estimate: Estimate, config: LaunchConfig, budget: Budget) -> Choice:
    on_gpu, in_all = budget.offloaded_layers
    wanted = {round(in_all * i / 4) for i in range(1, 5)} | {on_gpu}

    def step(n: int) -> Step:
        at = config if n == on_gpu else config.evolve(n_gpu_layers=n)
        return Step(str(n), (("n_gpu_layers", n),), room_of(estimate(at)), n == on_gpu)

    steps = tuple(step(n) for n in sorted(wanted)) if budget.devices and in_all else ()
    return Choice("n_gpu_layers", "Layers on GPU", "each one on the CPU costs speed", steps)
