"""Figures 13, 14 and 18 of the SLAY paper: how much of the spherical Yat kernel is left after each approximation."""

from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.bench import fidelity
from synthbench.bench.rows import Table
from synthbench.gallery.curves import Curve, Curves, Panel, spread
from synthbench.gallery.figure import figure
from synthbench.gallery.kernels import DIM, head, normal, responses

VARIANTS = (
    "slay",
    "slay-exact",
    "slay-laplace",
    "slay-hadamard",
    "slay-nystrom",
    "slay-tensorsketch",
    "slay-maclaurin",
    "slay-sketch",
)
SWEEP_SEEDS = (0, 1, 2)
FIRST = 8
"""Position from which on outputs are compared: the first are values, whatever the kernel."""


@figure("slay-13-reconstruction")
def reconstruction() -> Curves:
    """The kernel that is left.

    Figure 13. Kernels of the variants at their defaults (R = 3, 8 polynomial features, 16 or 32 exponential ones; d
    = 16, ε = 1e-3), over their mean for random keys; median and the middle four fifths of 20 draws, beside the
    exact kernel. Anchors, Nyström, Laplace, Hadamard and the sketch are nearly flat, and not 0 at x = 0. The exact
    square follows the kernel up to the loss at the peak; TensorSketch and Maclaurin follow it in the median only.
    SLAY does not closely match the quadrature, as the paper says it does.
    """
    x = np.linspace(-1, 1, 41)
    exact = Curve("spherical Yat", x, responses("yat-spherical", x, [0])[0])
    panels = []
    for name in VARIANTS:
        curves = (exact, spread("variant", x, responses(name, x)))
        panels.append(Panel(name, curves, "cosine x", "kernel / its mean", y_range=(-3.0, 12.0)))
    return Curves(panels, height=1.2)


@figure("slay-14-error-against-features")
def error_against_features() -> Curves:
    """Error against features.

    Figure 14. The sweep of `bench fidelity`: relative L2 error of a layer's outputs, random inputs, d = 16, 4
    heads, T = 128, projections with biases, R = 2 and P = D = 8 unless varied; mean and range of seeds 0–2. The
    running mean, blind to content, is the line to be below: SLAY is there with 64 to 128 features a node or with 32
    anchors; up to 8 nodes do not bring it there. The paper holds the quadrature to be the dominant error.
    """
    rows = list(fidelity.sweep(SWEEP_SEEDS, Table(fidelity.IDENTITY, fidelity.CPU), num_repeats=1))
    panel = partial(Panel, y_label="relative error of outputs", x_scale="log2", y_range=(0.55, 0.75))
    panels = []
    for word, size in (("features", "D"), ("anchors", "P"), ("nodes", "R")):
        swept = [row for row in rows if row["budget"] == "small" or row["budget"].startswith(f"{word} ")]
        sizes = sorted({row[size] for row in swept})
        curves = []
        for estimator, label in (("mean", "running mean"), ("slay", "SLAY")):
            errors = np.array(
                [[row["rel_l2"] for row in swept if (row[size], row["estimator"]) == (at, estimator)] for at in sizes]
            )
            x = np.array(sizes, dtype=float)
            curves.append(Curve(label, x, errors.mean(1), errors.min(1), errors.max(1), "marked"))
        panels.append(panel(f"{word} {size}", curves, size))
    return Curves(panels)


@figure("slay-18-outputs")
def outputs() -> Curves:
    """Outputs, exact and approximate.

    Figure 18. Coordinates of outputs by spherical Yat attention against the same by approximations, N(0, 1)
    queries, keys and values, d = 16, T = 128, seed 0, ε = 1e-3, R = 3; some coordinates of some positions; the
    correlation is that of all from the ninth position on: before it there is little to choose from. SLAY at the
    sizes of table 9 has 0.62, hardly more than the running mean (0.60), which knows nothing of queries and keys;
    with many more features it has 0.72, with an exact square 0.98.
    """
    q, k, v = normal(0, 3, 1, 1, 128, DIM)
    exact = head("yat-spherical").attend(q, k, v)
    approximate = {
        "running mean": fidelity.running_mean(q, k, v),
        "P=8 D=16": head("slay").attend(q, k, v),
        "P=64 D=256": head("slay", P=64, D=256).attend(q, k, v),
        "slay-exact D=256": head("slay-exact", D=256).attend(q, k, v),
    }
    ends = (-1.6, 1.6)
    panels = []
    for label, out in approximate.items():
        title = f"{label}: r = {correlation(exact[..., FIRST:, :], out[..., FIRST:, :]):.2f}"
        curve = Curve("output", _chosen(exact), _chosen(out), kind="points")
        panels.append(Panel(title, [curve], "exact", "approximate", x_range=ends, y_range=ends))
    return Curves(panels)


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's, of all coordinates."""
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


def _chosen(out: Float[Tensor, "1 1 length dim"]) -> Float[np.ndarray, " points"]:
    """Some coordinates of some outputs."""
    chosen: np.ndarray = out[0, 0, FIRST::2, ::8].flatten().numpy()
    return chosen
