"""Figures 1, 4 to 6, 19 and 20 of the SLAY paper: kernels of the cosine, in the plane and on the sphere; and REWA's."""

import math

import numpy as np
import torch
from jaxtyping import Float

from studies.papers.figures.curves import Axis, Curve, Curves, Panel, spread
from studies.papers.figures.figure import figure
from studies.papers.figures.kernels import DRAWS, EPSILON, SIZES, head, kernel, normal, response, responses, slope
from studies.papers.figures.maps import Map, Maps, grid
from synthbench.forms.quadrature import inverse_distance
from synthbench.mechanisms import Attention

EXACT = {"softmax": "softmax", "yat-sum": "Yat", "yat-spherical": "spherical Yat"}
"""Label by mechanism; ``yat-sum`` has the kernel of ``yat`` without an exponential around it."""
TILT = math.radians(40)
"""Angle by which the north pole is turned towards the reader, in radians."""


@figure("slay-01-partitions")
def partitions() -> Maps:
    """Regions of attention: five keys in the plane.

    Figure 1. The key (star, seed 3) that weighs most for a query at each place; heads of width 2. The dot product and
    the ReLU features give one key nothing, ELU + 1 leaves two keys. The Yat kernel gives the inner key (blue) a disc
    and repeats regions across the origin. The spherical kernel sees only directions; the regions of SLAY are nearly its
    own.
    """
    keys, places = 1.2 * normal(3, 5, 2), torch.from_numpy(grid())
    names = {
        "dot product (softmax)": "softmax",
        "Performer (ReLU), M=64": "performer",
        "linear (ELU + 1)": "linear",
        "Yat": "yat-sum",
        "spherical Yat": "yat-spherical",
        "SLAY, R=3 P=8 D=16": "slay",
    }
    winners = {title: kernel(head(name, dim=2), places, keys).argmax(-1) for title, name in names.items()}
    return Maps([Map(title, numbers.double().numpy(), keys.numpy()) for title, numbers in winners.items()])


@figure("slay-04-alignment")
def alignment() -> Curves:
    """Kernels of the cosine.

    Figure 4. Query and keys of length 4 (√d). Left: the kernels; softmax is exp(4x). Middle: over the mean for 4,096
    random keys, where Yat and spherical Yat agree up to their peak. Right: SLAY by the same measure. The exact kernel
    gives an identical key 27,000 times the weight of a random one, softmax 34 times. SLAY gives 3 times at the sizes of
    table 9 and 9 times with many more features.
    """
    x = np.linspace(-1, 1, 81)
    raw = [Curve(label, x, response(head(name), x)) for name, label in EXACT.items()]
    exact = [Curve(label, x, responses(name, x, [0])[0]) for name, label in EXACT.items()]
    drawn = [spread(f"SLAY {label}", x, responses("slay", x, **size)) for label, size in SIZES.items()]
    cosine, relative = Axis("cosine x"), Axis("kernel / its mean", "log", (1e-2, 1e4))
    left = Panel("kernel", raw, cosine, Axis("kernel", "log", (1e-3, 2e3)))
    middle = Panel("over a random key's", exact, cosine, relative)
    return Curves([left, middle, Panel("SLAY, 20 draws", [exact[-1], *drawn], cosine, relative)])


@figure("rewa-geometries")
def geometries() -> Curves:
    """Kernels of four geometries.

    Section 8.2, before training. Query and keys of length 4, five dimensions a geometry, τ = 1, over the value for an
    identical key; beside each, softmax attention. The Euclidean kernel is the broadest, a half at 70°. The spherical
    one falls to a half about where softmax does (34° and 32°). The hyperbolic one and that of all three fall below 0.4
    within 13°; only the latter comes close to 0.
    """
    x = np.linspace(-1, 1, 81)
    softmax, sides = Curve("softmax", x, np.exp(4 * x - 4)), (Axis("cosine x"), Axis("kernel / that at 1"))
    panels = []
    for name in ("euclidean", "spherical", "hyperbolic", "geometric"):
        drawn = np.stack([response(head(f"rewa-{name}", seed), x).ravel() for seed in DRAWS])
        panels.append(Panel(name, [softmax, spread("REWA", x, drawn)], *sides))
    return Curves(panels)


