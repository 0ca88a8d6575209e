"""Figures 7, 8 and 15 to 17 of the SLAY paper: denominators, and how few keys the weights of a query fall on."""

import math
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Float

from studies.papers.figures.curves import Axis, Curve, Curves, Panel, histogram, spread
from studies.papers.figures.figure import figure
from studies.papers.figures.kernels import DIM, attention_map, head, kernel, normal
from studies.papers.figures.maps import Map, Maps

LENGTH, BATCH_SIZE, SEEDS = 128, 4, tuple(range(10))
"""Sizes and seeds for denominators; each seed draws queries, keys and features anew."""
VARIANTS = (
    *("softmax", "linear", "performer", "yat-sum", "yat-spherical", "slay", "slay-laplace", "slay-hadamard"),
    *("slay-exact", "slay-nystrom", "slay-tensorsketch", "slay-maclaurin"),
)
COMPARED = ("softmax", "linear", "performer", "yat", "yat-sum", "yat-spherical", "slay")
"""Mechanisms whose weights are never negative."""
SIMILARITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@cache
def mean_kernels(name: str) -> Float[np.ndarray, "seeds batch length"]:
    """Compute denominators divided by their number of keys, in units of the median size for the variant."""
    sums = [kernel(head(name, seed), *normal(seed, 2, BATCH_SIZE, LENGTH, DIM)).tril().sum(-1) for seed in SEEDS]
    means = (torch.stack(sums) / torch.arange(1, LENGTH + 1)).numpy()
    return np.asarray(means / np.median(np.abs(means)))


@figure("slay-07-denominators")
def denominators() -> Curves:
    """Denominators by variant.

    Figure 7. Histograms of denominators over the number of keys, in units of each variant's median; titles have the
    share of negative ones. T = 128, 4 sequences, seeds 0–9. TensorSketch and Maclaurin have 28 and 30 % of negative
    denominators, Nyström a few in ten thousand, all others none. The outermost bars hold all values beyond the ends.
    """
    sides = Axis("denominator"), Axis("share", ends=(0.0, 0.62))
    panels = []
    for name in VARIANTS:
        values = mean_kernels(name).ravel()
        curve = histogram("share", values, np.linspace(-2, 5, 36))
        panels.append(Panel(f"{name}: {100 * (values < 0).mean():.2g} %", [curve], *sides))
    return Curves(panels, height=0.95)


@figure("slay-07-sequence")
def along_the_sequence() -> Curves:
    """Denominators along the sequence.

    Not in the paper: median, smallest and largest of these denominators along the sequence. Those of signed features do
    not settle as keys add up. Those of exact kernels do, but begin close to 0, where a first key may be orthogonal to
    its query.
    """
    position = np.unique(np.geomspace(1, LENGTH, 24).round())
    sides = Axis("position", "log"), Axis("denominator", ends=(-2.0, 6.0))
    panels = []
    for name in VARIANTS:
        values = mean_kernels(name).reshape(-1, LENGTH)[:, position.astype(int) - 1]
        curve = Curve("median", position, np.median(values, axis=0), values.min(0), values.max(0))
        panels.append(Panel(name, [curve], *sides))
    return Curves(panels, height=0.95)


@figure("slay-08-seeds")
def over_seeds() -> Curves:
    """Denominators over seeds.

    Figure 8. The same denominators by seed: the smallest, and the share of negative ones. SLAY, Laplace and Hadamard
    stay above 0 for every seed, and so does the exact kernel (0.002). Nyström crosses 0 in some seeds, TensorSketch and
    Maclaurin in all, with 23 to 36 % negative; Maclaurin reaches −360.
    """
    found = {name: mean_kernels(name) for name in VARIANTS[4:8] + VARIANTS[9:]}
    curve = partial(Curve, x=np.array(SEEDS, dtype=float), kind="marked")
    smallest = [curve(name, y=values.min((1, 2))) for name, values in found.items()]
    negative = [curve(name, y=100 * (values < 0).mean((1, 2))) for name, values in found.items()]
    left = Panel("the smallest", smallest, Axis("seed"), Axis("denominator", "symlog"))
    right = Panel("negative", negative, Axis("seed"), Axis("per cent of denominators", ends=(-2.0, 60.0)))
    return Curves([left, right])


