"""Metadata to the numbers llama.cpp derives from it, per architecture and per layer."""

from dataclasses import dataclass, field
from typing import Any

from kvstudio.header.values import Header
from kvstudio.model.architectures import Architecture, CacheClass, Recurrent, Swa, Window
from kvstudio.model.keys import Keys

#: Source: LLAMA_MAX_LAYERS and LLAMA_MAX_EXPERTS, llama.cpp b11434 src/llama-hparams.h.
MAX_LAYERS = 512
MAX_EXPERTS = 1024
MAX_EMBEDDING = 2**22

#: GLM-5.2's built-in choice of layers with an indexer of their own, from this trained context on.
_GLM_SPARSE_CONTEXT = 1048576
_GEMMA3N_KV_LAYERS = 20
_EXAONE4_SWA_LAYERS = 64


@dataclass(slots=True)
class HParams:
    """llama.cpp's hparams while they are being read; per-layer tuples have `n_layer_all` entries."""

    n_layer_all: int
    n_layer_nextn: int
    n_embd: int
    n_ctx_train: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    n_expert: int
    n_expert_used: int
    head_k: int
    head_v: int
    head_k_swa: int
    head_v_swa: int
    n_swa: int = 0
    swa_kind: str = "none"
    is_swa: tuple[bool, ...] = ()
    is_recurrent: tuple[bool, ...] = ()
    has_kv: tuple[bool, ...] = ()
    cache: CacheClass = CacheClass.UNIFIED
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def n_layer(self) -> int:
        return self.n_layer_all - self.n_layer_nextn


def read(header: Header, name: str, rule: Architecture, keys: Keys) -> HParams:
    """All numbers of one file. Raises: HeaderError when a key nothing works without is missing or absurd.

    Source: llama.cpp b11434, src/llama-model.cpp (load_hparams) and src/models/*.cpp (load_arch_hparams).
    """
    hp = _read_generic(name, keys)
    _read_extra(hp, keys)
    hp.extra["causal_attn"] = rule.causal and keys.flag("attention.causal", True)
    _adjust_layers(header, name, hp, keys)
    _read_swa(name, rule, hp, keys)
    _read_recurrent(name, rule, hp, keys)
    _read_cache(name, rule, hp, keys)
    _read_state_widths(hp)
    return hp


def _read_generic(name: str, keys: Keys) -> HParams:
    n_layer_all = keys.essential("block_count", MAX_LAYERS)
    n_embd = keys.essential("embedding_length", MAX_EMBEDDING)
    if name == "wavtokenizer-dec":
        n_embd = keys.number("features_length", n_embd, MAX_EMBEDDING)
    n_nextn = min(keys.number("nextn_predict_layers"), n_layer_all)
    heads = keys.per_layer("attention.head_count", n_layer_all)
    head_size = n_embd // heads[0] if heads[0] else 0
    reads_heads = heads[0] or name == "plamo2"  # reads the keys itself: its first layer has no attention
    head_k = keys.number("attention.key_length", head_size, MAX_EMBEDDING) if reads_heads else 0
    head_v = keys.number("attention.value_length", head_size, MAX_EMBEDDING) if reads_heads else 0
    n_expert, n_used = _experts(name, keys, n_layer_all)
    return HParams(
        n_layer_all=n_layer_all,
        n_layer_nextn=n_nextn,
        n_embd=n_embd,
        n_ctx_train=keys.needed("context_length"),
        n_head=heads,
        n_head_kv=keys.per_layer("attention.head_count_kv", n_layer_all, heads),
        n_ff=keys.per_layer("feed_forward_length", n_layer_all),
        n_expert=n_expert,
        n_expert_used=n_used,
        head_k=head_k,
        head_v=head_v,
        head_k_swa=keys.number("attention.key_length_swa", head_k, MAX_EMBEDDING),
        head_v_swa=keys.number("attention.value_length_swa", head_v, MAX_EMBEDDING),
    )


