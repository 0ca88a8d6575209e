import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.forms import quadrature
from synthbench.forms.quadrature import (
    Rule,
    best_sum,
    exponential_sum,
    gauss_laguerre,
    inverse_distance,
    nodes_and_weights,
)

RULES: list[Rule] = ["gauss-laguerre", "exponential-sum"]


def cosines(epsilon: float, count: int = 20_000) -> Tensor:
    """Dense where the kernel peaks: y = 2 + epsilon - 2x is evenly spaced on a log scale."""
    y = torch.logspace(math.log10(epsilon), math.log10(4 + epsilon), count, dtype=torch.float64)
    return (2 + epsilon - y) / 2


def relative_error(rule: Rule, num_nodes: int, epsilon: float) -> Tensor:
    x = cosines(epsilon)
    return inverse_distance(rule, num_nodes, epsilon, x) * (2 + epsilon - 2 * x) - 1


def test_two_nodes_have_their_closed_form() -> None:
    nodes, weights = gauss_laguerre(2, 0.0)

    torch.testing.assert_close(nodes, torch.tensor([2 - 2**0.5, 2 + 2**0.5], dtype=torch.float64) / 2)
    torch.testing.assert_close(weights, torch.tensor([2 + 2**0.5, 2 - 2**0.5], dtype=torch.float64) / 8)


@pytest.mark.parametrize(
    ("num_nodes", "shares"),
    [
        (1, [0.825, 0.446, 0.247, 0.028, 0.001]),
        (3, [0.997, 0.866, 0.623, 0.095, 0.005]),
        (8, [1.0, 0.997, 0.942, 0.253, 0.014]),
        (32, [1.0, 1.0, 1.0, 0.717, 0.058]),
    ],
)
def test_gauss_laguerre_keeps_this_share_of_the_kernel(num_nodes: int, shares: list[float]) -> None:
    x = torch.tensor([0.5, 0.8, 0.9, 0.99, 1.0], dtype=torch.float64)
    nodes, weights = gauss_laguerre(num_nodes, 1e-3)

    quadrature = (weights * (2 * nodes * x.unsqueeze(1)).exp()).sum(-1)

    assert (quadrature * (2 + 1e-3 - 2 * x)).tolist() == pytest.approx(shares, abs=5.1e-4)


def test_claim_uniform_exponential_convergence_of_gauss_laguerre_is_false() -> None:
    """At R = 32 the peak has lost 94 %; three more nodes, a hundred-fold gain for the other rule, add 6 per mille."""
    worst = [float(relative_error("gauss-laguerre", num_nodes, 1e-3).abs().max()) for num_nodes in (3, 16, 32, 35)]
    best = [float(relative_error("exponential-sum", num_nodes, 1e-3).abs().max()) for num_nodes in (3, 16)]

    assert worst[2] > 0.94
    assert worst[2] - worst[3] < 0.006
    assert worst[0] / worst[1] < 1.03
    assert best[0] / best[1] > 1e5


def test_gauss_laguerre_never_exceeds_the_kernel() -> None:
    """Its remainder has the sign of an even derivative of e^(2sx) in s: boundedness by 1 / epsilon is kept."""
    for num_nodes in (1, 3, 8, 32):
        assert (relative_error("gauss-laguerre", num_nodes, 1e-3) <= 1e-12).all()


@pytest.mark.parametrize(("num_nodes", "epsilon"), [(1, 1e-3), (2, 0.1), (3, 1e-6), (5, 1.0)])
def test_best_sums_equioscillate(num_nodes: int, epsilon: float) -> None:
    error = relative_error("exponential-sum", num_nodes, epsilon)
    changes = torch.where(error.sign().diff() != 0)[0] + 1
    extremes = torch.stack([piece.abs().max() for piece in torch.tensor_split(error, changes)])

    assert len(extremes) == 2 * num_nodes + 1
    assert (extremes / extremes.max() > 1 - 1e-4).all()


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3])
def test_best_sums_are_the_best(epsilon: float) -> None:
    """Alternating extremes bound the error of every other sum from below."""
    for num_nodes in (1, 2, 3, 6, 11, 16, 24):
        best = best_sum(num_nodes, epsilon)
        assert best is not None
        sizes = np.abs(best.deviations)

        assert len(best.deviations) == 2 * num_nodes + 1
        assert (np.sign(best.deviations[1:]) == -np.sign(best.deviations[:-1])).all()
        assert sizes.max() <= (1 + 1e-12) * sizes.min()
        assert float(relative_error("exponential-sum", num_nodes, epsilon).abs().max()) <= 1.001 * sizes.max() + 1e-12


