"""Figures 9 to 12 of the SLAY paper: how few exponentials make up an inverse distance, and which of them."""

from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import roots_gegenbauer

from synthbench.forms.quadrature import gauss_laguerre, inverse_distance
from synthbench.gallery.curves import Curve, Curves, Panel
from synthbench.gallery.figure import figure
from synthbench.gallery.kernels import EPSILON

COSINES = (0.0, 0.5, 0.9, 0.99, 1.0)
COUNTS = np.arange(1.0, 25.0)
RULE = "Gauss–Laguerre"
SMALLEST_ERROR = 1e-11
"""Smaller errors are shown as 0: float64 rounds them differently from processor to processor."""


def share_found(num_nodes: int, x: Float[np.ndarray, " cosines"]) -> Float[np.ndarray, " cosines"]:
    """The share that the nodes find of the inverse distance 1 / (2 + ε - 2x)."""
    approximate = inverse_distance(num_nodes, EPSILON, torch.from_numpy(x)).numpy()
    share: np.ndarray = approximate * (2 + EPSILON - 2 * x)
    return share


def shares(num_nodes: int, x: Float[np.ndarray, " cosines"]) -> Float[np.ndarray, "nodes cosines"]:
    """The contribution of each node to that."""
    nodes, weights = gauss_laguerre(num_nodes, EPSILON)
    # Neither factor of w e^(2sx) need be within the range of float64.
    exponents = weights.log()[:, None] + 2 * nodes[:, None] * torch.from_numpy(x)
    contributed: np.ndarray = exponents.exp().numpy() * (2 + EPSILON - 2 * x)
    return contributed


@figure("slay-09-quadrature-error")
def quadrature_error() -> Curves:
    """Error of the quadrature.

    Figure 9. Error of R nodes relative to 1 / (2 + ε − 2x), ε = 1e-3, at five cosines. The rule converges
    exponentially at x = 0.5, slowly at 0.9, hardly at 0.99; at x = 1, 24 nodes still miss 96 %. At x = 0 it is
    exact and below the axis. The paper's claim of uniform exponential convergence does not hold.
    """
    x = np.array(COSINES)
    errors = np.abs(np.stack([share_found(int(count), x) for count in COUNTS], axis=1) - 1)
    errors[errors < SMALLEST_ERROR] = 0
    curves = [Curve(f"x = {cosine:g}", COUNTS, error) for cosine, error in zip(COSINES, errors, strict=True)]
    y_range = (SMALLEST_ERROR, 3.0)
    return Curves([Panel(RULE, curves, "nodes R", "relative error", y_scale="log", y_range=y_range)])


@figure("slay-10-nodes")
def nodes() -> Curves:
    """Nodes and weights.

    Figure 10. Nodes and weights of Σ w exp(2 s x), ε = 1e-3. Upper line: as the paper has it, weights that fall
    with the node. Lower line: the same weights at x = C / 2, where every exponential of exp(−s (C − 2x)) is 1: they
    grow with the node, and stop at a node of 3, 11 and 26, while near x = 1 the integral reaches to 1 / ε = 1000.
    """
    panels = []
    for word, factor, y_range in (("w", 0.0, (1e-24, 1e3)), ("w exp(C s)", 2 + EPSILON, (0.1, 1e4))):
        for num_nodes in (3, 8, 16):
            s, w = gauss_laguerre(num_nodes, EPSILON)
            curves = [Curve(RULE, s.numpy(), (w.log() + factor * s).exp().numpy(), kind="marked")]
            panels.append(Panel(f"{word}, R = {num_nodes}", curves, "node s", word, "log", "log", (0.02, 8e3), y_range))
    return Curves(panels, height=1.2)


@figure("slay-11-expected-contribution")
def expected_contribution() -> Curves:
    """What a node contributes on average.

    Figure 11. What each Gauss–Laguerre node contributes to the mean spherical Yat kernel of two random directions,
    as shares of the exact mean; ε = 1e-3, by Gauss–Gegenbauer integration. In 16 dimensions the first nodes carry
    nearly all, and R = 3 has 99.5 % of the mean; in 64 dimensions more. In 3 dimensions, where directions often
    nearly agree, all nodes count alike and R = 8 has 42 %.
    """
    panel = partial(Panel, x_label="node", y_label="share of the mean kernel", y_scale="log", y_range=(1e-7, 2.0))
    panels = []
    for dim in (3, 16, 64):
        curves = [
            Curve(f"R = {count}", np.arange(1.0, count + 1), expected_shares(count, dim), kind="marked")
            for count in (1, 2, 3, 5, 8)
        ]
        panels.append(panel(f"{dim} dimensions", curves))
    return Curves(panels)


def expected_shares(num_nodes: int, dim: int) -> Float[np.ndarray, " nodes"]:
    """What Gauss–Laguerre nodes contribute to E κ, as shares of it: κ the spherical Yat kernel of random directions."""
    # The density of the cosine is (1 - x²)^((dim - 3) / 2); as many points resolve the peak of κ at x = 1.
    x, density = roots_gegenbauer(400, (dim - 2) / 2)
    exact = density * x**2 / (2 + EPSILON - 2 * x)
    expected: np.ndarray = (shares(num_nodes, x) * exact).sum(1) / exact.sum()
    return expected


@figure("slay-12-node-shares")
def node_shares() -> Curves:
    """Which node makes up the kernel where.

    Figure 12. Shares of the nodes in the exact kernel, one above the other; what is white below 1 is lost. ε =
    1e-3. Far from x = 1 the first nodes suffice, towards it all Gauss–Laguerre nodes fail together: at x = 1, 7 of
    them have 1 %. That the first nodes dominate at every x does not hold.
    """
    x = np.linspace(-1, 1, 61)
    panels = []
    for num_nodes in (3, 7):
        tops = np.cumsum(shares(num_nodes, x), axis=0)
        floors = np.vstack([np.zeros_like(x), tops[:-1]])
        curves = [
            Curve(f"node {index}", x, top - floor, floor, top, "area")
            for index, (floor, top) in enumerate(zip(floors, tops, strict=True), start=1)
        ]
        title = f"{RULE}, R = {num_nodes}"
        panels.append(Panel(title, curves, "cosine x", "share of the kernel", y_range=(0.0, 1.1)))
    return Curves(panels)
