"""Attention to a few blocks of cells: which cells a block has, and how the mask is opened for the chosen ones.

Source: src/models/qwen4exp.cpp and glm5-next.cpp, llama-memory-hybrid-idx.cpp, read at build 11434.
"""

from dataclasses import dataclass

from kvstudio.budget.compute.blocks import Blocks
from kvstudio.budget.compute.foundation import AttnInput
from kvstudio.budget.compute.inputs import pad
from kvstudio.budget.compute.tensor import F16, F32, I32, I64, Tensor

_PAD = 64


@dataclass(frozen=True, slots=True)
class Pools:
    """Inputs of the blocks of `size` cells that are chosen among.

    `cells` one per block, `members` and `fresh` the cells of all and of newly summed blocks, `tail` those of none.
    """

    size: int
    index: AttnInput
    cells: Tensor
    members: Tensor
    mask: Tensor
    tail: Tensor
    fresh: Tensor
    fresh_cells: Tensor


def pools_of(g: Blocks, size: int, mask_type: int = F16) -> Pools:
    """For a full context, whose every block is new."""
    n_kv = g.r.n_ctx_seq
    n_new = max(1, n_kv // size * g.r.config.n_parallel)
    n_pool = max(_PAD, pad(n_new + 1, _PAD))
    index = AttnInput("lid", n_kv)
    index.k_idxs = g.input(I64, g.nt)
    cells, members = g.input(I32, n_pool), g.input(I32, size, n_pool)
    mask, tail = g.input(mask_type, n_pool, g.nt), g.input(I32, size - 1, g.nt)
    g.expand(cells, members, mask, tail)
    return Pools(size, index, cells, members, mask, tail, g.input(I32, size, n_new), g.input(I64, n_new))


def opened(g: Blocks, mask: Tensor, cells: Tensor, there: Tensor, spare: Tensor) -> Tensor:
    """Rows for all cells and the spare ones, closed but for the chosen `cells`; those not `there` go to spare rows."""
    nt, n_chosen = g.nt, cells.ne[0]
    n_all = mask.ne[0] + n_chosen
    closed, zeros = (g.reshape(g.repeat(g.fill(g.new(mask.type, n)), n, nt, 1, 1), 1, n, nt) for n in (n_all, n_chosen))
    at = g.add(g.mul(g.sub(g.cast(cells, F32), spare), there), spare)
    return g.set_rows(closed, zeros, g.reshape(g.cast(at, I32), n_chosen, nt, 1))
