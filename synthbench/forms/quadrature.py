"""Nodes and weights that turn 1 / (C - 2x), the inverse distance on the sphere, into a sum of exponentials.

Two rules, chosen by name. ``gauss-laguerre`` is the SLAY paper's. ``exponential-sum`` is the best sum of as many
exponentials: its relative error equioscillates, so that no other sum has a smaller largest one.

The best sum has the same nodes on every processor. It is unique, but float64 cannot tell its nodes: where the error is
small the equations for them are nearly singular, and rounding moves them by per cents. So float64 only finds a start,
and the last steps are taken in decimal arithmetic of 40 digits, which is defined to the last digit.
"""

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from synthbench.errors import UsageError

Rule = Literal["gauss-laguerre", "exponential-sum"]

SMALLEST_EPSILON = 1e-6
"""Smallest epsilon that :func:`exponential_sum` takes."""

SMALLEST_ERROR = 1e-10
"""An exponential sum with a smaller error is refused.

A smaller error would be of no use: features are float32, which resolves 6e-8. And this leaves room: in float64 the
search finds a start for sums with a tenth of this error, on every processor. So this number is the limit, and not the
rounding of the processor at hand.
"""

DIGITS = 40
"""Decimal digits of the last steps: 17 for float64, about 12 that the equations lose at an error of 1e-10, and room."""

