"""Feed-forward blocks: dense ones and mixtures of experts.

Source: llama-graph.cpp build_ffn and build_moe_ffn, read at build 11434.
"""

from kvstudio.budget.compute.foundation import Foundation
from kvstudio.budget.compute.tensor import F32, I32, Tensor


class FeedForward(Foundation):
    """Behind the attention of most layers."""

    def ffn(
        self,
        il: int,
        cur: Tensor,
        act: str,
        *,
        names: str = "ffn_{}",
        gated: bool | None = None,
        limit: bool = False,
    ) -> Tensor:
        """The dense feed-forward block. `act`: silu, gelu, relu, relu_sqr, or swiglu/geglu over one fused up weight;
        `limit`: what passes the gate is clamped.
        """

        def part(which: str) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
            name = names.format(which)
            return self.w(il, name), self.b(il, name), self.w(il, name, "scale")

        up, up_b, up_s = part("up")
        gate, gate_b, gate_s = part("gate")
        down, down_b, down_s = part("down")
        if gated is False:
            gate = None
        return self.ffn_of(cur, act, up, up_b, up_s, gate, gate_b, gate_s, down, down_b, down_s, limit=limit)

    def ffn_of(
        self,
        cur: Tensor,
        act: str,
        up: Tensor | None,
        up_b: Tensor | None,
        up_s: Tensor | None,
        gate: Tensor | None,
        gate_b: Tensor | None,
        gate_s: Tensor | None,
        down: Tensor | None,
        down_b: Tensor | None = None,
        down_s: Tensor | None = None,
        *,
        limit: bool = False,
    ) -> Tensor:
        tmp = self.biased(self.mm(up, cur) if up is not None else cur, up_b, up_s)
        if gate is not None:
            cur = self.biased(self.mm(gate, cur), gate_b, gate_s)
            cur = self.gated(cur, tmp, act, limit)
        else:
            cur = self.activated(tmp, act)
        if down is not None:
            cur = self.mm(down, cur)
        return self.biased(cur, down_b, down_s)

    def biased(self, cur: Tensor, bias: Tensor | None, scale: Tensor | None) -> Tensor:
        if bias is not None:
            cur = self.add(cur, bias)
        return cur if scale is None else self.mul(cur, scale)

    def gated(self, gate: Tensor, up: Tensor, act: str, limit: bool = False) -> Tensor:
        if act == "relu_sqr":
            return self.mul(self.op("SQR", self.unary(gate)), up)
        if act == "situ":
            gate = self.mul(self.scale(self.unary(self.scale(gate))), self.unary(gate))
            return self.mul(gate, self.scale(self.unary(self.scale(up))))
        if limit and self.r.arch == "deepseek4":
            return self.glu(self.clamp(gate), self.clamp(up))
        if limit:
            up = self.clamp(up)
            return self.mul(self.clamp(self.unary(gate)), up)
        return self.glu(gate, up)

    def activated(self, cur: Tensor, act: str) -> Tensor:
        if act in ("swiglu", "geglu", "reglu"):
            return self.glu_half(cur)
        cur = self.unary(cur)
        return self.op("SQR", cur) if act == "relu_sqr" else cur

    def moe(
        self,
        il: int,
        cur: Tensor,
        *,
        act: str = "silu",
        norm_w: bool = False,
        scale: bool = False,
        gating: str = "softmax",
        probs_b: bool = True,
        limit: bool = False,
        n_expert: int | None = None,
        n_used: int | None = None,
        names: str = "ffn_{}_exps",
        probs_in: Tensor | None = None,
        biases: bool = True,
        selected: Tensor | None = None,
        n_groups: int | None = None,
        gate_name: str = "ffn_gate_inp",
    ) -> Tensor:
        """Router, selected experts, their weighted sum."""
        n_embd, nt = cur.ne[0], cur.ne[1]
        n_expert = self.model.n_expert if n_expert is None else n_expert
        n_used = self.model.n_expert_used if n_used is None else n_used
        arch = self.r.arch
        logits = self.mm(self.need(il, gate_name), cur) if probs_in is None else probs_in
        gate_inp_b = self.b(il, gate_name) if biases else None
        if gate_inp_b is not None:
            logits = self.add(logits, gate_inp_b)
        if gating == "softmax":
            probs = self.soft_max(logits)
        elif gating == "sigmoid":
            probs = self.unary(logits)
        elif gating == "sqrt_softplus":
            probs = self.op("SQRT", self.unary(logits))
        else:
            probs = logits
        selection = probs
        bias = self.b(il, "exp_probs_b") or self.r.weight(f"blk.{il}.exp_probs_b") if probs_b else None
        if bias is not None:
            selection = self.add(probs, bias)
        if arch == "llama4":
            selection = logits
        elif arch == "grovemoe":
            selection = self.unary(logits)
        groups = int(self.r.number("expert_group_count")) if n_groups is None else n_groups
        if groups > 1:
            selection = self._grouped(selection, n_expert, groups, nt)
        chosen = self.argsort_top_k(selection, n_used) if selected is None else selected
        if arch == "grovemoe" and n_expert != self.model.n_expert:
            chosen = self.cast(self.scale(self.cast(chosen, F32)), I32)
            probs = self.reshape(probs, 1, self.model.n_expert, nt)
        else:
            probs = self.reshape(probs, 1, n_expert, nt)
        weights = self.get_rows(probs, chosen)
        if gating == "softmax_weight":
            weights = self.reshape(weights, n_used, nt)
            weights = self.reshape(self.soft_max(weights), 1, n_used, nt)
        if norm_w:
            weights = self.reshape(weights, n_used, nt)
            total = self.clamp(self.sum_rows(weights))
            weights = self.reshape(self.div(weights, total), 1, n_used, nt)
        if scale:
            weights = self.scale(weights)
        self.expand(weights)
        cur = self.reshape(cur, n_embd, 1, nt)
        before = arch == "llama4"
        if before:
            cur = self.mul(self.repeat(cur, n_embd, n_used, nt, 1), weights)
        cur = self._experts(il, cur, chosen, act, limit, names, biases)
        down = names.format("down")
        experts = self.mm_id(self.need(il, down), cur, chosen, self.w(il, down, "scale"))
        down_b = self.b(il, down) if biases else None
        if down_b is not None:
            experts = self.add_id(experts, down_b, chosen)
        if not before:
            experts = self.mul(experts, weights)
        self.expand(experts)
        return self.sum_experts(experts, n_embd, nt, n_used)

    def sum_experts(self, experts: Tensor, n_embd: int, nt: int, n_used: int) -> Tensor:
        views = [self.view(experts, (n_embd, nt), experts.nb[2:3]) for _ in range(n_used)]
        for view in views:
            self.expand(view)
        out = views[0]
        for view in views[1:]:
            out = self.add(out, view)
            self.expand(out)
        return self.cont(out) if n_used == 1 else out

    def _grouped(self, selection: Tensor, n_expert: int, groups: int, nt: int) -> Tensor:
        used_groups = int(self.r.number("expert_group_used_count", 1))
        per = n_expert // groups
        grouped = self.reshape(selection, per, groups, nt)
        scores = self.argsort_top_k(grouped, 2)
        scores = self.get_rows(self.reshape(grouped, 1, per, groups, nt), scores)
        scores = self.sum_rows(self.reshape(scores, 2, groups, nt))
        scores = self.reshape(scores, groups, nt)
        best = self.argsort_top_k(scores, used_groups)
        picked = self.get_rows(grouped, best)
        return self.reshape(self.set_rows(self.fill(grouped), picked, best), n_expert, nt)

    def _experts(self, il: int, cur: Tensor, chosen: Tensor, act: str, limit: bool, names: str, biases: bool) -> Tensor:
        up_name, gate_name, both_name = names.format("up"), names.format("gate"), names.format("gate_up")
        both = self.w(il, both_name)
        if both is not None:
            merged = self.mm_id(both, cur, chosen, self.w(il, both_name, "scale"))
            bias = self.b(il, both_name) if biases else None
            if bias is not None:
                merged = self.add_id(merged, bias, chosen)
            half = merged.ne[0] // 2
            gate = self.view(merged, (half, *merged.ne[1:3]), merged.nb[1:3])
            up = self.view(merged, (half, *merged.ne[1:3]), merged.nb[1:3])
            return self.gated(gate, up, act)
        up = self.mm_id(self.need(il, up_name), cur, chosen, self.w(il, up_name, "scale"))
        bias = self.b(il, up_name) if biases else None
        if bias is not None:
            up = self.add_id(up, bias, chosen)
        gate_w = self.w(il, gate_name)
        if gate_w is None:
            return self.activated(up, act)
        gate = self.mm_id(gate_w, cur, chosen, self.w(il, gate_name, "scale"))
        bias = self.b(il, gate_name) if biases else None
        if bias is not None:
            gate = self.add_id(gate, bias, chosen)
        return self.gated(gate, up, act, limit)
