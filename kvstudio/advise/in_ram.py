"""Changes that help where it is the RAM that is short."""

from kvstudio.advise.situation import Situation
from kvstudio.advise.sizing import fix_of, on_host
from kvstudio.advise.values import Fix

#: Buffers with copies of weights that the CPU backend makes for itself.
_COPIES = ("CPU_REPACK", "AMX")


def more_layers(s: Situation) -> Fix | None:
    """The fewest more layers on devices that leave enough RAM."""
    offloaded, total = s.budget.offloaded_layers
    if not s.devices or offloaded >= total:
        return None
    low, high = offloaded + 1, total
    # With each layer the RAM gets emptier; whether the devices have room for it is tried with the first that is enough.
    while low < high:
        middle = (low + high) // 2
        if s.fits_host(s.try_change(n_gpu_layers=middle)[1]):
            high = middle
        else:
            low = middle + 1
    why = f"{low} of {total} layers, with their share of the KV cache, leave the RAM for the device."
    return fix_of(s, "n_gpu_layers", {"n_gpu_layers": low}, f"GPU layers {low}", why, "no cost")


def mapped_weights(s: Situation) -> Fix | None:
    """Weights mapped from the file, which take no memory that others could not have."""
    if not on_host(s) or s.budget.config.load_mode not in ("none", "mlock", "dio"):
        return None
    why = "Weights that are read into memory of their own need all of it; mapped ones are read from the file as needed."
    cost = "slower where the file does not stay in RAM"
    return fix_of(s, "load_mode", {"load_mode": None}, "Weights mapped from the file", why, cost)


def no_copies(s: Situation) -> Fix | None:
    """No second copy of the weights, rearranged for the processor."""
    if not on_host(s) or s.config.repack is False or not any(b.name in _COPIES for b in s.budget.buffers):
        return None
    why = "The CPU backend keeps copies of weights, rearranged for speed, beside the mapped file."
    return fix_of(s, "repack", {"repack": False}, "No repacked weights", why, "slower prompt processing on the CPU")
