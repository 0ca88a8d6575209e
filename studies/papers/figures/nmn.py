"""Figures 1, 2, 3, 5, 7, 8 and 10 of the Neural Matter Networks paper, and its XOR by one unit."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from studies.papers.figures.curves import Axis, Curve, Curves, Panel, spread
from studies.papers.figures.figure import figure
from studies.papers.figures.kernels import normal
from studies.papers.figures.maps import Map, Maps, grid
from studies.real import tangent
from synthbench.forms.scores import SUM_DELTA
from synthbench.forms.squashing import softermax
from synthbench.layers import Linear, YatProduct

WEIGHT, AHEAD = (1.0, 0.5), (1.0, 0.0)
"""Weights of neurons in the plane, and of neurons along a line."""
EPSILONS = (1.0, 0.1, 0.01, 0.001)
MIDDLES = torch.tensor([[1.6, 0.0], [-0.8, 1.4], [-0.8, -1.4]], dtype=torch.float64)
"""Middles of three clouds of points."""


def neuron(weight: tuple[float, ...], epsilon: float) -> YatProduct:
    """Build one Yat neuron without bias, with its learned scale at 1."""
    unit = YatProduct(len(weight), 1, bias=False, epsilon=epsilon).double().requires_grad_(requires_grad=False)
    unit.weight.copy_(torch.tensor(weight).unsqueeze(-1))
    unit.alpha.zero_()
    return unit


def answers(
    weight: tuple[float, ...], epsilon: float, places: Float[np.ndarray, "*places dim"]
) -> Float[np.ndarray, "*places"]:
    """Compute the answers of a Yat neuron at some places."""
    return np.asarray(neuron(weight, epsilon)(torch.from_numpy(places)).squeeze(-1))


@figure("nmn-01-similarities")
def similarities() -> Maps:
    """Four similarities and their slopes.

    Figure 1. w = (1, 0.5), the star; ε = 0.1. Below: the length of the gradient by x. The slopes of the dot product
    (1.1) and of the distance (1) are constant; that of the cosine is large only near the origin. That of the Yat
    product is large on both sides of its peak and small far away.
    """
    star, marks = torch.tensor(WEIGHT, dtype=torch.float64), np.array([WEIGHT])
    functions: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, float]]] = {
        "dot": (lambda x: x @ star, (-4.0, 4.0)),
        "distance": (lambda x: (x - star).norm(dim=-1), (0.0, 4.0)),
        "Yat": (neuron(WEIGHT, 0.1), (0.0, 4.0)),
        "cosine": (lambda x: cosine_similarity(x, star, dim=-1), (-1.0, 1.0)),
    }
    values, slopes = [], []
    for title, (function, limits) in functions.items():
        x = torch.from_numpy(grid()).requires_grad_()
        found = function(x).flatten()
        (gradient,) = torch.autograd.grad(found.sum(), x)
        values.append(Map(title, found.detach().numpy(), marks, "value", limits))
        slopes.append(Map(f"{title}, slope", gradient.norm(dim=-1).numpy(), marks, "slope", (0.0, 4.0)))
    return Maps([*values, *slopes])


@figure("nmn-02-well")
def well() -> Maps:
    """The response of one neuron.

    Figure 2. w = (1, 0.5), the star; no bias, scale 1; colours end at 4. The dot product grows without end, its square
    on both sides of a line. The Yat product has one bounded peak at (1 + ε / |w|²) w, a weaker answer on the opposite
    side, and is 0 where x is orthogonal to w. The peak grows like 1 / ε.
    """
    places = grid()
    linear = places @ WEIGHT
    panel = partial(Map, marks=np.array([WEIGHT]), words="Yat(w, x)", limits=(0.0, 4.0))
    yats = [panel(f"Yat, ε = {epsilon:g}", answers(WEIGHT, epsilon, places)) for epsilon in (1.0, 0.1)]
    dots = [panel("dot product", linear, words="w · x", limits=(-4.0, 4.0))]
    return Maps([*dots, panel("its square", linear**2, words="(w · x)²"), *yats])


@figure("nmn-03-angle-and-radius")
def angle_and_radius() -> Curves:
    """One neuron by angle and by radius.

    Figure 3. w = (1, 0). Left: x as long as w. ε matters only near 0°; the answer is 0 at 90° and 1/4 at 180°. Right: x
    of any length, ε = 0.1. The answers level off at cos² of the angle. The peak at 0° is 11, beyond x = w; the paper
    has 10, at x = w.
    """
    degrees, radii = np.linspace(0, 180, 181), np.geomspace(0.01, 100, 161)
    circle = around(np.radians(degrees))
    by_angle = [Curve(f"ε = {epsilon:g}", degrees, answers(AHEAD, epsilon, circle)) for epsilon in EPSILONS]
    rays = {f"{angle}°": radii[:, None] * around(np.radians([angle])) for angle in (0, 45, 80)}
    by_length = [Curve(label, radii, answers(AHEAD, 0.1, ray)) for label, ray in rays.items()]
    degree, length = Axis("angle, degrees"), Axis("length of x", "log")
    left = Panel("by angle, x as long as w", by_angle, degree, Axis("Yat(w, x)", "log", (1e-4, 2e3)))
    return Curves([left, Panel("by length of x, ε = 0.1", by_length, length, Axis("Yat(w, x)", "log", (1e-4, 20.0)))])


def around(angles: Float[np.ndarray, " angles"]) -> Float[np.ndarray, "angles 2"]:
    """Return the points of the unit circle at some angles."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


