"""Properties of every variant of SLAY, the features of each, and statements about the kernel that they approximate."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synthbench.forms import linear
from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.quadrature import inverse_distance
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.slay._base import ProductAttention, QuadratureAttention
from synthbench.mechanisms.slay._polynomials import POLYNOMIALS
from synthbench.mechanisms.slay.slay import Slay
from synthbench.mechanisms.slay.slay_exact import SlayExact
from synthbench.mechanisms.slay.slay_maclaurin import SlayMaclaurin
from synthbench.mechanisms.slay.slay_nystrom import SlayNystrom
from synthbench.mechanisms.slay.slay_sketch import SlaySketch
from synthbench.mechanisms.slay.slay_tensorsketch import SlayTensorsketch
from synthbench.options import options_of
from tests.mechanisms.loops import built
from tests.tensors import normal

UNITS: list[type[QuadratureAttention]] = [unit for unit in MECHANISMS.values() if issubclass(unit, QuadratureAttention)]
FACTORED = [unit for unit in UNITS if issubclass(unit, ProductAttention)]
EPSILON = 1e-3


def of_size(unit: type[QuadratureAttention], size: int, *names: str, **options: Any) -> QuadratureAttention:
    """A mechanism whose options of these names, if it has them, are of one size."""
    return built(unit, **{name: size for name in names if name in options_of(unit)}, **options)


def kernel(unit: QuadratureAttention, q: Tensor, k: Tensor) -> Tensor:
    """Kernel values [heads, queries, keys], as the product of the factors' inner products."""
    product = torch.ones((), dtype=q.dtype)
    sides = (unit.factors(u.expand(unit.num_heads, *u.shape), "query") for u in (q, k))
    for a, b in zip(*sides, strict=True):
        product = product * (a @ b.mT)
    return product


