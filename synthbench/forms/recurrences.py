"""Linear recurrences whose state is a matrix, computed one token at a time or chunk by chunk.

The queries and keys are [..., length, key_dim], and the values [..., length, value_dim]. The state S is [key_dim,
value_dim], and the output is S_tᵀ q_t. There are three recurrences:

* Decay: S_t = diag(exp(log_decay_t)) S_{t-1} + k_t v_tᵀ, with one decay per key channel or one for all channels.
* Delta rule: S_t = (I - beta_t k_t k_tᵀ) S_{t-1} + beta_t k_t v_tᵀ.
* Delta rule with decay: S_t = D_t S_{t-1} + w_t (v_t - S_{t-1}ᵀ D_t r_t)ᵀ with D_t = diag(exp(log_decay_t)).

A step of the delta rule with decay removes, at a write key w, the value that the decayed state returns for a read key
r. The step then adds v, at the same key w or at a separate key.

Within a chunk all tokens are computed together; a Python loop carries the state from chunk to chunk. On a CPU a long
sequence is processed segment by segment. Leading axes broadcast.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from synthbench.forms.linear import widened
from synthbench.forms.state import State

CHUNK = 32
"""Largest number of tokens in a chunk."""

SEGMENT = 1024
"""Largest number of tokens that a CPU processes at once, a multiple of the chunk; their data fit a core's caches."""

PAIRS = 4
"""Number of tokens in the smallest blocks, in which a decay per channel is computed for every pair of tokens."""

LARGEST = 20.0
"""Largest exponent of a factor in the method that measures decays from the middle of the chunk. In float32, exp(x)
overflows at x = 89."""


def decayed(
    q: Float[Tensor, "... queries key_dim"],
    k: Float[Tensor, "... length key_dim"],
    v: Float[Tensor, "... length value_dim"],
    log_decay: Float[Tensor, "... length decays"],
    *,
    state: State | None = None,
) -> Float[Tensor, "... queries value_dim"]:
    """Compute the outputs S_tᵀ q_t of the recurrence S_t = diag(exp(log_decay_t)) S_{t-1} + k_t v_tᵀ.

    Sequences are processed chunk by chunk. If ``state`` is given, the inputs belong to the next token only, and
    ``state`` is updated.

    If there are fewer queries than keys, there must be a single query, at the last position. Nothing overflows, however
    fast the state decays. Running sums of log decays are rounded, though: after a decay of exp(-1000), a slow decay in
    the same chunk has a relative error of about 1e-4 in float32.
    """
    if state is not None:
        return _next(state, q, k, v, log_decay=log_decay)
    if q.shape[-2] < k.shape[-2]:
        elapsed = log_decay.cumsum(-2)
        return q @ (k * (elapsed[..., -1:, :] - elapsed).exp()).mT @ v
    return _by_segments(_decayed_segment, q, k, v, log_decay)


def delta(
    q: Float[Tensor, "... length key_dim"],
    k: Float[Tensor, "... length key_dim"],
    v: Float[Tensor, "... length value_dim"],
    beta: Float[Tensor, "... length 1"],
    *,
    state: State | None = None,
) -> Float[Tensor, "... length value_dim"]:
    """Compute the outputs S_tᵀ q_t of the delta rule S_t = (I - beta_t k_t k_tᵀ) S_{t-1} + beta_t k_t v_tᵀ.

    Sequences are processed chunk by chunk. If ``state`` is given, the inputs belong to the next token only, and
    ``state`` is updated.

    Let S be the state before a chunk, and let the rows of K and V be the keys and values of the chunk. The chunk adds
    K^T N to S, where N = U - W S. U and W solve the triangular system (I + tril(diag(beta) K K^T, -1)) [U, W] =
    diag(beta) [V, K] (the WY form of the chunk's steps).

    Source: Yang et al. (2024), Parallelizing linear transformers with the delta rule.
    """
    if state is not None:
        return _next(state, q, beta * k, v, taken_out=(k, beta * k))
    # PyTorch solves no system in half precision on a CPU.
    return _by_segments(_delta_segment, *map(widened, (q, k, v, beta))).to(v.dtype)


