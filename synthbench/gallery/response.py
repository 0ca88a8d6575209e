"""Figures 4 to 6 of the SLAY paper: kernels of the cosine, their shape in the angle, their slope."""

import numpy as np
import torch
from jaxtyping import Float

from synthbench.forms.quadrature import inverse_distance
from synthbench.gallery.curves import Curve, Curves, Panel, spread
from synthbench.gallery.figure import figure
from synthbench.gallery.kernels import DRAWS, EPSILON, at_cosines, head, kernel, response, responses
from synthbench.mechanisms import Attention

EXACT = {"softmax": "softmax", "yat-sum": "Yat", "yat-spherical": "spherical Yat"}
"""Label by mechanism; ``yat-sum`` has the kernel of ``yat`` without an exponential around it."""
SIZES = {"R=3 P=8 D=16": {"R": 3, "P": 8, "D": 16}, "R=3 P=64 D=256": {"R": 3, "P": 64, "D": 256}}
"""Table 9 of the paper, and sixteen times as many features in each factor but for the nodes."""


def nodes_limit(num_nodes: int, cosines: Float[np.ndarray, " keys"]) -> Float[np.ndarray, " keys"]:
    """The spherical Yat kernel with Gauss–Laguerre nodes, every other approximation exact."""
    x = torch.from_numpy(cosines)
    values: np.ndarray = (x.square() * inverse_distance("gauss-laguerre", num_nodes, EPSILON, x)).numpy()
    return values


@figure(
    "slay-04-alignment",
    "Kernels of the cosine",
    "Figure 4. Query and keys of length 4 (√d, d = 16), as unit variance gives. Left: the kernels; softmax is "
    "exp(4x). Middle: over the mean for 4,096 random keys, which is what normalised attention goes by: Yat and "
    "spherical Yat are the same up to their peak (ε = 1e-3). Right: SLAY by the same measure, median and the middle "
    "four fifths of 20 draws. The exact kernel gives an identical key 27,000 times the weight of a random one, "
    "softmax 34 times, SLAY 3 times at the sizes of the paper's table 9 and 9 times with many more features.",
)
def alignment() -> Curves:
    """Kernels of the cosine."""
    x = np.linspace(-1, 1, 81)
    raw = tuple(Curve(label, x, response(head(name), x)) for name, label in EXACT.items())
    exact = tuple(Curve(label, x, responses(name, x, [0])[0]) for name, label in EXACT.items())
    drawn = tuple(spread(f"SLAY {label}", x, responses("slay", x, DRAWS, **size)) for label, size in SIZES.items())
    return Curves(
        (
            Panel("kernel", raw, "cosine x", "kernel", y_scale="log", y_range=(1e-3, 2e3)),
            Panel("over a random key's", exact, "cosine x", "kernel / its mean", y_scale="log", y_range=(1e-2, 1e4)),
            Panel(
                "SLAY, 20 draws",
                (exact[-1], *drawn),
                "cosine x",
                "kernel / its mean",
                y_scale="log",
                y_range=(1e-2, 1e4),
            ),
        )
    )


@figure(
    "slay-05-angle",
    "Kernels of the angle",
    "Figure 5. The kernel over its value at 0°; ε = 1e-3, d = 16. Left: the exact Yat kernels fall to a half within "
    "2°, softmax at 36°. Middle: what Gauss–Laguerre nodes alone leave of that, all other approximations exact: a "
    "half at 28° for R = 3, at 10° for R = 32. Right: SLAY, median and the middle four fifths of 20 draws: a half "
    "near 50°, and at 90° still about a tenth, where the exact kernel is 0.",
)
def angle() -> Curves:
    """Kernels of the angle, over what they are at 0."""
    degrees = np.linspace(0, 180, 91)
    x = np.cos(np.radians(degrees))

    def relative(values: Float[np.ndarray, "*draws keys"]) -> Float[np.ndarray, "*draws keys"]:
        over_first: np.ndarray = values / values[..., :1]
        return over_first

    exact = {label: relative(response(head(name), x)) for name, label in EXACT.items()}
    limits = {f"R={num_nodes}, limit": relative(nodes_limit(num_nodes, x)) for num_nodes in (3, 32)}
    labels = ("angle, degrees", "kernel / that at 0")
    drawn = tuple(
        spread(f"SLAY {label}", degrees, relative(responses("slay", x, DRAWS, **size))) for label, size in SIZES.items()
    )
    return Curves(
        (
            Panel("exact kernels", _curves(degrees, exact), *labels, y_range=(0.0, 1.05)),
            Panel(
                "only the quadrature",
                _curves(degrees, {"spherical Yat": exact["spherical Yat"], **limits}),
                *labels,
                y_range=(0.0, 1.05),
            ),
            Panel("SLAY, 20 draws", drawn, *labels, y_range=(0.0, 1.05)),
        )
    )


@figure(
    "slay-06-gradient",
    "Slopes of the kernels",
    "Figure 6. By automatic differentiation of the units, keys in one plane, d = 16, ε = 1e-3, cosines from −0.99 to "
    "0.99. Left: the slopes of the Yat kernels are the steepest near x = 1, thousands at 0.99. Right: over the kernel "
    "itself, which is how weights change: softmax is at 4 everywhere, the Yat kernels are at 100 near x = 1 and "
    "beyond at x = 0, where they vanish. SLAY (20 draws) is at 1 to 3, flatter than softmax.",
)
def gradient() -> Curves:
    """Derivatives in the cosine, and relative to the kernel."""
    x = np.linspace(-0.99, 0.99, 100)
    slopes = {label: np.abs(slope(head(name), x)) for name, label in EXACT.items()}
    ratios = {label: slopes[label] / response(head(name), x) for name, label in EXACT.items()}
    drawn = [head("slay", seed) for seed in DRAWS]
    relative = np.stack([np.abs(slope(unit, x)) / response(unit, x) for unit in drawn])
    return Curves(
        (
            Panel("slope", _curves(x, slopes), "cosine x", "|dκ/dx|", y_scale="log", y_range=(1e-3, 1e5)),
            Panel(
                "slope over the kernel",
                (*_curves(x, ratios), spread("SLAY R=3 P=8 D=16", x, relative)),
                "cosine x",
                "|dκ/dx| / κ",
                y_scale="log",
                y_range=(0.1, 1e3),
            ),
        )
    )


def slope(unit: Attention, cosines: Float[np.ndarray, " keys"]) -> Float[np.ndarray, " keys"]:
    """Derivative of the kernel in the cosine, at cosines strictly between -1 and 1; keys stay in one plane."""
    x = torch.from_numpy(cosines).requires_grad_()
    (found,) = torch.autograd.grad(kernel(unit, *at_cosines(x)).sum(), x)
    slopes: np.ndarray = found.numpy()
    return slopes


def _curves(x: Float[np.ndarray, " points"], of: dict[str, Float[np.ndarray, " points"]]) -> tuple[Curve, ...]:
    return tuple(Curve(label, x, y) for label, y in of.items())