@figure("nmn-05-regions")
def regions() -> Maps:
    """Decision regions of trained classifiers.

    Figure 5. The neuron that answers most, of three, on three clouds of 40 points (seed 0, standard deviation 0.45);
    stars are weights, titles the accuracy. First two: the clouds' middles for weights. Last two: 300 steps of Adam at
    0.03; ε = 0.1, no bias. Regions are not localised, as the paper has them: far out a Yat neuron answers alike on both
    sides, so its region is a double cone.
    """
    classes = torch.arange(len(MIDDLES)).repeat_interleave(40)
    clouds = MIDDLES[classes] + 0.45 * normal(0, len(classes), 2)
    makers: dict[str, Callable[..., Linear | YatProduct]] = {"linear": Linear, "Yat": partial(YatProduct, epsilon=0.1)}
    maps = []
    for is_trained in (False, True):
        for title, make in makers.items():
            unit = make(2, 3, bias=False, generator=torch.Generator().manual_seed(0)).double()
            optimiser = torch.optim.Adam(unit.parameters(), lr=0.03)
            for _ in range(300 * is_trained):
                optimiser.zero_grad()
                cross_entropy(unit(clouds), classes).backward()
                optimiser.step()
            unit.requires_grad_(requires_grad=False)
            if not is_trained:
                unit.weight.copy_(MIDDLES.T)
            right = float((unit(clouds).argmax(-1) == classes).double().mean())
            region = unit(torch.from_numpy(grid())).argmax(-1).double().numpy()
            words = f"{title}{', trained' if is_trained else ''}: {100 * right:.0f} %"
            maps.append(Map(words, region, unit.weight.T.numpy()))
    return Maps(maps)


