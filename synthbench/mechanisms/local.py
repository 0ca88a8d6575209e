"""Softmax attention to a window of the last tokens."""

import math
from functools import partial
from typing import ClassVar

import torch
from torch.nn.functional import pad

from synthbench.forms import scores
from synthbench.forms.shapes import (
    AnswerHeads,
    KeyHeads,
    KeyRows,
    Keys,
    PairScores,
    Queries,
    QueryHeads,
    ValueHeads,
    ValueRows,
)
from synthbench.forms.state import State
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.options import option

MIN_BLOCK = 16
"""Minimum number of queries per block in :func:`banded`."""


@mechanism
class Local(ScoreAttention):
    r"""Softmax attention to the last ``window`` tokens, including the query's own token.

    .. math:: out_t = \sum_{t - window < s \le t} softmax_s(q_t \cdot k_s / \sqrt{d}) \, v_s

    In a model with L layers, an output depends on ``L (window - 1) + 1`` tokens.

    State: the keys and values of the last ``window - 1`` tokens.

    Source: Beltagy et al. (2020), section 3.1, sliding window. Here, the window is causal, and there is no dilation and
    no global token.
    """

    name: ClassVar = "local"
    label: ClassVar = "Local"
    family: ClassVar = "softmax"
    source: ClassVar = "beltagy2020longformer"
    complexity: ClassVar = "T window d"

    window: int = option(16, "tokens that a query sees, its own among them", low=1)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute scaled inner products of queries and keys; the score of a key before the query's window is -inf.

        There may be fewer queries than keys; the last query always has the position of the last key.
        """
        return window_scores(q, k, self.window)

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> AnswerHeads:
        """Attend to the window of every query, in time linear in the length."""
        return attend_to_window(q, k, v, self.window, state)

    def state_elements(self, length: int) -> int:
        """Count the numbers in the past keys and values that the next query sees."""
        return 2 * min(length, self.window - 1) * self.model_dim


def window_scores(q: Queries, k: Keys, window: int) -> PairScores:
    """Compute scaled inner products of queries and keys; the score of a key before the query's window is -inf.

    There may be fewer queries than keys; the last query always has the position of the last key.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    too_old = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries - window)
    return (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(too_old, -torch.inf)


def attend_to_window(q: QueryHeads, k: KeyHeads, v: ValueHeads, window: int, state: State | None = None) -> AnswerHeads:
    """Attend to the last ``window`` tokens by softmax; the last query has the position of the last key."""
    if state is not None:
        k, v = (state.append(name, x, most=window - 1) for name, x in (("keys", k), ("values", v)))
    queries = q.shape[-2]
    seen = queries + window - 1
    k, v = k[..., -seen:, :], v[..., -seen:, :]
    if queries < k.shape[-2] or queries <= 2 * max(window, MIN_BLOCK):
        return scores.attend(partial(window_scores, window=window), "softmax", q, k, v)
    return banded(q, k, v, window)


def banded(q: KeyRows, k: KeyRows, v: ValueRows, window: int) -> ValueRows:
    """Attend to the window by blocks of queries, in time and memory linear in the length.

    Each block is at least as long as the window.
    """
    length, size = q.shape[-2], max(window, MIN_BLOCK)
    num_blocks = math.ceil(length / size)
    at_end = num_blocks * size - length
    q = pad(q, (0, 0, 0, at_end)).unflatten(-2, (num_blocks, size))
    k, v = (pad(x, (0, 0, size, at_end)).unflatten(-2, (num_blocks + 1, size)) for x in (k, v))
    k, v = (torch.cat([x[..., :-1, :, :], x[..., 1:, :, :]], dim=-2) for x in (k, v))
    row, column = (torch.arange(n, device=q.device) for n in (size, 2 * size))
    distance = row.unsqueeze(-1) + size - column
    hidden = ((distance < 0) | (distance >= window)).repeat(num_blocks, 1, 1)
    hidden[0, :, :size] = True  # the first block has none before it
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -torch.inf).softmax(-1)
    return (weights @ v).flatten(-3, -2)[..., :length, :]