Vector = Float[np.ndarray, " _"]
Matrix = Float[np.ndarray, "_ _"]
Exact = Shaped[np.ndarray, "..."]
"""An array of Decimals; NumPy's functions and operators take it, those of linear algebra do not."""


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
    .0070 .0027 for 1 to 8. Being the same at every x, it exceeds that of as few Gauss–Laguerre nodes far from the peak.
    Takes hundredths of a second for 8 nodes, half a second for 25, once in a process.

    Raises:
        UsageError: If epsilon is below 1e-6, or the error is below 1e-10: with more than 25 nodes at epsilon = 1e-3,
            7 at 1.

    Source: Braess & Hackbusch (2005), who minimise the absolute error of 1 / y; here it is the relative one.
    """
    if not epsilon >= SMALLEST_EPSILON:
        raise UsageError(f"epsilon is {epsilon:g}; allowed with exponential-sum: float from {SMALLEST_EPSILON:g}")
    best = best_sum(num_nodes, epsilon)
    if best is None:
        most = next(count for count in range(num_nodes - 1, 0, -1) if best_sum(count, epsilon) is not None)
        raise UsageError(
            f"R is {num_nodes}; allowed with exponential-sum at epsilon {epsilon:g}: int from 1 to {most}, "
            f"beyond which its error is below {SMALLEST_ERROR:g}"
        )
    return torch.tensor(best.nodes), torch.tensor(best.log_weights)  # copies: the sum is kept for the next call


class Sum(NamedTuple):
    """Σ w_r e^(2 s_r x) ≈ 1 / (C - 2x), with the values that prove it best."""

    nodes: Vector
    log_weights: Vector
    deviations: Vector
    """The extreme relative errors as C - 2x grows, one more than there are numbers in nodes and weights. They alternate
    in sign and are alike in size, so no sum of as many exponentials has a smaller largest error (de la Vallée-Poussin).
    """


@lru_cache(maxsize=1024)
def best_sum(num_nodes: int, epsilon: float) -> Sum | None:
    """The best sum for 1/y on [epsilon, 4 + epsilon], the same numbers everywhere; None if its error is too small."""
    start = _start(num_nodes, epsilon)
    if start is None:
        return None
    with localcontext(Context(prec=DIGITS)):
        log_nodes, log_weights, deviations = _settle(start, Decimal(epsilon))
        if abs(deviations[0]) < Decimal(SMALLEST_ERROR):
            return None
        nodes = [log_node.exp() for log_node in log_nodes]
        # Here y is C - 2x. The difference is taken before it is rounded: both of its parts are large.
        moved = [
            log_weight - (2 + Decimal(epsilon)) * node for log_weight, node in zip(log_weights, nodes, strict=True)
        ]
        return Sum(*(np.array(values, dtype=float) for values in (nodes, moved, deviations)))


# In float64: near the best sum, by continuation in the number of nodes. ----------------------------------------------


class Start(NamedTuple):
    """Σ w_r e^(-s_r y) ≈ 1/y, near the best as far as float64 can tell. Every y is given as t = log y."""

    parameters: Vector
    """log s, then log w."""
    zeros: Vector
    """Where the error vanishes."""
    points: Vector
    """Where it is extreme: at both ends and between zeros."""


@lru_cache(maxsize=1024)
def _start(num_nodes: int, epsilon: float) -> Start | None:
    """Near the best sum for 1/y on [epsilon, 4 + epsilon]; None where its error is surely below SMALLEST_ERROR.

    One node has a closed form. More start from the solution of one less: its zeros are spread out to two more, Newton's
    method makes the error vanish there, and then the zeros are moved until the extremes between them are level.
    """
    low, high = math.log(epsilon), math.log(4 + epsilon)
    if num_nodes == 1:
        s = (high - low) / 4
        w = 2 / (1 / (math.e * s) + epsilon * math.exp(-s * epsilon))
        parameters = np.log([s, w])
        return Start(parameters, _zeros(parameters, low, high), _extremes(parameters, low, high)[0])
    fewer = _start(num_nodes - 1, epsilon)
    if fewer is None:
        return None
    if num_nodes == 2:
        shift = (high - low) / 3 * np.array([-1, 1, -1, 1])
        guess = np.repeat(fewer.parameters, 2) + shift
    else:
        guess = _guess(num_nodes, fewer, _start(num_nodes - 2, epsilon))
    spread_out = _respread(np.arccos((2 * fewer.zeros - low - high) / (high - low)), 2 * num_nodes, ends=(np.pi, 0.0))
    chebyshev = np.pi * (1 - (np.arange(2 * num_nodes) + 0.5) / (2 * num_nodes))
    for angles in (spread_out, chebyshev):
        zeros = _from_unit(np.cos(angles), low, high)
        interpolating = _interpolate(guess, zeros)
        start = None if interpolating is None else _level(interpolating, zeros, low, high)
        if start is not None:
            return start
    return None


def _guess(num_nodes: int, one_less: Start, two_less: Start | None) -> Vector:
    """Nodes and weights extrapolated, linearly in 1 / num_nodes, from the solutions of one and two less."""
    guesses = []
    pairs = zip(np.split(one_less.parameters, 2), np.split((two_less or one_less).parameters, 2), strict=True)
    for pair in pairs:
        near, far = (_respread(values, num_nodes) for values in pair)
        guesses.append(near + (near - far) * (num_nodes - 2) / num_nodes)
    return np.concatenate(guesses)


def _products_and_terms(parameters: Vector, t: Vector) -> tuple[Matrix, Matrix]:
    """The products s y and the terms y w e^(-s y) at y = e^t; the parameters are log s, then log w."""
    log_nodes, log_weights = np.split(parameters, 2)
    products = np.exp(log_nodes + t[:, None])
    return products, np.exp(log_weights + t[:, None] - products)


def _error(parameters: Vector, t: Vector) -> Vector:
    """Relative error y Σ w e^(-s y) - 1."""
    return _products_and_terms(parameters, t)[1].sum(1) - 1  # type: ignore[no-any-return]


def _jacobian(products: Exact, terms: Exact) -> Exact:
    """Derivatives of the error by the parameters, one row a place; in either arithmetic."""
    return np.concatenate([-products * terms, terms], axis=1)


def _interpolate(parameters: Vector, zeros: Vector) -> Vector | None:
    """Damped Newton steps until the error vanishes at the zeros; None if it does not come near."""
    error = _error(parameters, zeros)
    for _ in range(100):
        step = -_least(_jacobian(*_products_and_terms(parameters, zeros)), error)
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


def _least(equations: Matrix, values: Vector) -> Vector:
    """The solution of equations that are nearly singular."""
    return np.linalg.lstsq(equations, values, rcond=1e-15)[0]  # type: ignore[no-any-return]


def _level(parameters: Vector, zeros: Vector, low: float, high: float) -> Start | None:
    """Move the zeros until the extremes of the error are alike, or as near as rounding lets them.

    Rounding matters little to zeros and extremes. Nodes and weights can move far while both stay where they are, so
    they follow: after each step they are those that make the error vanish at the zeros.
    """
    num_extremes = len(parameters) + 1
    points, values = _extremes(parameters, low, high)
    if len(values) != num_extremes:
        return None
    for _ in range(20):
        if _spread(values) < 1 + 1e-4:
            break
        products, terms = _products_and_terms(parameters, zeros)
        equations = np.column_stack([_jacobian(*_products_and_terms(parameters, points)), -np.sign(values)])
        step = _least(equations, -values)[:-1]
        shift = -(_jacobian(products, terms) @ step) / (terms * (1 - products)).sum(1)
        for halvings in range(5):
            trial_zeros = zeros + shift / 2**halvings
            trial = _interpolate(parameters + step / 2**halvings, trial_zeros)
            if trial is None:
                continue
            trial_points, trial_values = _extremes(trial, low, high)
            if len(trial_values) == num_extremes and _spread(trial_values) < _spread(values):
                break
        else:
            break
        parameters, zeros, points, values = trial, trial_zeros, trial_points, trial_values
    return None if np.abs(values).max() < SMALLEST_ERROR / 2 else Start(parameters, zeros, points)


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


def _zeros(parameters: Vector, low: float, high: float) -> Vector:
    """Where the error changes its sign: on straight lines through a grid."""
    grid = _grid(len(parameters), low, high)
    error = _error(parameters, grid)
    before = np.flatnonzero(np.sign(error[1:]) != np.sign(error[:-1]))
    share = error[before] / (error[before] - error[before + 1])
    zeros: Vector = grid[before] + share * (grid[before + 1] - grid[before])
    return zeros


def _spread(values: Vector) -> float:
    """Largest over smallest size."""
    sizes = np.abs(values)
    return float(sizes.max() / max(sizes.min(), np.finfo(float).tiny))


def _grid(num_zeros: int, low: float, high: float) -> Vector:
    return _from_unit(np.cos(np.linspace(np.pi, 0, 30 * num_zeros + 200)), low, high)


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


# In decimal: the best sum itself. ------------------------------------------------------------------------------------


def _settle(start: Start, epsilon: Decimal) -> tuple[Exact, Exact, Exact]:
    """Log nodes, log weights and the extreme errors of the best sum, to some twenty digits.

    The steps are those of :func:`_level`. Each squares the distance to the best.

    Raises:
        ArithmeticError: If they do not come to rest, which no start has been seen to do.
    """
    parameters, zeros, points = (_exact(values) for values in start)
    zeros, points = np.exp(zeros), np.exp(points)  # y itself, here
    points[0], points[-1] = epsilon, 4 + epsilon
    signs = _exact(np.where(np.arange(len(points)) % 2, 1.0, -1.0))
    for _ in range(20):
        for _ in range(20):
            products, terms = _exact_products_and_terms(parameters, zeros)
            by_parameter, by_place = _jacobian(products, terms), (terms * (1 - products)).sum(1)
            step = _solve(by_parameter, 1 - terms.sum(1))
            parameters = parameters + step
            if np.abs(step).max() < Decimal("1e-9"):
                break
        products, terms = _exact_products_and_terms(parameters, points)
        slopes = (terms * (1 - products)).sum(1)
        bends = (terms * ((1 - products) * (1 - products) - products)).sum(1)
        slopes[[0, -1]] = Decimal(0)  # the ends stay where they are
        moves = -slopes / bends
        errors = terms.sum(1) - 1 + slopes * moves / 2
        points = points * np.exp(moves)
        step = _solve(np.column_stack([_jacobian(products, terms), -signs]), -errors)[:-1]
        zeros = zeros * np.exp(-(by_parameter @ step) / by_place)
        parameters = parameters + step
        if np.abs(step).max() < Decimal("1e-16"):
            return *np.split(parameters, 2), errors
    raise ArithmeticError(f"the best sum of {len(parameters) // 2} exponentials was not found at epsilon {epsilon:g}")


def _exact(values: Vector) -> Exact:
    return np.array([Decimal(value) for value in values.tolist()], dtype=object)


def _exact_products_and_terms(parameters: Exact, y: Exact) -> tuple[Exact, Exact]:
    """The same at y. A term that cannot matter to 40 digits is 0, which saves half of the exponentials."""
    nodes, weights = np.split(np.exp(parameters), 2)
    products = y[:, None] * nodes
    decays = np.full(products.shape, Decimal(0))
    matters = products < 100  # e^-100 is 4e-44
    decays[matters] = np.exp(-products[matters])
    return products, y[:, None] * weights * decays


def _solve(equations: Exact, values: Exact) -> Exact:
    """Gaussian elimination with row pivoting, which NumPy has for floating point only."""
    rows = np.column_stack([equations, values])
    for column in range(len(rows)):
        pivot = column + np.abs(rows[column:, column]).argmax()
        rows[[column, pivot]] = rows[[pivot, column]]
        rows[column, column:] = rows[column, column:] / rows[column, column]
        below = rows[column + 1 :]
        below[:, column:] = below[:, column:] - below[:, column, None] * rows[column, column:]
    solution = rows[:, -1]
    for row in range(len(rows) - 1, -1, -1):
        solution[:row] = solution[:row] - rows[:row, row] * solution[row]
    return solution
