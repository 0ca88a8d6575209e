"""Softmax attention."""

import math
from typing import ClassVar

from synthbench.forms.scores import fused
from synthbench.forms.shapes import AnswerHeads, KeyHeads, Keys, PairScores, Queries, QueryHeads, ValueHeads
from synthbench.mechanisms.base import ScoreAttention, mechanism


@mechanism
class Softmax(ScoreAttention):
    r"""Standard attention: :math:`softmax(q k^T / \sqrt{d})` over the keys up to the query.

    State: every key and value so far.

    Source: Vaswani et al. (2017), eq. 1. The method ``attend`` calls PyTorch's fused operation for this function.
    """

    name: ClassVar = "softmax"
    label: ClassVar = "Standard"
    family: ClassVar = "softmax"
    source: ClassVar = "vaswani2017attention"
    complexity: ClassVar = "T^2 d"

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute the inner products of queries and keys, divided by the root of the head width."""
        return q @ k.mT / math.sqrt(q.shape[-1])

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend in one fused operation of PyTorch."""
        queries, length = q.shape[-2], k.shape[-2]
        if 1 < queries < length:  # the fused mask places the first query at the first key
            return super().attend(q, k, v)
        return fused(q, k, v, is_causal=queries == length)
