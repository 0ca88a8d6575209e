from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms._yat import yat_kernel
from synthbench.mechanisms.yat import Yat


def kernel_of_pairs(q: Tensor, k: Tensor, epsilon: float) -> Tensor:
    """The kernel from differences of vectors, pair by pair."""
    inner = torch.einsum("...id,...jd->...ij", q, k)
    return inner**2 / ((q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) + epsilon)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 0.5])
def test_attention_is_a_softmax_of_the_kernel(
    epsilon: float, mix: Callable[..., Tensor], normal: Callable[..., Tensor]
) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))

    out = Yat(epsilon=epsilon).attend(q, k, v)

    torch.testing.assert_close(out, mix(kernel_of_pairs(q, k, epsilon).exp(), v, delta=0.0))


def test_kernel_is_zero_for_orthogonal_vectors_and_largest_for_equal_ones() -> None:
    axes = torch.eye(3, dtype=torch.float64)

    torch.testing.assert_close(yat_kernel(axes, axes, 0.1), 10 * axes)


def test_kernel_peaks_beyond_the_other_vector() -> None:
    """Along a unit w the kernel is largest at (1 + epsilon) w, where it is 1/epsilon + 1: 11 for epsilon = 0.1."""
    w = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    steps = torch.linspace(0, 3, 3001, dtype=torch.float64).unsqueeze(1)

    along = yat_kernel(steps * w, w, 0.1).squeeze(1)

    assert steps[along.argmax()].item() == pytest.approx(1.1)
    assert along.max().item() == pytest.approx(11)


def test_kernel_of_equal_vectors_is_finite_in_float32(generator: torch.Generator) -> None:
    x = 100 * torch.randn(200, 16, generator=generator)
    norms = x.square().sum(-1)
    rounded = norms.unsqueeze(1) + norms - 2 * x @ x.mT

    kernel = yat_kernel(x, x, 1e-6)

    assert (rounded.diagonal() < 0).any()  # what the clamp is for
    assert (kernel >= 0).all()
    assert kernel.isfinite().all()
