"""LaunchConfig to EffectiveConfig: the settings as the program will resolve them."""

from dataclasses import dataclass
from pathlib import PurePath

from kvstudio.budget import builds
from kvstudio.budget.cache_types import cache_type
from kvstudio.budget.pooling import asked_pooling, pooling_kind, reads_scores
from kvstudio.budget.pooling import refusal as pooling_refusal
from kvstudio.budget.values import EffectiveConfig
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.architectures import Architecture, CacheClass
from kvstudio.model.values import ModelInfo

AUTO_LAYERS, ALL_LAYERS = -1, -2
_MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ, llama.cpp b11434 src/llama-cparams.h
_CELL_PAD = 256
_AUTO_SLOTS = 4
_U32 = 2**32 - 1
_DEFAULT_BATCH, _DEFAULT_UBATCH = 2048, 512
_DRAFT_N_MAX = 3
_DRAFT_TYPES = frozenset({"draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"})
_ROLLBACK_TYPES = _DRAFT_TYPES - {"draft-simple"}
_NGRAM_N_MAX = {"ngram-simple": 48, "ngram-map-k": 48, "ngram-map-k4v": 48, "ngram-mod": 64, "ngram-cache": 8}

#: Architectures whose graph is reserved for one sequence too.
#: Source: llama.cpp b11434, src/llama-context.cpp (sched_reserve).
_ONE_SEQUENCE_RESERVES = frozenset({"kimi-linear", "minimax-01"})

_MOE_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_DENSE_FFN = r"\.ffn_(up|down|gate)\."


@dataclass(frozen=True, slots=True)
class Program:
    """What one llama.cpp program sets before reading its arguments; `server` ones reserve few output rows."""

    server: bool = False
    n_parallel: int = 1
    n_ctx: int = 0
    embeddings: bool = False
    fits: bool = True


#: Source: llama.cpp b11434, common/arg.cpp (common_params_parser_init), tools/*/ main functions.
PROGRAMS: dict[str, Program] = {
    "llama-server": Program(server=True, n_parallel=-1),
    "llama-cli": Program(server=True),
    "llama-completion": Program(),
    "llama-fit-params": Program(),
    "llama-perplexity": Program(n_ctx=512, fits=True),
    "llama-embedding": Program(embeddings=True),
    "llama-mtmd-cli": Program(),
    "llama-bench": Program(n_ctx=512, fits=False),
}


def program_name(program: str) -> str:
    """`/opt/llama/llama-server.exe` as `llama-server`."""
    name = PurePath(program.replace("\\", "/")).name
    return name.removesuffix(".exe") or "llama-server"


