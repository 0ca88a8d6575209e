"""Theorems of the papers about the Yat kernel, and claims that are false."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from synthbench.mechanisms._yat import yat_kernel
from tests.tensors import normal


def drawn(**strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A few seeds, dimensions and epsilons, and what a test names beside them."""
    epsilons = st.sampled_from([1e-3, 0.1, 1.0])
    beside = {"seed": st.integers(0, 2**32 - 1), "dim": st.integers(1, 12), "epsilon": epsilons}
    return lambda test: settings(max_examples=20)(given(**beside, **strategies)(test))


def directions(count: int, dim: int, seed: int) -> Tensor:
    """Rows uniform on the unit sphere."""
    return torch.nn.functional.normalize(normal(count, dim, seed=seed), dim=-1)


def yat(w: Tensor, x: Tensor, epsilon: float) -> Tensor:
    """The kernel of two vectors."""
    return yat_kernel(w.unsqueeze(0), x.unsqueeze(0), epsilon).squeeze()


def gradient(w: Tensor, x: Tensor, epsilon: float) -> Tensor:
    """Of the kernel, in its first argument."""
    w = w.clone().requires_grad_()
    return torch.autograd.grad(yat(w, x, epsilon), w)[0]


@drawn(scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_theorem_1_gram_matrices_are_positive_semi_definite(seed: int, dim: int, epsilon: float, scale: float) -> None:
    points = scale * normal(20, dim, seed=seed)

    eigenvalues = torch.linalg.eigvalsh(yat_kernel(points, points, epsilon))

    assert eigenvalues.min() >= -1e-9 * eigenvalues.max()


@drawn()
def test_theorem_5_gradient_formula(seed: int, dim: int, epsilon: float) -> None:
    w, x = normal(2, dim, seed=seed)
    inner, denominator = w @ x, epsilon + (w - x).square().sum()

    expected = 2 * inner / denominator * (x - inner * (w - x) / denominator)

    torch.testing.assert_close(gradient(w, x, epsilon), expected, rtol=1e-8, atol=1e-8)


def test_claim_gradient_of_proposition_12_is_false() -> None:
    """With a plus inside the bracket it claims a slope of 4 at the maximum, where there is none."""
    w, x = torch.tensor([2.0], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    inner, denominator = w @ x, 1 + (w - x).square().sum()

    claimed = 2 * inner / denominator * (x + inner * (w - x) / denominator)

    assert gradient(w, x, 1.0).item() == pytest.approx(0, abs=1e-8)
    assert claimed.item() == pytest.approx(4)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
def test_proposition_1_self_regulation(epsilon: float) -> None:
    """Far out along a unit direction u the kernel tends to (w·u)², whatever epsilon."""
    (w,), unit = normal(1, 8, seed=0), directions(30, 8, 1)

    for distance, tolerance in ((1e3, 1e-1), (1e6, 1e-4)):
        far = yat_kernel(w.unsqueeze(0), distance * unit, epsilon).squeeze(0)
        torch.testing.assert_close(far, (unit @ w).square(), rtol=0, atol=tolerance)


@drawn(distance=st.sampled_from([1e3, 1e5]))
def test_proposition_2_gradients_fall_with_the_distance(seed: int, dim: int, epsilon: float, distance: float) -> None:
    w, u = directions(2, dim, seed)

    assert gradient(distance * u, w, epsilon).norm() <= 1.1 / distance


@drawn(lengths=st.tuples(*[st.floats(0, 1)] * 3))
def test_propositions_3_and_4_the_kernel_is_lipschitz_in_the_unit_ball(
    seed: int, dim: int, epsilon: float, lengths: tuple[float, ...]
) -> None:
    w, x, other = torch.tensor(lengths, dtype=torch.float64).unsqueeze(-1) * directions(3, dim, seed)
    constant = 2 / epsilon + 4 / epsilon**2

    assert gradient(x, w, epsilon).norm() <= constant
    assert abs(yat(w, x, epsilon) - yat(w, other, epsilon)) <= constant * (x - other).norm() + 1e-12


@drawn(split=st.integers(0, 12))
def test_theorems_2_and_3_similarity_of_distributions(seed: int, dim: int, epsilon: float, split: int) -> None:
    """It is 0 if and only if supports are disjoint; of p with itself it is ‖p‖⁴/ε, and diverges as q → p and ε → 0."""
    whole = normal(2, dim + 1, seed=seed).softmax(-1)
    p, q = whole * (torch.arange(dim + 1) <= split), whole * (torch.arange(dim + 1) > split)

    assert (yat_kernel(p, q, epsilon) == 0).all()
    assert yat(whole[0], whole[1], epsilon) > 0
    assert yat(whole[0], whole[0], epsilon).item() == pytest.approx(float(whole[0] @ whole[0]) ** 2 / epsilon)
    assert yat(whole[0], torch.lerp(whole[0], whole[1], 1e-6), 1e-9) > 1e3 * yat(whole[0], whole[0], 1.0)


@pytest.mark.parametrize("dim", [64, 1024])
def test_corollary_2_the_mean_response_of_random_vectors_depends_on_no_dimension(dim: int) -> None:
    """It is near the variance of a coordinate over 2, whatever epsilon."""
    w, x = normal(4000, dim, seed=0).view(2, 2000, dim)
    responses = (w * x).sum(-1).square() / ((w - x).square().sum(-1) + 1e-3)

    assert abs(responses.mean() - 1 / 2) < 5 * responses.std() / 2000**0.5 + 2 / dim


@drawn(length=st.sampled_from([0.3, 1.0, 3.0]))
def test_supremum_lies_beyond_the_prototype(seed: int, dim: int, epsilon: float, length: float) -> None:
    """It is reached at (1 + ε/‖w‖²) w and equals ‖w‖⁴/ε + ‖w‖²."""
    (w,) = length * directions(1, dim, seed)
    peak = (1 + epsilon / length**2) * w
    supremum = length**4 / epsilon + length**2
    others = torch.cat([s * normal(50, dim, seed=seed) + centre for s in (0.01, 0.1, 1.0) for centre in (w, peak)])

    assert yat(w, peak, epsilon).item() == pytest.approx(supremum, rel=1e-9)
    assert gradient(peak, w, epsilon).norm() <= 1e-8 * supremum / epsilon
    assert (yat_kernel(w.unsqueeze(0), others, epsilon) <= supremum * (1 + 1e-9)).all()


def test_claim_maximum_at_x_equal_w_is_false() -> None:
    """Proposition 11 bounds the kernel by its value at x = w, ‖w‖⁴/ε: 10 for a unit w and ε = 0.1; it gets to 11."""
    w = torch.tensor([0.6, 0.8], dtype=torch.float64)

    assert yat(w, w, 0.1).item() == pytest.approx(10)
    assert yat(w, 1.1 * w, 0.1).item() == pytest.approx(11)


def test_claim_tangent_kernel_vanishes_at_orthogonal_inputs_is_false() -> None:
    """Theorem 17: E[(w·x)²(w·x')²] is ‖x‖²‖x'‖²/(d(d + 2)) there, and the first part of the tangent kernel positive."""
    dim = 4
    x, other = torch.eye(2, dim, dtype=torch.float64)
    w = directions(100_000, dim, 0)
    moment = (w @ x).square() * (w @ other).square()
    (first,), (second,) = (yat_kernel(w, rows.unsqueeze(0), 0.1).mT for rows in (x, other))

    for samples, expected in ((moment, 1 / 24), (first * second, None)):
        mean, standard_error = float(samples.mean()), float(samples.std()) / math.sqrt(len(w))
        assert mean > 20 * standard_error
        if expected is not None:
            assert mean == pytest.approx(expected, abs=4 * standard_error)


def test_kernel_of_equal_vectors_is_finite_in_float32(generator: torch.Generator) -> None:
    x = 100 * torch.randn(200, 16, generator=generator)
    norms = x.square().sum(-1)
    rounded = norms.unsqueeze(1) + norms - 2 * x @ x.mT

    kernel = yat_kernel(x, x, 1e-6)

    assert (rounded.diagonal() < 0).any()  # what the clamp is for
    assert (kernel >= 0).all()
    assert kernel.isfinite().all()
