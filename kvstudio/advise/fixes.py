"""One function per variable: the smallest change of it that should make the launch fit, or None."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kvstudio.advise.figures import layers_on, why_short
from kvstudio.advise.in_ram import mapped_weights, more_layers, no_copies
from kvstudio.advise.situation import Situation
from kvstudio.advise.sizing import first_that_fits, fix_of, largest_that_fits, made, on_host
from kvstudio.advise.values import Fix
from kvstudio.advise.verdict import layers
from kvstudio.budget.values import Budget, BufferKind
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.units import format_bytes

#: Contexts are padded to this many cells (llama.cpp `llama_context`, b11434), so smaller steps change nothing.
CTX_STEP = 256
SMALLEST_CTX = 2048
#: K/V types from the most to the least precise, as far as each one saves something.
CACHE_LADDER = ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
_PRECISION = {
    "q8_0": "slightly less precise cache",
    "q5_1": "less precise cache",
    "q5_0": "less precise cache",
    "q4_1": "clearly less precise cache",
    "q4_0": "clearly less precise cache",
    "f16": "half the precision of f32",
}

FixFunction = Callable[[Situation], Fix | None]


def split_by_free_memory(s: Situation) -> Fix | None:
    """Drop a typed -ts, so that llama.cpp shares layers out by free memory."""
    if s.config.tensor_split is None or len(s.devices) < 2:
        return None
    fix = fix_of(s, "tensor_split", {"tensor_split": None}, "Split by free memory", "", "no cost")
    if fix is None:
        return None
    typed = ",".join(f"{share:g}" for share in s.config.tensor_split)
    return replace(
        fix,
        why=f"-ts {typed} puts {layers_on(s.budget)}. That is too much for {why_short(s)}. Without -ts, llama.cpp "
        f"shares the layers out by free memory: {layers_on(fix.budget)}.",
    )


def split_ratio(s: Situation) -> Fix | None:
    """A ratio of whole layers that fits: layers move from the device that is short to those with room."""
    ratio = balanced_ratio(s)
    if ratio is None or ratio == s.config.tensor_split:
        return None
    text = ",".join(f"{share:g}" for share in ratio)
    fix = fix_of(s, "tensor_split", {"tensor_split": ratio}, f"Split ratio {text}", "", "no cost")
    if fix is None:
        return None
    return replace(
        fix,
        why=f"Now it is {layers_on(s.budget)}. That is too much for {why_short(s)}. Layers move to where there is "
        f"room: {layers_on(fix.budget)}.",
    )


#: Ratios that are estimated before a split is given up; each is a new placement, whose graph takes a while.
_RATIOS = 6


def balanced_ratio(s: Situation) -> tuple[float, ...] | None:
    """Layer counts per device that fit; layers move from the tightest device to the loosest, as few as needed.

    Moves are counted with the mean size of a device's layers, and what that leaves out (an output larger than a layer,
    compute buffers) shows in the estimate of the result, from which they go on.
    """
    budget = s.budget
    if len(budget.devices) < 2 or (s.config.split_mode or "layer") != "layer":
        return None
    counts = tuple(d.n_layers + d.has_output_layer for d in budget.devices)
    if sum(counts) == 0 or sum(_rooms(s, budget)) < 0:
        return None
    seen = {counts}
    for _ in range(_RATIOS):
        counts = _levelled(s, budget, counts)
        ratio = tuple(float(count) for count in counts)
        if counts in seen:
            return None
        seen.add(counts)
        budget = s.try_change(tensor_split=ratio)[1]
        if s.fits(budget):
            return ratio
    return None


def _levelled(s: Situation, budget: Budget, counts: tuple[int, ...]) -> tuple[int, ...]:
    """The counts after the moves that should give every device room; at least one where a device is short."""
    now, rooms = list(counts), _rooms(s, budget)
    kept = [d.model_bytes + d.kv_bytes + d.rs_bytes for d in budget.devices]
    mean = max(1, sum(kept) // sum(counts))
    layer = [size // count if count else mean for size, count in zip(kept, counts, strict=True)]
    for _ in range(sum(counts)):
        tight, loose = rooms.index(min(rooms)), rooms.index(max(rooms))
        short = rooms[tight] < s.spare_bytes or tuple(now) == counts
        if not short or tight == loose or now[tight] == 0:
            break
        now[tight] -= 1
        now[loose] += 1
        rooms[tight] += layer[tight]
        rooms[loose] -= layer[tight]
    return tuple(now)


def _rooms(s: Situation, budget: Budget) -> list[int]:
    """What each device would keep, as far as its memory is known."""
    return [s.capacity_bytes.get(d.name, d.free_bytes or 0) - d.need_bytes for d in budget.devices]


def context(s: Situation) -> Fix | None:
    """The largest context that fits, never under SMALLEST_CTX in all."""
    effective = s.budget.config
    step = CTX_STEP * (1 if effective.kv_unified else effective.n_parallel)
    best = largest_that_fits(s, "n_ctx", max(SMALLEST_CTX, step), effective.n_ctx - 1, step)
    if best is None:
        return None
    best = _rounder(best, s, step)
    why = f"The largest context that should fit, rounded down; {effective.n_ctx} does not."
    return fix_of(s, "n_ctx", {"n_ctx": best}, f"Context {best}", why, "shorter context")


def _rounder(n_ctx: int, s: Situation, step: int) -> int:
    """A value people would type (a multiple of 4096 or 1024) when it costs under a tenth of the context."""
    for unit in (8192, 4096, 1024):
        rounded = n_ctx // unit * unit
        if unit % step == 0 and rounded >= 0.9 * n_ctx:
            return rounded
    return n_ctx


def slots(s: Situation) -> Fix | None:
    """The most slots, below the current number, that fit."""
    current = s.budget.config.n_parallel
    best = largest_that_fits(s, "n_parallel", 1, current - 1)
    if best is None:
        return None
    why = "Recurrent state, sliding-window cells and logits rows are kept per slot."
    unit = "slot" if best == 1 else "slots"
    return fix_of(s, "n_parallel", {"n_parallel": best}, f"{best} {unit}", why, "fewer requests at once")


def _cheaper_types(current: str) -> tuple[str, ...]:
    at = CACHE_LADDER.index(current) if current in CACHE_LADDER else 1
    return CACHE_LADDER[at + 1 :]


def same_cache_types(model: ModelInfo) -> bool:
    """Whether a model refuses different K and V types (latent attention keeps only K)."""
    return bool(model.hparams.get("is_mla")) or model.architecture == "deepseek4"


def cache_type(s: Situation, side: str) -> Fix | None:
    """The most precise smaller type for K or V alone that fits."""
    if same_cache_types(s.model) or (side == "v" and s.budget.config.flash_attn_on is False):
        return None
    field = f"cache_type_{side}"
    current = s.budget.config.cache_type_k if side == "k" else s.budget.config.cache_type_v
    best = first_that_fits(s, field, _cheaper_types(current))
    if best is None:
        return None
    letter = side.upper()
    why = f"{letter} of the KV cache takes less as {best} than as {current}."
    return fix_of(s, field, {field: best}, f"{letter} type {best}", why, _PRECISION[best])


def cache_type_k(s: Situation) -> Fix | None:
    return cache_type(s, "k")


def cache_type_v(s: Situation) -> Fix | None:
    return cache_type(s, "v")


def cache_types(s: Situation) -> Fix | None:
    """K and V to the same smaller type: one decision for the person, two flags for llama.cpp."""
    effective = s.budget.config
    if effective.flash_attn_on is False:
        return None
    names = _cheaper_types(effective.cache_type_k)
    if not names or not s.fits(s.try_change(cache_type_k=names[-1], cache_type_v=names[-1])[1]):
        return None
    for name in names:
        config, budget = s.try_change(cache_type_k=name, cache_type_v=name)
        if s.fits(budget) and s.need_of_culprit(budget) <= s.need_of_culprit(s.budget):
            why = f"The KV cache takes less as {name} than as {effective.cache_type_k}."
            before, title, cost = effective.cache_type_k, f"K and V type {name}", _PRECISION[name]
            return made(s, "cache_type", before, name, title, why, cost, config, budget)
    return None


def swa_full_off(s: Situation) -> Fix | None:
    """Keep only the window of sliding-window layers."""
    if not s.budget.config.swa_full or not any(layer.is_swa for layer in s.model.layers):
        return None
    why = "--swa-full keeps the whole context for layers that only look at a window."
    return fix_of(s, "swa_full", {"swa_full": None}, "No --swa-full", why, "less prompt reuse")


def flash_attention(s: Situation) -> Fix | None:
    """Flash attention on, where it was switched off."""
    if s.config.flash_attn != "off" or s.model.architecture == "grok":
        return None
    why = "Without flash attention the scores of all heads over the whole context are kept in the compute buffer."
    return fix_of(s, "flash_attn", {"flash_attn": "on"}, "Flash attention on", why, "no cost where the device has it")


def micro_batch(s: Situation) -> Fix | None:
    """The largest smaller n_ubatch that fits."""
    current = s.budget.config.n_ubatch
    sizes = [size for size in (4096, 2048, 1024, 512, 256, 128, 64, 32) if size < current]
    best = first_that_fits(s, "n_ubatch", sizes)
    if best is None:
        return None
    why = f"Most of the compute buffer is in proportion to n_ubatch, {current} now."
    return fix_of(s, "n_ubatch", {"n_ubatch": best}, f"Micro-batch {best}", why, "slower prompt processing")


def gpu_layers(s: Situation) -> Fix | None:
    """The most layers on devices, below the current number, that fit; where RAM is short, the fewest more of them."""
    offloaded, _ = s.budget.offloaded_layers
    if on_host(s):
        return more_layers(s)
    if not s.devices or offloaded == 0:
        return None
    best = largest_that_fits(s, "n_gpu_layers", 0, offloaded - 1)
    if best is None:
        return None
    why = f"{offloaded - best} of {offloaded} layers, with their share of the KV cache, stay in RAM."
    return fix_of(s, "n_gpu_layers", {"n_gpu_layers": best}, f"GPU layers {best}", why, "slower generation")


def experts_on_cpu(s: Situation) -> Fix | None:
    """The fewest layers whose experts stay in RAM."""
    if not s.devices or not s.model.n_expert or s.config.cpu_moe or s.config.override_tensor:
        return None
    low, high = (s.config.n_cpu_moe or 0) + 1, s.model.n_layer
    if low > high or not s.fits(s.try_change(n_cpu_moe=high)[1]):
        return None
    best, high = high, high - 1
    while low <= high:
        middle = (low + high) // 2
        if s.fits(s.try_change(n_cpu_moe=middle)[1]):
            best, high = middle, middle - 1
        else:
            low = middle + 1
    why = f"The experts of {layers(best)} stay in RAM; attention and shared weights stay on the device."
    return fix_of(
        s, "n_cpu_moe", {"n_cpu_moe": best}, f"Experts of {layers(best)} on the CPU", why, "slower generation"
    )


def kv_on_host(s: Situation) -> Fix | None:
    """Keep the KV cache in RAM."""
    if s.budget.config.kv_offload is False or not s.devices:
        return None
    why = "The KV cache moves to RAM; the device keeps weights and compute."
    return fix_of(s, "kv_offload", {"kv_offload": False}, "KV cache in RAM", why, "much slower at long contexts")


def other_device(s: Situation) -> Fix | None:
    """One other device alone, where it has room for everything."""
    if len(s.devices) < 2:
        return None
    for device in sorted(s.devices, key=lambda d: -(d.free_bytes or 0)):
        if s.config.device == (device.name,):
            continue
        why = f"{device.name} alone has room for everything."
        fix = fix_of(s, "device", {"device": (device.name,)}, f"Only {device.name}", why, "the other devices stay idle")
        if fix is not None:
            return fix
    return None


#: Every fix by the variable it changes.
FIXES: dict[str, FixFunction] = {
    "tensor_split": split_by_free_memory,
    "split_ratio": split_ratio,
    "swa_full": swa_full_off,
    "flash_attn": flash_attention,
    "n_ubatch": micro_batch,
    "n_parallel": slots,
    "cache_type": cache_types,
    "cache_type_k": cache_type_k,
    "cache_type_v": cache_type_v,
    "n_ctx": context,
    "n_cpu_moe": experts_on_cpu,
    "n_gpu_layers": gpu_layers,
    "device": other_device,
    "kv_offload": kv_on_host,
    "load_mode": mapped_weights,
    "repack": no_copies,
}


#: The value of each variable that takes least; where none of them fits, no other does.
_LEAST: dict[str, tuple[str, ...]] = {
    "n_ctx": ("n_ctx",),
    "n_parallel": ("n_parallel",),
    "n_ubatch": ("n_ubatch",),
    "n_gpu_layers": ("n_gpu_layers",),
    "n_cpu_moe": ("n_cpu_moe",),
    "cache_type": ("cache_type_k", "cache_type_v"),
    "cache_type_k": ("cache_type_k",),
    "cache_type_v": ("cache_type_v",),
}


def may_fit(variable: str, s: Situation) -> bool:
    """Whether some value of a variable is enough, without looking for the best one."""
    names = _LEAST.get(variable)
    if names is None:
        return FIXES[variable](s) is not None
    if variable == "n_cpu_moe" and not s.model.n_expert:
        return False
    if variable.startswith("cache_type") and s.budget.config.flash_attn_on is False:
        return False
    least: dict[str, Any] = {
        "n_ctx": SMALLEST_CTX, "n_parallel": 1, "n_ubatch": 32, "n_gpu_layers": 0, "n_cpu_moe": s.model.n_layer,
        "cache_type_k": CACHE_LADDER[-1], "cache_type_v": CACHE_LADDER[-1],
    }  # fmt: skip
    return s.fits(s.try_change(**{name: least[name] for name in names})[1])


def useless(variable: str, failing: BufferKind | None, s: Situation) -> str | None:
    """Why a variable cannot help this failure, in a sentence; None when it might."""
    if failing is BufferKind.MODEL and variable in ("n_ctx", "n_parallel", "cache_type", "cache_type_k",
                                                    "cache_type_v", "n_ubatch", "swa_full", "kv_offload"):  # fmt: skip
        return "The weights themselves are refused; caches and batches come after them."
    if failing is BufferKind.RS and variable in ("n_ctx", "cache_type", "cache_type_k", "cache_type_v", "swa_full"):
        return "Recurrent state does not depend on the context or the K/V type; it is kept per slot, in f32."
    if failing is BufferKind.COMPUTE and variable in ("cache_type", "cache_type_k", "cache_type_v"):
        return "Quantized K/V does not make compute buffers smaller; on some backends it makes them larger."
    if variable in ("cache_type", "cache_type_v") and s.budget.config.flash_attn_on is False:
        return "A quantized V cache needs flash attention, which is off here."
    return None


def caps_exceeded(budget: Budget) -> str | None:
    """A sentence when the refusal is a backend's cap on one allocation: freeing memory would not help."""
    failure = budget.first_failure
    if failure is None or failure.limit_bytes is None:
        return None
    return (
        f"{failure.device} takes at most {format_bytes(failure.limit_bytes)} in one allocation; "
        f"the {failure.kind.value} buffer asks for {format_bytes(failure.bytes)}."
    )


