"""A Budget -> the one sentence under the bars: whether it fits, what is short where, and why."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from kvstudio.budget.fit_values import FitResult
from kvstudio.budget.values import Budget, BufferKind, DeviceBudget, FirstFailure
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import MIB, format_room

#: Less than this to spare deserves a word: a browser tab takes as much.
TIGHT_BYTES = 256 * MIB
#: Devices named one by one in a sentence; more than that are counted.
_NAMED = 3

_NOUNS = {
    BufferKind.OTHER_PROCESSES: "what other processes hold",
    BufferKind.OVERHEAD: "the driver's own memory",
    BufferKind.MODEL: "the weights",
    BufferKind.KV: "the KV cache",
    BufferKind.RS: "the recurrent state",
    BufferKind.COMPUTE: "the compute buffer",
    BufferKind.OUTPUT: "the output buffer",
}
_SHARES = {2: "half", 3: "a third", 4: "a quarter"}
#: What is asked for one after the other; the overhead is there before the first of them.
_ORDER = (BufferKind.MODEL, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE, BufferKind.OUTPUT)


class Answer(StrEnum):
    """Whether a launch fits; ADJUSTED: not as typed, but llama.cpp's own `-fit` changes it until it does."""

    FITS = "fits"
    ADJUSTED = "adjusted"
    SHORT = "short"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`headline` is the answer with names and numbers, `detail` the reason; `flags` are the parts of `detail` that are
    typed, for a view that sets them in mono.
    """

    answer: Answer
    headline: str
    detail: str = ""
    flags: tuple[str, ...] = ()
    device: str | None = None
    kind: BufferKind | None = None


def noun(kind: BufferKind) -> str:
    """A kind of memory as the object of a sentence: `the KV cache`."""
    return _NOUNS[kind]


def verdict(
    budget: Budget,
    config: LaunchConfig | None = None,
    devices: tuple[Device, ...] = (),
    measured_in: str | None = None,
    fitted: FitResult | None = None,
) -> Verdict:
    """Say whether a budget fits.

    `config` is what was typed (names the flag that decides), `devices` the probed ones (name processes and reasons),
    `measured_in` the run whose printed sizes the budget carries, like `run 6`, `fitted` what `-fit` would change.
    """
    if budget.config.errors and budget.fits is not False:
        return Verdict(Answer.UNKNOWN, "Will not start as it is.", _sentence(budget.config.errors[0]))
    if budget.fits is None:
        return _unknown(budget, devices)
    if fitted is not None and fitted.changes and measured_in is None:
        return _adjusted(budget, fitted, config or LaunchConfig(), devices)
    if budget.fits:
        return _fits(budget, measured_in, config or LaunchConfig())
    return _refused(budget, config or LaunchConfig(), devices)


def _refused(budget: Budget, config: LaunchConfig, devices: tuple[Device, ...]) -> Verdict:
    failure = budget.first_failure or _overrun(budget)
    if failure is None:
        return Verdict(Answer.SHORT, "Does not fit.")
    return _short(budget, failure, config, devices)


def fit_words(fitted: FitResult, all_layers: int) -> str:
    """What `-fit` does to a launch: `shortens the context to 12032 and keeps 20 of 33 layers on devices`."""
    changes = dict(fitted.changes)
    words = []
    if "n_ctx" in changes:
        words.append(f"shortens the context to {changes['n_ctx']}")
    if changes.get("n_gpu_layers", all_layers) < all_layers:
        words.append(f"keeps {min(changes['n_gpu_layers'], all_layers)} of {all_layers} layers on devices")
    if "override_tensor" in changes:
        words.append(f"keeps the experts of {layers(len(changes['override_tensor']))} in RAM")
    if not words:
        words.append("shares the layers out differently")
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _adjusted(budget: Budget, fitted: FitResult, config: LaunchConfig, devices: tuple[Device, ...]) -> Verdict:
    """llama.cpp will not launch what was typed: by default it changes what was left open until its margin is free."""
    what = fit_words(fitted, budget.offloaded_layers[1])
    launched = fitted.budget
    if launched is not None and launched.fits is False:
        said = _refused(launched, fitted.config, devices)
        return replace(said, detail=f"-fit {what}, which is not enough. {said.detail}".strip())
    failure = budget.first_failure
    if failure is None:
        detail = "It keeps a margin free on each device; -fit off launches it as typed."
        return Verdict(Answer.ADJUSTED, f"Fits, but -fit {what}.", detail, ("-fit off",))
    rooms = _rooms(launched) if launched is not None else ()
    spare = f", with {_spare(rooms, budget.host)}" if rooms else ""
    on_host = failure.device not in {device.name for device in budget.devices}
    where = "the host" if on_host else failure.device
    short = f"As typed, {where} is {format_room(failure.short_bytes)} short for {noun(failure.kind)}."
    return Verdict(Answer.ADJUSTED, f"Fits once -fit {what}{spare}.", short, (), failure.device, failure.kind)


def layers(count: int) -> str:
    """`1 layer`, `12 layers`."""
    return "1 layer" if count == 1 else f"{count} layers"


def _rooms(budget: Budget) -> tuple[tuple[str, int], ...]:
    return tuple((d.name, d.room_bytes) for d in budget.devices if d.room_bytes is not None)


def _fits(budget: Budget, measured_in: str | None, config: LaunchConfig) -> Verdict:
    rooms = _rooms(budget)
    detail = _fit_detail(budget, rooms, measured_in, config)
    return Verdict(Answer.FITS, f"Fits: {_spare(rooms, budget.host)}.", detail)


def _spare(rooms: tuple[tuple[str, int], ...], host: DeviceBudget) -> str:
    if not rooms:
        return f"{format_room(host.room_bytes or 0)} of RAM to spare"
    if len(rooms) > _NAMED:
        name, least = min(rooms, key=lambda room: room[1])
        return f"at least {format_room(least)} to spare on each device, least on {name}"
    first, *others = rooms
    words = [f"{format_room(first[1])} to spare on {first[0]}"]
    return ", ".join(words + [f"{format_room(size)} on {name}" for name, size in others])


def _fit_detail(
    budget: Budget, rooms: tuple[tuple[str, int], ...], measured_in: str | None, config: LaunchConfig
) -> str:
    name, least = min(rooms, key=lambda room: room[1], default=("", TIGHT_BYTES))
    if least < TIGHT_BYTES:
        return f"Only just: another program on {name} can take the last {format_room(least)}."
    if measured_in is not None:
        return f"Printed by llama.cpp in {measured_in}."
    on_devices, all_layers = budget.offloaded_layers
    if not budget.devices:
        return "Everything stays in RAM."
    if on_devices >= all_layers:
        kept = _kept_in_ram(config)
        return f"All {all_layers} layers are on {_plural(len(budget.devices))}{f', but {kept}' if kept else ''}."
    return f"{on_devices} of {all_layers} layers are on {_plural(len(budget.devices))}, the rest in RAM."


def _kept_in_ram(config: LaunchConfig) -> str:
    """What settings hold back from the devices although its layers are there; empty for nothing."""
    if config.cpu_moe:
        return "all experts stay in RAM"
    if config.n_cpu_moe:
        return f"the experts of {layers(config.n_cpu_moe)} stay in RAM"
    if config.override_tensor:
        return "some tensors are placed by hand"
    return "the KV cache stays in RAM" if config.kv_offload is False else ""


def _plural(n_devices: int) -> str:
    return "the device" if n_devices == 1 else f"{n_devices} devices"


def _unknown(budget: Budget, devices: tuple[Device, ...]) -> Verdict:
    blind = [d.name for d in budget.devices if d.free_bytes is None]
    reasons = [d.reason for d in devices if d.name in blind and d.reason]
    asks = [f"{format_room(d.need_bytes)} of {d.name}" for d in budget.devices if d.name in blind][:_NAMED]
    if not blind:
        return Verdict(Answer.UNKNOWN, "Not known whether it fits: the memory of this machine is unknown.")
    names = " and ".join(blind[:_NAMED]) if len(blind) <= _NAMED else f"{len(blind)} devices"
    detail = f"This launch asks for {' and '.join(asks)}."
    headline = f"Not known whether it fits: the free memory of {names} is unknown."
    return Verdict(Answer.UNKNOWN, headline, " ".join([*(_sentence(r) for r in reasons[:1]), detail]), device=blind[0])


def _sentence(words: str) -> str:
    text = words[:1].upper() + words[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _overrun(budget: Budget) -> FirstFailure | None:
    """The first buffer past the free memory of the device that is most over; for budgets without a failure in them."""
    tight = [d for d in (*budget.devices, budget.host) if d.room_bytes is not None and d.room_bytes < 0]
    if not tight:
        return None
    device = min(tight, key=lambda d: d.room_bytes or 0)
    left = (device.free_bytes or 0) - (device.overhead_bytes or 0)
    for kind in _ORDER:
        size = device.of(kind) or 0
        if size > left:
            return FirstFailure(device.name, kind, size, size - left, max(0, left))
        left -= size
    return None


def _short(budget: Budget, failure: FirstFailure, config: LaunchConfig, devices: tuple[Device, ...]) -> Verdict:
    if failure.limit_bytes is not None and failure.bytes > failure.limit_bytes:
        return _limited(failure)
    place = _find(budget, failure.device)
    is_host = place is None or place is budget.host
    where = "the host" if is_host else failure.device
    headline = f"Does not fit: {where} is {format_room(failure.short_bytes)} short for {noun(failure.kind)}."
    if place is None:
        return Verdict(Answer.SHORT, headline, device=failure.device, kind=failure.kind)
    detail, flags = (_why_host(budget), ()) if is_host else _why(budget, place, failure, config, devices)
    return Verdict(Answer.SHORT, headline, detail, flags, failure.device, failure.kind)


def _limited(failure: FirstFailure) -> Verdict:
    asked, limit = format_room(failure.bytes), format_room(failure.limit_bytes or 0)
    what = noun(failure.kind)
    headline = f"Does not fit: {what} on {failure.device} is one allocation of {asked}."
    detail = f"Its backend refuses single allocations over {limit}, however much memory is free."
    return Verdict(Answer.SHORT, headline, detail, (), failure.device, failure.kind)


def _find(budget: Budget, name: str) -> DeviceBudget | None:
    return next((d for d in (*budget.devices, budget.host) if d.name == name), None)


def _why_host(budget: Budget) -> str:
    host = budget.host
    on_devices, all_layers = budget.offloaded_layers
    kept = f"{all_layers - on_devices} of {all_layers} layers stay in RAM" if on_devices < all_layers else ""
    if host.free_bytes is None or host.total_bytes is None:
        return _sentence(kept) if kept else ""
    free = f"{format_room(host.free_bytes)} of {format_room(host.total_bytes)} of RAM are free"
    return _sentence(f"{free}; {kept}" if kept else free)


def _why(
    budget: Budget,
    place: DeviceBudget,
    failure: FirstFailure,
    config: LaunchConfig,
    devices: tuple[Device, ...],
) -> tuple[str, tuple[str, ...]]:
    holder = _holder(place, devices)
    roomy = _roomiest(budget, place.name, config)
    if roomy is not None and (roomy.room_bytes or 0) >= failure.short_bytes:
        cause, flags = _placement(budget, place, roomy, config)
        tail = f", where {holder}" if holder else ""
        return f"{roomy.name} keeps {format_room(roomy.room_bytes or 0)} free, but {cause}{tail}.", flags
    if holder and place.other_bytes is not None and place.other_bytes >= -(place.room_bytes or 0):
        return f"On it {holder}; without that it would fit.", ()
    return _capacity(budget, place), ()


def _roomiest(budget: Budget, but: str, config: LaunchConfig) -> DeviceBudget | None:
    """The other device with most room; idle ones count where a setting keeps them so."""
    by_setting = budget.config.split_mode == "none" or config.device is not None
    places = budget.all_devices if by_setting else budget.devices
    others = [d for d in places if d.name != but and d.room_bytes is not None]
    return max(others, key=lambda d: d.room_bytes or 0, default=None)


def _placement(
    budget: Budget, place: DeviceBudget, roomy: DeviceBudget, config: LaunchConfig
) -> tuple[str, tuple[str, ...]]:
    """Who decided that so much goes to this device, and the flag that said so."""
    if budget.config.split_mode == "none":
        flag = "-sm none" if config.split_mode == "none" else ""
        subject = flag or "split mode none"
        return f"{subject} puts the whole model on {place.name}", (flag,) if flag else ()
    if roomy in budget.idle and config.device:
        flag = f"-dev {','.join(config.device)}"
        return f"{flag} leaves it alone", (flag,)
    if config.tensor_split:
        flag = "-ts " + ",".join(f"{part:g}" for part in config.tensor_split)
        return f"{flag} puts {_share(budget, place)} on {place.name}", (flag,)
    return f"llama.cpp puts {_share(budget, place)} on {place.name}", ()


def _share(budget: Budget, place: DeviceBudget) -> str:
    counts = [d.n_layers + d.has_output_layer for d in budget.devices]
    word = _SHARES.get(len(counts))
    if word is not None and max(counts) - min(counts) <= 1:
        return f"{word} of the layers"
    output = " and the output" if place.has_output_layer else ""
    return f"{place.n_layers} {'layer' if place.n_layers == 1 else 'layers'}{output}"


def _holder(place: DeviceBudget, devices: tuple[Device, ...]) -> str:
    """`python3 holds 7.6 GiB`, or what is in use where no process is known; empty when it is little."""
    used = place.other_bytes or 0
    if not place.total_bytes or used * 20 < place.total_bytes:
        return ""
    biggest = max(_processes(place.name, devices), key=lambda p: p.bytes or 0, default=None)
    if biggest is not None and (biggest.bytes or 0) * 2 >= used:
        return f"{biggest.name} holds {format_room(biggest.bytes or 0)}"
    return f"{format_room(used)} are in use"


def _processes(name: str, devices: tuple[Device, ...]) -> Iterator[DeviceProcess]:
    return (p for device in devices if device.name == name for p in device.processes)


def _capacity(budget: Budget, place: DeviceBudget) -> str:
    asked = f"It asks for {format_room(place.need_bytes)}, {format_room(place.free_bytes or 0)} are free"
    if len(budget.devices) < 2:
        return f"{asked}."
    together = sum(-room if room < 0 else 0 for _, room in _rooms(budget))
    spare = sum(room if room > 0 else 0 for _, room in _rooms(budget))
    if together <= spare:
        return f"{asked}; no other device alone has room for what is missing."
    return f"{asked}; all devices together are {format_room(together - spare)} short."