def _experts(name: str, keys: Keys, n_layer_all: int) -> tuple[int, int]:
    n_expert = keys.number("expert_count", 0, MAX_EXPERTS)
    n_used = max(keys.per_layer("expert_used_count", n_layer_all))
    if name.startswith("hunyuan") and name != "hunyuan-moe" and n_expert <= 1:
        return 0, 0
    return n_expert, min(n_used, n_expert)


def _read_extra(hp: HParams, keys: Keys) -> None:
    """What some architectures add; a missing key stays 0, as in llama.cpp's defaults."""
    n = hp.n_layer_all
    extra = hp.extra
    for field_name, key in _NUMBERS.items():
        extra[field_name] = keys.number(key)
    extra["n_ff_exp"] = keys.per_layer("expert_feed_forward_length", n)
    extra["n_expert_used"] = keys.per_layer("expert_used_count", n)
    extra["n_rot"] = keys.number("rope.dimension_count", hp.head_k)
    extra["n_rot_swa"] = keys.number("rope.dimension_count_swa", extra["n_rot"])
    extra["n_embd_out"] = keys.number("embedding_length_out", hp.n_embd) or hp.n_embd
    extra["n_embd_inp"] = hp.n_embd * (1 + _deepstack(keys, extra))
    extra["compress_ratios"] = keys.per_layer("attention.compress_ratios", n)
    extra["dec_n_layer"] = keys.number("decoder_block_count", n)
    extra["max_alibi_bias"] = keys.real("attention.max_alibi_bias")
    extra["attn_soft_cap"] = keys.real("attn_logit_softcapping")
    extra["is_mla"] = extra["n_embd_head_k_mla"] > 0 and extra["n_embd_head_v_mla"] > 0
    if not extra["token_shift_count"]:
        extra["token_shift_count"] = 2


_NUMBERS = {
    "n_embd_head_k_mla": "attention.key_length_mla",
    "n_embd_head_v_mla": "attention.value_length_mla",
    "n_lora_q": "attention.q_lora_rank",
    "n_lora_kv": "attention.kv_lora_rank",
    "n_lora_kv_swa": "attention.kv_lora_rank_swa",
    "indexer_n_head": "attention.indexer.head_count",
    "indexer_head_size": "attention.indexer.key_length",
    "indexer_top_k": "attention.indexer.top_k",
    "indexer_kpool": "attention.indexer.kpool",
    "ssm_d_conv": "ssm.conv_kernel",
    "ssm_d_inner": "ssm.inner_size",
    "ssm_d_state": "ssm.state_size",
    "ssm_dt_rank": "ssm.time_step_rank",
    "ssm_n_group": "ssm.group_count",
    "wkv_head_size": "wkv.head_size",
    "token_shift_count": "token_shift_count",
    "n_shortconv_l_cache": "shortconv.l_cache",
    "n_embd_head_kda": "kda.head_dim",
    "n_expert_shared": "expert_shared_count",
    "n_ff_shexp": "expert_shared_feed_forward_length",
    "n_ff_chexp": "expert_chunk_feed_forward_length",
    "n_layer_dense_lead": "leading_dense_block_count",
    "n_moe_layer_step": "interleave_moe_layer_step",
    "n_embd_per_layer": "embedding_length_per_layer_input",
    "hc_mult": "hyper_connection.count",
    "n_deepstack": "n_deepstack_layers",
    "ple_ngram_size": "ple.ngram_size",
    "ple_heads_per_ngram": "ple.heads_per_ngram",
    "ple_conv_kernel": "ple.conv_kernel",
}


def _deepstack(keys: Keys, extra: dict[str, Any]) -> int:
    """Extra embedding rows a vision projector adds per token."""
    mapping = keys.array("deepstack_mapping")
    if mapping is not None:
        return len({index for index in mapping if index >= 0})
    return int(extra["n_deepstack"])