def corrected(
    q: Float[Tensor, "... queries key_dim"],
    read: Float[Tensor, "... length key_dim"],
    write: Float[Tensor, "... length key_dim"],
    v: Float[Tensor, "... length value_dim"],
    log_decay: Float[Tensor, "... length decays"],
    key: Float[Tensor, "... length key_dim"] | None = None,
    *,
    fastest: float = math.inf,
    state: State | None = None,
) -> Float[Tensor, "... queries value_dim"]:
    """Compute the outputs of a delta rule with decay, chunk by chunk, with one or more steps before each query.

    All inputs except the queries have one row per step. If there are n steps per query, each query reads the state
    after its n steps. A step with write key w and read key r multiplies the state by the decay and then by I - w rᵀ. It
    then adds the value v at the key w, or at ``key`` if this is given.

    Let S be the state before a chunk. The rows of V are the chunk's values. The rows of W are the write keys, each
    decayed from its own step until the end of the chunk. Without ``key``, the chunk decays S and adds Wᵀ (B -
    R S). Here, B and R solve the triangular system (I + A) [B, R] = [V, R']. The matrix A contains the products of read
    keys with earlier write keys, times the decays between them. The matrix R' contains the read keys, decayed since the
    chunk began.

    With one decay per channel, a faster method is used if ``fastest`` times the number of steps in a chunk is at most
    twice :data:`LARGEST`. The exponents of this method can be positive, but do not exceed :data:`LARGEST`, so nothing
    overflows.

    Args:
        q: Queries.
        read: Read keys r, one per step. A step reads the value that the decayed state returns for r.
        write: Write keys w, one per step. At the key w, a step subtracts the value that it has read.
        v: Values to add.
        log_decay: Logarithms of the decays, at most 0: one per channel, or one for all channels.
        key: Keys at which the values are added; None means ``write``.
        fastest: Upper limit of ``-log_decay``. A small limit allows the faster method for decays per channel.
        state: State before the steps of a single query; it is updated. None if the inputs are whole sequences.

    Source: Yang et al. (2024), Parallelizing linear transformers with the delta rule, and Yang et al. (2025), Gated
    delta networks, for the version with a decay.
    """
    if state is not None:
        return _next(state, q, write if key is None else key, v, log_decay=log_decay, taken_out=(read, write))
    tensors = (q, read, write, v, log_decay, *(() if key is None else (key,)))
    return _by_segments(partial(_corrected_segment, fastest=fastest), *map(widened, tensors)).to(v.dtype)


