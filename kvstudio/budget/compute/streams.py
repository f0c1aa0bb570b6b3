"""Several residual streams mixed before and behind every block, as DeepSeek V4 and GLM 5 Next do it.

Source: src/models/deepseek4.cpp and glm5-next.cpp, read at build 11434.
"""

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.tensor import F32, Tensor


class Streams:
    """`fused`: whether the steps are single operations."""

    g: Blocks
    n_hc: int
    n_iterations: int
    fused: bool

    def affine(self, x: Tensor, scale: Tensor, base: Tensor) -> Tensor:
        return self.g.add(self.g.mul(x, scale), base)

    def mixes(self, x: Tensor, fn: Tensor) -> Tensor:
        g = self.g
        return g.mul_mat(fn, g.rms_norm(g.reshape(x, g.n_embd * self.n_hc, x.ne[2])))

    def hc_pre(self, il: int, x: Tensor, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """The block's input, and how its result is spread over the streams again."""
        g, hc, nt = self.g, self.n_hc, x.ne[2]
        mixes = self.mixes(x, g.need(il, f"hc_{part}_fn"))
        scale, base = g.need(il, f"hc_{part}_scale"), g.need(il, f"hc_{part}_base")
        one, few = g.view(scale, (1,)), g.view(base, (hc,))
        pre = self.affine(g.view(mixes, (hc, nt), mixes.nb[1:2]), one, few)
        pre = g.scale(g.unary(pre))
        post = self.affine(g.view(mixes, (hc, nt), mixes.nb[1:2]), g.view(scale, (1,)), g.view(base, (hc,)))
        post = g.scale(g.unary(post))
        if self.fused:
            comb = g.make("DSV4_HC_COMB", F32, (hc, hc, nt), mixes, scale, base)
        else:
            comb = g.view(mixes, (hc * hc, nt), mixes.nb[1:2])
            comb = self.affine(comb, g.view(scale, (1,)), g.view(base, (hc * hc,)))
            comb = self.sinkhorn(g.reshape(comb, hc, hc, nt))
        return self.weighted(x, pre, fused=self.fused), post, comb

    def weighted(self, x: Tensor, weights: Tensor, *, fused: bool) -> Tensor:
        """The sum of the streams, each with its weight."""
        g, nt = self.g, x.ne[2]
        if fused:
            return g.make("DSV4_HC_PRE", F32, (g.n_embd, nt), x, weights)
        result: Tensor | None = None
        for _ in range(self.n_hc):
            row = g.view(x, (g.n_embd, nt), x.nb[2:3])
            cur = g.mul(row, g.view(weights, (1, nt), weights.nb[1:2]))
            result = cur if result is None else g.add(result, cur)
        assert result is not None
        return result

    def sinkhorn(self, comb: Tensor) -> Tensor:
        g = self.g
        comb = g.soft_max(comb)
        eps = g.fill(g.new(F32, 1))
        comb = g.add(comb, eps)
        for turn in range(2 * self.n_iterations - 1):
            if turn % 2:
                comb = g.div(comb, g.add(g.sum_rows(comb), eps))
            else:
                total = g.add(g.sum_rows(g.cont(g.permute(comb, 1, 0, 2, 3))), eps)
                comb = g.div(comb, g.permute(total, 1, 0, 2, 3))
        return comb

    def hc_post(self, x: Tensor, residual: Tensor, post: Tensor, comb: Tensor) -> Tensor:
        g, nt, hc = self.g, x.ne[1], self.n_hc
        if self.fused:
            return g.make("DSV4_HC_POST", F32, (g.n_embd, hc, nt), x, residual, post, comb)
        out: Tensor | None = None
        for _ in range(hc):
            cur = g.mul(x, g.view(post, (1, nt), post.nb[1:2]))
            for _ in range(hc):
                stream = g.view(residual, (g.n_embd, nt), residual.nb[2:3])
                cur = g.add(cur, g.mul(stream, g.view(comb, (1, nt), comb.nb[2:3])))
            cur = g.reshape(cur, g.n_embd, 1, nt)
            out = cur if out is None else g.concat(out, cur, 1)
        assert out is not None
        return out
