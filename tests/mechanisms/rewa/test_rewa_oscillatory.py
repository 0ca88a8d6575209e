import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_oscillatory import RewaOscillatory
from tests.mechanisms.loops import built, mapped
from tests.tensors import mix, normal


def overlap(unit: RewaOscillatory, q: Tensor, k: Tensor) -> Tensor:
    """The overlap of every pair, term by term, [batch, heads, length, length]."""
    a, b = mapped(unit.witness, q, k)
    distances = torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), dim=-1)
    total = torch.zeros_like(distances)
    for n in range(unit.K):
        c, decay, frequency = (
            numbers()[:, :, n].unsqueeze(-1) for numbers in (unit.weights, unit.decays, unit.frequencies)
        )
        total += c * (-decay * distances).exp() * (1 + (frequency * distances).cos()) / 2
    return total


@pytest.mark.parametrize("shared", [True, False])
def test_attention_is_the_overlap_over_its_sum(*, shared: bool) -> None:
    unit = built(RewaOscillatory, K=3, decay=0.5, frequency=2.0, shared=shared)
    q, k, v = (normal(2, 2, 20, 4, seed=seed) for seed in range(3))

    # Apart by what keeps a raised cosine from 0.
    torch.testing.assert_close(unit.attend(q, k, v), mix(overlap(unit, q, k), v, delta=0.0), rtol=1e-4, atol=1e-4)


def test_claim_the_oscillatory_kernel_is_an_overlap_is_false() -> None:
    """Equation 110 is negative at half a period: two keys, one there and one at 0, get weights of 32 and -31."""
    distances = torch.tensor([0.0, torch.pi], dtype=torch.float64)
    published = (-0.01 * distances).exp() * distances.cos()

    weights = published / published.sum()

    assert published[1] < 0
    assert weights.tolist() == pytest.approx([32.33, -31.33], abs=0.01)


def test_distant_keys_still_share_the_weight(generator: torch.Generator) -> None:
    """Overlaps of exp(-1000) underflow; their ratios do not."""
    unit = RewaOscillatory(generator=generator)
    k = 1000 * torch.randn(1, 4, 8, 16, generator=generator)
    v = torch.ones(1, 4, 8, 16)

    torch.testing.assert_close(unit.attend(torch.zeros(1, 4, 8, 16), k, v), v)
