"""Compute buffers from closed forms, for graphs nobody follows step by step.

The forms were fitted to measured runs: exact for plain models, a few per cent off for others. Symbols: `nt` tokens of
the reserved batch, E = embedding, Q = query, F = feed-forward, I = graph inputs, all in bytes for one batch.
"""

from dataclasses import dataclass
from functools import cached_property

from kvstudio.budget import builds
from kvstudio.budget.cache_types import cache_type, row_bytes
from kvstudio.budget.kv import CacheSpec, cache_specs
from kvstudio.budget.placement_values import Placement
from kvstudio.budget.tensor_groups import CPU
from kvstudio.budget.values import EffectiveConfig, Provenance
from kvstudio.model.architectures import Architecture, CacheClass, Output
from kvstudio.model.values import ModelInfo
from kvstudio.units import GIB

_FLOAT, _INDEX = 4, 8
_OFFLOAD_BATCH = 32  # GGML_OP_OFFLOAD_MIN_BATCH
_THREE_E = frozenset({"bloom", "mpt", "gpt2", "starcoder", "refact", "smollm3", "deci", "olmo2", "exaone4", "grok"})
_PARALLEL = frozenset({"falcon", "gptneox", "phi2", "cohere2", "command-r"})
_NO_LAST_Q = _PARALLEL | frozenset(
    {
        "baichuan",
        "chatglm",
        "phi3",
        "dbrx",
        "olmo2",
        "exaone4",
        "bailingmoe2",
        "openelm",
        "jamba",
        "granitehybrid",
        "falcon-h1",
        "plamo2",
    }
)
_SECOND_EMBEDDING = frozenset({"gpt2", "starcoder", "bert"})
_BAICHUAN_ALIBI_LAYERS = 40

Compute = dict[str, tuple[int, Provenance, str]]


def compute_buffers(model: ModelInfo, effective: EffectiveConfig, placement: Placement) -> Compute:
    """Compute bytes by buffer type name, each with a sentence; everything here is an estimate."""
    forms = _Forms(model, effective, placement)
    found: Compute = {}
    active = [d for d in placement.devices if d in placement.layer_device]
    if placement.shares and active:
        n_bytes, why = forms.device(placement.devices[0])
        host_bytes, host_why = forms.host()
        found = dict.fromkeys(placement.buffer_types, (n_bytes, Provenance.ESTIMATED, why))
        found[placement.host_type or CPU] = (host_bytes, Provenance.ESTIMATED, host_why)
        return found
    for index, (device, name) in enumerate(zip(placement.devices, placement.buffer_types, strict=True)):
        if device in active or (index == 0 and forms.offloads):
            n_bytes, why = forms.device(device)
            found[name] = (n_bytes, Provenance.ESTIMATED, why)
    host = placement.host_type or CPU
    n_bytes, why = forms.host() if placement.devices else forms.cpu_only()
    found[host] = (n_bytes, Provenance.ESTIMATED, why)
    return found


_SCORE_COPIES, _SCORE_COPIES_PLAIN = 8, 12  # scores of an indexer, their order, masks (wider without flash attention)
_KEY_COPIES = 3  # cells of several caches joined for one attention
_STREAM_COPIES = 8  # residual streams side by side, in and out of a block
_LAYER_INPUT_COPIES = 4  # embeddings of every layer's own
_STATE_COPIES = 4
_STATE_INPUTS = 8  # what a recurrent layer projects from its input


def unusual_bytes(model: ModelInfo, effective: EffectiveConfig) -> int:
    """An upper bound for what no ordinary decoder needs: indexers, parallel residual streams, recurrent states."""
    hp, n_seqs = model.hparams, effective.n_parallel
    tokens = max(1, min(effective.n_ctx, effective.n_ubatch))
    total = 0
    if hp["indexer_n_head"]:
        streams = 1 if effective.kv_unified else n_seqs
        copies = _SCORE_COPIES_PLAIN if effective.flash_attn_on is False else _SCORE_COPIES
        total += copies * _FLOAT * effective.n_ctx_seq * tokens
        widest = max((layer.n_embd_k_gqa for layer in model.layers), default=0)
        total += _KEY_COPIES * 2 * widest * effective.n_ctx_seq * streams
    if hp["hc_mult"]:
        total += _STREAM_COPIES * hp["hc_mult"] * _FLOAT * model.n_embd * tokens
    if hp["n_embd_per_layer"]:
        total += _LAYER_INPUT_COPIES * hp["n_embd_per_layer"] * model.n_layer * _FLOAT * tokens
    if hp["n_embd_s"] or hp["n_embd_r"]:
        n_head = max((layer.n_head for layer in model.layers), default=0)
        inner = max(hp["ssm_d_inner"], n_head * hp["n_embd_head_kda"], model.n_embd)
        total += _FLOAT * (_STATE_COPIES * n_seqs * (hp["n_embd_s"] + hp["n_embd_r"]) + _STATE_INPUTS * inner * tokens)
    return total


