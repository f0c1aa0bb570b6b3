"""Why a variable is not proposed, for whoever asks."""

from kvstudio.advise.beyond import release
from kvstudio.advise.fixes import FIXES, caps_exceeded, same_cache_types, useless
from kvstudio.advise.learned import over_cap, situation
from kvstudio.advise.plan_values import NotOffered, TrialKind
from kvstudio.advise.rank import order
from kvstudio.advise.record import Record
from kvstudio.advise.situation import Situation
from kvstudio.advise.sizing import on_host
from kvstudio.advise.steps import TRIES_PER_VARIABLE, base_of
from kvstudio.budget.values import BufferKind
from kvstudio.units import format_bytes, format_room

_KINDS = {
    BufferKind.MODEL: "the weights",
    BufferKind.KV: "the KV cache",
    BufferKind.RS: "the recurrent state",
    BufferKind.COMPUTE: "the compute buffer",
    BufferKind.OUTPUT: "the output buffer",
}


def not_offered(record: Record) -> tuple[NotOffered, ...]:
    """Every variable that is not the next step, with its reason, in the order they would be tried.

    After the end of a walk those that were proposed on the way are left out: their runs tell. Takes some hundred
    estimates.
    """
    if not record.attempts or record.first.worked:
        return ()
    offered = _offered(record)
    base = record.attempts[0 if record.verdict is not None else base_of(record)]
    here = situation(record, base.trial.config, base.diagnosis)
    single_types = not same_cache_types(record.world.model)
    ranked = order(here.failing, single_types=single_types)
    everything = [name for name in dict.fromkeys((*ranked, *FIXES)) if not (single_types and name == "cache_type")]
    found = [
        NotOffered(name, _reason(record, here, name, name in ranked))
        for name in everything
        if _variable(name) not in offered
    ]
    return (*(each for each in _outside(record) if each.variable not in offered), *found)


def _offered(record: Record) -> set[str | None]:
    """What is proposed now, or was on a walk that has ended."""
    if record.pending is not None:
        return {record.pending.variable}
    return {attempt.trial.variable for attempt in record.attempts if attempt.trial.kind is not TrialKind.SMALLEST}


def _variable(name: str) -> str:
    """What a fix changes, by its name."""
    return "tensor_split" if name == "split_ratio" else name


def _reason(record: Record, here: Situation, name: str, ranked: bool) -> str:
    diagnosis = record.first.diagnosis
    if diagnosis is not None and diagnosis.memory_class == "not_memory":
        return "The launch was refused for another reason than memory."
    no_use = useless(name, here.failing, here)
    if no_use is not None:
        return no_use
    if record.was_skipped(TrialKind.CHANGE, _variable(name)):
        return "It was skipped."
    if record.tries(TrialKind.CHANGE, _variable(name)) >= TRIES_PER_VARIABLE:
        return f"It was tried {TRIES_PER_VARIABLE} times."
    missing = _does_not_apply(name, here)
    if missing is not None:
        return missing
    fix = FIXES[name](here)
    if fix is None:
        return "By the numbers, no value of it alone is enough."
    if record.was_tried(fix.config):
        return "The value that should have been enough was tried."
    if not ranked:
        return f"Other changes do more for {_KINDS.get(here.failing or BufferKind.MODEL, 'this')}."
    return "It would do; what is proposed before it costs less."


def _does_not_apply(name: str, here: Situation) -> str | None:
    """Why there is nothing to change."""
    config, effective, model = here.config, here.budget.config, here.model
    layers = on_host(here) or here.budget.offloaded_layers[0]
    two = "There is only one device." if here.devices else "There is no device."
    reasons = {
        "tensor_split": two if len(here.devices) < 2 else None if config.tensor_split else "No -ts is typed.",
        "split_ratio": two if len(here.devices) < 2 else None,
        "device": two if len(here.devices) < 2 else None,
        "swa_full": None if effective.swa_full else "--swa-full is not on.",
        "flash_attn": None if config.flash_attn == "off" else "Flash attention is not switched off.",
        "n_parallel": None if effective.n_parallel > 1 else "There is one slot already.",
        "n_cpu_moe": two if not here.devices else None if model.n_expert else "The model has no experts.",
        "n_gpu_layers": two if not here.devices else None if layers else "No layer is on a device.",
        "kv_offload": two if not here.devices else None if effective.kv_offload else "The KV cache is in RAM already.",
        "load_mode": None if on_host(here) else "It is not the RAM that is short.",
        "repack": None if on_host(here) else "It is not the RAM that is short.",
    }
    if name in ("cache_type_k", "cache_type_v") and same_cache_types(model):
        return "This model needs the same type for K and V."
    return reasons.get(name)


def _outside(record: Record) -> list[NotOffered]:
    """What lies outside the settings."""
    found = []
    diagnosis = record.first.diagnosis
    cap = caps_exceeded(record.first.trial.predicted) if record.first.trial.predicted else None
    if diagnosis is not None and over_cap(diagnosis):
        cap = (
            f"{diagnosis.device} takes at most {format_bytes(diagnosis.limit_bytes or 0)} in one allocation and "
            f"{format_bytes(diagnosis.requested_bytes or 0)} were asked for; freeing memory does not help."
        )
    if cap is not None:
        found.append(NotOffered("other_process", cap))
    rival = release(record)
    if rival is not None and not record.attended:
        held = format_room(rival.bytes)
        reason = (
            f"{rival.name} ({rival.pid}) holds {held} of {rival.device}; without it this launch would fit, but only"
        )
        found.append(NotOffered("other_process", f"{reason} a person can end it."))
    if not record.world.binaries and not (record.verdict and record.verdict.predicted):
        found.append(NotOffered("binary", "No other build of the program is known on this machine."))
    return found
