from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.yat_spherical import YatSpherical


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1e-2])
def test_attention_is_the_kernel_of_cosines_over_its_sum(
    epsilon: float, mix: Callable[..., Tensor], normal: Callable[..., Tensor]
) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    x = torch.nn.functional.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1)

    torch.testing.assert_close(YatSpherical(epsilon=epsilon).attend(q, k, v), mix(x**2 / (2 + epsilon - 2 * x), v))


@pytest.mark.parametrize(("epsilon", "peak"), [(1e-3, 1e3), (1e-2, 1e2), (0.0, 1e6)])
def test_kernel_of_parallel_vectors_is_one_over_epsilon_capped(epsilon: float, peak: float) -> None:
    x = torch.tensor([[3.0, 0.0]], dtype=torch.float64)

    assert YatSpherical(epsilon=epsilon).scores(x, 5 * x).item() == pytest.approx(peak)


def test_a_zero_vector_attends_to_nothing() -> None:
    zeros, ones = torch.zeros(1, 4, 3, 16), torch.ones(1, 4, 3, 16)

    assert (YatSpherical().attend(zeros, ones, ones) == 0).all()
