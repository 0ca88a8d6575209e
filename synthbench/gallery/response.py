"""Figures 4 to 6 of the SLAY paper: kernels of the cosine, their shape in the angle, their slope."""

from functools import partial

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
    values: np.ndarray = (x.square() * inverse_distance(num_nodes, EPSILON, x)).numpy()
    return values


@figure("slay-04-alignment")
def alignment() -> Curves:
    """Kernels of the cosine.

    Figure 4. Query and keys of length 4 (√d, d = 16), as unit variance gives. Left: the kernels; softmax is
    exp(4x). Middle: over the mean for 4,096 random keys, which is what normalised attention goes by: Yat and
    spherical Yat are the same up to their peak (ε = 1e-3). Right: SLAY by the same measure, median and the middle
    four fifths of 20 draws. The exact kernel gives an identical key 27,000 times the weight of a random one,
    softmax 34 times, SLAY 3 times at the sizes of the paper's table 9 and 9 times with many more features.
    """
    x = np.linspace(-1, 1, 81)
    raw = [Curve(label, x, response(head(name), x)) for name, label in EXACT.items()]
    exact = [Curve(label, x, responses(name, x, [0])[0]) for name, label in EXACT.items()]
    drawn = [spread(f"SLAY {label}", x, responses("slay", x, DRAWS, **size)) for label, size in SIZES.items()]
    panel = partial(Panel, x_label="cosine x", y_label="kernel / its mean", y_scale="log", y_range=(1e-2, 1e4))
    panels = [
        panel("kernel", raw, y_label="kernel", y_range=(1e-3, 2e3)),
        panel("over a random key's", exact),
        panel("SLAY, 20 draws", [exact[-1], *drawn]),
    ]
    return Curves(panels)


@figure("slay-05-angle")
def angle() -> Curves:
    """Kernels of the angle.

    Figure 5. The kernel over its value at 0°; ε = 1e-3, d = 16. Left: the exact Yat kernels fall to a half within
    2°, softmax at 36°. Middle: what Gauss–Laguerre nodes alone leave of that, all other approximations exact: a
    half at 28° for R = 3, at 10° for R = 32. Right: SLAY, median and the middle four fifths of 20 draws: a half
    near 50°, and at 90° still about a tenth, where the exact kernel is 0.
    """
    degrees = np.linspace(0, 180, 91)
    x = np.cos(np.radians(degrees))

    def relative(values: Float[np.ndarray, "*draws keys"]) -> Float[np.ndarray, "*draws keys"]:
        over_first: np.ndarray = values / values[..., :1]
        return over_first

    exact = {label: relative(response(head(name), x)) for name, label in EXACT.items()}
    limits = {f"R={num_nodes}, limit": relative(nodes_limit(num_nodes, x)) for num_nodes in (3, 32)}
    drawn = [
        spread(f"SLAY {label}", degrees, relative(responses("slay", x, DRAWS, **size))) for label, size in SIZES.items()
    ]
    panel = partial(Panel, x_label="angle, degrees", y_label="kernel / that at 0", y_range=(0.0, 1.05))
    panels = [
        panel("exact kernels", _curves(degrees, exact)),
        panel("only the quadrature", _curves(degrees, {"spherical Yat": exact["spherical Yat"], **limits})),
        panel("SLAY, 20 draws", drawn),
    ]
    return Curves(panels)


@figure("slay-06-gradient")
def gradient() -> Curves:
    """Slopes of the kernels.

    Figure 6. By automatic differentiation of the units, keys in one plane, d = 16, ε = 1e-3, cosines from −0.99 to
    0.99. Left: the slopes of the Yat kernels are the steepest near x = 1, thousands at 0.99. Right: over the kernel
    itself, which is how weights change: softmax is at 4 everywhere, the Yat kernels are at 100 near x = 1 and
    beyond at x = 0, where they vanish. SLAY (20 draws) is at 1 to 3, flatter than softmax.
    """
    x = np.linspace(-0.99, 0.99, 100)
    slopes = {label: np.abs(slope(head(name), x)) for name, label in EXACT.items()}
    ratios = {label: slopes[label] / response(head(name), x) for name, label in EXACT.items()}
    drawn = [head("slay", seed) for seed in DRAWS]
    relative = np.stack([np.abs(slope(unit, x)) / response(unit, x) for unit in drawn])
    over_kernel = [*_curves(x, ratios), spread("SLAY R=3 P=8 D=16", x, relative)]
    panel = partial(Panel, x_label="cosine x", y_scale="log")
    panels = [
        panel("slope", _curves(x, slopes), y_label="|dκ/dx|", y_range=(1e-3, 1e5)),
        panel("slope over the kernel", over_kernel, y_label="|dκ/dx| / κ", y_range=(0.1, 1e3)),
    ]
    return Curves(panels)


def slope(unit: Attention, cosines: Float[np.ndarray, " keys"]) -> Float[np.ndarray, " keys"]:
    """Derivative of the kernel in the cosine, at cosines strictly between -1 and 1; keys stay in one plane."""
    x = torch.from_numpy(cosines).requires_grad_()
    slopes: np.ndarray = torch.autograd.grad(kernel(unit, *at_cosines(x)).sum(), x)[0].numpy()
    return slopes


def _curves(x: Float[np.ndarray, " points"], by_label: dict[str, Float[np.ndarray, " points"]]) -> list[Curve]:
    return [Curve(label, x, y) for label, y in by_label.items()]