def resolve(model: ModelInfo, config: LaunchConfig, n_devices: int, build: int | None = None) -> EffectiveConfig:
    """The settings as llama.cpp will see them, with what it refuses in `errors` and what it changes in `notes`.

    `build` wins over the config's own; both None is the newest known build.
    Source: llama.cpp b11434, src/llama-context.cpp (constructor, llama_init_from_model), tools/server/server.cpp.
    """
    name = program_name(config.program)
    program = PROGRAMS.get(name, Program())
    said = _Said()
    number = builds.resolve(build, config.build)
    said.note(builds.note(number))
    rule: Architecture = model.hparams["rule"]
    slots, unified = _slots(config, program, said)
    embeddings, pooled = _embeddings(model, config, program)
    n_draft = _n_draft(config)
    causal = bool(model.hparams["causal_attn"])
    n_ctx, n_batch, n_ubatch, asked_batch = _batches(model, config, program, slots, embeddings, causal, number)
    n_ctx, n_ctx_seq = _contexts(n_ctx, slots, unified, said)
    flash = _flash_attn(model, config, rule, said)
    _check_cache_types(model, config, flash, said)
    _check_split(config, rule, said)
    _check_context(model, n_ctx_seq, said)
    if config.n_ctx is not None and config.n_ctx < 0:
        # Only 0 means the trained length; below, the number is taken as unsigned.
        said.error(f"-c {config.n_ctx} is read as {config.n_ctx % (_U32 + 1)} cells, and no such context can be made.")
    n_outputs_max = _outputs(program, rule, slots, n_draft, n_batch, asked_batch, embeddings or pooled)
    if slots > n_outputs_max:
        # Room for a row of each slot is made at once, whatever the batch allows.
        said.error(f"{slots} slots need a batch of at least {slots} tokens: -b {n_outputs_max} aborts llama.cpp.")
    if embeddings:
        kind = pooling_kind(model, asked_pooling(config))
        said.error(pooling_refusal(model, kind, min(n_ctx, n_ubatch), slots))
    if slots > 1 and not unified:
        _check_slots(model, slots, min(n_ctx, n_ubatch), number, said)
    if model.architecture == "plm" and flash != "off":
        # It hands its values on as whole rows, which only the transposed cache takes.
        said.error("flash attention, on or auto, aborts llama.cpp with PLM: it needs -fa off.")
    return EffectiveConfig(
        program=name,
        build=number,
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx_seq,
        n_parallel=slots,
        kv_unified=unified,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        n_outputs_max=n_outputs_max,
        cache_type_k=config.cache_type_k or "f16",
        cache_type_v=config.cache_type_v or "f16",
        n_gpu_layers=AUTO_LAYERS if config.n_gpu_layers is None else max(config.n_gpu_layers, ALL_LAYERS),
        flash_attn=flash,
        flash_attn_on=_flash_attn_on(model, config, flash, n_devices),
        split_mode=config.split_mode or "layer",
        kv_offload=config.kv_offload is not False,
        op_offload=config.op_offload is not False,
        swa_full=bool(config.swa_full),
        fit=config.fit is not False and program.fits,
        n_rs_seq=_rollback(config, n_draft) if rule.rollback else 0,
        n_draft=n_draft,
        load_mtp="draft-mtp" in _spec_types(config),
        embeddings=embeddings,
        causal_attn=causal,
        load_mode=config.load_mode or "auto",
        lazy_mode=config.lazy_mode or "auto",
        repack=config.repack is not False,
        no_host=bool(config.no_host),
        overrides=_overrides(config),
        errors=tuple(said.errors),
        notes=tuple(said.notes),
    )


class _Said:
    """Collects what to tell."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.notes: list[str] = []

    def note(self, text: str | None) -> None:
        if text:
            self.notes.append(text)

    def error(self, text: str | None) -> None:
        if text:
            self.errors.append(text)


def _slots(config: LaunchConfig, program: Program, said: _Said) -> tuple[int, bool]:
    """Sequences and whether they share one pool; the server's auto means 4 that share."""
    typed = config.n_parallel
    unified = bool(config.kv_unified)
    wanted = program.n_parallel if typed is None else typed
    if typed == 0:
        said.error("-np 0 is refused: at least one slot is needed, or -1 for auto.")
    if wanted < 0:
        return (_AUTO_SLOTS, True) if program.server else (1, unified)
    if wanted > _MAX_SEQUENCES:
        said.error(f"-np {wanted} is refused: at most {_MAX_SEQUENCES} sequences.")
    return max(1, min(wanted, _MAX_SEQUENCES)), unified


def _embeddings(model: ModelInfo, config: LaunchConfig, program: Program) -> tuple[bool, bool]:
    """Embedding mode, and whether a pooling was asked for."""
    on = bool(config.embeddings) or bool(config.reranking) or program.embeddings or reads_scores(model)
    pooled = config.pooling not in (None, "none") or bool(config.reranking)
    return on, pooled