@cache
def entropies(name: str, similarity: float) -> Float[np.ndarray, "batch positions"]:
    """Compute the entropy of attention weights relative to equal weights, for the last 32 of 64 queries.

    Queries and keys are N(0, I), of correlation ``similarity`` among themselves and with each other.
    """
    common, own = normal(0, 32, 1, DIM), normal(1, 2, 32, 64, DIM)
    q, k = math.sqrt(similarity) * common + math.sqrt(1 - similarity) * own
    weights = attention_map(head(name), q, k)[:, 32:]
    # Sums are guarded, so that weights may add up to slightly less than 1.
    shares = weights / weights.sum(-1, keepdim=True)
    return np.asarray(-torch.special.xlogy(shares, shares).sum(-1) / (torch.arange(32, 64) + 1).log())


@figure("slay-15-entropy")
def entropy() -> Curves:
    """Entropy against similarity.

    Figure 15. Entropy of the last query's weights over the log of 64 keys, for tokens of some correlation; 32
    sequences. The sum-normalised Yat kernels are at 0.81 for random tokens, softmax at 0.90, SLAY at 0.94; all go to 1
    as tokens become alike. `yat`, a softmax of the kernel, goes the other way: the closest of alike tokens takes all.
    """
    last = {name: np.stack([entropies(name, at)[:, -1] for at in SIMILARITIES], axis=1) for name in COMPARED}
    curves = [spread(name, np.array(SIMILARITIES), draws, kind="marked") for name, draws in last.items()]
    sides = Axis("correlation of the tokens"), Axis("entropy / log of keys", ends=(0.0, 1.02))
    return Curves([Panel("the last of 64 queries", curves, *sides)], height=2.2)


@figure("slay-16-entropies")
def distribution() -> Curves:
    """Distribution of the entropy.

    Figure 16. The same entropies for the queries 32 to 63 at three correlations. Those of `yat` lie at both ends.
    Linear and Performer are near 1 whatever the tokens.
    """
    sides = Axis("entropy / log of keys"), Axis("share of queries", ends=(0.0, 1.02))
    edges = np.linspace(0, 1.02, 35)
    panels = []
    for name in COMPARED:
        curves = [histogram(f"correlation {at:g}", entropies(name, at).ravel(), edges) for at in (0.0, 0.5, 0.9)]
        panels.append(Panel(name, curves, *sides))
    return Curves(panels, height=0.95)


@figure("slay-17-maps")
def maps() -> Maps:
    """Attention maps of one input.

    Figure 17. Weights on 48 tokens, each one of six prototypes plus noise of 0.3, seeds 0 to 2; colours end at 0.5.
    Softmax and the sum-normalised Yat kernels find the tokens of the same kind, the latter favouring the closest; `yat`
    gives all weight to one key. SLAY is closer to the diffuse maps of Performer and cosFormer than to its kernel.
    """
    length, num_kinds = 48, 6
    kinds = torch.randint(num_kinds, (length,), generator=torch.Generator().manual_seed(0))
    q, k = normal(1, num_kinds, DIM)[kinds] + 0.3 * normal(2, 2, 1, length, DIM)
    is_past = np.tril(np.ones((length, length), dtype=bool))
    panels = []
    for name in ("softmax", "linear", "performer", "cosformer", *COMPARED[3:]):
        weights = np.where(is_past, attention_map(head(name), q, k)[0].numpy(), np.nan).ravel()
        panels.append(Map(name, weights, words="weight", limits=(0.0, 0.5), power=0.5))
    return Maps(panels, (0.5, length + 0.5, 0.5, length + 0.5), ("key", "query"), is_downward=True)
