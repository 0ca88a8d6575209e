"""Figures 1, 2, 3, 5, 7 and 10 of the Neural Matter Networks paper, and its XOR by one unit."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from synthbench.forms.scores import SUM_DELTA
from synthbench.forms.squashing import soft_sigmoid, soft_tanh, softermax
from synthbench.gallery.curves import Curve, Curves, Panel, spread
from synthbench.gallery.figure import figure
from synthbench.gallery.kernels import normal
from synthbench.gallery.maps import Map, Maps, grid
from synthbench.layers import Linear, YatProduct

PLANE = (-3.0, 3.0, -3.0, 3.0)
NUM_PLACES = 64
WEIGHT = (1.0, 0.5)
EPSILONS = (1.0, 0.1, 0.01, 0.001)
MIDDLES = torch.tensor([[1.6, 0.0], [-0.8, 1.4], [-0.8, -1.4]], dtype=torch.float64)
"""Of three clouds."""
OTHERS = (1.0, 1.0, 1.0)
"""Scores beside the one that is drawn."""


def neuron(weight: tuple[float, ...], epsilon: float) -> YatProduct:
    """One Yat neuron without bias, its learned scale at 1."""
    unit = YatProduct(len(weight), 1, bias=False, epsilon=epsilon).double().requires_grad_(requires_grad=False)
    unit.weight.copy_(torch.tensor(weight).unsqueeze(-1))
    unit.alpha.zero_()
    return unit


def dot_product(weight: tuple[float, ...]) -> Linear:
    """One linear neuron without bias."""
    unit = Linear(len(weight), 1, bias=False).double().requires_grad_(requires_grad=False)
    unit.weight.copy_(torch.tensor(weight).unsqueeze(-1))
    return unit


def answers(unit: nn.Module, places: Float[np.ndarray, "*places dim"]) -> Float[np.ndarray, "*places"]:
    """What a neuron answers at some places."""
    values: np.ndarray = unit(torch.from_numpy(places)).squeeze(-1).numpy()
    return values


def _map(
    title: str,
    values: Float[np.ndarray, " places"],
    words: str,
    limits: tuple[float, float],
    marks: Float[np.ndarray, "marks 2"],
) -> Map:
    return Map(title, values.reshape(NUM_PLACES, NUM_PLACES), marks, words, limits)


@figure("nmn-01-similarities")
def similarities() -> Maps:
    """Four similarities and their slopes.

    Figure 1. w = (1, 0.5), the star; ε = 0.1. Below: the length of the gradient by x, where the paper has arrows. The
    slopes of the dot product (1.1) and of the distance (1) are the same everywhere, that of the cosine is large near
    the origin only. That of the Yat product is large on both sides of its peak, 0 on it and small far away.
    """
    star, places = torch.tensor(WEIGHT, dtype=torch.float64), torch.from_numpy(grid(PLANE, NUM_PLACES))
    functions: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, float]]] = {
        "dot": (lambda x: x @ star, (-4.0, 4.0)),
        "distance": (lambda x: (x - star).norm(dim=-1), (0.0, 4.0)),
        "Yat": (neuron(WEIGHT, 0.1), (0.0, 4.0)),
        "cosine": (lambda x: cosine_similarity(x, star, dim=-1), (-1.0, 1.0)),
    }
    values, slopes = [], []
    for title, (function, limits) in functions.items():
        x = places.clone().requires_grad_()
        found = function(x).flatten()
        (gradient,) = torch.autograd.grad(found.sum(), x)
        values.append(_map(title, found.detach().numpy(), "value", limits, star[None].numpy()))
        slopes.append(_map(f"{title}, slope", gradient.norm(dim=-1).numpy(), "slope", (0.0, 4.0), star[None].numpy()))
    return Maps([*values, *slopes], PLANE)


@figure("nmn-02-well")
def well() -> Maps:
    """The response of one neuron.

    Figure 2 of the paper. w = (1, 0.5), the star; no bias, scale 1. The dot product grows without end and its
    square on both sides of a line; the Yat product has one bounded peak, behind the star as seen from the origin
    (at (1 + ε / |w|²) w), a weaker answer on the opposite side, and is 0 where x is orthogonal to w. The peak grows
    like 1 / ε; colours end at 4.
    """
    places, star = grid(PLANE, NUM_PLACES), np.array([WEIGHT])
    linear = answers(dot_product(WEIGHT), places)
    maps = [
        _map("dot product", linear, "w · x", (-4.0, 4.0), marks=star),
        _map("its square", linear**2, "(w · x)²", (0.0, 4.0), marks=star),
        _map("Yat, ε = 1", answers(neuron(WEIGHT, 1.0), places), "Yat(w, x)", (0.0, 4.0), marks=star),
        _map("Yat, ε = 0.1", answers(neuron(WEIGHT, 0.1), places), "Yat(w, x)", (0.0, 4.0), marks=star),
    ]
    return Maps(maps, PLANE)


@figure("nmn-03-angle-and-radius")
def angle_and_radius() -> Curves:
    """One neuron by angle and by radius.

    Figure 3. w = (1, 0). Left: x as long as w, at every angle. Only near 0° does ε matter; at 90° the answer is 0,
    at 180° it is back at 1/4. Right: x of any length at three angles, ε = 0.1. The answers level off at cos² of the
    angle. At 0° the peak is 11 and lies beyond x = w, where the paper has 10 at x = w for the maximum.
    """
    degrees = np.linspace(0, 180, 181)
    radii = np.geomspace(0.01, 100, 161)
    w = (1.0, 0.0)
    around = [
        Curve(f"ε = {epsilon:g}", degrees, answers(neuron(w, epsilon), _around(np.radians(degrees))))
        for epsilon in EPSILONS
    ]
    along = [
        Curve(f"{angle}°", radii, answers(neuron(w, 0.1), radii[:, None] * _around(np.radians([angle]))))
        for angle in (0, 45, 80)
    ]
    panel = partial(Panel, y_label="Yat(w, x)", y_scale="log")
    panels = [
        panel("by angle, x as long as w", around, "angle, degrees", y_range=(1e-4, 2e3)),
        panel("by length of x, ε = 0.1", along, "length of x", x_scale="log", y_range=(1e-4, 20.0)),
    ]
    return Curves(panels)


def _around(angles: Float[np.ndarray, " angles"]) -> Float[np.ndarray, "angles 2"]:
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


@figure("nmn-05-regions")
def regions() -> Maps:
    """Decision regions of trained classifiers.

    Figure 5. Which of three neurons answers most, on three clouds of 40 points (seed 0, standard deviation 0.45);
    stars are weights, titles the points that are classified right. First two: the clouds' middles for weights. Last
    two: weights from seed 0, trained by 300 steps of Adam at 0.03; ε = 0.1, no bias. The paper's localised regions
    are not what comes out: far from the origin a Yat neuron answers alike on both sides, so that its region is a
    double cone, and the trained weights stay around the origin.
    """
    clouds, classes = three_clouds()
    places = torch.from_numpy(grid(PLANE, NUM_PLACES))
    makers: dict[str, Callable[[], Linear | YatProduct]] = {
        "linear": lambda: Linear(2, 3, bias=False, generator=torch.Generator().manual_seed(0)),
        "Yat": lambda: YatProduct(2, 3, bias=False, epsilon=0.1, generator=torch.Generator().manual_seed(0)),
    }
    maps = []
    for is_trained in (False, True):
        for title, make in makers.items():
            unit = make().double()
            if is_trained:
                train(unit, clouds, classes)
            unit.requires_grad_(requires_grad=False)
            if not is_trained:
                unit.weight.copy_(MIDDLES.T)
            right = float((unit(clouds).argmax(-1) == classes).double().mean())
            region = unit(places).argmax(-1).double().numpy().reshape(NUM_PLACES, NUM_PLACES)
            words = f"{title}{', trained' if is_trained else ''}: {100 * right:.0f} %"
            maps.append(Map(words, region, unit.weight.T.numpy(), words=""))
    return Maps(maps, PLANE)


def three_clouds() -> tuple[Float[Tensor, "points 2"], Int[Tensor, " points"]]:
    """Forty points around each of three places, and which."""
    classes = torch.arange(len(MIDDLES)).repeat_interleave(40)
    return MIDDLES[classes] + 0.45 * normal(0, len(classes), 2), classes


def train(unit: nn.Module, points: Float[Tensor, "points 2"], classes: Int[Tensor, " points"]) -> None:
    """Train by 300 steps of Adam on all points at once."""
    optimiser = torch.optim.Adam(unit.parameters(), lr=0.03)
    for _ in range(300):
        optimiser.zero_grad()
        cross_entropy(unit(points), classes).backward()
        optimiser.step()


@figure("nmn-xor")
def xor() -> Maps:
    """XOR by one unit.

    Section 3.1: XOR by one unit with w = (1, −1), ε = 0.001; stars are the four inputs. The unit is 0 on the
    diagonal, where both inputs agree, and 1/5 and 1 at the two others: a threshold of 0.1 separates them. No
    threshold of the dot product does.
    """
    square = (-1.0, 2.0, -1.0, 2.0)
    places = grid(square, NUM_PLACES)
    corners = np.array([(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
    weight = (1.0, -1.0)
    unit = neuron(weight, 0.001)
    values = answers(unit, places)
    maps = [
        _map("dot product", answers(dot_product(weight), places), "w · x", (-2.0, 2.0), marks=corners),
        _map("Yat, w = (1, −1)", values, "Yat(w, x)", (0.0, 1.0), marks=corners),
        _map("Yat above 0.1", (values > 0.1).astype(float), "", (0.0, 1.0), marks=corners),
    ]
    return Maps(maps, square)


@figure("nmn-07-epsilon-and-perturbation")
def epsilon_and_perturbation() -> Curves:
    """Epsilon, and how far the output moves.

    Figure 7. w = (1, 0). Left: the answer along the line through w; ε changes the peak (1000 at ε = 0.001) and
    little else. Right: the change of the answer when x = (0.6, 0.6) moves by some length in 64 directions: median,
    and the middle four fifths. It grows in proportion up to moves of about a tenth; below ε = 0.1, ε hardly matters
    unless a move ends near w.
    """
    along = np.linspace(-3, 3, 301)
    w = (1.0, 0.0)
    profiles = [
        Curve(f"ε = {epsilon:g}", along, answers(neuron(w, epsilon), along[:, None] * np.array([w])))
        for epsilon in EPSILONS
    ]
    sizes = np.geomspace(1e-3, 1, 31)
    directions = _around(np.linspace(0, 2 * math.pi, 64, endpoint=False))
    start = np.array([0.6, 0.6])
    moved = start + sizes[None, :, None] * directions[:, None]
    changes = []
    for epsilon in EPSILONS:
        unit = neuron(w, epsilon)
        changes.append(spread(f"ε = {epsilon:g}", sizes, np.abs(answers(unit, moved) - answers(unit, start[None]))))
    panel = partial(Panel, y_scale="log")
    panels = [
        panel("along w, which is at 1", profiles, "place on the line through w", "Yat(w, x)", y_range=(1e-3, 2e3)),
        panel("x = (0.6, 0.6) moved", changes, "length of the move", "change of Yat(w, x)", "log"),
    ]
    return Curves(panels)


def first_of_softermax(x: Tensor, power: float) -> Tensor:
    """The softermax of a score among the others."""
    scores = torch.cat([x.unsqueeze(-1), torch.tensor(OTHERS, dtype=x.dtype).expand(len(x), -1)], dim=-1)
    return softermax(scores, power, SUM_DELTA)[..., 0]


def first_of_softmax(x: Tensor) -> Tensor:
    """The softmax of the same, to compare."""
    others = torch.tensor(OTHERS, dtype=x.dtype).exp().sum()
    return x.exp() / (x.exp() + others)


@figure("nmn-10-squashing")
def squashing() -> Curves:
    """Squashing functions.

    Figure 10. Softermax of a score beside three scores of 1, soft-sigmoid, soft-tanh, for four powers n; beside
    each, the softmax, the logistic sigmoid or tanh. All begin at their smallest value at a score of 0, where the
    exponential ones do not; n sets how steep the passage through a score of 1 is.
    """
    x = torch.linspace(0, 5, 201, dtype=torch.float64)
    functions: dict[str, tuple[Callable[[Tensor, float], Tensor], Tensor, tuple[float, float]]] = {
        "softermax beside 1, 1, 1": (first_of_softermax, first_of_softmax(x), (0.0, 1.02)),
        "soft-sigmoid": (soft_sigmoid, torch.sigmoid(x), (0.0, 1.02)),
        "soft-tanh": (soft_tanh, torch.tanh(x), (-1.0, 1.02)),
    }
    panels = []
    for title, (squash, relative, limits) in functions.items():
        curves = [Curve(f"n = {power:g}", x.numpy(), squash(x, power).numpy()) for power in (0.5, 1.0, 2.0, 4.0)]
        curves.append(Curve("exponential relative", x.numpy(), relative.numpy()))
        panels.append(Panel(title, curves, "score", "squashed", y_range=limits))
    return Curves(panels)
