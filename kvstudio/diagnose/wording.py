"""The sentence and the title of a diagnosis."""

from kvstudio.diagnose.values import Cause
from kvstudio.diagnose.where import Where
from kvstudio.units import format_bytes

PART = {
    "weights": "the model's weights",
    "kv": "the KV cache",
    "rs": "the recurrent state",
    "compute": "the compute buffer",
    "output": "the output buffer",
    "host": "host memory",
    "decode": "running the model",
    "mmproj": "the multimodal projector",
    "draft": "the draft model",
    "lora": "an adapter",
    "fit": "fitting the settings to free memory",
}
_TITLE = {
    "weights": "Weights", "kv": "KV cache", "rs": "Recurrent state", "compute": "Compute buffer",
    "output": "Output buffer",
    "host": "Host memory", "decode": "While running", "mmproj": "Multimodal projector", "draft": "Draft model",
    "lora": "Adapter", "fit": "Fitting to memory",
}  # fmt: skip
#: Backends whose name is spoken with a vowel first.
_AN = ("OpenCL", "OpenVINO", "ET", "HTP", "RPC")
_CAUSE_TITLE = {
    Cause.BACKEND_LIMIT: "over the backend's limit",
    Cause.CONFIG: "the settings ask for it",
    Cause.PLACEMENT: "the split puts too much there",
    Cause.OTHER_PROCESS: "other processes hold the memory",
}


def title(stage: str | None, where: Where, cause: Cause) -> str:
    """A few words: what, where, how much."""
    what = _TITLE.get(stage or "", "Memory")
    size = f" {format_bytes(where.requested_bytes)}" if where.requested_bytes is not None else ""
    device = where.name or where.backend or "a device"
    reason = f", {_CAUSE_TITLE[cause]}" if cause in _CAUSE_TITLE else ""
    return f"{what}: {device} refused{size}{reason}"


def memory_sentence(stage: str | None, where: Where, because: str, *, resolved: bool, again: bool) -> str:
    """What was asked of which device at which stage, and why it was refused."""
    article = "an" if where.backend in _AN else "a"
    device = where.name or (f"{article} {where.backend} device" if where.backend else "A device the log does not name")
    about = "" if where.exact else "about "
    size = f"{about}{format_bytes(where.requested_bytes)}" if where.requested_bytes is not None else "memory"
    purpose = f" for {PART[stage]}" if stage in PART and stage not in ("host", "decode") else ""
    if stage == "decode":
        purpose = " while the model was running"
    start = device[0].upper() + device[1:]
    says = f"{start} refused {size}{purpose}: {because}."
    if where.free_bytes is not None and where.backend != "CPU":
        says += f" {format_bytes(where.free_bytes)} were free there at the start"
        taken = f", and {format_bytes(where.taken_bytes)} went to earlier buffers" if where.taken_bytes else ""
        says += f"{taken}."
    if resolved:
        says += (
            " llama.cpp tried again without pipeline parallelism and went on: nothing is broken."
            if again
            else " The run went on all the same."
        )
    return says
