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
from synthbench.mechanisms.slay._polynomials import POLYNOMIALS, table_1
from synthbench.mechanisms.slay.slay import Slay
from synthbench.options import options_of
from tests.tensors import normal

UNITS: list[type[QuadratureAttention]] = [unit for unit in MECHANISMS.values() if issubclass(unit, QuadratureAttention)]
EPSILON = 1e-3


def build(unit: type[QuadratureAttention], seed: int = 0, **arguments: Any) -> QuadratureAttention:
    built = unit(generator=torch.Generator().manual_seed(seed), **arguments)
    return built.double()


def kernel(built: QuadratureAttention, q: Tensor, k: Tensor) -> Tensor:
    """Kernel values [heads, queries, keys], as the product of the factors' inner products."""
    product = torch.ones((), dtype=q.dtype)
    sides = (built.factors(u.expand(built.num_heads, *u.shape), "query") for u in (q, k))
    for a, b in zip(*sides, strict=True):
        product = product * (a @ b.mT)
    return product


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("arguments", [{"R": 24, "epsilon": 1e-6}, {"R": 64}])
def test_sharp_nodes_give_finite_outputs_and_gradients_in_float32(
    unit: type[QuadratureAttention], arguments: dict[str, Any]
) -> None:
    sizes = {name: 4 for name in ("M", "D", "P", "S") if name in options_of(unit)}
    built = unit(
        model_dim=8, num_heads=2, generator=torch.Generator().manual_seed(0), **sizes, **arguments  # type: ignore[arg-type]
    )  # fmt: skip
    q, k, v = (normal(2, 9, 4, seed=seed).float().requires_grad_() for seed in range(3))

    out = built.attend(q, k, v)

    assert out.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("unit", UNITS)
def test_kernels_do_not_see_the_length_of_vectors(unit: type[QuadratureAttention]) -> None:
    built = build(unit)
    q, k = normal(5, 16), normal(5, 16, seed=1)

    torch.testing.assert_close(kernel(built, q, k), kernel(built, 1e3 * q, 1e-3 * k))


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
    d, heads, draws = 4, 16, 50
    q, k = normal(4, d), normal(4, d, seed=1)
    x = unit_vectors(q) @ unit_vectors(k).mT
    built = build(Slay, model_dim=heads * d, num_heads=heads, R=1, P=1024, D=256, epsilon=1.0)
    draw_by_draw = []
    for seed in range(draws):
        built.initialise(torch.Generator().manual_seed(seed))
        draw_by_draw.append(kernel(built.double(), q, k).mean(0))
    values = torch.stack(draw_by_draw)
    expected = (1 + 2 * x**2) / (d * (d + 2)) * inverse_distance(1, 1.0, x)

    errors = values.std(0) / math.sqrt(draws)
    assert ((values.mean(0) - expected).abs() < 4 * errors).all()
    assert (errors < 0.02 * expected).all()


def test_claim_quadrature_not_random_features_is_the_dominant_error_is_false() -> None:
    """Appendix L.3, at its own sizes, R = 3 and D = 16, and the cosines of random heads of 16 channels, about ±1/4."""
    x = torch.tensor([-0.5, -0.25, 0.0, 0.25, 0.5], dtype=torch.float64)
    built = build(Slay)
    nodes, weights = (constants.double().unsqueeze(1) for constants in built.constants(1))
    exact = 1 / (2 + EPSILON - 2 * x)
    quadrature_error = (inverse_distance(3, EPSILON, x) / exact - 1).abs()
    variance = weights**2 * ((4 * nodes + 8 * nodes * x).exp() - (4 * nodes * x).exp()) / 16
    sampling_error = variance.sum(0).sqrt() / exact

    assert (quadrature_error < 0.005).all()
    assert (sampling_error > 0.15).all()
    assert (sampling_error > 50 * quadrature_error).all()


# Every cell of table 1, by measurement.


def test_every_polynomial_factor_has_a_row() -> None:
    assert [tuple(row) for row in table_1()] == [
        ("slay-exact", "d (d + 1) / 2", "d^2", True, True),
        ("slay-tensorsketch", "P", "d + P log P", True, False),
        ("slay-maclaurin", "P", "d P", True, False),
        ("slay-nystrom", "P", "d P + P^2", False, False),
        ("slay", "P", "d P", False, True),
    ]
    assert set(POLYNOMIALS) == {unit for unit in UNITS if issubclass(unit, ProductAttention)}


@pytest.mark.parametrize("unit", POLYNOMIALS)
def test_width_is_the_one_declared(unit: type[ProductAttention]) -> None:
    built = unit(model_dim=20, num_heads=4)
    d, P = 5, getattr(built, "P", 0)
    widths = {"d (d + 1) / 2": d * (d + 1) // 2, "P": P}

    assert built.polynomial(unit_vectors(normal(3, d)).float()).shape == (3, widths[unit.dimension])


@pytest.mark.parametrize("unit", UNITS)
def test_kernel_expects_the_square_times_the_quadrature_where_declared(unit: type[QuadratureAttention]) -> None:
    """One node at epsilon = 1: s = 1/3, so little variance. A seed counts once: its heads share what they draw."""
    d, heads, draws = 4, 8, 100
    sizes = {name: 32 for name in ("M", "D") if name in options_of(unit)}
    built = unit(model_dim=heads * d, num_heads=heads, R=1, epsilon=1.0, **sizes)  # type: ignore[arg-type]
    q, k = normal(4, d), normal(4, d, seed=1)
    x = unit_vectors(q) @ unit_vectors(k).mT
    expected = x**2 * inverse_distance(1, 1.0, x)

    values = []
    for seed in range(draws):
        built.initialise(torch.Generator().manual_seed(seed))
        values.append(kernel(built.double(), q, k).mean(0))
    means, errors = torch.stack(values).mean(0), torch.stack(values).std(0) / math.sqrt(draws)

    assert unit.unbiased == bool(((means - expected).abs() < 4 * errors + 1e-6).all())


@pytest.mark.parametrize("unit", UNITS)
def test_kernel_values_are_never_negative_where_declared_and_sometimes_are_elsewhere(
    unit: type[QuadratureAttention],
) -> None:
    lowest = 0.0
    for seed in range(5):
        built = unit(generator=torch.Generator().manual_seed(seed)).double()
        values = kernel(built, normal(100, 16, seed=2 * seed), normal(100, 16, seed=2 * seed + 1))
        lowest = min(lowest, float(values.min()))

    assert unit.positive == (lowest >= 0)
