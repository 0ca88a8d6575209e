"""Features of SLAY, the quadrature behind them, and exponential features beyond the range of floating-point numbers."""

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.forms import linear, log_space
from synthbench.forms.feature_maps import positive_features, unit_vectors
from synthbench.forms.linear import Guard
from synthbench.forms.quadrature import inverse_distance
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.performer_exp import PerformerExp
from tests.mechanisms.loops import built
from tests.tensors import normal, with_gradients


def test_a_vector_shorter_than_the_floor_is_divided_by_it() -> None:
    torch.testing.assert_close(unit_vectors(torch.tensor([1e-13, 0.0])), torch.tensor([0.1, 0.0]))


def test_exponents_are_clipped_at_twenty() -> None:
    one, unit = torch.ones(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)

    clipped = [positive_features(unit, direction * unit, 0 * one, 0 * one).item() for direction in (50.0, -50.0)]

    assert clipped == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-12)


def test_proposition_2_positive_features_are_unbiased_and_have_this_variance() -> None:
    """Var ⟨φ(q), φ(k)⟩ = (e^(4s + 8sx) - e^(4sx)) / D: since E e^(a·ω) = e^(‖a‖²/2) with a = 2 √(2s) (q + k)."""
    s, d, D, draws = 0.05, 4, 8, 40_000
    q, k = unit_vectors(normal(5, d)), unit_vectors(normal(5, d, seed=1))
    x = (q * k).sum(-1)
    directions = math.sqrt(2 * s) * normal(draws, d, D, seed=2)
    scale, shift = (torch.full((D,), value, dtype=torch.float64) for value in (1 / D, s))

    phi_q, phi_k = (positive_features(u.expand(draws, 5, d), directions, shift, scale.log() / 2) for u in (q, k))
    kernels = (phi_q * phi_k).sum(-1)
    variance = ((4 * s + 8 * s * x).exp() - (4 * s * x).exp()) / D
    deviations = kernels - (2 * s * x).exp()

    assert (deviations.mean(0).abs() < 4 * (variance / draws).sqrt()).all()
    squares = deviations.square()
    assert ((squares.mean(0) - variance).abs() < 4 * squares.std(0) / math.sqrt(draws)).all()


def cosines(epsilon: float, count: int = 20_000) -> Tensor:
    """Dense where the kernel peaks: y = 2 + epsilon - 2x is evenly spaced on a log scale."""
    y = torch.logspace(math.log10(epsilon), math.log10(4 + epsilon), count, dtype=torch.float64)
    return (2 + epsilon - y) / 2


def relative_error(num_nodes: int, epsilon: float) -> Tensor:
    x = cosines(epsilon)
    return inverse_distance(num_nodes, epsilon, x) * (2 + epsilon - 2 * x) - 1


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

    assert (inverse_distance(num_nodes, 1e-3, x) * (2 + 1e-3 - 2 * x)).tolist() == pytest.approx(shares, abs=5.1e-4)


def test_claim_uniform_exponential_convergence_of_gauss_laguerre_is_false() -> None:
    """At R = 32 the peak has lost 94 %; three more nodes add 6 per mille."""
    worst = [float(relative_error(num_nodes, 1e-3).abs().max()) for num_nodes in (3, 16, 32, 35)]

    assert worst[2] > 0.94
    assert worst[2] - worst[3] < 0.006
    assert worst[0] / worst[1] < 1.03


def test_gauss_laguerre_never_exceeds_the_kernel() -> None:
    """Its remainder has the sign of an even derivative of e^(2sx) in s: boundedness by 1 / epsilon is kept."""
    for num_nodes in (1, 3, 8, 32):
        assert (relative_error(num_nodes, 1e-3) <= 1e-12).all()


def test_sums_are_finite_however_sharp() -> None:
    assert inverse_distance(64, 1e-6, cosines(1e-6).float()).isfinite().all()


BOUNDED = ["slay", "slay-exact", "slay-laplace", "slay-hadamard", "rff", "rewa-functional", "performer", "linear"]