@pytest.mark.parametrize(
    ("num_nodes", "epsilon", "first", "last"),
    [
        (3, 1e-3, "0x1.3f7d2602d649fp-1", "0x1.2704bf69f2d37p+8"),
        (25, 1e-3, "0x1.5b50d5574167dp-4", "0x1.4a813d1c56840p+13"),
        (7, 1.0, "0x1.2d0944d211990p-4", "0x1.2ad57340fce0bp+3"),
    ],
)
def test_nodes_are_the_same_on_every_processor(num_nodes: int, epsilon: float, first: str, last: str) -> None:
    """To the last bit: no rounding of the processor at hand is left in them."""
    nodes, _ = exponential_sum(num_nodes, epsilon)

    assert [float(nodes[0]).hex(), float(nodes[-1]).hex()] == [first, last]


@pytest.mark.parametrize(("num_nodes", "epsilon"), [(8, 1e-3), (18, 1e-3), (7, 1.0)])
def test_nodes_do_not_depend_on_how_near_the_search_started(
    monkeypatch: pytest.MonkeyPatch, num_nodes: int, epsilon: float
) -> None:
    """Processors that round differently find different starts, some 1e-6 apart. Here they are a thousand times that."""
    best, start = best_sum(num_nodes, epsilon), quadrature._start(num_nodes, epsilon)
    assert best is not None
    assert start is not None
    generator = np.random.default_rng(0)
    moved = quadrature.Start(*(values + 1e-3 * generator.standard_normal(values.shape) for values in start))
    monkeypatch.setattr(quadrature, "_start", lambda _num_nodes, _epsilon: moved)

    again = best_sum.__wrapped__(num_nodes, epsilon)

    assert again is not None
    np.testing.assert_array_equal(again.nodes, best.nodes)
    np.testing.assert_array_equal(again.log_weights, best.log_weights)


@pytest.mark.parametrize(("epsilon", "factor"), [(1e-2, 3.3), (1e-6, 1.6)])
def test_error_of_best_sums_falls_geometrically(epsilon: float, factor: float) -> None:
    errors = [float(relative_error("exponential-sum", num_nodes, epsilon).abs().max()) for num_nodes in range(4, 16)]

    assert all(before / after > factor for before, after in itertools.pairwise(errors))
    # The rate that Braess and Hackbusch prove, exp(π² / log(8 ratio)) a node, up to a quarter.
    rate = math.exp(math.pi**2 / math.log(8 * (4 + epsilon) / epsilon))
    assert (errors[0] / errors[-1]) ** (1 / 11) == pytest.approx(rate, rel=0.25)


def test_seven_nodes_are_within_one_per_cent_at_the_default_epsilon() -> None:
    errors = {num_nodes: relative_error("exponential-sum", num_nodes, 1e-3).abs().max() for num_nodes in (6, 7)}

    assert errors[7] < 0.01 < errors[6]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("num_nodes", [1, 4, 12])
def test_nodes_and_weights_are_positive(rule: Rule, num_nodes: int) -> None:
    nodes, weights = nodes_and_weights(rule, num_nodes, 0.01)

    assert (nodes > 0).all()
    assert (weights >= 0).all()
    assert (nodes.diff() > 0).all()


@pytest.mark.parametrize("rule", RULES)
def test_sum_is_that_of_nodes_and_weights_where_nothing_overflows(rule: Rule) -> None:
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    nodes, weights = nodes_and_weights(rule, 4, 0.1)

    torch.testing.assert_close(
        inverse_distance(rule, 4, 0.1, x), (weights * (2 * nodes * x.unsqueeze(1)).exp()).sum(-1)
    )


@pytest.mark.parametrize("rule", RULES)
def test_sums_are_finite_however_sharp(rule: Rule) -> None:
    assert inverse_distance(rule, 24, 1e-6, cosines(1e-6)).isfinite().all()


@pytest.mark.parametrize("epsilon", [0.0, 1e-7, math.nan])
def test_sums_for_too_small_an_epsilon_are_refused(epsilon: float) -> None:
    with pytest.raises(UsageError, match=r"epsilon is .*; allowed with exponential-sum: float from 1e-06"):
        nodes_and_weights("exponential-sum", 2, epsilon)


@pytest.mark.parametrize(("epsilon", "most"), [(1e-3, 25), (0.1, 13), (1.0, 7)])
def test_sums_whose_error_is_below_1e_10_are_refused(epsilon: float, most: int) -> None:
    """The limits are the same on every processor."""
    nodes, _ = exponential_sum(most, epsilon)
    assert len(nodes) == most
    best = best_sum(most, epsilon)
    assert best is not None
    assert np.abs(best.deviations).min() >= 1e-10

    allowed = rf"allowed with exponential-sum at epsilon {epsilon:g}: int from 1 to {most}, .* below 1e-10"
    for num_nodes in (most + 1, 64):
        with pytest.raises(UsageError, match=rf"R is {num_nodes}; {allowed}"):
            nodes_and_weights("exponential-sum", num_nodes, epsilon)


def test_what_is_done_to_the_nodes_does_not_reach_the_next_call() -> None:
    nodes, log_weights = exponential_sum(2, 0.1)
    before = nodes.clone(), log_weights.clone()
    nodes.zero_()
    log_weights.zero_()

    torch.testing.assert_close(exponential_sum(2, 0.1), before)
