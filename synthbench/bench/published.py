"""Linear attention in the forms that were published: what a faster form of the same function is compared with.

Source: the code of Luna et al. (2026) for :func:`per_node_chunks`; that of Katharopoulos et al. (2020), and the linear
baselines of the former, for :func:`prefix_sums`. Written anew from their description.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.mechanisms._feature_maps import unit_vectors
from synthbench.mechanisms._linear import Guard, normalise, outer, with_ones
from synthbench.mechanisms.slay._base import ProductAttention

CHUNK = 128


def per_node_chunks(
    mechanism: ProductAttention,
    q: Float[Tensor, "*batch length key_dim"],
    k: Float[Tensor, "*batch length key_dim"],
    v: Float[Tensor, "*batch length value_dim"],
) -> Float[Tensor, "*batch length value_dim"]:
    """Attend chunk by chunk with a loop over quadrature nodes, whose P x D features are written out for every token."""
    polynomials = [mechanism.polynomial(unit_vectors(x)) for x in (q, k)]
    exponentials = [mechanism.exponential(unit_vectors(x)) for x in (q, k)]
    values = with_ones(v)
    states: list[Tensor | None] = [None] * mechanism.R
    sums = []
    for start in range(0, v.shape[-2], CHUNK):
        rows = slice(start, start + CHUNK)
        chunk, total = values[..., rows, :], torch.zeros_like(values[..., rows, :])
        for node, state in enumerate(states):
            columns = slice(node * mechanism.D, (node + 1) * mechanism.D)
            query, key = (
                outer(polynomial[..., rows, :], exponential[..., rows, columns])
                for polynomial, exponential in zip(polynomials, exponentials, strict=True)
            )
            total = total + (query @ key.mT).tril() @ chunk
            if state is not None:
                total = total + query @ state
            update = key.mT @ chunk
            states[node] = update if state is None else state + update
        sums.append(total)
    return normalise(torch.cat(sums, dim=-2), mechanism.guard, mechanism.delta)


def prefix_sums(
    query: Float[Tensor, "*batch length features"],
    key: Float[Tensor, "*batch length features"],
    v: Float[Tensor, "*batch length value_dim"],
    *,
    guard: Guard,
    delta: float,
) -> Float[Tensor, "*batch length value_dim"]:
    """Attend by the running sum of key ⊗ value, one matrix for every token."""
    states = (key.unsqueeze(-1) * with_ones(v).unsqueeze(-2)).cumsum(-3)
    return normalise((query.unsqueeze(-2) @ states).squeeze(-2), guard, delta)
