"""Clef, a decision model: the trunk of Qwen3.5 without a memory, and a head that scores options instead of logits.

Source: src/models/clef.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.delta import chunked
from kvstudio.budget.compute.hybrid import DeltaNet
from kvstudio.budget.compute.recurrent import Gather, States
from kvstudio.budget.compute.tensor import F32, I32, Tensor


class EmptyStates(States):
    """States that begin at zero with each batch and are not kept; the whole batch is one sequence."""

    def __init__(self, g: Blocks) -> None:
        self.g = g
        hp = g.model.hparams
        inner, k_dim, k_heads, v_heads, kernel = (
            int(hp[k]) for k in ("ssm_d_inner", "ssm_d_state", "ssm_n_group", "ssm_dt_rank", "ssm_d_conv")
        )  # fmt: skip
        self.widths = {"r": (kernel - 1) * (inner + 2 * k_heads * k_dim), "s": (inner // v_heads) * inner}
        self.rollback, self.n_rs, self.n_seqs, self.per_seq = 0, 1, 1, g.nt

    def load(self, kind: str, il: int, gather: Gather | None = None) -> Tensor:
        return self.g.fill(self.g.new(F32, self.widths[kind]))

    def store_conv(self, il: int, both: Tensor, kept: int, channels: int) -> None:
        """Nothing is kept."""

    def delta_net(self, il: int, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor, state: Tensor) -> Tensor:
        g = self.g
        if not self.fuses_delta:
            return chunked(g, q, k, v, gate, beta, state)[0]
        head, n_head, n, _ = v.ne
        out = g.make("GATED_DELTA_NET", F32, (head * n_head, n + head), q, k, v, gate, beta, state)
        g.fused_delta.append((out, il))
        step = 4 * head
        return g.view(out, (head, n_head, n, 1), (step, step * n_head, step * n_head * n))


class Clef(DeltaNet):
    def begin(self) -> Tensor:
        g = self.g
        cur = g.inp_embd()
        self.pos = g.inp_pos()
        self.base = g.attn_input_no_cache()
        self.states = EmptyStates(g)
        return cur

    def layer(self, il: int, inp: Tensor) -> Tensor:
        g = self.g
        normed = self.normed(inp, il, "attn_norm")
        cur = self.linear(il, normed) if g.r.layers[il].is_recurrent else self.gated_attention(il, normed)
        mid = g.add(cur, inp)
        return g.add(self.feed_forward(il, self.normed(mid, il, "post_attention_norm")), mid)

    def finish(self, cur: Tensor) -> None:
        g = self.g
        scores = Head(g).scores(g.build_norm(cur, g.top("output_norm.weight"), None, "rms", -1))
        g.embd = g.add(g.pad(scores, 0, g.nt - scores.ne[1]), g.input(F32, 1))
        g.embd.is_output = True
        g.expand(g.embd)


class Head:
    """Scores of the options; a reserve counts on one question with one option."""

    def __init__(self, g: Blocks) -> None:
        self.g = g
        self.n_routing = g.r.whole("decision.routing_block_count")
        self.n_joint = g.r.whole("decision.block_count")

    def scores(self, hidden: Tensor) -> Tensor:
        g = self.g
        tokens, pool_q, pool_o = g.input(I32, g.nt), g.input(F32, g.nt, 1), g.input(F32, g.nt, 1)
        kind, owner, mask = g.input(I32, 1), g.input(I32, 1), g.input(F32, 1, 1)
        hidden = self.normed(hidden, "decision.hidden_norm")
        memory = self.project("memory", hidden)
        last = g.view(hidden, (g.n_embd, 1), hidden.nb[1:2])
        columns = g.cont(g.transpose(hidden))
        question, context = g.mul_mat(columns, pool_q), g.mul_mat(columns, pool_o)
        spoken = g.get_rows(g.top("output.weight"), tokens)
        lexical = g.mul_mat(g.cont(g.transpose(spoken)), pool_o)
        options = g.add(self.project("option_context", context), self.project("option_lexical", lexical))
        options = g.add(options, g.get_rows(self.project("option_question", question), owner))
        for il in range(self.n_routing):
            options = self.routed(il, options, memory)
        fields = self.fields(question, options, last, kind, mask)
        for il in range(self.n_routing, self.n_routing + self.n_joint):
            fields = self.joined(il, fields, memory)
        return self.scored(self.normed(fields, "decision.field_norm"), options, question, last, lexical, owner)

    def routed(self, il: int, options: Tensor, memory: Tensor) -> Tensor:
        g, at = self.g, f"dec.blk.{il}."
        query, read = self.normed(options, at + "cross_attn_norm"), self.normed(memory, at + "cross_attn_norm_kv")
        options = g.add(options, self.attended(query, read, at + "cross_attn"))
        return g.add(options, self.forward(il, options))

    def joined(self, il: int, fields: Tensor, memory: Tensor) -> Tensor:
        g, at = self.g, f"dec.blk.{il}."
        cur = self.normed(fields, at + "attn_norm")
        fields = g.add(fields, self.attended(cur, cur, at + "attn"))
        cur = self.normed(fields, at + "cross_attn_norm")
        fields = g.add(fields, self.attended(cur, memory, at + "cross_attn"))
        return g.add(fields, self.forward(il, fields))

    def fields(self, question: Tensor, options: Tensor, last: Tensor, kind: Tensor, mask: Tensor) -> Tensor:
        """One row per question: its text, a summary of its options, the end of the prompt and its kind."""
        g = self.g
        fields = self.project("question", question)
        weights = g.soft_max(g.add(g.scale(g.mul_mat(options, fields)), mask))
        summary = g.mul_mat(g.cont(g.transpose(options)), weights)
        fields = g.add(fields, self.normed(summary, "decision.option_summary_norm"))
        fields = g.add(fields, self.project("global", last))
        return g.add(fields, g.get_rows(g.top("token_types.weight"), kind))

    def scored(
        self, fields: Tensor, options: Tensor, question: Tensor, last: Tensor, lexical: Tensor, owner: Tensor
    ) -> Tensor:
        g = self.g
        anchor = g.get_rows(g.l2_norm(g.add(question, last)), owner)
        prior = g.sum_rows(g.mul(g.l2_norm(lexical), anchor))
        options = self.normed(options, "decision.option_norm")
        field = g.get_rows(fields, owner)
        cosine = g.sum_rows(g.mul(g.l2_norm(field), g.l2_norm(options)))
        features = g.concat(g.concat(field, options, 0), g.mul(field, options), 0)
        features = g.concat(features, g.unary(g.sub(field, options)), 0)
        residual = self.linear("decision.scorer_out", g.unary(self.linear("decision.scorer", features)))
        scales = g.top("decision.scales")
        joint = g.add(g.mul(cosine, g.view(scales, (1,))), residual)
        return g.add(g.mul(prior, g.view(scales, (1,))), g.mul(joint, g.view(scales, (1,))))

    def attended(self, query: Tensor, read: Tensor, name: str) -> Tensor:
        g = self.g
        heads, width, n_q, n_kv = g.r.whole("decision.head_count"), query.ne[0], query.ne[1], read.ne[1]
        q = g.reshape(self.linear(f"{name}_q", query), width // heads, heads, n_q)
        k = g.reshape(self.linear(f"{name}_k", read), width // heads, heads, n_kv)
        v = g.reshape(self.linear(f"{name}_v", read), width // heads, heads, n_kv)
        v = g.cont(g.permute(v, 1, 2, 0, 3))
        scores = g.soft_max(g.mul_mat(g.permute(k, 0, 2, 1, 3), g.permute(q, 0, 2, 1, 3)))
        cur = g.cont(g.permute(g.mul_mat(v, scores), 0, 2, 1, 3), width, n_q)
        return self.linear(f"{name}_o", cur)

    def forward(self, il: int, cur: Tensor) -> Tensor:
        at = f"dec.blk.{il}.ffn_"
        return self.linear(at + "down", self.g.unary(self.linear(at + "up", self.normed(cur, at + "norm"))))

    def normed(self, cur: Tensor, name: str) -> Tensor:
        g = self.g
        return g.build_norm(cur, g.top(f"{name}.weight"), g.top(f"{name}.bias"), "layer", -1)

    def linear(self, name: str, cur: Tensor) -> Tensor:
        g = self.g
        return g.add(g.mul_mat(g.top(f"{name}.weight"), cur), g.top(f"{name}.bias"))

    def project(self, name: str, cur: Tensor) -> Tensor:
        return self.g.mul_mat(self.g.top(f"decision.proj_{name}.weight"), cur)


def build(g: Blocks) -> None:
    Clef(g).build()
