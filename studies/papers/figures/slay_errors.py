"""Figures 9 to 14 and 18 of the SLAY paper: how much of the spherical Yat kernel is left after each approximation."""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import roots_gegenbauer

from studies.papers.figures.curves import Axis, Curve, Curves, Panel, spread
from studies.papers.figures.figure import figure
from studies.papers.figures.kernels import DIM, EPSILON, head, normal, responses
from synthbench.bench import fidelity
from synthbench.bench.rows import Table
from synthbench.forms.quadrature import gauss_laguerre, inverse_distance

RULE = "Gauss–Laguerre"
SMALLEST_ERROR = 1e-11
"""Smaller errors are shown as 0: float64 rounds them differently from processor to processor."""
VARIANTS = (
    *("slay", "slay-exact", "slay-laplace", "slay-hadamard"),
    *("slay-nystrom", "slay-tensorsketch", "slay-maclaurin", "slay-sketch"),
)
FIRST = 8
"""First position at which outputs are compared; before it, outputs are nearly the values, whatever the kernel."""


def shares(num_nodes: int, x: Float[np.ndarray, " cosines"]) -> Float[np.ndarray, "nodes cosines"]:
    """Compute the share of each quadrature node in the inverse distance 1 / (2 + ε - 2x)."""
    nodes, weights = gauss_laguerre(num_nodes, EPSILON)
    # Neither factor of w e^(2sx) need be within the range of float64.
    exponents = weights.log()[:, None] + 2 * nodes[:, None] * torch.from_numpy(x)
    return np.asarray(exponents.exp().numpy() * (2 + EPSILON - 2 * x))


@figure("slay-09-quadrature-error")
def quadrature_error() -> Curves:
    """Error of the quadrature.

    Figure 9. Error of R nodes relative to 1 / (2 + ε − 2x) at five cosines. The rule converges exponentially at x =
    0.5, slowly at 0.9, hardly at 0.99. At x = 1, 24 nodes still miss 96 %; at x = 0 it is exact. The paper's uniform
    exponential convergence does not hold.
    """
    x, counts = np.array([0.0, 0.5, 0.9, 0.99, 1.0]), np.arange(1.0, 25.0)
    found = [inverse_distance(int(count), EPSILON, torch.from_numpy(x)).numpy() for count in counts]
    errors = np.abs(np.stack(found, axis=1) * (2 + EPSILON - 2 * x[:, None]) - 1)
    errors[errors < SMALLEST_ERROR] = 0
    curves = [Curve(f"x = {cosine:g}", counts, error) for cosine, error in zip(x, errors, strict=True)]
    return Curves([Panel(RULE, curves, Axis("nodes R"), Axis("relative error", "log", (SMALLEST_ERROR, 3.0)))])


@figure("slay-10-nodes")
def nodes() -> Curves:
    """Nodes and weights.

    Figure 10. Nodes and weights of Σ w exp(2 s x). Upper line: weights as in the paper, which fall with the node. Lower
    line: weights at x = C / 2, where they grow with the node. The largest nodes are 3, 11 and 26, while near x = 1 the
    integral reaches to 1 / ε = 1000.
    """
    panels = []
    for word, factor, ends in (("w", 0.0, (1e-24, 1e3)), ("w exp(C s)", 2 + EPSILON, (0.1, 1e4))):
        for num_nodes in (3, 8, 16):
            s, w = gauss_laguerre(num_nodes, EPSILON)
            curves = [Curve(RULE, s.numpy(), (w.log() + factor * s).exp().numpy(), kind="marked")]
            sides = Axis("node s", "log", (0.02, 8e3)), Axis(word, "log", ends)
            panels.append(Panel(f"{word}, R = {num_nodes}", curves, *sides))
    return Curves(panels, height=1.2)


@figure("slay-11-expected-contribution")
def expected_contribution() -> Curves:
    """Contribution of each node on average.

    Figure 11. Shares of the Gauss–Laguerre nodes in the mean spherical Yat kernel of two random directions. In 16
    dimensions R = 3 has 99.5 % of the exact mean, in 64 more. In 3 dimensions, where directions often nearly agree, all
    nodes count alike and R = 8 has 42 %.
    """
    sides = Axis("node"), Axis("share of the mean kernel", "log", (1e-7, 2.0))
    panels = []
    for dim in (3, 16, 64):
        # The density of the cosine is (1 - x²)^((dim - 3) / 2); as many points resolve the kernel's peak at x = 1.
        x, density = roots_gegenbauer(400, (dim - 2) / 2)
        exact = density * x**2 / (2 + EPSILON - 2 * x)
        expected = {count: (shares(count, x) * exact).sum(1) / exact.sum() for count in (1, 2, 3, 5, 8)}
        curves = [Curve(f"R = {n}", np.arange(1.0, n + 1), of_nodes, kind="marked") for n, of_nodes in expected.items()]
        panels.append(Panel(f"{dim} dimensions", curves, *sides))
    return Curves(panels)