@figure("nmn-xor")
def xor() -> Maps:
    """XOR by one unit.

    Section 3.1, w = (1, −1), ε = 0.001; stars are the four inputs. The unit is 0 where both inputs agree, 1/5 and 1 at
    the two others, so a threshold of 0.1 separates them. No threshold of the dot product does.
    """
    square, weight = (-1.0, 2.0, -1.0, 2.0), (1.0, -1.0)
    places = grid(square)
    values = answers(weight, 0.001, places)
    panel = partial(Map, marks=np.array([(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]))
    maps = [
        panel("dot product", places @ weight, words="w · x", limits=(-2.0, 2.0)),
        panel("Yat, w = (1, −1)", values, words="Yat(w, x)"),
        panel("Yat above 0.1", (values > 0.1).astype(float)),
    ]
    return Maps(maps, square)


@figure("nmn-07-epsilon-and-perturbation")
def epsilon_and_perturbation() -> Curves:
    """Epsilon and perturbations.

    Figure 7. w = (1, 0). Left: the answer along the line through w; ε changes the peak (1000 at ε = 0.001) and little
    else. Right: the change of the answer when x = (0.6, 0.6) moves in 64 directions. It is proportional up to moves of
    about a tenth. Below 0.1, ε hardly matters unless a move ends near w.
    """
    along, sizes, start = np.linspace(-3, 3, 301), np.geomspace(1e-3, 1, 31), np.array([0.6, 0.6])
    moved = start + sizes[:, None] * around(np.linspace(0, 2 * math.pi, 64, endpoint=False))[:, None]
    profiles, changes = [], []
    for epsilon in EPSILONS:
        answer, label = partial(answers, AHEAD, epsilon), f"ε = {epsilon:g}"
        profiles.append(Curve(label, along, answer(along[:, None] * np.array(AHEAD))))
        changes.append(spread(label, sizes, np.abs(answer(moved) - answer(start))))
    place, move = Axis("place on the line through w"), Axis("length of the move", "log")
    left = Panel("along w, which is at 1", profiles, place, Axis("Yat(w, x)", "log", (1e-3, 2e3)))
    return Curves([left, Panel("x = (0.6, 0.6) moved", changes, move, Axis("change of Yat(w, x)", "log"))])


@figure("nmn-08-spectrum")
def spectrum() -> Curves:
    """The spectrum of the tangent kernel.

    Figure 8a. Eigenvalues by rank, as shares of the trace: 256 random unit vectors, 2,048 normal units, no training. At
    ranks 8 to 128 those of Yat fall faster than those of ReLU only in 4 dimensions with ε = 1. With ε = 0.01, and in 16
    and 64 dimensions, they fall more slowly. The paper has them fall faster and names no inputs.
    """
    ranks = np.arange(1.0, tangent.NUM_INPUTS + 1)
    panels = []
    for dim, inputs, weights in tangent.drawn():
        found = {"ReLU": tangent.relu_kernel(inputs, weights)}
        found |= {f"Yat, ε = {epsilon:g}": tangent.yat_kernel(inputs, weights, epsilon) for epsilon in tangent.EPSILONS}
        curves = [Curve(label, ranks, np.linalg.eigvalsh(of)[::-1] / np.trace(of)) for label, of in found.items()]
        sides = Axis("rank", "log"), Axis("share of the trace", "log", (1e-9, 1.0))
        panels.append(Panel(f"{dim} dimensions", curves, *sides))
    return Curves(panels)


def soft_sigmoid(x: Float[Tensor, "*batch"], power: float) -> Float[Tensor, "*batch"]:
    """xⁿ / (1 + xⁿ), from 0 at 0 to 1 (eq. 4): the softermax of a single score with an epsilon of 1."""
    return softermax(x.unsqueeze(-1), power, epsilon=1.0).squeeze(-1)


def soft_tanh(x: Float[Tensor, "*batch"], power: float) -> Float[Tensor, "*batch"]:
    """(xⁿ - 1) / (xⁿ + 1), from -1 at 0 to 1 (eq. 5)."""
    return 2 * soft_sigmoid(x, power) - 1


@figure("nmn-10-squashing")
def squashing() -> Curves:
    """Squashing functions.

    Figure 10. Softermax of a score beside three scores of 1, soft-sigmoid and soft-tanh for four powers n, beside
    softmax, logistic sigmoid and tanh. All begin at their smallest value at a score of 0, where the exponential ones do
    not. n sets the slope at a score of 1.
    """
    x = torch.linspace(0, 5, 201, dtype=torch.float64)
    scores = torch.stack([x, *torch.ones(3, len(x), dtype=x.dtype)], dim=-1)

    def first(power: float) -> Tensor:
        return softermax(scores, power, SUM_DELTA)[..., 0]

    functions: dict[str, tuple[Callable[[float], Tensor], Tensor, float]] = {
        "softermax beside 1, 1, 1": (first, scores.softmax(-1)[..., 0], 0.0),
        "soft-sigmoid": (partial(soft_sigmoid, x), torch.sigmoid(x), 0.0),
        "soft-tanh": (partial(soft_tanh, x), torch.tanh(x), -1.0),
    }
    panels = []
    for title, (squash, relative, low) in functions.items():
        curves = [Curve(f"n = {power:g}", x.numpy(), squash(power).numpy()) for power in (0.5, 1.0, 2.0, 4.0)]
        curves.append(Curve("exponential relative", x.numpy(), relative.numpy()))
        panels.append(Panel(title, curves, Axis("score"), Axis("squashed", ends=(low, 1.02))))
    return Curves(panels)