def _next(
    state: State,
    q: Tensor,
    key: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = None,
    taken_out: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Update the matrix in ``state`` by the steps of one query, and return the output of the query.

    ``taken_out`` contains the read keys and the write keys of a delta rule; it is None for a mere decay.
    """
    dtype, (q, key, v) = v.dtype, map(widened, (q, key, v))
    matrix = state.tensors.get("matrix")
    if matrix is None:
        matrix = torch.zeros_like(key[..., 0, :, None] * v[..., 0, None, :])
    for n in range(v.shape[-2]):
        if log_decay is not None:
            matrix = widened(log_decay)[..., n, :, None].exp() * matrix
        put_in = key[..., n, :, None] * v[..., n, None, :]
        if taken_out is not None:
            read, write = (x[..., n, :, None] for x in taken_out)
            put_in = put_in - write * (read * matrix).sum(-2, keepdim=True)
        matrix = matrix + put_in
    state.tensors["matrix"] = matrix
    return (q.mT * matrix).sum(-2, keepdim=True).to(dtype)


Segment = Callable[..., tuple[Tensor, Tensor | None]]
"""Function that takes a segment's tensors, the ``state`` before the segment and ``goes_on`` (False for the last
segment). The function returns the outputs, and the state after the segment or None."""


def _by_segments(segment: Segment, *tensors: Tensor) -> Tensor:
    """Compute the outputs segment by segment; on a GPU, all tokens are one segment, to save kernel launches."""
    length = tensors[0].shape[-2]
    if length <= SEGMENT or tensors[0].device.type != "cpu":
        return segment(*tensors, state=None, goes_on=False)[0]
    outs: list[Tensor] = []
    state: Tensor | None = None
    # Split, not sliced: the gradient of a slice is as long as the whole.
    for parts in zip(*(x.split(SEGMENT * (x.shape[-2] // length), dim=-2) for x in tensors), strict=True):
        out, state = segment(*parts, state=state, goes_on=(len(outs) + 1) * SEGMENT < length)
        outs.append(out)
    return torch.cat(outs, dim=-2)


def _decayed_segment(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *, state: Tensor | None, goes_on: bool
) -> tuple[Tensor, Tensor | None]:
    length = v.shape[-2]
    num_chunks, size = chunks_of(length)
    if log_decay.shape[-1] > 1:
        size = _doubled(size)
    q, k, v, log_decay = (cut(x, num_chunks, size) for x in (q, k, v, log_decay))
    elapsed = log_decay.cumsum(-2)
    out = (_within_by_head if log_decay.shape[-1] == 1 else _within_by_channel)(q, k, v, elapsed)
    if num_chunks > 1 or state is not None or goes_on:
        whole = elapsed[..., -1:, :]
        states, state = _carry(whole.exp().mT, (k * (whole - elapsed).exp()).mT @ v, state, goes_on=goes_on)
        out = out + (q * elapsed.exp()) @ states
    return out.flatten(-3, -2)[..., :length, :], state


def _delta_segment(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *, state: Tensor | None, goes_on: bool
) -> tuple[Tensor, Tensor | None]:
    length, value_dim = v.shape[-2:]
    q, k, v, beta = (cut(x, *chunks_of(length)) for x in (q, k, v, beta))
    scaled = beta * k
    solved: Tensor = torch.linalg.solve_triangular(
        (scaled @ k.mT).tril(-1), torch.cat([beta * v, scaled], dim=-1), upper=False, unitriangular=True
    )
    own, read = solved[..., :value_dim], solved[..., value_dim:]
    scores = (q @ k.mT).tril()
    if k.shape[-3] == 1 and state is None and not goes_on:
        return (scores @ own).squeeze(-3), None
    if state is None:
        state = torch.zeros_like(k[..., 0, :, :].mT @ own[..., 0, :, :])
    states, news = [], []
    for k_n, own_n, read_n in zip(k.unbind(-3), own.unbind(-3), read.unbind(-3), strict=True):
        new = own_n - read_n @ state
        states.append(state)
        news.append(new)
        state = state + k_n.mT @ new
    out = scores @ torch.stack(news, dim=-3) + q @ torch.stack(states, dim=-3)
    return out.flatten(-3, -2)[..., :length, :], state


def _corrected_segment(
    q: Tensor,
    read: Tensor,
    write: Tensor,
    v: Tensor,
    log_decay: Tensor,
    key: Tensor | None = None,
    *,
    fastest: float,
    state: Tensor | None,
    goes_on: bool,
) -> tuple[Tensor, Tensor | None]:
    queries, (length, value_dim) = q.shape[-2], v.shape[-2:]
    steps = length // queries
    num_chunks = min(queries, chunks_of(length)[0])
    size = math.ceil(queries / num_chunks)
    if log_decay.shape[-1] > 1:
        size = _doubled(size)
    q = cut(q, num_chunks, size)
    read, write, v, log_decay = (cut(x, num_chunks, steps * size) for x in (read, write, v, log_decay))
    columns = [write] if key is None else [write, cut(key, num_chunks, steps * size)]
    elapsed = log_decay.cumsum(-2)
    at_query, whole = elapsed[..., steps - 1 :: steps, :], elapsed[..., -1:, :]
    if steps == 1:  # the exponentials serve both
        of_read, of_query = _products([read, q], columns, elapsed, elapsed, fastest)
    else:
        (of_read,) = _products([read], columns, elapsed, elapsed, fastest)
        (of_query,) = _products([q], columns, at_query, elapsed, fastest)
    put_in = v if key is None else -of_read[1].tril(-1) @ v
    begin = read * elapsed.exp()
    axes = np.broadcast_shapes(put_in.shape[:-1], begin.shape[:-1])  # PyTorch's own imports sympy, for a second
    solved: Tensor = torch.linalg.solve_triangular(
        of_read[0].tril(-1),
        torch.cat([put_in.expand(*axes, -1), begin.expand(*axes, -1)], dim=-1),
        upper=False,
        unitriangular=True,
    )
    news, seen = solved.split([value_dim, solved.shape[-1] - value_dim], dim=-1)
    before: Tensor | float = 0.0
    if num_chunks > 1 or state is not None or goes_on:
        left = (whole - elapsed).exp()
        updates = None if key is None else (columns[1] * left).mT @ v
        news, states, state = _corrected_states(news, seen, (write * left).mT, whole.exp().mT, updates, state)
        before = (q * at_query.exp()) @ states
    out = before + of_query[0] @ news
    if key is not None:
        out = out + of_query[1] @ v
    return out.flatten(-3, -2)[..., :queries, :], state


def _corrected_states(
    news: Tensor, seen: Tensor, write: Tensor, decay: Tensor, updates: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return B - R S (see :func:`corrected`) and the initial state S of every chunk, and the state after the last."""
    if state is None:
        state = torch.zeros_like(write[..., 0, :, :] @ news[..., 0, :, :])
    states, put_in = [], []
    for n, (new, seen_n, write_n, decay_n) in enumerate(
        zip(news.unbind(-3), seen.unbind(-3), write.unbind(-3), decay.unbind(-3), strict=True)
    ):
        states.append(state)
        put_in.append(new - seen_n @ state)
        state = decay_n * state + write_n @ put_in[-1]
        if updates is not None:
            state = state + updates[..., n, :, :]
    return torch.stack(put_in, dim=-3), torch.stack(states, dim=-3), state


