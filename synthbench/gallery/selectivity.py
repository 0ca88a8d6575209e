"""Figures 15 to 17 of the SLAY paper: how few keys the weights of a query fall on."""

import math
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.gallery.curves import Curves, Panel, histogram, spread
from synthbench.gallery.figure import figure
from synthbench.gallery.kernels import DIM, attention_map, head, normal
from synthbench.gallery.maps import Map, Maps

LENGTH, BATCH_SIZE = 64, 32
COMPARED = ("softmax", "linear", "performer", "yat", "yat-sum", "yat-spherical", "slay")
"""Those whose weights are never negative."""
SIMILARITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@cache
def entropies(name: str, similarity: float) -> Float[np.ndarray, "batch positions"]:
    """Entropy of the weights of the queries in the second half, over that of equal weights.

    Queries and keys are N(0, I), of correlation ``similarity`` among themselves and with each other.
    """
    common = normal(0, BATCH_SIZE, 1, DIM)
    q, k = math.sqrt(similarity) * common + math.sqrt(1 - similarity) * normal(1, 2, BATCH_SIZE, LENGTH, DIM)
    weights = attention_map(head(name), q, k)[:, LENGTH // 2 :]
    # Sums are guarded, so that weights may add up to slightly less than 1.
    shares = weights / weights.sum(-1, keepdim=True)
    return relative_entropy(shares, torch.arange(LENGTH // 2, LENGTH) + 1).numpy()


def relative_entropy(shares: Float[Tensor, "*batch keys"], num_keys: Tensor) -> Tensor:
    """Entropy of shares of 1, over the largest that so many keys can have."""
    entropy: Tensor = -torch.special.xlogy(shares, shares).sum(-1)
    return entropy / num_keys.log()


@figure("slay-15-entropy")
def entropy() -> Curves:
    """Entropy against similarity.

    Figure 15. Entropy of the last query's weights over the log of 64 keys. Tokens are N(0, 1) draws of some
    correlation, d = 16, seeds 0 and 1; median and the middle four fifths of 32 sequences, units at their defaults.
    The sum-normalised Yat kernels are at 0.81 for random tokens, below softmax (0.90), which is below SLAY (0.94),
    and all of them go to 1 as tokens become alike. `yat`, a softmax of the kernel, goes the other way: alike tokens
    are close, and the closest takes all.
    """
    x = np.array(SIMILARITIES)
    curves = []
    for name in COMPARED:
        by_similarity = np.stack([entropies(name, similarity)[:, -1] for similarity in SIMILARITIES], axis=1)
        curves.append(spread(name, x, by_similarity, kind="marked"))
    title, x_label, y_label = "the last of 64 queries", "correlation of the tokens", "entropy / log of keys"
    return Curves([Panel(title, curves, x_label, y_label, y_range=(0.0, 1.02))], height=2.2)


@figure("slay-16-entropies")
def distribution() -> Curves:
    """Distribution of the entropy.

    Figure 16. The same entropies for the queries 32 to 63, as histograms at three correlations. Those of `yat` lie
    at both ends. Linear and Performer are near 1 whatever the tokens.
    """
    edges = np.linspace(0, 1.02, 35)
    panels = []
    for name in COMPARED:
        curves = [histogram(f"correlation {at:g}", entropies(name, at).ravel(), edges) for at in (0.0, 0.5, 0.9)]
        panels.append(Panel(name, curves, "entropy / log of keys", "share of queries", y_range=(0.0, 1.02)))
    return Curves(panels, height=0.95)


@figure("slay-17-maps")
def maps() -> Maps:
    """Attention maps of one input.

    Figure 17. Weights on one input: 48 tokens, each one of six prototypes plus noise of 0.3 for the query and
    another for the key (d = 16, seeds 0 to 2), units at their defaults with features from seed 0; colours end at
    0.5. Softmax and the sum-normalised Yat kernels find the tokens of the same kind, the latter favouring the
    closest; `yat` gives all weight to one key. SLAY is closer to the diffuse maps of Performer and cosFormer than
    to the kernel that it approximates.
    """
    length, num_kinds = 48, 6
    kinds = torch.randint(num_kinds, (length,), generator=torch.Generator().manual_seed(0))
    prototypes = normal(1, num_kinds, DIM)
    q, k = prototypes[kinds] + 0.3 * normal(2, 2, 1, length, DIM)
    is_past = np.tril(np.ones((length, length), dtype=bool))
    panels = []
    for name in ("softmax", "linear", "performer", "cosformer", *COMPARED[3:]):
        weights = np.where(is_past, attention_map(head(name), q, k)[0].numpy(), np.nan)
        panels.append(Map(name, weights, words="weight", limits=(0.0, 0.5), power=0.5))
    return Maps(panels, (0.5, length + 0.5, 0.5, length + 0.5), "key", "query", is_downward=True)
