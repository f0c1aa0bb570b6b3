"""The gated delta rule in chunks, which stands in where a device lacks the fused operation or is not the layer's own.

Source: src/models/delta-net-base.cpp build_delta_net_chunking, read at build 11434.
"""

from kvstudio.budget.compute.graph import Graph
from kvstudio.budget.compute.tensor import F32, Tensor

_CHUNK, _CHUNK_PER_CHANNEL = 64, 16


def _turned(g: Graph, x: Tensor) -> Tensor:
    return g.cont(g.transpose(x))


def _slice(g: Graph, x: Tensor) -> Tensor:
    return g.view(x, (x.ne[0], x.ne[1], 1, x.ne[3]), x.nb[1:])


def chunked(
    g: Graph, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """(outputs, new states), shaped (head, n_head, tokens, sequences) and (head, head, n_head, sequences).

    `q` and `k` have as many heads as `v`. `gate` has one value per head, or one per channel.
    """
    head, n_head, n, seqs = v.ne
    per_channel = gate.ne[0] == q.ne[0]
    size = _CHUNK_PER_CHANNEL if per_channel else _CHUNK
    more = -n % size
    chunks, rows = (n + more) // size, n_head * seqs
    q = g.scale(q)
    q, k, v, gate, beta = (g.pad(g.permute(x, 0, 2, 1, 3), 0, more) for x in (q, k, v, gate, beta))
    v_beta, k_beta = g.mul(v, beta), g.mul(k, beta)
    q, k, k_beta, v, v_beta, gate = (g.reshape(x, x.ne[0], size, chunks, rows) for x in (q, k, k_beta, v, v_beta, gate))
    summed = g.op("CUMSUM", _turned(g, gate))
    kb, kq = (_scores_per_channel if per_channel else _scores)(g, q, k, k_beta, summed, size)
    kq = g.op("TRI", kq)
    lower = g.op("TRI", kb)
    diagonal = g.fill(g.view(lower, (size,)))
    identity = g.make("DIAG", F32, (size, size), diagonal)
    left = g.add(lower, identity)
    negative = g.unary(lower)
    solved = g.add(g.make("SOLVE_TRI", F32, negative.ne, left, negative), identity)
    v = g.mul_mat(_turned(g, v_beta), solved)
    grown = g.unary(summed)
    k_decayed = g.mul_mat(g.mul(_turned(g, k_beta), grown), solved)
    q_grown = g.mul(q, _turned(g, grown))
    last = g.cont(g.view(summed, (1, *summed.ne[1:]), summed.nb[1:]))
    last_grown = g.transpose(g.unary(last))
    rest = _turned(g, g.unary(g.unary(g.sub(summed, last))))
    k_rest = _turned(g, g.mul(k, rest))
    state = g.reshape(state, head, head, 1, rows)
    v_turned = _turned(g, v)
    for _ in range(chunks):
        fresh = g.sub(_slice(g, v_turned), g.mul_mat(_slice(g, k_decayed), state))
        inner = g.mul_mat(fresh, _slice(g, kq))
        out = g.add(g.mul_mat(state, _slice(g, q_grown)), inner)
        v = Tensor("SET", v.type, v.ne, (v, out), v.nb, v)
        gained = g.mul_mat(_slice(g, k_rest), fresh)
        state = g.add(g.mul(state, _slice(g, last_grown)), gained)
    step = 4 * head
    wide = step * size * chunks
    result = g.permute(g.view(v, (head, n, n_head, seqs), (step, wide, wide * n_head)), 0, 2, 1, 3)
    return result, g.reshape(state, head, head, n_head, seqs)


def _scores(g: Graph, q: Tensor, k: Tensor, k_beta: Tensor, summed: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Scores of keys and of queries within a chunk, with one decay per head."""
    _, _, chunks, rows = k.ne
    wide = g.repeat(g.reshape(summed, 1, size, chunks, rows), size, size, chunks, rows)
    decay = g.unary(g.op("TRI", g.sub(wide, summed)))
    return g.mul(g.mul_mat(k, k_beta), decay), g.mul(g.mul_mat(k, q), decay)


def _scores_per_channel(
    g: Graph, q: Tensor, k: Tensor, k_beta: Tensor, summed: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """The same with a decay for each channel."""
    head, _, chunks, rows = k.ne
    every = chunks * rows
    one = g.reshape(summed, size, 1, head, every)
    wide = g.repeat(g.reshape(summed, 1, size, head, every), size, size, head, every)
    decay = g.unary(g.op("TRI", g.sub(wide, one)))
    decay = g.cont(g.permute(decay, 2, 1, 0, 3), head, size, size, every)
    k_beta, keys, q = (
        g.reshape(k_beta, head, size, 1, every), g.reshape(k, head, 1, size, every), g.reshape(q, head, size, 1, every)
    )  # fmt: skip
    of_keys, of_queries = g.mul(decay, k_beta), g.mul(decay, q)
    kb, kq = g.mul_mat(of_keys, keys), g.mul_mat(of_queries, keys)
    kb, kq = (_turned(g, g.reshape(x, size, size, chunks, rows)) for x in (kb, kq))
    return kb, kq
