"""The context that drafts with a model's own next-token block: one layer over embeddings and hidden states.

Source: graph_mtp in src/models (qwen3next, qwen35, qwen35moe, glm-dsa, deepseek32), read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.decoder import Decoder
from kvstudio.budget.compute.dsa import DsaDecoder
from kvstudio.budget.compute.hybrid import DeltaNet
from kvstudio.budget.compute.mla import MlaDecoder
from kvstudio.budget.compute.tensor import F32, I32, Tensor


def build(g: Blocks) -> None:
    """Raises LookupError where the architecture's block is not known."""
    decoder = _decoder(g)
    il = g.model.n_layer
    tokens, hidden = g.input(I32, g.nt), g.input(F32, g.n_embd, g.nt)
    own = g.w(il, "nextn.embed_tokens")
    embd = g.get_rows(g.top("token_embd.weight") if own is None else own, tokens)
    decoder.pos = g.inp_pos()
    decoder.out_ids = g.inp_out_ids()
    _attention_inputs(decoder)
    hidden = g.build_norm(hidden, g.w(il, "nextn.hnorm"), None, "rms", il)
    embd = g.build_norm(embd, g.w(il, "nextn.enorm"), None, "rms", il)
    cur = g.mm(g.need(il, "nextn.eh_proj"), g.concat(embd, hidden, 0), g.w(il, "nextn.eh_proj", "scale"))
    inp = cur
    normed = decoder.normed(cur, il, "attn_norm")
    cur = decoder.gated_attention(il, normed) if isinstance(decoder, DeltaNet) else decoder.attention(il, normed)
    late = g.r.arch != "qwen3next"
    if not late:
        cur, inp = g.get_rows(cur, decoder.out_ids), g.get_rows(inp, decoder.out_ids)
    mid = g.add(cur, inp)
    name = "post_attention_norm" if isinstance(decoder, DeltaNet) else decoder.s.ffn_norm
    cur = g.add(decoder.feed_forward(il, decoder.normed(mid, il, name)), mid)
    _head(g, il, cur, decoder.out_ids if late else None)


def _decoder(g: Blocks) -> Decoder:
    arch = g.r.arch
    if arch in ("qwen3next", "qwen35", "qwen35moe"):
        return DeltaNet(g)
    if arch in ("glm-dsa", "deepseek32"):
        return MlaDecoder(g)
    raise LookupError(f"the draft graph of {arch} is not known")


def _attention_inputs(decoder: Decoder) -> None:
    g = decoder.g
    latent = isinstance(decoder, MlaDecoder) and not isinstance(decoder, DsaDecoder) and decoder.absorbed
    decoder.base = g.attn_input(k_only=latent, rot=not latent)


def _head(g: Blocks, il: int, cur: Tensor, rows: Tensor | None) -> None:
    norm = g.w(il, "nextn.shared_head_norm")
    cur = g.build_norm(cur, g.r.weight("output_norm.weight") if norm is None else norm, None, "rms", -1)
    cur.is_output = True
    cur = cur if rows is None else g.get_rows(cur, rows)
    own = g.w(il, "nextn.shared_head_head")
    out = g.mm(g.top("output.weight") if own is None else own, cur)
    out.is_output = True
    g.expand(out)