def _adjust_layers(header: Header, name: str, hp: HParams, keys: Keys) -> None:
    """Architectures whose number of layer slots is not `block_count`."""
    hp.extra["router_layer"] = -1
    if name == "graniteswitch":
        hp.extra["router_layer"] = hp.n_layer_all
        _append_layer(hp, n_head=1, n_head_kv=1)
        hp.n_layer_nextn = 1
    elif name == "nanbeige":
        hp.extra["n_layer_phys"] = hp.n_layer
        _repeat_layers(hp, max(1, keys.number("num_loops", 1, MAX_LAYERS)))
    elif name == "deepseek4" and hp.n_layer_nextn:
        probe = f"blk.{hp.n_layer}.nextn.eh_proj.weight"
        if all(tensor.name != probe for tensor in header.tensors):
            hp.n_layer_nextn = 0


def _append_layer(hp: HParams, n_head: int, n_head_kv: int) -> None:
    hp.n_layer_all += 1
    hp.n_head = (*hp.n_head, n_head)
    hp.n_head_kv = (*hp.n_head_kv, n_head_kv)
    hp.n_ff = (*hp.n_ff, 0)


def _repeat_layers(hp: HParams, loops: int) -> None:
    n = hp.n_layer
    hp.n_head, hp.n_head_kv, hp.n_ff = hp.n_head[:n] * loops, hp.n_head_kv[:n] * loops, hp.n_ff[:n] * loops
    hp.n_layer_all = n * loops


def _read_swa(name: str, rule: Architecture, hp: HParams, keys: Keys) -> None:
    """Window width and which layers are under it."""
    hp.is_swa = (False,) * hp.n_layer_all
    swa = rule.swa
    if swa is None or (name == "exaone4" and hp.n_layer != _EXAONE4_SWA_LAYERS):
        return
    width = _window(name, swa, hp, keys)
    may_be_off = swa.window in (Window.OPTIONAL, Window.UNLESS_ZERO)
    if width == 0 and (may_be_off or not keys.has("attention.sliding_window")):
        return
    hp.n_swa = width
    hp.swa_kind = swa.kind
    hp.is_swa = _swa_layers(name, swa, hp, keys)
    if not any(hp.is_swa):
        hp.n_swa, hp.swa_kind = (hp.n_swa, hp.swa_kind) if rule.cache is CacheClass.NONE else (0, "none")


def _window(name: str, swa: Swa, hp: HParams, keys: Keys) -> int:
    key = "attention.sliding_window"
    if swa.window is Window.REQUIRED:
        return keys.needed(key)
    if swa.window is Window.DEFAULT:
        return keys.number(key, swa.width)
    if swa.window is Window.UNLESS_ZERO:
        return 0 if keys.has(key) and keys.number(key, 1) == 0 else swa.width
    width = keys.number(key)
    return swa.width if width and swa.width else width


def _swa_layers(name: str, swa: Swa, hp: HParams, keys: Keys) -> tuple[bool, ...]:
    key = "attention.sliding_window_pattern"
    n, n_all = hp.n_layer, hp.n_layer_all
    if name == "lfm2":
        return tuple(hp.n_head_kv[il] != 0 and il < n for il in range(n_all))
    if name == "dflash" and hp.extra["hc_mult"] > 0:
        return (True,) * n_all
    if swa.period == 0:
        return (True,) * n_all
    if keys.is_array(key):
        layers = [bool(flag) for flag in keys.per_layer(key, n_all)]
    elif swa.period is None:
        keys.missing.append(keys.name(key))
        return (False,) * n_all
    else:
        layers = [_under_window(il, keys.number(key, swa.period), swa.dense_first) and il < n for il in range(n_all)]
    dense_tail = keys.number("decision.block_count") if name == "modern-bert" else 0
    return tuple(flag and il < n - dense_tail if dense_tail else flag for il, flag in enumerate(layers))


def _under_window(il: int, period: int, dense_first: bool) -> bool:
    if period == 0:
        return True
    return il % period != 0 if dense_first else il % period < period - 1