def _products(
    rows: list[Tensor], columns: list[Tensor], elapsed: Tensor, until: Tensor, fastest: float
) -> list[list[Tensor]]:
    """Compute the inner product of each row with each column, times the decay between their positions.

    The result is 0 where the column comes later than the row. If there are n times as many columns as rows, row i has
    the position of column n (i + 1) - 1, both counted from 0. Decays per channel are computed by blocks that double in
    size, as in :func:`_within_by_channel`. If all decays are slow enough, they are instead measured from the middle of
    the chunk.

    Args:
        rows: Left factors, such as queries, each [..., rows, key_dim].
        columns: Right factors, such as keys, each [..., columns, key_dim].
        elapsed: Sums of the log decays from the start of the chunk to each row.
        until: Sums of the log decays from the start of the chunk to each column.
        fastest: Upper limit of the negated log decay of one step.

    Returns:
        One list per tensor in ``rows``, with one matrix [..., rows, columns] per tensor in ``columns``.
    """
    num_rows, num_columns = rows[0].shape[-2], columns[0].shape[-2]
    if until.shape[-1] == 1:
        future = _later(num_rows, num_columns, until.device)
        weights = (elapsed - until.mT).masked_fill(future, -torch.inf).exp()
        return [[x @ y.mT * weights for y in columns] for x in rows]
    if fastest * num_columns <= 2 * LARGEST:
        future = _later(num_rows, num_columns, until.device)
        middle = until[..., (num_columns - 1) // 2, None, :]
        since, before = (elapsed - middle).exp(), (middle - until).exp()
        seen = [(y * before).mT for y in columns]
        return [[(x * since @ y).masked_fill(future, 0) for y in seen] for x in rows]
    block = num_rows
    while block > PAIRS and block % 2 == 0:
        block //= 2
    *rows, elapsed = (z.unflatten(-2, (-1, block)) for z in (*rows, elapsed))
    *columns, until = (z.unflatten(-2, (-1, block * num_columns // num_rows)) for z in (*columns, until))
    future = _later(block, until.shape[-2], until.device).unsqueeze(-1)
    weights = (elapsed.unsqueeze(-2) - until.unsqueeze(-3)).masked_fill(future, -torch.inf).exp()
    seen = [y.unsqueeze(-3) * weights for y in columns]
    products = [[(x.unsqueeze(-2) * y).sum(-1) for y in seen] for x in rows]
    while until.shape[-3] > 1:
        *late, elapsed_late = (z.unflatten(-3, (-1, 2)).select(-3, 1) for z in (*rows, elapsed))
        *early, until_early = (z.unflatten(-3, (-1, 2)).select(-3, 0) for z in (*columns, until))
        border = until_early[..., -1:, :]
        since, before = (elapsed_late - border).exp(), (border - until_early).exp()
        late, early = [x * since for x in late], [(y * before).mT for y in early]
        products = [
            [_two_by_two(product, x @ y) for y, product in zip(early, of_row, strict=True)]
            for x, of_row in zip(late, products, strict=True)
        ]
        *rows, elapsed = (z.unflatten(-3, (-1, 2)).flatten(-3, -2) for z in (*rows, elapsed))
        *columns, until = (z.unflatten(-3, (-1, 2)).flatten(-3, -2) for z in (*columns, until))
    return [[product.squeeze(-3) for product in of_row] for of_row in products]


def _two_by_two(diagonal: Tensor, across: Tensor) -> Tensor:
    """Merge pairs of diagonal blocks into blocks twice as large, with ``across`` below the diagonal and zeros above."""
    early, late = diagonal.unflatten(-3, (-1, 2)).unbind(-3)
    return torch.cat([pad(early, (0, early.shape[-1])), torch.cat([across, late], dim=-1)], dim=-2)


def _later(rows: int, columns: int, device: torch.device) -> Tensor:
    steps = columns // rows
    row, column = torch.arange(rows, device=device), torch.arange(columns, device=device)
    return column >= steps * (row.unsqueeze(-1) + 1)


def _doubled(size: int) -> int:
    """Round a number of tokens up to :data:`PAIRS` times a power of two."""
    return PAIRS * int(2 ** math.ceil(math.log2(max(1, size / PAIRS))))


def chunks_of(length: int) -> tuple[int, int]:
    """Return the smallest number of chunks that covers the length, and the smallest chunk size that then suffices."""
    num_chunks = math.ceil(length / CHUNK)
    return num_chunks, math.ceil(length / num_chunks)


def cut(x: Tensor, num_chunks: int, size: int) -> Tensor:
    """Cut [..., length, dim] into [..., num_chunks, size, dim]; the last chunk is padded with zeros.

    The padding does not change the state.
    """
    padded = pad(x, (0, 0, 0, num_chunks * size - x.shape[-2]))
    return padded.reshape(*padded.shape[:-2], num_chunks, size, padded.shape[-1])


def future_mask(size: int, device: torch.device) -> Tensor:
    """Return a mask [size, size] that is True where the column, a key, comes after the row, a query."""
    return torch.ones(size, size, dtype=torch.bool, device=device).triu(1)


def _within_by_head(q: Tensor, k: Tensor, v: Tensor, elapsed: Tensor) -> Tensor:
    # Masked before the exponential: differences towards the future are positive and may overflow.
    weights = (elapsed - elapsed.mT).masked_fill(future_mask(q.shape[-2], q.device), -torch.inf).exp()
    return (q @ k.mT * weights) @ v


def _within_by_channel(q: Tensor, k: Tensor, v: Tensor, elapsed: Tensor) -> Tensor:
    """Attend within a chunk, by blocks that double in size: the later half of each block attends to the earlier half.

    Decays are measured from the border between the halves, so that no exponent is positive.
    """
    blocks = [x.unflatten(-2, (-1, PAIRS)) for x in (q, k, v, elapsed)]
    out = _pairs(*blocks)
    while out.shape[-3] > 1:
        (_, q_late), (k_early, _), (v_early, _), (elapsed_early, elapsed_late) = (
            x.unflatten(-3, (-1, 2)).unbind(-3) for x in blocks
        )
        border = elapsed_early[..., -1:, :]
        scores = (q_late * (elapsed_late - border).exp()) @ (k_early * (border - elapsed_early).exp()).mT
        out_early, out_late = out.unflatten(-3, (-1, 2)).unbind(-3)
        out = torch.cat([out_early, out_late + scores @ v_early], dim=-2)
        blocks = [x.unflatten(-3, (-1, 2)).flatten(-3, -2) for x in blocks]
    return out.squeeze(-3)


def _pairs(q: Tensor, k: Tensor, v: Tensor, elapsed: Tensor) -> Tensor:
    future = future_mask(q.shape[-2], q.device).unsqueeze(-1)
    weights = (elapsed.unsqueeze(-2) - elapsed.unsqueeze(-3)).masked_fill(future, -torch.inf).exp()
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3) * weights).sum(-1)
    return scores @ v


def _carry(decay: Tensor, update: Tensor, state: Tensor | None, *, goes_on: bool) -> tuple[Tensor, Tensor | None]:
    """Return the state before each chunk, and the state after the last chunk.

    If ``goes_on`` is False, the sequence ends with these chunks, and None takes the place of the state after them. Each
    chunk multiplies the state by its ``decay`` and adds its ``update``.
    """
    updates = update.unbind(-3)
    states = [torch.zeros_like(updates[0]) if state is None else state]
    num_carried = len(updates) if goes_on else len(updates) - 1
    for decay_n, update_n in zip(decay.unbind(-3)[:num_carried], updates[:num_carried], strict=True):
        states.append(torch.addcmul(update_n, decay_n, states[-1]))
    return torch.stack(states[: len(updates)], dim=-3), states[-1] if goes_on else None
