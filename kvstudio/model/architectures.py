"""What llama.cpp does with each architecture's memory: one typed row per name in `general.architecture`.

Source: llama.cpp b11434, src/llama-arch.cpp, src/llama-model.cpp (create_memory) and src/models/; differences of b10434
are marked by `since_build` or kept in `kvstudio.budget.builds`.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class CacheClass(StrEnum):
    """Which memory object llama.cpp creates."""

    UNSUPPORTED = "unsupported"
    NONE = "none"
    UNIFIED = "unified"
    ISWA = "iswa"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"
    HYBRID_IDX = "hybrid-idx"
    DSA = "dsa"
    DSA_ISWA = "dsa-iswa"
    DSV4 = "dsv4"
    MSA = "msa"


class Window(StrEnum):
    """When sliding-window attention is on, as decided by `attention.sliding_window`."""

    REQUIRED = "required"  # the key must be there
    OPTIONAL = "optional"  # on when the key is there and above zero
    DEFAULT = "default"  # on, with a default width
    UNLESS_ZERO = "unless-zero"  # on unless the key is there and zero; the width is fixed


class Recurrent(StrEnum):
    """Which layers keep recurrent state."""

    NONE = "none"
    ALL = "all"
    NO_KV_HEADS = "no-kv-heads"  # head_count_kv[il] == 0
    NO_KV_HEADS_NO_FF = "no-kv-heads-no-ff"  # also feed_forward_length[il] == 0
    INTERVAL = "interval"  # attention.recurrent_layers, else every layer but each full_attention_interval-th


class Mtp(StrEnum):
    """What happens to multi-token-prediction blocks (`nextn_predict_layers`)."""

    PLAIN = "plain"  # layers like any other
    SKIPPED = "skipped"  # in the file, never allocated
    ON_DEMAND = "on-demand"  # allocated with --spec-type draft-mtp


class Output(StrEnum):
    """Where the output matrix comes from when the file has no `output.weight`."""

    TIED = "tied"  # token_embd is created a second time, shared when both end in one buffer type
    TIED_FIRST = "tied-first"  # the copy is created before the original: always two
    OWN = "own"  # no fallback: the file must have it
    SHARED = "shared"  # token_embd itself is used
    REVERSED = "reversed"  # token_embd may be made from output
    NO_HEAD = "no-head"  # there is no output matrix


@dataclass(frozen=True, slots=True)
class Swa:
    """Sliding-window rule: `period` 0 means every layer; `period` None needs a per-layer array in the file."""

    period: int | None
    window: Window
    width: int = 0
    dense_first: bool = False
    kind: str = "standard"


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row of the table.

    `split_tensor` says whether `-sm tensor` is implemented for it, `causal` False that it looks ahead whatever the file
    says.
    """

    cache: CacheClass = CacheClass.UNIFIED
    swa: Swa | None = None
    recurrent: Recurrent = Recurrent.NONE
    mtp: Mtp = Mtp.PLAIN
    output: Output = Output.TIED
    causal: bool = True
    mla_keys_required: bool = False
    rollback: bool = False
    split_tensor: bool = True
    flash_attn: bool = True
    has_encoder: bool = False
    mixed_batch: bool = True
    interval: int = 4
    since_build: int = 0


_NEW = 11434  # first build known to have it; b10434 does not

_PLAIN = Architecture()
_OWN = Architecture(output=Output.OWN)
_NO_SPLIT = Architecture(split_tensor=False)
_NO_SPLIT_OWN = Architecture(split_tensor=False, output=Output.OWN)
_ENCODER = Architecture(cache=CacheClass.NONE, output=Output.NO_HEAD)
_DIFFUSION = Architecture(cache=CacheClass.NONE, causal=False)
_UNSUPPORTED = Architecture(cache=CacheClass.UNSUPPORTED)


def _swa(
    period: int | None,
    window: Window = Window.REQUIRED,
    width: int = 0,
    *,
    dense_first: bool = False,
    base: Architecture = _PLAIN,
) -> Architecture:
    return replace(base, cache=CacheClass.ISWA, swa=Swa(period, window, width, dense_first))


def _recurrent(output: Output, *, split_tensor: bool) -> Architecture:
    return Architecture(
        cache=CacheClass.RECURRENT, recurrent=Recurrent.ALL, output=output, split_tensor=split_tensor, mtp=Mtp.PLAIN
    )


def _hybrid(recurrent: Recurrent, base: Architecture = _NO_SPLIT) -> Architecture:
    return replace(base, cache=CacheClass.HYBRID, recurrent=recurrent)