def draw(length: int, *, queries: int | None = None, spread: float = 3.0) -> tuple[Tensor, Tensor, Tensor]:
    """Positive features of queries, exponents of keys, values."""
    generator = torch.Generator().manual_seed(length)
    f, e, v = (torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64) for width in (5, 5, 4))
    f = f[..., length - (queries or length) :, :].exp()
    return f.requires_grad_(), (spread * e).requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize(("guard", "delta"), [("add", 0.0), ("add", 5.0), ("clamp", 5.0)])
@pytest.mark.parametrize(("length", "queries"), [(1, 1), (64, 64), (140, 140), (140, 70)])
def test_it_is_attention_by_the_features_with_gradients(guard: Guard, delta: float, length: int, queries: int) -> None:
    f, e, v = case = draw(length, queries=queries)

    expected = linear.gram((f,), (e.exp(),), v, guard=guard, delta=delta)
    out = log_space.attend(f, e, v, guard=guard, delta=delta)

    torch.testing.assert_close(with_gradients(out, case), with_gradients(expected, case), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("level", [-900.0, 900.0])
def test_exponents_that_no_float32_holds_give_what_they_give_at_any_other_level(level: float) -> None:
    f, e, v = (x.detach().float() for x in draw(140))
    expected = linear.gram((f,), (e.exp(),), v, guard="add", delta=0.0)

    out = log_space.attend(f, e + level, v, guard="add", delta=0.0)

    torch.testing.assert_close(out, expected, rtol=2e-3, atol=2e-3)  # 900 has 4 digits less behind the point than 1
    assert not linear.gram((f,), ((e + level).exp(),), v, guard="add", delta=0.0).isfinite().all()


def test_what_is_to_come_changes_no_digit_though_it_is_far_larger() -> None:
    f, e, v = (x.detach().float() for x in draw(140))
    before = log_space.attend(f, e, v, guard="add", delta=1e-6)
    e[..., 100:, :] += 500.0

    after = log_space.attend(f, e, v, guard="add", delta=1e-6)

    assert torch.equal(after[..., :100, :], before[..., :100, :])
    assert after.isfinite().all()


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_gradients_stay_finite_where_features_vanish(delta: float) -> None:
    f, e, v = (x.detach().float().requires_grad_() for x in draw(70))

    out = log_space.attend(f, e - 1000, v, guard="add", delta=delta)

    assert all(x.isfinite().all() for x in with_gradients(out, (f, e, v)))


def test_wide_heads_of_performer_exp_do_not_overflow() -> None:
    double = built(PerformerExp, model_dim=256, num_heads=1, M=16)
    performer = deepcopy(double).float()
    q, k, v = normal(3, 1, 1, 40, 256).float()
    # Along a direction the exponent reaches ‖ω‖²/2, about 128, and float32 ends at 88.
    k[..., ::5, :] = performer.directions[0].T[:8] * 256**0.25
    factors = double.factors(q.double(), "query"), double.factors(k.double(), "key")
    expected = linear.gram(*factors, v.double(), guard="add", delta=1e-6).float()

    out = performer.attend(q, k, v)

    assert not performer.factors(k, "key")[0].isfinite().all()
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(performer.attend(q[..., -1:, :], k, v), out[..., -1:, :])


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_other_features_hold_any_length_of_queries_and_keys(name: str, size: float) -> None:
    mechanism: Any = built(MECHANISMS[name], model_dim=16).float()
    x = size * normal(1, 2, 100, 8).float()

    factors = mechanism.factors(x, "key")

    # A sum over 1e6 tokens of products of the largest features of both sides stays in the range of float32.
    largest = torch.stack([factor.abs().amax() for factor in factors]).prod()
    assert largest.square() * linear.rank(factors) * 1e6 < torch.finfo(torch.float32).max
    assert mechanism.attend(x, x, torch.ones_like(x)).isfinite().all()