@figure("slay-05-angle")
def angle() -> Curves:
    """Kernels of the angle.

    Figure 5. The kernel over its value at 0°. Left: the exact Yat kernels fall to a half within 2°, softmax at 36°.
    Middle: with Gauss–Laguerre nodes alone, a half at 28° for R = 3, at 10° for R = 32. Right: SLAY falls to a half
    near 50°, and at 90° to about a tenth, where the exact kernel is 0.
    """
    degrees = np.linspace(0, 180, 91)
    x = np.cos(np.radians(degrees))

    def curve(label: str, values: Float[np.ndarray, "*draws keys"]) -> Curve:
        relative: np.ndarray = values / values[..., :1]
        return Curve(label, degrees, relative) if relative.ndim == 1 else spread(label, degrees, relative)

    exact = [curve(label, response(head(name), x)) for name, label in EXACT.items()]
    found = {count: inverse_distance(count, EPSILON, torch.from_numpy(x)).numpy() for count in (3, 32)}
    limits = [curve(f"R={count}, limit", x**2 * values) for count, values in found.items()]
    drawn = [curve(f"SLAY {label}", responses("slay", x, **size)) for label, size in SIZES.items()]
    panels = {"exact kernels": exact, "only the quadrature": [exact[-1], *limits], "SLAY, 20 draws": drawn}
    sides = Axis("angle, degrees"), Axis("kernel / that at 0", ends=(0.0, 1.05))
    return Curves([Panel(title, curves, *sides) for title, curves in panels.items()])


@figure("slay-06-gradient")
def gradient() -> Curves:
    """Slopes of the kernels.

    Figure 6. Keys in one plane, cosines from −0.99 to 0.99. Left: the slopes of the Yat kernels are the steepest near x
    = 1, thousands at 0.99. Right: slope over kernel, which is how weights change. Softmax is at 4 everywhere, SLAY at 1
    to 3; the Yat kernels are at 100 near x = 1, and higher at x = 0, where they vanish.
    """
    x = np.linspace(-0.99, 0.99, 100)
    units = {label: head(name) for name, label in EXACT.items()}
    slopes = [Curve(label, x, np.abs(slope(unit, x))) for label, unit in units.items()]
    ratios = [Curve(label, x, np.abs(slope(unit, x)) / response(unit, x)) for label, unit in units.items()]
    drawn = np.stack([np.abs(slope(unit, x)) / response(unit, x) for unit in (head("slay", seed) for seed in DRAWS)])
    ratios.append(spread("SLAY R=3 P=8 D=16", x, drawn))
    cosine = Axis("cosine x")
    left = Panel("slope", slopes, cosine, Axis("|dκ/dx|", "log", (1e-3, 1e5)))
    return Curves([left, Panel("slope over the kernel", ratios, cosine, Axis("|dκ/dx| / κ", "log", (0.1, 1e3)))])


@figure("slay-19-sphere")
def sphere() -> Maps:
    """Weights of a query on the sphere.

    Figure 19. Weight of keys on a sphere for a query at the pole, tilted by 40° towards the reader, over the largest
    weight seen; colours by the power 0.4. The spherical Yat kernel is concentrated at the pole, softmax broad. SLAY is
    about as broad as softmax and has its peak beside the pole.
    """
    square = (-1.0, 1.0, -1.0, 1.0)
    places = grid(square)
    is_seen = (places**2).sum(1) < 1
    right, up = places[is_seen].T
    towards = np.sqrt(1 - right**2 - up**2)
    north = up * math.cos(TILT) + towards * math.sin(TILT)
    away = towards * math.cos(TILT) - up * math.sin(TILT)
    query = torch.eye(1, 3, dtype=torch.float64)
    maps = []
    for title, unit in _on_sphere().items():
        values = np.full(len(places), np.nan)
        values[is_seen] = _over_largest(unit, query, torch.from_numpy(np.stack([north, right, away], axis=1)))
        # The spherical kernel is at its peak in so small a place that a linear scale would show nothing else.
        maps.append(Map(title, values, words="over the largest", power=0.4))
    return Maps(maps, square)


@figure("slay-20-polar")
def polar() -> Curves:
    """Kernels by direction.

    Figure 20. The same kernels once around in a plane through the query at 0°. The spherical Yat kernel is a needle,
    softmax and SLAY are lobes. Those of SLAY are not symmetric, and one points away from the query.
    """
    angles = np.linspace(0, 2 * math.pi, 181)
    keys = torch.from_numpy(np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1))
    sides = Axis("angle, radians"), Axis("over the largest", ends=(0.0, 1.05))
    weights = {title: _over_largest(unit, keys[:1], keys) for title, unit in _on_sphere().items()}
    curves = {title: Curve("kernel", angles, np.maximum(values, 0)) for title, values in weights.items()}
    return Curves([Panel(title, [curve], *sides) for title, curve in curves.items()], is_polar=True)


def _on_sphere() -> dict[str, Attention]:
    return {
        "softmax": head("softmax", dim=3),
        "spherical Yat, ε=1e-3": head("yat-spherical", dim=3),
        **{f"SLAY, {label}": head("slay", dim=3, **size) for label, size in SIZES.items()},
    }


def _over_largest(
    unit: Attention, query: Float[torch.Tensor, "1 3"], keys: Float[torch.Tensor, "keys 3"]
) -> Float[np.ndarray, " keys"]:
    """Compute the kernel of directions, over its largest value; vectors are √3 long, as N(0, I) draws are."""
    weights = kernel(unit, math.sqrt(3) * query, math.sqrt(3) * keys)[0]
    return np.asarray(weights / weights.max())
