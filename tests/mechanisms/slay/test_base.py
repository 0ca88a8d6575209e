"""Properties of every variant of SLAY, and the paper's statements about the kernel they approximate."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.quadrature import gauss_laguerre, inverse_distance
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.slay._base import ProductAttention, QuadratureAttention
from synthbench.mechanisms.slay._polynomials import POLYNOMIALS
from synthbench.mechanisms.slay.slay import Slay
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
def test_sharp_nodes_give_finite_outputs_and_gradients_in_float32(
    unit: type[QuadratureAttention], options: dict[str, Any]
) -> None:
    q, k, v = (normal(2, 9, 4, seed=seed).float().requires_grad_() for seed in range(3))

    out = of_size(unit, 4, "M", "D", "P", "S", **options).float().attend(q, k, v)

    assert out.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("unit", UNITS)
def test_kernels_do_not_see_the_length_of_vectors(unit: type[QuadratureAttention]) -> None:
    one, q, k = built(unit), normal(5, 4), normal(5, 4, seed=1)

    torch.testing.assert_close(kernel(one, q, k), kernel(one, 1e3 * q, 1e-3 * k))


def test_every_feature_knows_its_node() -> None:
    nodes, weights = gauss_laguerre(3, 1e-3)

    s, w = Slay(R=3, epsilon=1e-3).constants(2)

    torch.testing.assert_close(s, nodes[[0, 0, 1, 1, 2, 2]].float())
    torch.testing.assert_close(w, weights[[0, 0, 1, 1, 2, 2]].float())


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
def test_kernel_values_are_never_negative_where_declared_and_sometimes_are_elsewhere(
    unit: type[QuadratureAttention],
) -> None:
    q, k = normal(2, 100, 16)

    lowest = min(float(kernel(built(unit, seed, model_dim=64, num_heads=4), q, k).min()) for seed in range(5))

    assert unit.positive == (lowest >= 0)