def _read_recurrent(name: str, rule: Architecture, hp: HParams, keys: Keys) -> None:
    """Which layers keep recurrent state; MTP blocks never do."""
    trunk = range(hp.n_layer_all)
    n = hp.n_layer
    if rule.recurrent is Recurrent.ALL:
        flags = [True for _ in trunk]
    elif rule.recurrent is Recurrent.NO_KV_HEADS:
        flags = [hp.n_head_kv[il] == 0 and il < n for il in trunk]
    elif rule.recurrent is Recurrent.NO_KV_HEADS_NO_FF:
        flags = [hp.n_head_kv[il] == 0 and hp.n_ff[il] == 0 and il < n for il in trunk]
    elif rule.recurrent is Recurrent.INTERVAL:
        flags = _interval(rule, hp, keys)
    else:
        flags = [False for _ in trunk]
    hp.is_recurrent = tuple(flags)


def _interval(rule: Architecture, hp: HParams, keys: Keys) -> list[bool]:
    key = "attention.recurrent_layers"
    if keys.has(key):
        return [bool(flag) for flag in keys.per_layer(key, hp.n_layer_all)]
    every = keys.number("full_attention_interval", rule.interval) or rule.interval
    return [il < hp.n_layer and (il + 1) % every != 0 for il in range(hp.n_layer_all)]


def _read_cache(name: str, rule: Architecture, hp: HParams, keys: Keys) -> None:
    """The memory object and which layers own attention cells in the default context."""
    hp.cache = rule.cache
    if rule.cache is CacheClass.ISWA and hp.swa_kind == "none":
        hp.cache = CacheClass.UNIFIED
    if name == "dflash" and hp.swa_kind != "none":
        hp.cache = CacheClass.ISWA
    if name == "hy_v4" and hp.extra["indexer_top_k"] == 0:
        hp.cache = CacheClass.UNIFIED
    for key in ("attention.key_length_mla", "attention.value_length_mla") if rule.mla_keys_required else ():
        if not hp.extra["n_embd_head_k_mla" if "key" in key else "n_embd_head_v_mla"]:
            keys.missing.append(keys.name(key))
    if name in ("kimi-k3", "glm5-next"):
        hp.head_v = hp.extra["n_lora_kv"]
    if name in ("mamba", "jamba"):
        hp.extra["ssm_n_group"] = 0
    if name == "minimax-01":
        hp.extra["n_embd_head_la"] = hp.head_k
    if name in ("deepseek4", "qwen4exp"):
        hp.extra["n_embd_out"] = hp.n_embd * max(1, hp.extra["hc_mult"])
    if name == "clef":
        hp.extra["n_embd_out"] = 1
    hp.extra["indexer_full"] = _indexer_layers(name, hp, keys)
    _read_kpool(name, hp, keys)
    hp.extra["n_layer_kv_from_start"] = _kv_from_start(name, hp, keys)
    hp.has_kv = tuple(_owns_kv(name, rule, hp, il) for il in range(hp.n_layer_all))


def _owns_kv(name: str, rule: Architecture, hp: HParams, il: int) -> bool:
    cache = hp.cache
    if cache in (CacheClass.NONE, CacheClass.RECURRENT, CacheClass.UNSUPPORTED) or name == "gemma4-assistant":
        return False
    first = hp.extra["n_layer_kv_from_start"]
    if 0 <= first <= il:
        return False
    if cache in (CacheClass.HYBRID, CacheClass.HYBRID_IDX):
        return _hybrid_attention(rule.recurrent, name, hp, il)
    if name == "hy_v4" or cache in (CacheClass.MSA, CacheClass.DSV4) or hp.extra["router_layer"] >= 0:
        return True
    return il < hp.n_layer or hp.n_layer == 0


