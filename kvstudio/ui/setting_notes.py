"""What is said at a control: contradictions and what llama.cpp makes of a setting, from a case alone."""

from kvstudio.budget.values import Budget
from kvstudio.case.values import Case
from kvstudio.ui.settings_table import BY_FIELD
from kvstudio.ui.text import tr

#: `warn` or `info`, and the sentence.
Note = tuple[str, str]

_QUANTIZED = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

#: Backends that still have a split buffer type. Source: llama.cpp b11434, llama-model.cpp make_gpu_buft_list.
_ROW_SPLIT_BACKENDS = frozenset({"SYCL", "HEXAGON", "HTP"})


def notes(case: Case) -> dict[str, Note]:
    """One note at most per field."""
    found: dict[str, Note] = {}
    for rule in (_context, _v_type, _split_ratio, _split_mode, _main_gpu, _micro_batch, _projector, _layers):
        said = rule(case)
        if said is not None:
            found[said[0]] = said[1:]
    return found


def effective(field: str, budget: Budget | None, typed: object) -> str:
    """What a setting becomes, in a few characters; empty when it says nothing new."""
    if budget is None:
        return ""
    config = budget.config
    match field:
        case "n_ctx":
            return str(config.n_ctx) if typed is not None and config.n_ctx != typed else ""
        case "n_parallel":
            if config.n_parallel == 1:
                return "1" if typed != 1 else ""
            shared = tr("unified") if config.kv_unified else f"× {config.n_ctx_seq}"
            return f"{config.n_parallel}, {shared}" if config.kv_unified else f"{config.n_parallel} {shared}"
        case "n_gpu_layers":
            if not budget.devices:
                return tr("on CPU")
            return tr("{} of {}").format(*budget.offloaded_layers)
        case "tensor_split":
            counts = layer_counts(budget)
            # Three and more would not fit with air between them.
            return (" : " if len(counts) == 2 else ":").join(map(str, counts)) if len(counts) > 1 else ""
        case "flash_attn":
            return {True: "on", False: "off", None: ""}[config.flash_attn_on] if config.flash_attn == "auto" else ""
        case "n_batch" | "n_ubatch" | "cache_type_k" | "cache_type_v" | "split_mode":
            value = getattr(config, field)
            return str(value) if typed is not None and value != typed else ""
        case "kv_unified" | "kv_offload" | "op_offload" | "swa_full" | "fit":
            value = "on" if getattr(config, field) else "off"
            return value if typed is None and value != BY_FIELD[field].default else ""
        case _:
            return ""


def shown_default(field: str, budget: Budget | None, default: str) -> str:
    """What a control shows while nothing is typed: the default of the build in use where the budget tells it."""
    if budget is None:
        return default
    config = budget.config
    if field == "n_ctx":
        return str(config.n_ctx)
    if field in ("n_batch", "n_ubatch"):
        return str(getattr(config, field))
    return default


def layer_counts(budget: Budget) -> tuple[int, ...]:
    """Layers each device gets, the output layer counted."""
    return tuple(d.n_layers + int(d.has_output_layer) for d in budget.devices)


def _context(case: Case) -> tuple[str, str, str] | None:
    if case.model is None or case.budget is None or not case.model.n_ctx_train:
        return None
    if case.budget.config.n_ctx_seq > case.model.n_ctx_train:
        return "n_ctx", "warn", tr("Above the trained context, {}").format(case.model.n_ctx_train)
    return None


def _v_type(case: Case) -> tuple[str, str, str] | None:
    asked = case.config.flash_attn or "auto"
    if case.config.cache_type_v in _QUANTIZED and asked == "off":
        return "cache_type_v", "warn", tr("A quantized V cache needs flash attention")
    if case.config.cache_type_v in _QUANTIZED and case.budget and case.budget.config.flash_attn_on is False:
        return "cache_type_v", "warn", tr("Refused: flash attention is off for this model")
    return None


def _split_ratio(case: Case) -> tuple[str, str, str] | None:
    ratio = case.config.tensor_split
    if ratio is None:
        return None
    devices = len(case.chosen_devices)
    if devices and len(ratio) > devices:
        says = tr("{} shares for {} devices: the last go unused").format(len(ratio), devices)
        return "tensor_split", "warn", says
    if len(ratio) < devices:
        return "tensor_split", "warn", tr("{} shares for {} devices: the rest get 0").format(len(ratio), devices)
    if devices > 1 and case.config.fit is not False:
        return "tensor_split", "info", tr("Set by hand: -fit cannot adjust")
    return None


def _split_mode(case: Case) -> tuple[str, str, str] | None:
    if case.config.split_mode != "row":
        return None
    refusing = sorted({d.backend for d in case.chosen_devices} - _ROW_SPLIT_BACKENDS)
    if refusing:
        return "split_mode", "warn", tr("{} cannot split rows: loading fails").format(", ".join(refusing))
    return None


def _main_gpu(case: Case) -> tuple[str, str, str] | None:
    chosen = case.config.main_gpu
    if chosen is None:
        return None
    devices = len(case.chosen_devices)
    if devices and chosen >= devices:
        return "main_gpu", "warn", tr("There are {} devices, counted from 0").format(devices)
    if (case.config.split_mode or "layer") == "layer":
        return "main_gpu", "info", tr("No effect with split mode layer")
    return None


def _micro_batch(case: Case) -> tuple[str, str, str] | None:
    config = case.config
    batch = config.n_batch if config.n_batch is not None else 2048
    if config.n_ubatch is not None and config.n_ubatch > batch:
        return "n_ubatch", "info", tr("Lowered to the batch size, {}").format(batch)
    return None


def _projector(case: Case) -> tuple[str, str, str] | None:
    if case.config.mmproj_offload is not None and not case.config.mmproj:
        return "mmproj_offload", "info", tr("No effect without a projector")
    return None


def _layers(case: Case) -> tuple[str, str, str] | None:
    typed = case.config.n_gpu_layers
    if typed is None or case.model is None or typed < 0:
        return None
    if typed and not case.chosen_devices:
        why = tr("No device is ticked") if case.devices else tr("No GPU was found")
        return "n_gpu_layers", "warn", tr("{}: all layers stay on the CPU").format(why)
    return None
