"""Figures 1, 19 and 20 of the SLAY paper: kernels in the plane and on the sphere."""

import math

import numpy as np
import torch
from jaxtyping import Float

from synthbench.gallery.curves import Curve, Curves, Panel
from synthbench.gallery.figure import figure
from synthbench.gallery.kernels import head, kernel, normal
from synthbench.gallery.maps import Map, Maps, grid
from synthbench.mechanisms import Attention

PLANE = (-3.0, 3.0, -3.0, 3.0)
NUM_PLACES = 64
TILT = math.radians(40)
"""By which the north pole is turned towards the reader."""


@figure("slay-01-partitions")
def partitions() -> Maps:
    """Who answers where: five keys in the plane.

    Figure 1. Colours say which of five keys (stars, seed 3) weighs most for a query at that place; heads of width
    2, features from seed 0. The dot product and the ReLU features give one key nothing, ELU + 1 leaves two keys.
    The Yat kernel gives the inner key (blue) a disc of its own and repeats regions across the origin. The spherical
    kernel only sees directions; the regions of SLAY are nearly its own, with slivers where features decide.
    """
    keys = 1.2 * normal(3, 5, 2)
    places = torch.from_numpy(grid(PLANE, NUM_PLACES))
    units = {
        "dot product (softmax)": head("softmax", dim=2),
        "Performer (ReLU), M=64": head("performer", dim=2),
        "linear (ELU + 1)": head("linear", dim=2),
        "Yat": head("yat-sum", dim=2),
        "spherical Yat": head("yat-spherical", dim=2),
        "SLAY, R=3 P=8 D=16": head("slay", dim=2),
    }
    maps = [
        Map(title, winners(unit, places, keys).reshape(NUM_PLACES, NUM_PLACES), keys.numpy(), words="")
        for title, unit in units.items()
    ]
    return Maps(maps, PLANE)


def winners(
    unit: Attention, places: Float[torch.Tensor, "places 2"], keys: Float[torch.Tensor, "keys 2"]
) -> Float[np.ndarray, " places"]:
    """The number of the key with the largest kernel at each place."""
    numbers: np.ndarray = kernel(unit, places, keys).argmax(-1).double().numpy()
    return numbers


@figure("slay-19-sphere")
def sphere() -> Maps:
    """What a query weighs on the sphere.

    Figure 19. Weight of keys on a sphere in three dimensions for a query at the pole, which is turned by 40°
    towards the reader; over the largest weight that is seen, colours by the power 0.4 so that the narrow peak
    shows. Keys and query of length √3, features from seed 0. The spherical Yat kernel is concentrated at the pole,
    softmax broad. SLAY at the sizes of table 9 is about as broad as softmax and, like the one with more features,
    has its peak beside the pole.
    """
    square = (-1.0, 1.0, -1.0, 1.0)
    places = grid(square, NUM_PLACES)
    is_seen = (places**2).sum(1) < 1
    right, up = places[is_seen].T
    towards = np.sqrt(1 - right**2 - up**2)
    north = up * math.cos(TILT) + towards * math.sin(TILT)
    away = towards * math.cos(TILT) - up * math.sin(TILT)
    keys = math.sqrt(3) * torch.from_numpy(np.stack([north, right, away], axis=1))
    query = math.sqrt(3) * torch.eye(1, 3, dtype=torch.float64)
    maps = []
    for title, unit in _on_sphere().items():
        values = np.full(len(places), np.nan)
        weights = kernel(unit, query, keys)[0].numpy()
        values[is_seen] = weights / weights.max()
        # The spherical kernel is at its peak in so small a place that a linear scale would show nothing else.
        maps.append(Map(title, values.reshape(NUM_PLACES, NUM_PLACES), words="over the largest", power=0.4))
    return Maps(maps, square)


@figure("slay-20-polar")
def polar() -> Curves:
    """Kernels by direction.

    Figure 20. The same kernels once around in a plane through the query at 0°, over their largest value. The
    spherical Yat kernel is a needle, softmax and SLAY are lobes; those of SLAY are not symmetric, and one points
    away from the query.
    """
    angles = np.linspace(0, 2 * math.pi, 181)
    keys = math.sqrt(3) * torch.from_numpy(np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1))
    panels = []
    for title, unit in _on_sphere().items():
        weights = kernel(unit, keys[:1], keys)[0].numpy()
        curve = Curve("kernel", angles, np.maximum(weights / weights.max(), 0))
        panels.append(Panel(title, [curve], "angle, radians", "over the largest", y_range=(0.0, 1.05)))
    return Curves(panels, is_polar=True)


def _on_sphere() -> dict[str, Attention]:
    return {
        "softmax": head("softmax", dim=3),
        "spherical Yat, ε=1e-3": head("yat-spherical", dim=3),
        "SLAY, R=3 P=8 D=16": head("slay", dim=3),
        "SLAY, R=3 P=64 D=256": head("slay", dim=3, P=64, D=256),
    }
