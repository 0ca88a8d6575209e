"""Nodes and weights that turn 1 / (C - 2x), the inverse distance on the sphere, into a sum of exponentials.

Two rules, chosen by name. ``gauss-laguerre`` is the SLAY paper's. ``exponential-sum`` is the best sum of as many
exponentials: its relative error equioscillates, so that no other sum has a smaller largest one.
"""

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.errors import UsageError

Rule = Literal["gauss-laguerre", "exponential-sum"]

SMALLEST_EPSILON = 1e-6
"""Smallest epsilon that :func:`exponential_sum` takes."""

Vector = Float[np.ndarray, " _"]


def nodes_and_weights(
    rule: Rule, num_nodes: int, epsilon: float
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes s and weights w, in float64, with Σ w_r exp(2 s_r x) ≈ 1 / (C - 2x), C = 2 + epsilon, x in [-1, 1].

    A weight below the smallest float64 is 0.

    Raises:
        UsageError: If the rule has no such nodes in float64.
    """
    if rule == "gauss-laguerre":
        return gauss_laguerre(num_nodes, epsilon)
    nodes, log_weights = exponential_sum(num_nodes, epsilon)
    return nodes, log_weights.exp()


def inverse_distance(
    rule: Rule, num_nodes: int, epsilon: float, x: Float[Tensor, "*cosines"]
) -> Float[Tensor, "*cosines"]:
    """What a rule makes of 1 / (C - 2x): the sum itself, where neither weight nor exponential overflows.

    Raises:
        UsageError: If the rule has no such nodes in float64.
    """
    if rule == "gauss-laguerre":
        nodes, weights = gauss_laguerre(num_nodes, epsilon)
        log_weights = weights.log()
    else:
        nodes, log_weights = exponential_sum(num_nodes, epsilon)
    return (log_weights.to(x) + 2 * nodes.to(x) * x.unsqueeze(-1)).exp().sum(-1)


def gauss_laguerre(num_nodes: int, epsilon: float) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """The nodes and weights of ∫ e^(-t) f(t) dt, both divided by C.

    Far from exact near x = 1, where the kernel peaks: three nodes keep half a per cent of the peak at epsilon = 1e-3.

    Source: Luna et al. (2026), eq. 10; the uniform convergence claimed there does not hold.
    """
    nodes, weights = np.polynomial.laguerre.laggauss(num_nodes)
    scale = 2 + epsilon
    return torch.from_numpy(nodes / scale), torch.from_numpy(weights / scale)


def exponential_sum(num_nodes: int, epsilon: float) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes and log w of the exponential sum whose largest error relative to 1 / (C - 2x) on [-1, 1] is least.

    The error falls by a constant factor a node. At epsilon = 1e-3, 7 nodes are within 1 %: .99 .65 .28 .12 .046 .018
    .0070 .0027 for 1 to 8. Being the same at every
    x, it exceeds that of as few Gauss–Laguerre nodes far from the peak.

    Raises:
        UsageError: If epsilon is below 1e-6, or the error falls below what float64 resolves, about 1e-11.

    Source: Braess & Hackbusch (2005), who minimise the absolute error of 1 / y; here it is the relative one.
    """
    if not epsilon >= SMALLEST_EPSILON:
        raise UsageError(f"epsilon is {epsilon:g}; allowed with exponential-sum: float from {SMALLEST_EPSILON:g}")
    best = best_sum(num_nodes, epsilon)
    if best is None:
        most = next(count for count in range(num_nodes - 1, 0, -1) if best_sum(count, epsilon) is not None)
        raise UsageError(
            f"R is {num_nodes}; allowed with exponential-sum at epsilon {epsilon:g}: int from 1 to {most}, "
            "beyond which its error is lost in the rounding of float64"
        )
    nodes = np.exp(best.log_nodes)
    return torch.from_numpy(nodes), torch.from_numpy(best.log_weights - (2 + epsilon) * nodes)


class Sum(NamedTuple):
    """Σ w_r e^(-s_r y) ≈ 1/y with the values that prove it near the best.

    ``deviations`` are the extreme relative errors from left to right, one more than there are numbers in nodes and
    weights. They alternate in sign, so no sum of as many exponentials has a largest error below the smallest of them
    (de la Vallée-Poussin); the largest of them is this sum's.
    """

    log_nodes: Vector
    log_weights: Vector
    zeros: Vector
    """Where the error vanishes: log y."""
    deviations: Vector


@lru_cache(maxsize=1024)
def best_sum(num_nodes: int, epsilon: float) -> Sum | None:
    """The best sum for 1/y on [epsilon, 4 + epsilon]; None where float64 does not resolve its error.

    One node has a closed form. More start from the solution of one less: its zeros are spread out to two more, Newton's
    method makes the error vanish there, and Remez exchanges then level the extremes between them. Where rounding stops
    the exchanges the deviations stay within a factor of two of each other.
    """
    low, high = math.log(epsilon), math.log(4 + epsilon)
    if num_nodes == 1:
        s = (high - low) / 4
        w = 2 / (1 / (math.e * s) + epsilon * math.exp(-s * epsilon))
        return _finish(np.log([s, w]), low, high)
    fewer = best_sum(num_nodes - 1, epsilon)
    if fewer is None:
        return None
    if num_nodes == 2:
        shift = (high - low) / 3 * np.array([-1, 1, -1, 1])
        start = np.repeat([fewer.log_nodes[0], fewer.log_weights[0]], 2) + shift
    else:
        start = _guess(num_nodes, fewer, best_sum(num_nodes - 2, epsilon))
    spread_out = _respread(np.arccos(_to_unit(fewer.zeros, low, high)), 2 * num_nodes, ends=(np.pi, 0.0))
    chebyshev = np.pi * (1 - (np.arange(2 * num_nodes) + 0.5) / (2 * num_nodes))
    for angles in (spread_out, chebyshev):
        interpolating = _interpolate(start, _from_unit(np.cos(angles), low, high))
        best = None if interpolating is None else _finish(_exchange(interpolating, low, high), low, high)
        if best is not None:
            return best
    return None


def _guess(num_nodes: int, one_less: Sum, two_less: Sum | None) -> Vector:
    """Nodes and weights extrapolated, linearly in 1 / num_nodes, from the solutions of one and two less."""
    guesses = []
    for pair in zip(one_less[:2], (two_less or one_less)[:2], strict=True):
        near, far = (_respread(values, num_nodes) for values in pair)
        guesses.append(near + (near - far) * (num_nodes - 2) / num_nodes)
    return np.concatenate(guesses)


def _error(parameters: Vector, t: Vector) -> Vector:
    """Relative error y Σ w e^(-s y) - 1 at y = e^t; the parameters are log s, then log w."""
    log_nodes, log_weights = np.split(parameters, 2)
    terms = np.exp(log_weights + t[:, None] - np.exp(log_nodes + t[:, None]))
    return terms.sum(1) - 1  # type: ignore[no-any-return]


def _jacobian(parameters: Vector, t: Vector) -> Float[np.ndarray, "_ _"]:
    log_nodes, log_weights = np.split(parameters, 2)
    products = np.exp(log_nodes + t[:, None])
    terms = np.exp(log_weights + t[:, None] - products)
    return np.concatenate([-products * terms, terms], axis=1)


def _interpolate(parameters: Vector, zeros: Vector) -> Vector | None:
    """Damped Newton steps until the error vanishes at the zeros; None if it does not come near."""
    error = _error(parameters, zeros)
    for _ in range(100):
        step = -np.linalg.lstsq(_jacobian(parameters, zeros), error, rcond=1e-15)[0]
        step /= max(1, np.abs(step).max())
        for halvings in range(20):
            trial = parameters + step / 2**halvings
            trial_error = _error(trial, zeros)
            if np.linalg.norm(trial_error) < np.linalg.norm(error):
                break
        else:
            break
        parameters, error = trial, trial_error
    return parameters if np.abs(error).max() < 1e-13 else None


def _exchange(parameters: Vector, low: float, high: float) -> Vector:
    """Level the extremes of the error by Newton steps, as long as they become more alike."""
    num_extremes = len(parameters) + 1
    points, values = _extremes(parameters, low, high)
    for _ in range(20):
        if len(values) != num_extremes or _spread(values) < 1 + 1e-9:
            break
        signs = np.sign(values)
        level = np.exp(np.log(np.abs(values)).mean())
        equations = np.column_stack([_jacobian(parameters, points), -signs])
        step = np.linalg.solve(equations, level * signs - values)[:-1]
        for halvings in range(5):
            trial = parameters + step / 2**halvings
            trial_points, trial_values = _extremes(trial, low, high)
            if len(trial_values) == num_extremes and _spread(trial_values) < _spread(values):
                break
        else:
            break
        parameters, points, values = trial, trial_points, trial_values
    return parameters


def _finish(parameters: Vector, low: float, high: float) -> Sum | None:
    """Wrap up a sum that is provably near the best; None for one that is not."""
    _, deviations = _extremes(parameters, low, high)
    if len(deviations) != len(parameters) + 1 or _spread(deviations) > 2:
        return None
    grid = _grid(len(parameters), low, high)
    error = _error(parameters, grid)
    before = np.flatnonzero(np.sign(error[1:]) != np.sign(error[:-1]))
    share = error[before] / (error[before] - error[before + 1])
    zeros = grid[before] + share * (grid[before + 1] - grid[before])
    log_nodes, log_weights = np.split(parameters, 2)
    return Sum(log_nodes, log_weights, zeros, deviations)


def _extremes(parameters: Vector, low: float, high: float) -> tuple[Vector, Vector]:
    """Where, between two sign changes, the error is largest, and how large: the peaks of parabolas through a grid."""
    grid = _grid(len(parameters), low, high)
    error = _error(parameters, grid)
    changes = np.flatnonzero(np.sign(error[1:]) != np.sign(error[:-1])) + 1
    points = []
    for piece in np.split(np.arange(len(grid)), changes):
        peak = piece[np.abs(error[piece]).argmax()]
        point = grid[peak]
        if 0 < peak < len(grid) - 1:
            left, middle, right = error[peak - 1 : peak + 2]
            curvature = left - 2 * middle + right
            offset = 0.5 * (left - right) / curvature if curvature else 0.0
            point += np.clip(offset, -0.5, 0.5) * (grid[peak + 1] - grid[peak - 1]) / 2
        points.append(point)
    return np.array(points), _error(parameters, np.array(points))


def _spread(values: Vector) -> float:
    """Largest over smallest size."""
    sizes = np.abs(values)
    return float(sizes.max() / max(sizes.min(), np.finfo(float).tiny))


def _grid(num_zeros: int, low: float, high: float) -> Vector:
    return _from_unit(np.cos(np.linspace(np.pi, 0, 30 * num_zeros + 200)), low, high)


def _to_unit(t: Vector, low: float, high: float) -> Vector:
    return (2 * t - low - high) / (high - low)


def _from_unit(u: Vector, low: float, high: float) -> Vector:
    return (low + high + (high - low) * u) / 2


def _respread(values: Vector, count: int, ends: tuple[float, float] | None = None) -> Vector:
    """Values at ``count`` places along the curve that evenly placed values lie on; ``ends`` pins the curve's ends."""
    from scipy.interpolate import make_interp_spline  # noqa: PLC0415 - a second, on every start

    places = (np.arange(len(values)) + 0.5) / len(values)
    if ends is not None:
        places, values = np.array([0, *places, 1]), np.array([ends[0], *values, ends[1]])
    curve = make_interp_spline(places, values, k=min(3, len(values) - 1))
    return curve((np.arange(count) + 0.5) / count)
