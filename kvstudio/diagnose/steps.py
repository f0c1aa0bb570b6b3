"""Single changes worth trying after a failure, in the order its stage and cause suggest."""

from kvstudio.diagnose.facts import RunFacts
from kvstudio.diagnose.values import Cause, NextStep
from kvstudio.diagnose.where import Where

#: Halving below these buys nothing or breaks use.
MIN_CTX = 2048
MIN_UBATCH = 64
_SMALL = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


def for_memory(stage: str | None, cause: Cause, where: Where, facts: RunFacts) -> tuple[NextStep, ...]:
    """Changes for a refused request; each is one LaunchConfig variable."""
    steps: list[NextStep | None]
    if cause is Cause.BUG:
        steps = []
    elif stage == "rs":
        steps = [_fewer_slots(facts), _spread(where, facts), _fewer_layers(facts)]
    elif stage == "kv":
        steps = [
            _smaller_ctx(facts),
            _smaller_types(facts),
            None if facts.kv_unified else _fewer_slots(facts),
            _spread(where, facts),
        ]
        if cause is Cause.PLACEMENT:
            steps.insert(0, steps.pop())
        elif cause is Cause.BACKEND_LIMIT:
            steps = steps[:3]
    elif stage in ("compute", "output"):
        steps = [_smaller_ubatch(facts), _flash_attention(facts), _smaller_ctx(facts), _spread(where, facts)]
    elif stage == "weights":
        steps = [_spread(where, facts), _experts_on_cpu(facts), _fewer_layers(facts)]
    elif stage == "host":
        steps = _host_steps(where, facts)
    elif stage == "mmproj":
        steps = [
            NextStep({"mmproj_offload": False}, "keeps the projector in host memory; images take longer"),
            _smaller_ctx(facts),
        ]
    elif stage == "draft":
        steps = [
            NextStep({"n_gpu_layers_draft": 0}, "keeps the draft model off the GPU"),
            NextStep({"model_draft": None}, "without a draft model the main model has the memory to itself"),
            _smaller_ctx(facts),
        ]
    elif stage == "decode":
        steps = [_smaller_ubatch(facts), _fewer_layers(facts), _smaller_ctx(facts)]
    elif stage == "lora":
        steps = [_fewer_layers(facts), _smaller_ctx(facts)]
    elif stage == "fit":
        steps = [
            NextStep({"fit": False}, "skips the measurement; the settings then have to be right by themselves"),
            _smaller_ctx(facts),
        ]
    else:
        steps = [_fewer_layers(facts)]
    return tuple(step for step in steps if step is not None)[:4]


def _fewer_slots(facts: RunFacts) -> NextStep | None:
    if facts.n_seq_max == 1:
        return None
    many = f" instead of {facts.n_seq_max}" if facts.n_seq_max else ""
    return NextStep({"n_parallel": 1}, f"one slot{many}: this memory is kept once per slot")


def _smaller_ctx(facts: RunFacts) -> NextStep | None:
    if facts.n_ctx is None:
        return NextStep({"n_ctx": 8192}, "a context given by hand; without one the model's full length may be used")
    if facts.n_ctx <= MIN_CTX:
        return None
    half = max(MIN_CTX, facts.n_ctx // 2 // 256 * 256)
    return NextStep({"n_ctx": half}, f"half of {facts.n_ctx} tokens needs half the cells")


def _smaller_types(facts: RunFacts) -> NextStep | None:
    if facts.cache_type_k in _SMALL:
        return None
    return NextStep({"cache_type_k": "q8_0"}, "q8_0 keys take about half the memory of f16")


def _smaller_ubatch(facts: RunFacts) -> NextStep | None:
    now = facts.n_ubatch or 512
    if now <= MIN_UBATCH:
        return None
    return NextStep(
        {"n_ubatch": now // 2},
        f"half the micro-batch of {now} needs about half the compute buffer; prompts are read slower",
    )


def _flash_attention(facts: RunFacts) -> NextStep | None:
    if facts.flash_attn not in ("0", "disabled", "off", "false"):
        return None
    return NextStep({"flash_attn": "on"}, "with flash attention the buffer no longer grows with the context")


def _spread(where: Where, facts: RunFacts) -> NextStep | None:
    """A ratio after free memory where the log tells it for every device."""
    free = {name: known[0] for name, known in facts.devices.items()}
    if len(free) < 2 or any(not value for value in free.values()):
        return None
    ratio = tuple(round((value or 0) / 1024**3, 1) for _, value in sorted(free.items()))
    return NextStep({"tensor_split": ratio}, "layers in proportion to what each device had free")


def _experts_on_cpu(facts: RunFacts) -> NextStep | None:
    if not facts.n_expert:
        return None
    return NextStep({"cpu_moe": True}, "expert weights in host memory; attention stays on the GPU")


def _fewer_layers(facts: RunFacts) -> NextStep | None:
    if facts.offloaded is not None and facts.offloaded[0] > 1:
        fewer = max(0, facts.offloaded[0] * 3 // 4)
        return NextStep({"n_gpu_layers": fewer}, f"{fewer} of {facts.offloaded[1]} layers on the GPU; slower")
    return NextStep({"n_gpu_layers": -1}, "lets llama.cpp choose how many layers fit")


def _host_steps(where: Where, facts: RunFacts) -> list[NextStep | None]:
    if where.name is not None and where.name.endswith("_Host"):
        return [
            NextStep({"no_host": True}, "takes ordinary memory instead of page-locked memory"),
            NextStep({"load_mode": "mmap"}, "maps the file instead of copying it"),
        ]
    return [
        NextStep({"load_mode": "mmap"}, "maps the file, so that its pages can be given back"),
        _smaller_ctx(facts),
        NextStep({"cache_ram": 0}, "keeps no prompts in host memory for reuse"),
    ]


def for_refusal(name: str, facts: RunFacts) -> tuple[NextStep, ...]:
    """Changes for a failure that is not about memory."""
    if name == "v_quant_fa":
        return (
            NextStep({"flash_attn": "on"}, "a quantized V cache works only with flash attention"),
            NextStep({"cache_type_v": "f16"}, "an f16 V cache needs no flash attention"),
        )
    if name == "kv_type":
        return (NextStep({"cache_type_k": "f16"}, "f16 fits every head size"),)
    if name == "cells_full":
        larger = facts.n_ctx * 2 if facts.n_ctx else 16384
        return (NextStep({"n_ctx": larger}, "the context was full: it takes more cells, not fewer"),)
    if name == "split_mode":
        return (NextStep({"split_mode": "layer"}, "every model and backend can be split by layers"),)
    if name == "seq_max":
        return (NextStep({"n_parallel": 1}, "a number of slots llama.cpp accepts"),)
    if name == "main_gpu":
        return (NextStep({"main_gpu": 0}, "the first device"),)
    if name == "prealloc_limit":
        return (
            NextStep(
                {"n_ubatch": (facts.n_ubatch or 512) // 2}, "a smaller micro-batch needs smaller temporary buffers"
            ),
        )
    if name == "backend_cannot_run":
        step = _smaller_ctx(facts)
        return (step, NextStep({"swa_full": False}, "a sliding window keeps only its own cells")) if step else ()
    return ()
