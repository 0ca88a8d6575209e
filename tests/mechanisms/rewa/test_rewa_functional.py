import math

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_functional import RewaFunctional
from tests.mechanisms.loops import built
from tests.tensors import mix, normal


def test_attention_is_the_estimated_kernel_over_its_sum() -> None:
    unit = built(RewaFunctional, D=32, bandwidth=2.0)
    q, k, v = (0.3 * normal(2, 2, 20, 4, seed=seed) for seed in range(3))
    offsets = q.unsqueeze(-2) - k.unsqueeze(-3)
    kernel = torch.einsum("bhijd,hdf->bhijf", offsets, unit.frequencies).cos().mean(-1)

    torch.testing.assert_close(unit.attend(q, k, v), mix(kernel, v))


def published_features(x: Tensor, frequencies: Tensor, scale: float) -> Tensor:
    angles = x @ frequencies
    return scale * torch.cat([angles.cos(), angles.sin()], dim=-1)


@pytest.mark.parametrize(
    ("num_frequencies", "scale", "expected"), [(32, 64**-0.5, 0.5), (64, (2 / 64) ** 0.5, 2.0), (64, 64**-0.5, 1.0)]
)
def test_claims_algorithm_5_and_appendix_a_3_estimate_the_kernel_are_false(
    num_frequencies: int, scale: float, expected: float
) -> None:
    """A token's kernel with itself is 1/2 by one and 2 by the other; with the 1/√D of theorem 5.3 it is 1."""
    phi = published_features(normal(5, 3), normal(3, num_frequencies, seed=1), scale)

    torch.testing.assert_close(phi.square().sum(-1), torch.full((5,), expected, dtype=torch.float64))


@pytest.mark.parametrize("bandwidth", [0.5, 3.0])
def test_theorem_5_3_the_estimate_is_unbiased(bandwidth: float) -> None:
    """Each of 512 heads draws its own frequencies: the mean over them lies within 4 standard errors."""
    unit = built(RewaFunctional, 3, model_dim=4 * 512, num_heads=512, D=64, bandwidth=bandwidth)
    q, k = (bandwidth * normal(6, 4, seed=seed).expand(512, 6, 4) for seed in range(2))

    estimates = unit.features(q, "query") @ unit.features(k, "key").mT
    expected = (-torch.cdist(q[0], k[0]).square() / (2 * bandwidth**2)).exp()

    error = (estimates.mean(0) - expected).abs()
    assert (error <= 4 * estimates.std(0) / math.sqrt(512)).all()


def test_claim_k_frequencies_take_two_to_the_k_dimensions_is_false() -> None:
    """Theorem 5.1: scores with K incommensurate frequencies are inner products on a sphere in 2K dimensions."""
    num_frequencies = 7
    frequencies = torch.tensor([2, 3, 5, 7, 11, 13, 17], dtype=torch.float64).sqrt()
    positions = torch.arange(100, dtype=torch.float64)
    scores = ((positions.unsqueeze(-1) - positions).unsqueeze(-1) * frequencies).cos().sum(-1)
    angles = positions.unsqueeze(-1) * frequencies
    witnesses = torch.cat([angles.cos(), angles.sin()], dim=-1)

    assert witnesses.shape[-1] == 2 * num_frequencies < 2**num_frequencies
    torch.testing.assert_close(witnesses.square().sum(-1), torch.full((100,), 7.0, dtype=torch.float64))
    torch.testing.assert_close((witnesses @ witnesses.mT).softmax(-1), scores.softmax(-1))
