"""Every cell of table 1, by measurement."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.quadrature import inverse_distance
from synthbench.knobs import knobs_of
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.slay._base import ProductAttention, QuadratureAttention
from synthbench.mechanisms.slay._polynomials import POLYNOMIALS, table_1

UNITS: list[type[QuadratureAttention]] = [unit for unit in MECHANISMS.values() if issubclass(unit, QuadratureAttention)]


def kernel(built: QuadratureAttention, q: Tensor, k: Tensor) -> Tensor:
    """Kernel values [heads, queries, keys], as the product of the factors' inner products."""
    product = torch.ones((), dtype=q.dtype)
    sides = (built.factors(u.expand(built.num_heads, *u.shape), "query") for u in (q, k))
    for a, b in zip(*sides, strict=True):
        product = product * (a @ b.mT)
    return product


def test_rows_are_those_of_the_paper() -> None:
    assert [tuple(row) for row in table_1()] == [
        ("slay-exact", "d (d + 1) / 2", "d^2", True, True),
        ("slay-tensorsketch", "P", "d + P log P", True, False),
        ("slay-maclaurin", "P", "d P", True, False),
        ("slay-nystrom", "P", "d P + P^2", False, False),
        ("slay", "P", "d P", False, True),
    ]


def test_every_polynomial_factor_has_a_row() -> None:
    assert set(POLYNOMIALS) == {unit for unit in UNITS if issubclass(unit, ProductAttention)}


@pytest.mark.parametrize("unit", POLYNOMIALS)
def test_width_is_the_one_declared(unit: type[ProductAttention], normal: Callable[..., Tensor]) -> None:
    built = unit(model_dim=20, num_heads=4)
    d, P = 5, getattr(built, "P", 0)
    widths = {"d (d + 1) / 2": d * (d + 1) // 2, "P": P}

    assert built.polynomial(unit_vectors(normal(3, d)).float()).shape == (3, widths[unit.dimension])


@pytest.mark.parametrize("unit", UNITS)
def test_kernel_expects_the_square_times_the_quadrature_where_declared(
    unit: type[QuadratureAttention], normal: Callable[..., Tensor]
) -> None:
    """One node at epsilon = 1: s = 1/3, so little variance. A seed counts once: its heads share what they draw."""
    d, heads, draws = 4, 8, 100
    sizes = {name: 32 for name in ("M", "D") if name in knobs_of(unit)}
    built = unit(model_dim=heads * d, num_heads=heads, R=1, epsilon=1.0, **sizes)  # type: ignore[arg-type]
    q, k = normal(4, d), normal(4, d, seed=1)
    x = unit_vectors(q) @ unit_vectors(k).mT
    expected = x**2 * inverse_distance("gauss-laguerre", 1, 1.0, x)

    values = []
    for seed in range(draws):
        built.initialise(torch.Generator().manual_seed(seed))
        values.append(kernel(built.double(), q, k).mean(0))
    means, errors = torch.stack(values).mean(0), torch.stack(values).std(0) / math.sqrt(draws)

    assert unit.unbiased == bool(((means - expected).abs() < 4 * errors + 1e-6).all())


@pytest.mark.parametrize("unit", UNITS)
def test_kernel_values_are_never_negative_where_declared_and_sometimes_are_elsewhere(
    unit: type[QuadratureAttention], normal: Callable[..., Tensor]
) -> None:
    lowest = 0.0
    for seed in range(5):
        built = unit(generator=torch.Generator().manual_seed(seed)).double()
        values = kernel(built, normal(100, 16, seed=2 * seed), normal(100, 16, seed=2 * seed + 1))
        lowest = min(lowest, float(values.min()))

    assert unit.positive == (lowest >= 0)