_MLA = replace(_NO_SPLIT, mtp=Mtp.ON_DEMAND)
_DELTA_NET = replace(_hybrid(Recurrent.INTERVAL, _PLAIN), mtp=Mtp.ON_DEMAND)
_KDA = replace(_hybrid(Recurrent.NO_KV_HEADS), mla_keys_required=True)

_TIED_NAMES = """
llama deci falcon gpt2 starcoder refact bloom qwen2 qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe phi3 minicpm gemma
starcoder2 command-r olmo openelm arctic deepseek deepseek2-ocr chatglm jais2 exaone granite granitemoe graniteswitch
chameleon plm arcee ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl smollm3 seed_oss grovemoe hrm_text
cogvlm pangu-embedded mistral3 paddleocr maincoder nanbeige pockettts
"""
_OWN_NAMES = """
gptneox baichuan stablelm qwen qwen2moe phi2 phimoe plamo orion internlm2 xverse dbrx jais nemotron bailingmoe dots1
apertus talkie
"""
_ENCODER_NAMES = "bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert wavtokenizer-dec"

ARCHITECTURES: dict[str, Architecture] = {
    # Plain attention, output tied to the embedding when the file has no output.weight.
    **dict.fromkeys(
        _TIED_NAMES.split(),
        _PLAIN,
    ),
    "codeshell": Architecture(output=Output.REVERSED),
    "llama-embed": _PLAIN,
    "t5encoder": Architecture(has_encoder=True),
    "graniteswitch": Architecture(mixed_batch=False),
    "cogvlm": Architecture(mixed_batch=False),
    "hrm_text": Architecture(since_build=_NEW),
    **dict.fromkeys(("mpt", "minicpm3", "qwen3tts"), _NO_SPLIT),
    "grok": Architecture(split_tensor=False, flash_attn=False),
    "t5": Architecture(split_tensor=False, has_encoder=True),
    # Plain attention, output.weight mandatory.
    **dict.fromkeys(
        _OWN_NAMES.split(),
        _OWN,
    ),
    "olmoe": _NO_SPLIT_OWN,
    "minimax-m2": _NO_SPLIT_OWN,
    "bitnet": Architecture(split_tensor=False, output=Output.SHARED),
    # MTP blocks in the file.
    "glm4": Architecture(mtp=Mtp.SKIPPED),
    "bailingmoe2": Architecture(mtp=Mtp.SKIPPED, output=Output.OWN),
    "glm4moe": Architecture(mtp=Mtp.ON_DEMAND),
    "hy_v3": Architecture(mtp=Mtp.ON_DEMAND),
    # No cache: encoders and diffusion models.
    **dict.fromkeys(_ENCODER_NAMES.split(), _ENCODER),
    "modern-bert": replace(
        _ENCODER, swa=Swa(3, Window.OPTIONAL, dense_first=True, kind="symmetric"), output=Output.NO_HEAD
    ),
    "gemma-embedding": Architecture(
        cache=CacheClass.NONE, swa=Swa(6, Window.REQUIRED, kind="symmetric"), causal=False, output=Output.TIED
    ),
    **dict.fromkeys(("dream", "llada", "rnd1"), _DIFFUSION),
    "llada-moe": replace(_DIFFUSION, output=Output.OWN),
    "clef": Architecture(cache=CacheClass.NONE, recurrent=Recurrent.INTERVAL, output=Output.SHARED, since_build=_NEW),
    # Sliding windows.
    "llama4": replace(
        _PLAIN, cache=CacheClass.ISWA, swa=Swa(4, Window.UNLESS_ZERO, 8192, kind="chunked"), output=Output.TIED
    ),
    "plamo3": _swa(8, Window.OPTIONAL),
    "gemma2": _swa(2, Window.DEFAULT, 4096),
    "gemma3": _swa(6, Window.OPTIONAL),
    "gemma3n": _swa(5, base=Architecture(split_tensor=False, output=Output.TIED_FIRST)),
    "gemma4": _swa(None, base=Architecture(output=Output.TIED_FIRST)),
    "gemma4-assistant": _swa(None, base=Architecture(mixed_batch=False)),
    "granite_swa": _swa(None, base=Architecture(since_build=_NEW)),
    "spark2_5": _swa(None, base=Architecture(since_build=_NEW)),
    "maple": _swa(None, base=Architecture(output=Output.OWN, since_build=_NEW)),
    "cohere2": _swa(4),
    "cohere2moe": _swa(4, dense_first=True, base=Architecture(mtp=Mtp.ON_DEMAND)),
    "olmo2": _swa(4, Window.OPTIONAL, base=_NO_SPLIT_OWN),
    "muse-glimmer": _swa(4, base=_OWN),
    "exaone4": _swa(4, Window.DEFAULT, 4096, base=Architecture(mtp=Mtp.SKIPPED)),
    "exaone-moe": _swa(4, base=Architecture(output=Output.OWN, mtp=Mtp.SKIPPED)),
    "afmoe": _swa(4, Window.OPTIONAL),
    "laguna": _swa(4, Window.OPTIONAL, dense_first=True),
    "gpt-oss": _swa(2, base=_OWN),
    "smallthinker": _swa(4, Window.OPTIONAL, 4096, dense_first=True),
    "mimo2": _swa(None, base=Architecture(output=Output.OWN, mtp=Mtp.ON_DEMAND)),
    "step35": _swa(None, base=Architecture(output=Output.OWN, mtp=Mtp.ON_DEMAND)),
    "mellum": _swa(4, Window.OPTIONAL, base=_OWN),
    # Recurrent state only.
    "mamba": _recurrent(Output.TIED, split_tensor=False),
    "mamba2": _recurrent(Output.TIED, split_tensor=False),
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), _recurrent(Output.OWN, split_tensor=True)),
    # Attention and recurrent state.
    **dict.fromkeys(("plamo2", "jamba", "granitehybrid"), _hybrid(Recurrent.NO_KV_HEADS)),
    "falcon-h1": _hybrid(Recurrent.ALL),
    "qwen3next": _DELTA_NET,
    "qwen35": replace(_DELTA_NET, rollback=True),
    "qwen35moe": replace(_DELTA_NET, rollback=True),
    "qwen4exp": replace(_DELTA_NET, cache=CacheClass.HYBRID_IDX, rollback=True, since_build=_NEW),
    "nemotron_h": replace(_hybrid(Recurrent.NO_KV_HEADS_NO_FF), rollback=True),
    "nemotron_h_moe": replace(_hybrid(Recurrent.NO_KV_HEADS_NO_FF), rollback=True, mtp=Mtp.ON_DEMAND),
    "lfm2": replace(_hybrid(Recurrent.NO_KV_HEADS, _PLAIN), rollback=True, swa=Swa(0, Window.OPTIONAL)),
    "lfm2moe": replace(_hybrid(Recurrent.NO_KV_HEADS, _PLAIN), rollback=True),
    "minimax-01": replace(_hybrid(Recurrent.INTERVAL), interval=8, since_build=_NEW),
    "kimi-linear": replace(_KDA, output=Output.OWN),
    "kimi-k3": replace(_KDA, output=Output.OWN, rollback=True, since_build=_NEW),
    "bailingmoe3": replace(_KDA, rollback=True, mtp=Mtp.ON_DEMAND, since_build=_NEW),
    "glm5-next": replace(
        _KDA, cache=CacheClass.HYBRID_IDX, output=Output.OWN, rollback=True, mtp=Mtp.ON_DEMAND, since_build=_NEW
    ),
    # Latent attention and sparse indexers.
    "deepseek2": _MLA,
    "mistral4": _MLA,
    "deepseek32": replace(_MLA, cache=CacheClass.DSA),
    "glm-dsa": replace(_MLA, cache=CacheClass.DSA),
    "hy_v4": replace(_NO_SPLIT_OWN, cache=CacheClass.DSA, mla_keys_required=True, since_build=_NEW),
    "dots3note": replace(
        _NO_SPLIT,
        cache=CacheClass.DSA_ISWA,
        swa=Swa(None, Window.REQUIRED),
        mla_keys_required=True,
        mtp=Mtp.SKIPPED,
        since_build=_NEW,
    ),
    "deepseek4": Architecture(
        cache=CacheClass.DSV4,
        swa=Swa(0, Window.REQUIRED),
        mtp=Mtp.ON_DEMAND,
        output=Output.OWN,
        rollback=True,
        mixed_batch=False,
    ),
    "minimax-m3": replace(_NO_SPLIT_OWN, cache=CacheClass.MSA),
    # Drafts of other models.
    "eagle3": Architecture(output=Output.SHARED, has_encoder=True, mixed_batch=False),
    "dflash": Architecture(swa=Swa(None, Window.OPTIONAL), has_encoder=True, mixed_batch=False),
    # Names llama.cpp knows and cannot load as a main model.
    "clip": _UNSUPPORTED,
    "gptj": _UNSUPPORTED,
}