def mean_kernel(unit: QuadratureAttention, q: Tensor, k: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """The mean over seeds, and its standard errors. A seed counts once: its heads share what they draw."""
    values = []
    for seed in range(draws):
        unit.initialise(torch.Generator().manual_seed(seed))
        values.append(kernel(unit.double(), q, k).mean(0))
    return torch.stack(values).mean(0), torch.stack(values).std(0) / math.sqrt(draws)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("options", [{"R": 24, "epsilon": 1e-6}, {"R": 64}])
def test_sharp_nodes_stay_finite_in_float32(unit: type[QuadratureAttention], options: dict[str, Any]) -> None:
    q, k, v = (normal(2, 9, 4, seed=seed).float().requires_grad_() for seed in range(3))

    out = of_size(unit, 4, "M", "D", "P", "S", **options).float().attend(q, k, v)

    assert out.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("unit", UNITS)
def test_kernels_do_not_see_the_length_of_vectors(unit: type[QuadratureAttention]) -> None:
    one, q, k = built(unit), normal(5, 4), normal(5, 4, seed=1)

    torch.testing.assert_close(kernel(one, q, k), kernel(one, 1e3 * q, 1e-3 * k))


def test_directions_of_a_node_are_orthogonal_and_each_is_gaussian(generator: torch.Generator) -> None:
    unit = Slay(model_dim=1200, num_heads=300, R=2, omega="orthogonal")
    directions = unit.draw_directions(6, generator)
    by_node = directions.unflatten(-1, (2, 6))
    inner = torch.einsum("hdni,hdnj->hnij", by_node, by_node)

    for block in (slice(0, 4), slice(4, 6)):
        within = inner[..., block, block]
        torch.testing.assert_close(within, torch.diag_embed(within.diagonal(dim1=-2, dim2=-1)), rtol=0, atol=1e-5)
    assert directions.shape == (300, 4, 12)
    assert abs(float(directions.var()) - 1) < 0.05
    # Squared lengths are χ² of 4 degrees: mean 4, variance 8.
    lengths = directions.square().sum(1)
    assert abs(float(lengths.mean()) - 4) < 4 * (8 / 3600) ** 0.5
    assert abs(float(lengths.var()) - 8) < 1.5


def test_many_anchors_and_many_features_give_the_kernel_stated() -> None:
    """(1 + 2x²) / (d (d + 2)) times the quadrature, not x² times it."""
    q, k = normal(4, 4), normal(4, 4, seed=1)
    x = unit_vectors(q) @ unit_vectors(k).mT
    expected = (1 + 2 * x**2) / (4 * (4 + 2)) * inverse_distance(1, 1.0, x)

    mean, errors = mean_kernel(built(Slay, model_dim=64, num_heads=16, R=1, P=1024, D=256, epsilon=1.0), q, k, draws=50)
    assert ((mean - expected).abs() < 4 * errors).all()
    assert (errors < 0.02 * expected).all()


def test_claim_quadrature_not_random_features_is_the_dominant_error_is_false() -> None:
    """Appendix L.3, at its own sizes, R = 3 and D = 16, and the cosines of random heads of 16 channels, about ±1/4."""
    x = torch.tensor([-0.5, -0.25, 0.0, 0.25, 0.5], dtype=torch.float64)
    nodes, weights = (constants.double().unsqueeze(1) for constants in Slay().constants(1))
    exact = 1 / (2 + EPSILON - 2 * x)
    quadrature_error = (inverse_distance(3, EPSILON, x) / exact - 1).abs()
    variance = weights**2 * ((4 * nodes + 8 * nodes * x).exp() - (4 * nodes * x).exp()) / 16
    sampling_error = variance.sum(0).sqrt() / exact

    assert (quadrature_error < 0.005).all()
    assert (sampling_error > 0.15).all()
    assert (sampling_error > 50 * quadrature_error).all()


# Every cell of table 1, by measurement.


@pytest.mark.parametrize("unit", FACTORED)
def test_every_polynomial_factor_has_a_row_and_the_width_declared_there(unit: type[ProductAttention]) -> None:
    one = built(unit, model_dim=20, num_heads=4)
    d, P = 5, getattr(one, "P", 0)
    widths = {"d (d + 1) / 2": d * (d + 1) // 2, "P": P}

    assert unit in POLYNOMIALS
    assert one.polynomial(unit_vectors(normal(3, d))).shape == (3, widths[unit.dimension])


@pytest.mark.parametrize("unit", UNITS)
def test_kernel_expects_the_square_times_the_quadrature_where_declared(unit: type[QuadratureAttention]) -> None:
    """One node at epsilon = 1: s = 1/3, so little variance."""
    q, k = normal(4, 4), normal(4, 4, seed=1)
    x = unit_vectors(q) @ unit_vectors(k).mT
    expected = x**2 * inverse_distance(1, 1.0, x)

    one = of_size(unit, 32, "M", "D", model_dim=32, num_heads=8, R=1, epsilon=1.0)
    mean, errors = mean_kernel(one, q, k, draws=100)

    assert unit.unbiased == bool(((mean - expected).abs() < 4 * errors + 1e-6).all())


@pytest.mark.parametrize("unit", UNITS)
def test_kernel_values_are_never_negative_where_declared_and_are_elsewhere(unit: type[QuadratureAttention]) -> None:
    q, k = normal(2, 100, 16)

    lowest = min(float(kernel(built(unit, seed, model_dim=64, num_heads=4), q, k).min()) for seed in range(5))

    assert unit.positive == (lowest >= 0)


def test_no_tensor_is_as_wide_as_the_tensor_product() -> None:
    factors = Slay(R=3, P=8, D=16).factors(torch.zeros(4, 9, 16), "key")

    assert [factor.shape[-1] for factor in factors] == [8, 48]
    assert linear.rank(factors) == 384


# Features of the variants, written out


def test_the_exact_factor_is_the_outer_product_or_each_of_its_products_once() -> None:
    u, (a, b, c) = unit_vectors(normal(16)), unit_vectors(normal(3))
    full, symmetric = SlayExact(form="full").double(), SlayExact(model_dim=12).double()

    torch.testing.assert_close(full.polynomial(u.unsqueeze(0))[0], torch.outer(u, u).flatten())
    expected = torch.stack([a * a, 2**0.5 * a * b, 2**0.5 * a * c, b * b, 2**0.5 * b * c, c * c])
    computed = symmetric.polynomial(torch.stack([a, b, c]).unsqueeze(0))[0]
    torch.testing.assert_close(computed, expected, rtol=1e-6, atol=1e-8)


def test_the_factor_of_maclaurin_is_products_of_two_sums_with_random_signs(generator: torch.Generator) -> None:
    maclaurin, u = SlayMaclaurin(P=5, generator=generator).double(), unit_vectors(normal(16))
    first, second = maclaurin.first * math.sqrt(5), maclaurin.second

    for signs in (first, second):
        torch.testing.assert_close(signs.abs(), torch.ones(16, 5, dtype=torch.float64), rtol=0, atol=1e-6)
    assert not torch.equal(first.sign(), second.sign())
    torch.testing.assert_close(maclaurin.polynomial(u.unsqueeze(0))[0], (u @ first) * (u @ second) / math.sqrt(5))


def test_the_kernel_of_nystrom_is_that_of_the_ridge_regression_on_the_anchors(generator: torch.Generator) -> None:
    nystrom, (q, k) = SlayNystrom(P=6, ridge=0.1, generator=generator).double(), unit_vectors(normal(2, 4, 16))
    anchors = nystrom.anchors
    inverse = torch.linalg.inv((anchors.mT @ anchors) ** 2 + 0.1 * torch.eye(6))
    expected = (q @ anchors) ** 2 @ inverse @ ((k @ anchors) ** 2).mT

    torch.testing.assert_close(nystrom.polynomial(q) @ nystrom.polynomial(k).mT, expected, rtol=1e-5, atol=1e-6)


def test_too_many_anchors_of_nystrom_keep_the_features_finite(generator: torch.Generator) -> None:
    """Their kernel is singular: 64 anchors, 10 different squares."""
    nystrom = SlayNystrom(model_dim=16, P=64, ridge=1e-6, generator=generator)

    assert nystrom.polynomial(unit_vectors(normal(5, 4)).float()).isfinite().all()
    assert nystrom.whitening.abs().max() <= 1e3 * 1.001


def sketched(first: Tensor, second: Tensor, values: Tensor) -> Tensor:
    """The count sketch of a matrix: entry (i, j) goes to place h(i) + h'(j), mod S, with the sign σ(i) σ'(j).

    Row i of ``first`` has σ(i) at place h(i), and 0 elsewhere.
    """
    sketch = torch.zeros(first.shape[1], dtype=torch.float64)
    for i, row in enumerate(first):
        for j, other in enumerate(second):
            place = int(row.nonzero()) + int(other.nonzero())
            sketch[place % len(sketch)] += row.sum() * other.sum() * values[i, j]
    return sketch


def test_features_are_the_count_sketch_of_the_tensor_product_of_every_head_and_node() -> None:
    P, D, R, S = 3, 4, 2, 5
    sketch, u = built(SlaySketch, P=P, D=D, R=R, S=S), unit_vectors(normal(2, 1, 4))
    polynomial, exponential = (u @ sketch.anchors).square() / P**0.5, sketch.exponential(u)
    expected = torch.empty(2, 1, R, S, dtype=torch.float64)
    for head in range(2):
        for r in range(R):
            values = torch.outer(polynomial[head, 0], exponential[head, 0, r * D : (r + 1) * D])
            first = sketch.polynomial_sketch[head, :, r * S : (r + 1) * S]
            expected[head, 0, r] = sketched(first, sketch.exponential_sketch[head * R + r], values)

    torch.testing.assert_close(sketch.features(u, "query"), expected.flatten(-2))


def test_every_head_and_node_has_its_own_sketch(generator: torch.Generator) -> None:
    sketch = SlaySketch(generator=generator)
    of_anchors = sketch.polynomial_sketch.unflatten(-1, (3, 64)).transpose(1, 2).flatten(0, 1)

    for matrices, rows in ((sketch.exponential_sketch, 16), (of_anchors, 8)):
        assert matrices.shape == (12, rows, 64)
        assert (matrices.abs().sum(-1) == 1).all()
        assert len(matrices.unique(dim=0)) == 12


@pytest.mark.parametrize("width", [1, 7, 8])
def test_the_factor_of_tensorsketch_is_the_count_sketch_of_the_outer_product(width: int) -> None:
    sketch = SlayTensorsketch(P=width, generator=torch.Generator().manual_seed(width)).double()
    u = unit_vectors(normal(16))

    expected = sketched(sketch.first, sketch.second, torch.outer(u, u))
    torch.testing.assert_close(sketch.polynomial(u.unsqueeze(0))[0], expected)


def test_claim_tensorsketch_is_unbiased_only_approximately_is_false() -> None:
    """Averaged over every choice of places and signs, not over draws, it is exactly the square (d = 2, P = 2)."""
    sketch = SlayTensorsketch(model_dim=8, P=2).double()
    q, k = unit_vectors(normal(1, 2)), unit_vectors(normal(1, 2, seed=1))
    rows = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
    matrices = [torch.stack([a, b]) for a in rows for b in rows]
    total = torch.zeros(1, 1, dtype=torch.float64)
    for first in matrices:
        for second in matrices:
            sketch.first, sketch.second = nn.Buffer(first), nn.Buffer(second)
            total += sketch.polynomial(q) @ sketch.polynomial(k).mT

    torch.testing.assert_close(total / len(matrices) ** 2, (q @ k.mT) ** 2)
