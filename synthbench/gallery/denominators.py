"""Figures 7 and 8 of the SLAY paper: what the outputs are divided by."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Float

from synthbench.gallery.curves import Curve, Curves, Panel, histogram
from synthbench.gallery.figure import figure
from synthbench.gallery.kernels import DIM, head, kernel, normal

LENGTH, BATCH_SIZE = 128, 4
SEEDS = tuple(range(10))
"""Each draws queries, keys and features anew."""
VARIANTS = (
    "softmax",
    "linear",
    "performer",
    "yat-sum",
    "yat-spherical",
    "slay",
    "slay-laplace",
    "slay-hadamard",
    "slay-exact",
    "slay-nystrom",
    "slay-tensorsketch",
    "slay-maclaurin",
)


@cache
def mean_kernels(name: str) -> Float[np.ndarray, "seeds batch length"]:
    """Denominators over the number of keys in them, over the median size of all of a variant's."""
    sums = [kernel(head(name, seed), *normal(seed, 2, BATCH_SIZE, LENGTH, DIM)).tril().sum(-1) for seed in SEEDS]
    means = (torch.stack(sums) / torch.arange(1, LENGTH + 1)).numpy()
    relative: np.ndarray = means / np.median(np.abs(means))
    return relative


@figure("slay-07-denominators")
def denominators() -> Curves:
    """Denominators by variant.

    Figure 7. Histograms of the denominators over the number of keys in them, in units of each variant's median; the
    title has the share of negative ones. Independent N(0, 1) queries and keys, d = 16, T = 128, 4 sequences, seeds
    0–9, units at their defaults. TensorSketch and Maclaurin features have 28 and 30 % of negative denominators,
    Nyström a few in ten thousand, all others none. What lies beyond the ends counts to the outermost bars.
    """
    edges = np.linspace(-2, 5, 36)
    panels = []
    for name in VARIANTS:
        values = mean_kernels(name).ravel()
        title = f"{name}: {100 * (values < 0).mean():.2g} %"
        panels.append(Panel(title, [histogram("share", values, edges)], "denominator", "share", y_range=(0.0, 0.62)))
    return Curves(panels, height=0.95)


@figure("slay-07-sequence")
def along_the_sequence() -> Curves:
    """Denominators along the sequence.

    Not in the paper: the denominators of the figure before along the sequence, median, smallest and largest. Those
    of signed features do not settle as keys add up; those of exact kernels do, but begin close to 0, where a first
    key may be orthogonal to its query.
    """
    position = np.unique(np.geomspace(1, LENGTH, 24).round())
    panels = []
    for name in VARIANTS:
        values = mean_kernels(name).reshape(-1, LENGTH)[:, position.astype(int) - 1]
        curve = Curve("median", position, np.median(values, axis=0), values.min(0), values.max(0))
        panels.append(Panel(name, [curve], "position", "denominator", x_scale="log", y_range=(-2.0, 6.0)))
    return Curves(panels, height=0.95)


@figure("slay-08-seeds")
def over_seeds() -> Curves:
    """Denominators over seeds.

    Figure 8. The same denominators by seed: the smallest of each, and the share of negative ones. SLAY, Laplace and
    Hadamard stay above 0 for every seed, as they must, and so does the exact kernel, if barely (0.002). Nyström
    crosses 0 in some seeds, TensorSketch and Maclaurin in all, with 23 to 36 % negative; Maclaurin reaches −360.
    """
    shown = VARIANTS[4:8] + VARIANTS[9:]
    seeds = np.array(SEEDS, dtype=float)
    smallest = [Curve(name, seeds, mean_kernels(name).min((1, 2)), kind="marked") for name in shown]
    negative = [Curve(name, seeds, 100 * (mean_kernels(name) < 0).mean((1, 2)), kind="marked") for name in shown]
    panels = [
        Panel("the smallest", smallest, "seed", "denominator", y_scale="symlog"),
        Panel("negative", negative, "seed", "per cent of denominators", y_range=(-2.0, 60.0)),
    ]
    return Curves(panels)