def _batches(
    model: ModelInfo, config: LaunchConfig, program: Program, slots: int, embeddings: bool, causal: bool, number: int
) -> tuple[int, int, int, int]:
    """(n_ctx before padding, n_batch, n_ubatch, n_batch before the context limits it)."""
    n_batch = _positive(config.n_batch, _DEFAULT_BATCH)
    n_ubatch = config.n_ubatch if config.n_ubatch is not None else _DEFAULT_UBATCH
    if embeddings and n_ubatch and n_batch > n_ubatch:
        n_batch = n_ubatch
    n_ctx = config.n_ctx if config.n_ctx is not None else program.n_ctx
    if config.kv_unified_per_slot and config.n_ctx is None:
        n_ctx = slots * config.kv_unified_per_slot
    if n_ctx <= 0:
        n_ctx = model.n_ctx_train * _fitted_streams(config, program, slots, number)
    limited = min(n_ctx, n_batch) if causal else n_batch
    return n_ctx, limited, min(limited, n_ubatch or n_batch), n_batch


def _fitted_streams(config: LaunchConfig, program: Program, slots: int, build: int) -> int:
    """How often --fit counts the trained context when none is typed: once per stream of a pool that is not shared."""
    fits = program.fits and config.fit is not False and config.split_mode != "tensor"
    shared = bool(config.kv_unified) or (program.server and (config.n_parallel or program.n_parallel) < 0)
    return slots if fits and not shared and builds.follows(build, builds.FIT_PER_STREAM) else 1


def _positive(value: int | None, default: int) -> int:
    return default if value is None or value <= 0 else value


