"""The building blocks llama.cpp's model graphs share, together, and how a graph ends: logits, pooled rows, ranks.

Source: llama-graph.cpp llm_graph_context, read at build 11434. Operation order decides the result, so it is kept.
"""

from kvstudio.budget.compute.attention import Attention
from kvstudio.budget.compute.feed_forward import FeedForward
from kvstudio.budget.compute.tensor import F32, I32, Tensor
from kvstudio.budget.pooling import takes_means


class Blocks(Attention, FeedForward):
    """A graph under construction for one reserve."""

    def head(self, cur: Tensor, kind: str = "rms", *, extra: int = 0, norm: str = "output_norm") -> Tensor:
        """Final norm and logits; `extra` counts scalings and soft caps behind them."""
        w = self.r.weight(f"{norm}.weight")
        cur = self.build_norm(cur, w, self.r.weight(f"{norm}.bias"), kind, -1)
        return self.logits(cur, extra=extra)

    def logits(self, cur: Tensor, *, extra: int = 0) -> Tensor:
        if self.embd is None:
            self.embd = cur
            cur.is_output = True
        out = self.r.weight("output.weight")
        if out is not None:
            cur = self.mm(out, cur, self.r.weight("output.scale"))
            bias = self.r.weight("output.bias")
            if bias is not None:
                cur = self.add(cur, bias)
            for _ in range(extra):
                cur = self.scale(cur)
            cur.is_output = True
        self.expand(cur)
        return cur

    def pool(self) -> None:
        """In embedding mode the rows are pooled per sequence behind the rest of the graph."""
        r, embd = self.r, self.embd
        if not r.embeddings or embd is None:
            return
        kind = r.pooling_kind
        embd.is_output = True
        if kind == "none":
            return
        if takes_means(r.model, kind):
            mean = self.input(F32, self.nt, r.n_seqs)
            cur = self.mul_mat(self.cont(self.transpose(embd)), mean)
        else:
            cur = self.get_rows(embd, self.input(I32, r.n_seqs))
        if kind == "rank":
            cur = self._classify(cur)
        cur.is_output = True
        self.expand(cur)

    def _classify(self, cur: Tensor) -> Tensor:
        r = self.r
        cls = r.weight("cls.weight")
        if cls is not None:
            cur = self.mm(cls, cur)
            bias = r.weight("cls.bias")
            cur = self.unary(cur if bias is None else self.add(cur, bias))
            norm = r.weight("cls.norm.weight")
            if norm is not None:
                cur = self.mul(self.norm(cur), norm)
        out = r.weight("cls.output.weight")
        if out is not None:
            cur = self.mm(out, cur)
            bias = r.weight("cls.output.bias")
            cur = cur if bias is None else self.add(cur, bias)
        return self.soft_max(cur) if r.arch in ("qwen3", "qwen3vl") else cur