def _hybrid_attention(rule: Recurrent, name: str, hp: HParams, il: int) -> bool:
    """Layers with cells; only some hybrids leave out their MTP blocks."""
    if name == "falcon-h1":
        return True
    if rule is Recurrent.NO_KV_HEADS_NO_FF:
        return not hp.is_recurrent[il] and hp.n_ff[il] == 0
    in_trunk = il < hp.n_layer or not (rule is Recurrent.INTERVAL or name == "glm5-next")
    return not hp.is_recurrent[il] and in_trunk


def _kv_from_start(name: str, hp: HParams, keys: Keys) -> int:
    if name == "gemma3n":
        return _GEMMA3N_KV_LAYERS
    if name == "gemma4":
        return hp.n_layer_all - keys.number("attention.shared_kv_layers", 0, hp.n_layer_all)
    return -1


def _indexer_layers(name: str, hp: HParams, keys: Keys) -> tuple[bool, ...]:
    """Layers that own an indexer ("full" layers)."""
    n = hp.n_layer_all
    if name == "deepseek32":
        return (True,) * n
    default = (0,) * n
    if name == "glm5-next" or (name == "glm-dsa" and hp.n_ctx_train < _GLM_SPARSE_CONTEXT):
        default = (1,) * n
    elif name == "glm-dsa":
        default = tuple(int(il < 2 or il % 4 == 2) for il in range(n))
    return tuple(bool(flag) for flag in keys.per_layer("attention.indexer.types", n, default))


def _read_kpool(name: str, hp: HParams, keys: Keys) -> None:
    hp.extra["indexer_kpool_row"] = {"glm5-next": 3, "qwen4exp": 2}.get(name, 1)
    if name != "qwen4exp":
        return
    hp.extra["indexer_kpool"] = max(hp.extra["compress_ratios"], default=0)
    layers = keys.array("ple.layers") or ()
    hp.extra["ple_layers"] = layers
    n_heads = max(0, hp.extra["ple_ngram_size"] - 1) * hp.extra["ple_heads_per_ngram"] if layers else 0
    kernel = hp.extra["ple_conv_kernel"]
    hp.extra["ple_conv_state"] = (
        (kernel - 1) * hp.extra["ple_ngram_size"] * hp.extra["hc_mult"] * hp.n_embd if n_heads and kernel else 0
    )


def _read_state_widths(hp: HParams) -> None:
    """Floats one sequence keeps per recurrent layer: `n_embd_r` (convolution) and `n_embd_s` (state).

    Source: llama.cpp b11434, src/llama-hparams.cpp (n_embd_r, n_embd_s).
    """
    extra = hp.extra
    extra["n_embd_r"] = _conv_width(hp, extra)
    extra["n_embd_s"] = _state_width(hp, extra)


def _conv_width(hp: HParams, extra: dict[str, Any]) -> int:
    kernel = extra["ssm_d_conv"]
    if extra["wkv_head_size"]:
        return int(extra["token_shift_count"] * hp.n_embd)
    if extra["n_shortconv_l_cache"]:
        return int(hp.n_embd * (extra["n_shortconv_l_cache"] - 1))
    if extra["n_embd_head_kda"]:
        return int(3 * (kernel - 1 if kernel > 0 else 3) * hp.n_head[0] * extra["n_embd_head_kda"])
    width = extra["ssm_d_inner"] + 2 * extra["ssm_n_group"] * extra["ssm_d_state"]
    return int((kernel - 1 if kernel > 0 else 0) * width)


def _state_width(hp: HParams, extra: dict[str, Any]) -> int:
    if extra["wkv_head_size"]:
        return int(hp.n_embd * extra["wkv_head_size"])
    if extra["n_embd_head_kda"]:
        return int(extra["n_embd_head_kda"] ** 2 * hp.n_head[0])
    if extra.get("n_embd_head_la"):
        return int(extra["n_embd_head_la"] ** 2 * hp.n_head[0])
    return int(extra["ssm_d_state"] * extra["ssm_d_inner"])