def _contexts(n_ctx: int, slots: int, unified: bool, said: _Said) -> tuple[int, int]:
    """(n_ctx, n_ctx_seq), both padded as llama.cpp pads them: up to 256 cells per sequence."""
    padded = _pad(n_ctx)
    if unified:
        return padded, padded
    per_sequence = _pad(padded // slots)
    if per_sequence == 0:
        said.error("the context is zero cells per slot, llama.cpp refuses it.")
    if per_sequence * slots != padded:
        said.note(f"n_ctx becomes {per_sequence * slots}: {slots} slots of {per_sequence} cells, rounded up to 256.")
    return per_sequence * slots, per_sequence


def _pad(cells: int) -> int:
    return -(-cells // _CELL_PAD) * _CELL_PAD


def _outputs(
    program: Program, rule: Architecture, slots: int, n_draft: int, n_batch: int, asked_batch: int, embeds: bool
) -> int:
    """Rows of logits the graph is reserved for."""
    if rule.has_encoder or not program.server:
        return n_batch
    if embeds:
        return asked_batch
    return max(1, min(asked_batch, slots * (1 + n_draft)))


def _spec_types(config: LaunchConfig) -> frozenset[str]:
    typed = frozenset(part.strip() for part in (config.spec_type or "").split(",") if part.strip()) - {"none"}
    return typed if typed or not config.model_draft else frozenset({"draft-simple"})


def _n_draft(config: LaunchConfig) -> int:
    draft = _DRAFT_N_MAX if config.draft_n_max is None else max(0, config.draft_n_max)
    known = [draft if kind in _DRAFT_TYPES else _NGRAM_N_MAX.get(kind, 0) for kind in _spec_types(config)]
    return max(known, default=0)


def _rollback(config: LaunchConfig, n_draft: int) -> int:
    """Snapshots of recurrent state kept per sequence."""
    return n_draft if _spec_types(config) & _ROLLBACK_TYPES else 0


def _flash_attn(model: ModelInfo, config: LaunchConfig, rule: Architecture, said: _Said) -> str:
    """What flash attention is set to when the caches are made: on, off or auto (made as if on)."""
    asked = config.flash_attn or "auto"
    if not rule.flash_attn:
        if asked == "on":
            said.note(f"flash attention is forced off: {model.architecture} cannot use it.")
        asked = "off"
    if config.split_mode == "tensor":
        if asked == "off":
            said.error("-sm tensor needs flash attention, it cannot be off.")
        asked = "on" if asked == "auto" else asked
    if cache_type(config.cache_type_v).block > 1:
        if asked == "off":
            said.error(
                f"-ctv {config.cache_type_v} needs flash attention, which is off: "
                "llama.cpp refuses a quantized V cache without it."
            )
        asked = "on" if asked == "auto" else asked
    return asked


def _flash_attn_on(model: ModelInfo, config: LaunchConfig, flash: str, n_devices: int) -> bool | None:
    """What auto becomes; None where it depends on where the scheduler puts the attention.

    With the cache in host memory and hybrid layers, or with a T5 decoder half on a device, the probe may switch it off.
    """
    if flash != "auto":
        return flash == "on"
    if n_devices and config.kv_offload is False and model.hparams["cache"] is CacheClass.HYBRID:
        return None
    return True


def _check_cache_types(model: ModelInfo, config: LaunchConfig, flash: str, said: _Said) -> None:
    """Cache types llama.cpp refuses for this model."""
    kind_k, kind_v = config.cache_type_k or "f16", config.cache_type_v or "f16"
    if kind_k != kind_v and (model.hparams["is_mla"] or model.architecture == "deepseek4"):
        said.error(f"{model.architecture} keeps K only: -ctk {kind_k} and -ctv {kind_v} must be the same type.")
    if flash == "off" or model.hparams["cache"] is CacheClass.NONE:
        return
    for flag, kind, widths in (
        ("-ctk", kind_k, {layer.n_embd_head_k for layer in model.layers[: model.n_layer]}),
        ("-ctv", kind_v, {layer.n_embd_head_v for layer in model.layers[: model.n_layer]}),
    ):
        block = cache_type(kind).block
        odd = [width for width in sorted(widths) if width % block]
        if odd:
            said.error(f"{flag} {kind}: its blocks of {block} do not divide the head size {odd[0]}.")


def _check_split(config: LaunchConfig, rule: Architecture, said: _Said) -> None:
    if config.split_mode == "tensor" and not rule.split_tensor:
        said.error("-sm tensor is not implemented for this architecture.")
    if config.split_mode == "tensor" and config.fit is not False:
        said.note("--fit does nothing with -sm tensor.")


def _check_context(model: ModelInfo, n_ctx_seq: int, said: _Said) -> None:
    if model.n_ctx_train and n_ctx_seq > model.n_ctx_train:
        said.note(
            f"{n_ctx_seq} cells per sequence are more than the {model.n_ctx_train} the model was trained for: "
            "the server caps each slot, the cells are allocated all the same."
        )
    if n_ctx_seq > _U32:
        said.error("the context does not fit in 32 bits.")


def _check_slots(model: ModelInfo, slots: int, n_tokens: int, build: int, said: _Said) -> None:
    """Models whose graph is not made for several slots of their own."""
    if model.architecture == "t5":
        # The position bias covers the whole batch, attention over separate streams only a part of it.
        said.error(f"{slots} slots of their own abort llama.cpp with T5: it needs -kvu or -np 1.")
    elif (
        model.architecture in _ONE_SEQUENCE_RESERVES
        and builds.follows(build, builds.ONE_SEQUENCE_RESERVES)
        and n_tokens % slots
    ):
        # Their last graph is for a single sequence, whose tokens separate streams share out evenly.
        said.error(
            f"{slots} slots of their own abort llama.cpp with this architecture, since they do not divide the batch of "
            f"{n_tokens} tokens: it needs -kvu or another -ub."
        )


def _overrides(config: LaunchConfig) -> tuple[tuple[str, str], ...]:
    """Patterns in the order they are tried: as typed, and without a typed line -ot before its shortcuts."""
    by_field = {
        "override_tensor": tuple(config.override_tensor or ()),
        "cpu_moe": ((_MOE_EXPERTS, "CPU"),) if config.cpu_moe else (),
        "n_cpu_moe": tuple((rf"blk\.{il}{_MOE_EXPERTS}", "CPU") for il in range(config.n_cpu_moe or 0)),
        "n_cpu_ffn": tuple((rf"blk\.{il}{_DENSE_FFN}", "CPU") for il in range(config.n_cpu_ffn or 0)),
    }
    typed = [arg.field for arg in config.layout if arg.field in by_field]
    order = dict.fromkeys([*typed, *by_field])
    return tuple(pair for name in order if name is not None for pair in by_field[name])
