import pytest
import torch

from synthbench.forms.quadrature import inverse_distance
from synthbench.mechanisms.yat_spherical import YatSpherical
from tests.tensors import normal


@pytest.mark.parametrize(("epsilon", "peak"), [(1e-3, 1e3), (1e-2, 1e2), (0.0, 1e6)])
def test_kernel_of_parallel_vectors_is_one_over_epsilon_capped(epsilon: float, peak: float) -> None:
    x = torch.tensor([[3.0, 0.0]], dtype=torch.float64)

    assert YatSpherical(epsilon=epsilon).scores(x, 5 * x).item() == pytest.approx(peak)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1.0])
def test_theorem_2_proposition_3_and_the_identity_of_appendix_f(epsilon: float) -> None:
    """The kernel is positive definite, in [0, 1/ε], and C²/4 of the integral, by many nodes, less C/4 + x/2."""
    q, k = torch.nn.functional.normalize(normal(2, 200, 4), dim=-1)
    x, kernel, C = q @ k.mT, YatSpherical(epsilon=epsilon).scores(q, k), 2 + epsilon
    affine = C**2 / 4 * inverse_distance(32, epsilon, x) - C / 4 - x / 2
    far = x < 0.5

    eigenvalues = torch.linalg.eigvalsh(YatSpherical(epsilon=epsilon).scores(q, q))
    assert eigenvalues.min() >= -1e-9 * eigenvalues.max()
    assert (kernel >= 0).all()
    assert kernel.max() <= (1 + 1e-9) / epsilon
    torch.testing.assert_close(kernel[far], affine[far], rtol=0, atol=1e-6)


def test_a_zero_vector_attends_to_nothing() -> None:
    zeros, ones = torch.zeros(1, 4, 3, 16), torch.ones(1, 4, 3, 16)

    assert (YatSpherical().attend(zeros, ones, ones) == 0).all()
