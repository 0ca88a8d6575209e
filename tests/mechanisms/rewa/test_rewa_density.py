import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_density import RewaDensity, fidelity, nuclear_norm
from tests.mechanisms.loops import built, mapped
from tests.tensors import mix, normal


def states(seed: int, length: int, r: int) -> Tensor:
    """Random transposed factors of Frobenius norm 1, [length, r, 5]."""
    factors = normal(length, r, 5, seed=seed)
    scaled: Tensor = factors / torch.linalg.matrix_norm(factors, keepdim=True)
    return scaled


def root(matrix: Tensor) -> Tensor:
    """Square root of a positive semi-definite matrix, by its eigendecomposition."""
    values, vectors = torch.linalg.eigh(matrix)
    product: Tensor = (vectors * values.clamp(min=0).sqrt()) @ vectors.mT
    return product


@pytest.mark.parametrize("r", range(1, 6))
@pytest.mark.parametrize("seed", range(0, 4, 2))
def test_equation_111_fidelity_is_that_of_the_explicit_matrices(seed: int, r: int) -> None:
    left, right = states(seed, 3, r), states(seed + 1, 4, r)
    expected = torch.empty(3, 4, dtype=torch.float64)
    for i in range(3):
        for j in range(4):
            rho, sigma = left[i].mT @ left[i], right[j].mT @ right[j]
            expected[i, j] = root(root(rho) @ sigma @ root(rho)).trace() ** 2

    # Roots of eigenvalues that are 0 to rounding are of size 1e-8.
    torch.testing.assert_close(fidelity(left, right), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_gradients_are_those_of_finite_differences(r: int) -> None:
    left, right = normal(3, r, 5, seed=0).requires_grad_(), normal(2, r, 5, seed=1).requires_grad_()

    assert torch.autograd.gradcheck(fidelity, (left, right))


@pytest.mark.parametrize(
    "singular", [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 1.0), (2.0, 2.0, 1.0)]
)
def test_gradients_stay_finite_at_repeated_and_zero_singular_values(singular: tuple[float, float, float]) -> None:
    left, _ = torch.linalg.qr(normal(3, 3, seed=0))
    right, _ = torch.linalg.qr(normal(3, 3, seed=1))
    values = torch.tensor(singular, dtype=torch.float64)
    matrix = ((left * values) @ right.mT).requires_grad_()

    norm = nuclear_norm(matrix)
    (gradient,) = torch.autograd.grad(norm, matrix)

    torch.testing.assert_close(norm.item(), sum(singular))
    # The subgradient of least norm: the polar factor on the range.
    torch.testing.assert_close(gradient, (left * (values > 0)) @ right.mT)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("power", [1.0, 2.5])
def test_attention_is_the_power_of_the_fidelity_over_its_sum(*, power: float, shared: bool) -> None:
    unit = built(RewaDensity, model_dim=16, power=power, shared=shared)
    q, k, v = (normal(1, 2, 10, 8, seed=seed) for seed in range(3))
    a, b = (x.unflatten(-1, (2, 8)) for x in mapped(unit.witness, q, k))
    a, b = (x / torch.linalg.matrix_norm(x, keepdim=True) for x in (a, b))
    singular = torch.linalg.svdvals(torch.einsum("bhirm,bhjsm->bhijrs", a, b))

    torch.testing.assert_close(unit.attend(q, k, v), mix(singular.sum(-1) ** (2 * power), v))
