import pytest
import torch
from torch import Tensor

from synthbench.mechanisms._yat import YatAttention
from synthbench.mechanisms.yat import Yat
from synthbench.mechanisms.yat_spherical import YatSpherical
from synthbench.mechanisms.yat_sum import YatSum
from tests.tensors import mix, normal

UNITS: list[type[YatAttention]] = [Yat, YatSpherical]


def kernel_of_pairs(q: Tensor, k: Tensor, epsilon: float) -> Tensor:
    """The kernel from differences of vectors, pair by pair."""
    inner = torch.einsum("...id,...jd->...ij", q, k)
    return inner**2 / ((q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) + epsilon)


@pytest.mark.parametrize(("epsilon", "scale"), [(1e-3, 1.0), (1e-6, 0.1), (0.5, 3.0)])
def test_attention_is_a_softmax_of_the_scaled_kernel(epsilon: float, scale: float) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))

    out = Yat(epsilon=epsilon, scale=scale).attend(q, k, v)

    kernel = kernel_of_pairs(q, k, epsilon)
    torch.testing.assert_close(out, mix((scale * kernel).exp(), v, delta=0.0))


@pytest.mark.parametrize("unit", UNITS)
def test_either_kernel_takes_the_softmax_the_sum_and_the_softermax(unit: type[YatAttention]) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    kernel = unit().kernel(q, k)

    torch.testing.assert_close(unit(normaliser="softmax").attend(q, k, v), mix(kernel.exp(), v, delta=0.0))
    torch.testing.assert_close(unit(normaliser="sum").attend(q, k, v), mix(kernel, v))
    for power in (0.25, 2.0):
        softermax = unit(normaliser="softermax", power=power)
        torch.testing.assert_close(softermax.attend(q, k, v), mix(kernel**power, v))


def test_yat_sum_is_yat_normalised_by_the_sum() -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))

    assert torch.equal(Yat(normaliser="sum").attend(q, k, v), YatSum().attend(q, k, v))


def test_kernel_values_far_beyond_an_exponential_stay_finite() -> None:
    q, v = 30 * normal(2, 4, 20, 16).float(), normal(2, 4, 20, 16, seed=1).float()

    for attention in (Yat(), Yat(normaliser="sum"), Yat(normaliser="softermax", power=8.0)):
        assert attention.scores(q, q).max() > 1e9
        assert attention.attend(q, q, v).isfinite().all()
