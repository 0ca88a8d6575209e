import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from synthbench.mechanisms.rewa import _operators
from tests.tensors import normal

seeds = st.integers(0, 2**32 - 1)


def matrices(seed: int, *shape: int) -> list[Tensor]:
    """Three matrices of N(0, 1) numbers."""
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(3, *shape, generator=generator, dtype=torch.float64))


def product(a: Tensor, b: Tensor) -> float:
    """The Hilbert–Schmidt inner product, tr(Aᵀ B)."""
    return torch.trace(a.mT @ b).item()


@pytest.mark.parametrize(("m", "r"), [(3, 1), (8, 2), (9, 2), (4, 4), (40, 3)])
def test_both_forms_of_the_inner_product_are_the_trace(m: int, r: int) -> None:
    left = normal(2, 5, r, m, seed=0), normal(2, 5, r, m, seed=1)
    right = normal(2, 4, r, m, seed=2), normal(2, 4, r, m, seed=3)
    expected = torch.empty(2, 5, 4, dtype=torch.float64)
    for b in range(2):
        for i in range(5):
            for j in range(4):
                a_i = left[0][b, i].mT @ left[1][b, i]
                a_j = right[0][b, j].mT @ right[1][b, j]
                expected[b, i, j] = product(a_i, a_j)

    torch.testing.assert_close(_operators.hilbert_schmidt_product(left, right), expected)


def test_norms_are_those_of_the_operators() -> None:
    pair = normal(5, 2, 7, seed=0), normal(5, 2, 7, seed=1)

    expected = torch.stack([torch.linalg.matrix_norm(u.mT @ v) ** 2 for u, v in zip(*pair, strict=True)])
    torch.testing.assert_close(_operators.hilbert_schmidt_norms(pair), expected)


def test_operators_have_the_rank_of_their_factors() -> None:
    explicit = _operators.operators(_operators.factors(normal(3, 4, 2 * 3 * 6), 3))

    assert explicit.shape == (3, 4, 6, 6)
    assert (torch.linalg.matrix_rank(explicit) == 3).all()


@pytest.mark.parametrize("power", [1, 2])
def test_distances_are_powers_of_the_norm_of_the_difference(power: int) -> None:
    a, b = normal(5, 3, seed=0), normal(4, 3, seed=1)

    distances = _operators.distances(a @ b.mT, a.square().sum(-1), b.square().sum(-1), power=power)
    torch.testing.assert_close(distances, torch.cdist(a, b) ** power)


@pytest.mark.parametrize("x", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("power", [1, 2])
def test_the_distance_of_a_vector_to_itself_is_zero_with_finite_gradient(power: int, x: float) -> None:
    a = torch.full((1, 3), x, requires_grad=True)
    norms = a.square().sum(-1)

    distance = _operators.distances(a @ a.mT, norms, norms, power=power)
    (gradient,) = torch.autograd.grad(distance.sum(), a)

    assert distance.item() <= 1e-3 * max(1, x)
    assert gradient.isfinite().all()


def test_the_arc_is_arccos_with_finite_gradients_at_its_ends() -> None:
    cosines = torch.linspace(-1, 1, 101, requires_grad=True)

    arcs = _operators.arc(cosines)
    (gradient,) = torch.autograd.grad(arcs.sum(), cosines)

    torch.testing.assert_close(arcs, cosines.acos(), rtol=0, atol=2e-3)
    assert gradient.isfinite().all()
    assert gradient[[0, -1]].tolist() == [0, 0]


@settings(max_examples=30)
@given(seed=seeds)
def test_claim_proposition_5_2_holds_for_all_operators_is_false(seed: int) -> None:
    """An orthogonal A_y makes the bound 0; what it bounds is of order one for some A_x of norm 1."""
    _, y, z = matrices(seed, 16, 16)
    z = z / torch.linalg.matrix_norm(z)
    orthogonal, _ = torch.linalg.qr(y)
    difference = z - orthogonal @ z @ orthogonal.mT
    x = difference / torch.linalg.matrix_norm(difference)

    bound = torch.linalg.matrix_norm(torch.eye(16, dtype=torch.float64) - orthogonal @ orthogonal.mT)
    gap = product(x, z) - product(x @ orthogonal, orthogonal @ z)

    assert bound.item() < 1e-12
    assert gap > 1