def changed_fields(before: LaunchConfig, after: LaunchConfig, *, paired_types: bool = False) -> tuple[str, ...]:
    """Names of the settings that differ; with `paired_types` K and V types are the one variable `cache_type`."""
    old, new = before.typed(), after.typed()
    names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    if paired_types and names & {"cache_type_k", "cache_type_v"}:
        names = names - {"cache_type_k", "cache_type_v"} | {"cache_type"}
    return tuple(sorted(names))


#: Variables that are not called like the field they are read from.
_FIELDS = {"cache_type": "cache_type_k", "binary": "program"}


def value_of(config: LaunchConfig, variable: str) -> Any:
    """What a variable is set to; for `cache_type` the K type stands for both."""
    return getattr(config, _FIELDS.get(variable, variable))


def with_value(config: LaunchConfig, variable: str, value: Any) -> LaunchConfig:
    """The settings with one variable replaced."""
    if variable == "cache_type":
        return config.evolve(cache_type_k=value, cache_type_v=value)
    return config.evolve(**{_FIELDS.get(variable, variable): value})


def all_fixes(s: Situation, variables: Sequence[str]) -> tuple[Fix, ...]:
    """The fixes of these variables that exist, in this order."""
    found = (FIXES[name](s) for name in variables if useless(name, s.failing, s) is None)
    return tuple(fix for fix in found if fix is not None)
