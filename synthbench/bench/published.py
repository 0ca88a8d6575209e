"""Attention computed as in its authors' code, as a reference for faster algorithms for the same function.

Source: the code of Luna et al. (2026) for :func:`per_node_chunks`; for :func:`prefix_sums`, the code of Katharopoulos
et al. (2020) and the linear baselines of Luna et al. (2026). Both are rewritten from descriptions of that code.
"""

from functools import partial, reduce

import torch
from torch import Tensor, nn

from synthbench.forms import scores
from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.linear import Guard, normalise, outer, with_ones
from synthbench.forms.shapes import FeatureRows, KeyRows, ValueRows
from synthbench.mechanisms.base import FeatureAttention
from synthbench.mechanisms.slay._base import ProductAttention
from synthbench.mechanisms.softmax import Softmax

CHUNK = 128


def publish(model: nn.Module) -> bool:
    """Make a model compute attention by the published form; return True if any layer has such a form.

    The published form is the algorithm in the code of the mechanism's authors. It computes a full matrix of scores for
    softmax attention, prefix sums for linear attention, and a loop over quadrature nodes for SLAY.
    """
    has_published = False
    for module in model.modules():
        if isinstance(module, FeatureAttention | Softmax):
            module.attend = partial(published, module)  # type: ignore[method-assign]
            module.takes_last_queries = False  # type: ignore[misc]
            has_published = True
    return has_published


def published(unit: FeatureAttention | Softmax, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute the attention of a mechanism by the algorithm of its authors' code."""
    if isinstance(unit, Softmax):
        return scores.dense(unit.scores, unit.normaliser, q, k, v)
    if isinstance(unit, ProductAttention):
        return per_node_chunks(unit, q, k, v)
    query, key = reduce(outer, unit.factors(q, "query")), reduce(outer, unit.factors(k, "key"))
    return prefix_sums(query, key, v, guard=unit.guard, delta=unit.delta)


def per_node_chunks(mechanism: ProductAttention, q: KeyRows, k: KeyRows, v: ValueRows) -> ValueRows:
    """Compute linear attention chunk by chunk, in a loop over quadrature nodes.

    At each node, a token has P x D features: the products of P polynomial and D random features.
    """
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


def prefix_sums(query: FeatureRows, key: FeatureRows, v: ValueRows, *, guard: Guard, delta: float) -> ValueRows:
    """Compute linear attention by the running sum of key ⊗ value; one matrix is stored per token."""
    states = (key.unsqueeze(-1) * with_ones(v).unsqueeze(-2)).cumsum(-3)
    return normalise((query.unsqueeze(-2) @ states).squeeze(-2), guard, delta)