@figure("slay-12-node-shares")
def node_shares() -> Curves:
    """Shares of the nodes in the kernel.

    Figure 12. Shares of the nodes in the exact kernel; white is lost. Far from x = 1 the first nodes suffice. At x = 1
    all fail together: 7 nodes have 1 %. So the first nodes do not dominate at every x.
    """
    x = np.linspace(-1, 1, 61)
    sides = Axis("cosine x"), Axis("share of the kernel", ends=(0.0, 1.1))
    panels = []
    for num_nodes in (3, 7):
        tops = np.cumsum(shares(num_nodes, x), axis=0)
        floors = np.vstack([np.zeros_like(x), tops[:-1]])
        between = enumerate(zip(floors, tops, strict=True), start=1)
        curves = [Curve(f"node {index}", x, top - floor, floor, top, "area") for index, (floor, top) in between]
        panels.append(Panel(f"{RULE}, R = {num_nodes}", curves, *sides))
    return Curves(panels)


@figure("slay-13-reconstruction")
def reconstruction() -> Curves:
    """Kernels of the variants.

    Figure 13. Kernels of the variants at their defaults, over their mean for random keys, beside the exact kernel.
    Anchors, Nyström, Laplace, Hadamard and the sketch are nearly flat, and not 0 at x = 0. The exact square follows the
    kernel up to the peak; TensorSketch and Maclaurin follow it only in the median. SLAY does not closely match the
    quadrature, as the paper says it does.
    """
    x = np.linspace(-1, 1, 41)
    exact = Curve("spherical Yat", x, responses("yat-spherical", x, [0])[0])
    sides = Axis("cosine x"), Axis("kernel / its mean", ends=(-3.0, 12.0))
    curves = {name: [exact, spread("variant", x, responses(name, x))] for name in VARIANTS}
    return Curves([Panel(name, pair, *sides) for name, pair in curves.items()], height=1.2)


@figure("slay-14-error-against-features")
def error_against_features() -> Curves:
    """Error against features.

    Figure 14. Relative L2 error of a layer's outputs (`bench fidelity`), random inputs, 4 heads, T = 128, R = 2 and P =
    D = 8 unless varied, seeds 0–2. SLAY beats the running mean, which is blind to content, with 64 to 128 features a
    node or 32 anchors, not with up to 8 nodes. The paper holds the quadrature to be the dominant error.
    """
    rows = pd.DataFrame(list(fidelity.sweep((0, 1, 2), Table(fidelity.IDENTITY, torch.device("cpu")), num_repeats=1)))
    error = Axis("relative error of outputs", ends=(0.55, 0.75))
    panels = []
    for word, size in (("features", "D"), ("anchors", "P"), ("nodes", "R")):
        swept = rows[(rows["budget"] == "small") | rows["budget"].str.startswith(word)]
        curves = []
        for estimator, label in (("mean", "running mean"), ("slay", "SLAY")):
            errors = swept[swept["estimator"] == estimator].groupby(size)["rel_l2"].agg(["mean", "min", "max"])
            mean, low, high = errors.to_numpy().T
            curves.append(Curve(label, errors.index.to_numpy(float), mean, low, high, "marked"))
        panels.append(Panel(f"{word} {size}", curves, Axis(size, "log2"), error))
    return Curves(panels)


@figure("slay-18-outputs")
def outputs() -> Curves:
    """Outputs, exact and approximate.

    Figure 18. Coordinates of outputs by spherical Yat attention against approximations of them, T = 128, seed 0, R = 3.
    The correlation is that of all positions from the ninth on. SLAY at the sizes of table 9 has 0.62, the running mean
    0.60. With many more features SLAY has 0.72, with an exact square 0.98.
    """
    q, k, v = normal(0, 3, 1, 1, 128, DIM)
    approximate = {
        "running mean": fidelity.running_mean(q, k, v),
        "P=8 D=16": head("slay").attend(q, k, v),
        "P=64 D=256": head("slay", P=64, D=256).attend(q, k, v),
        "slay-exact D=256": head("slay-exact", D=256).attend(q, k, v),
    }
    exact, ends = head("yat-spherical").attend(q, k, v)[0, 0, FIRST:], (-1.6, 1.6)
    sides = Axis("exact", ends=ends), Axis("approximate", ends=ends)
    panels = []
    for label, outs in approximate.items():
        out = outs[0, 0, FIRST:]
        correlation = torch.corrcoef(torch.stack([exact.flatten(), out.flatten()]))[0, 1]
        x, y = (chosen[::2, ::8].flatten().numpy() for chosen in (exact, out))
        panels.append(Panel(f"{label}: r = {correlation:.2f}", [Curve("output", x, y, kind="points")], *sides))
    return Curves(panels)