@dataclass
class _Forms:
    """The forms of one launch; every property is bytes."""

    model: ModelInfo
    effective: EffectiveConfig
    placement: Placement

    @cached_property
    def nt(self) -> int:
        """Tokens of the reserved batch, a multiple of the sequences."""
        n_seqs = self.effective.n_parallel
        tokens = min(self.effective.n_ctx, self.effective.n_ubatch)
        return max(1, -(-tokens // n_seqs) * n_seqs)

    @cached_property
    def rule(self) -> Architecture:
        rule: Architecture = self.model.hparams["rule"]
        return rule

    @cached_property
    def specs(self) -> tuple[CacheSpec, ...]:
        return cache_specs(self.model, self.effective)

    @cached_property
    def fa(self) -> bool:
        return self.effective.flash_attn_on is not False

    @cached_property
    def mixed(self) -> bool:
        newer = builds.follows(self.effective.build, builds.MIXED_BATCH)
        return self.rule.mixed_batch and newer and not self.effective.mtp_context

    @cached_property
    def embedding(self) -> int:
        return _FLOAT * self.model.n_embd * self.nt

    @cached_property
    def query(self) -> int:
        width = max((layer.n_head * layer.n_embd_head_k for layer in self.model.layers), default=0)
        return _FLOAT * width * self.nt

    @cached_property
    def value(self) -> int:
        width = max((layer.n_head * layer.n_embd_head_v for layer in self.model.layers), default=0)
        return _FLOAT * width * self.nt

    @cached_property
    def inputs(self) -> int:
        """Masks, cell indices, positions and rotation matrices."""
        mask_item = 2 if self.fa else 4
        if not self.specs and self.model.hparams["cache"] is CacheClass.NONE:
            masks = self.nt * self.nt * mask_item * (2 if self.model.n_swa else 1)
            return masks + _FLOAT * self.nt
        total = _FLOAT * self.nt
        for spec in self.specs:
            total += spec.cells * self.nt * mask_item + _INDEX * self.nt
            widest = max((v for _, _, v in spec.widths), default=0)
            if widest:
                total += _INDEX * self.nt * (1 if self.fa else widest)
            total += self._rotation(spec)
        return total

    def _rotation(self, spec: CacheSpec) -> int:
        """Hadamard matrices of quantized caches."""
        kinds = cache_type(self.effective.cache_type_k), cache_type(self.effective.cache_type_v)
        layer = self.model.layers[spec.widths[0][0]]
        total = 0
        if kinds[0].block > 1 and layer.n_embd_head_k % 64 == 0:
            size = 64
            while layer.n_embd_head_k % (2 * size) == 0:
                size *= 2
            total += size * size * _FLOAT
        if kinds[1].block > 1 and spec.widths[0][2] and layer.n_embd_head_v % 64 == 0:
            total += 64 * 64 * _FLOAT
        return total

    @cached_property
    def resting(self) -> int:
        """What stays alive beside the feed-forward tensors (R0)."""
        e, q = self.embedding, self.query
        name = self.model.architecture
        if name in _PARALLEL:
            kv = max((layer.n_embd_k_gqa + layer.n_embd_v_gqa for layer in self.model.layers), default=0)
            return 4 * e + _FLOAT * kv * self.nt
        if name in _THREE_E or (name == "baichuan" and self.model.n_layer == _BAICHUAN_ALIBI_LAYERS):
            return 3 * e
        extra = _INDEX * self.model.n_expert * self.nt if self.model.n_expert and q == e else 0
        if q == e:
            return 2 * e + extra
        return 2 * e + (q if q > e else 2 * q)

    def feed_forward(self, device: str | None) -> int:
        """The widest feed-forward of the layers a device holds."""
        widths = _ff_widths(self.model)
        first, last = (self.model.n_layer, self.model.n_layer_all) if self.effective.mtp_context else (0, None)
        slots = range(self.model.n_layer_all)[first : last or self.model.n_layer]
        held = [il for il in slots if self.placement.layer_device[il] == device]
        used = self.model.n_expert_used
        best = 0
        for il in held:
            dense, gated, expert, expert_gated = widths.get(il, (0, False, 0, False))
            best = max(best, _FLOAT * dense * self.nt * (3 if gated else 1))
            if expert:
                fk, ek = _FLOAT * expert * used * self.nt, self.embedding * used
                best = max(best, 3 * fk + (ek if ek > 2 * fk else 0) if expert_gated else fk + ek)
        return best

    @cached_property
    def head(self) -> int:
        """Logits and the rows that go into them."""
        if self.rule.output is Output.NO_HEAD:
            return 0
        rows = min(self.nt, self.effective.n_outputs_max)
        return _FLOAT * (self.model.n_vocab + self.model.n_embd) * rows

    @cached_property
    def scores(self) -> int:
        """Attention scores without flash attention."""
        if self.fa or not self.specs:
            return 0
        cells = max(spec.cells for spec in self.specs)
        return _FLOAT * cells * self.nt * max(layer.n_head for layer in self.model.layers)

    @cached_property
    def host_weight(self) -> int:
        """The largest weight in host memory that a device would borrow for a big batch."""
        if not self.effective.op_offload or self.nt < _OFFLOAD_BATCH or not self.placement.devices:
            return 0
        sizes = [
            t.tensor.n_bytes
            for t in self.placement.tensors
            if t.device is None and t.layer is not None and len(t.tensor.shape) > 1 and t.buffer_type != "CPU_REPACK"
        ]
        return max(sizes, default=0)

    @property
    def offloads(self) -> bool:
        return self.host_weight > 0

    @cached_property
    def host_kv(self) -> int:
        """One layer's K and V, where they stay in host memory and the attention does not."""
        if self.effective.kv_offload and None not in self.placement.layer_device[: self.model.n_layer]:
            return 0
        kinds = cache_type(self.effective.cache_type_k), cache_type(self.effective.cache_type_v)
        return max(
            (
                (row_bytes(kinds[0], k) + row_bytes(kinds[1], v)) * spec.cells * spec.streams
                for spec in self.specs
                for _, k, v in spec.widths[:1]
            ),
            default=0,
        )

    def device(self, device: str) -> tuple[int, str]:
        """One device's compute buffer."""
        copies = self.placement.pipeline_copies
        e, ff = self.embedding, self.feed_forward(device)
        inputs = copies * self.inputs
        scratch = self._cuda_scratch(device)
        is_output = self.placement.layer_device[-1] == device
        if self.host_weight and (device == self.placement.devices[0]):
            size, why = self._borrowing(inputs, ff)
        elif self.host_kv:
            size, why = inputs + self.resting + ff + self.host_kv + e, "one layer's K and V copied from host memory"
        elif self.mixed:
            size, why = self._mixed(device, inputs, ff)
        elif copies > 1:
            size = max(inputs + 4 * e + self.resting + ff, (self.head + inputs + 5 * e) if is_output else 0)
            why = "4 pipeline copies of the graph's inputs, the residual stream and the widest layer's feed-forward"
        else:
            size = max(inputs + self.resting + ff, (self.head + inputs + e) if is_output else 0)
            why = "the graph's inputs, the residual stream and the widest layer's feed-forward"
        if self.scores:
            twice = 2 if self.scores >= GIB and self._limited(device) else 1
            q = self.query
            rest = e + q if q <= e else 2 * e + 2 * q
            size = max(size, inputs + (4 * e if copies > 1 else 0) + self.scores * twice + rest)
            why = "attention scores of every head over the whole context, since flash attention is off"
        return size + scratch, f"Estimated: {why}."

    def _mixed(self, device: str, inputs: int, ff: int) -> tuple[int, str]:
        """Builds that feed tokens and embeddings in one batch."""
        e = self.embedding
        why = "the graph's inputs for mixed batches, the residual stream and the widest layer's feed-forward"
        if self.placement.pipeline_copies == 1:
            return inputs + 2 * e + max(self.value, self.resting - 2 * e) + ff, why
        quantized = (
            cache_type(self.effective.cache_type_k).block > 1 and cache_type(self.effective.cache_type_v).block > 1
        )
        layer = 4 * e + self.resting if quantized else 6 * e + self.value
        first = 9 * e + 32 * self.nt if device == self.placement.devices[0] else 0
        return inputs + layer + ff + first, why

    def _borrowing(self, inputs: int, ff: int) -> tuple[int, str]:
        """A device that works on weights kept in host memory holds a copy of the largest."""
        e, weight = self.embedding, self.host_weight
        why = "a copy of the largest weight kept in host memory, since big batches are computed on the device"
        if self.model.n_expert:
            return inputs + weight + ff + e + e // 2, why
        return inputs + max(weight + 2 * ff // 3 + 4 * e, 3 * self.host_kv // 2 + 2 * e), why

    def _limited(self, device: str) -> bool:
        trait = self.placement.traits[self.placement.devices.index(device)]
        return trait.max_buffer_bytes is not None

    def _cuda_scratch(self, device: str) -> int:
        """CUDA and SYCL convert a layer's K and V to f16 for flash attention unless they are f16 already."""
        trait = self.placement.traits[self.placement.devices.index(device)]
        if not trait.flash_attn_scratch or not self.fa or not self.effective.kv_offload:
            return 0
        best = 0
        for spec in self.specs:
            for il, k, v in spec.widths:
                if self.placement.layer_device[il] == device:
                    k_bytes = 0 if self.effective.cache_type_k == "f16" else 2 * k
                    v_bytes = 0 if self.effective.cache_type_v == "f16" else 2 * v
                    best = max(best, (k_bytes + v_bytes) * spec.cells * spec.streams)
        return best

    def host(self) -> tuple[int, str]:
        """The host's part when there are devices."""
        copies, e = self.placement.pipeline_copies, self.embedding
        ids = 16 * self.nt if self.mixed else _FLOAT * self.nt
        extra = 3 if self.model.architecture in _SECOND_EMBEDDING else 2
        if self.mixed:
            extra = 10 if copies > 1 else 5
        size = copies * (self.inputs + ids) + extra * e
        held = self.feed_forward(None) if None in self.placement.layer_device[:-1] else 0
        return size + (held if not self.effective.op_offload else 0), "Estimated: the graph's inputs and embeddings."

    def cpu_only(self) -> tuple[int, str]:
        """Everything on the CPU."""
        e, ff = self.embedding, self.feed_forward(None)
        why = "the graph's inputs, the residual stream and the widest layer's feed-forward"
        if self.mixed:
            size = max(self.inputs + 5 * e + ff + 16 * self.nt, self.head + self.inputs + 4 * e)
        else:
            size = max(self.inputs + self.resting + ff + _FLOAT * self.nt, self.head + self.inputs + e)
        if self.scores:
            q = self.query
            last = 0 if self.model.architecture in _NO_LAST_Q else q
            rest = 5 * e + (last if q <= e else q + last)
            size = max(size, self.inputs + 16 * self.nt + self.scores + rest)
            why = "attention scores of every head over the whole context, since flash attention is off"
        return size, f"Estimated: {why}."


def _ff_widths(model: ModelInfo) -> dict[int, tuple[int, bool, int, bool]]:
    """Per layer: dense width and whether gated, expert width and whether gated, from the tensors themselves."""
    found: dict[int, tuple[int, bool, int, bool]] | None = model.memo.get("ff_widths")
    if found is not None:
        return found
    dense: dict[int, int] = {}
    expert: dict[int, int] = {}
    gated: set[int] = set()
    expert_gated: set[int] = set()
    for tensor in model.header.tensors:
        head, _, rest = tensor.name.partition(".")
        number, _, what = rest.partition(".")
        if head != "blk" or not number.isdigit():
            continue
        il = int(number)
        if what == "ffn_down.weight":
            dense[il] = tensor.shape[0]
        elif what == "ffn_down_exps.weight":
            expert[il] = tensor.shape[0]
        elif what == "ffn_gate.weight" or (what == "ffn_up.weight" and tensor.shape[1:2] != (dense.get(il),)):
            gated.add(il)
        elif what in ("ffn_gate_exps.weight", "ffn_gate_up_exps.weight"):
            expert_gated.add(il)
    layers = dense.keys() | expert.keys()
    found = {il: (dense.get(il, 0), il in gated, expert.get(il, 0), il in expert_gated) for il in layers}
    model.memo["ff_widths"] = found
    return found
