import torch
from torch import nn

from synthbench.forms.feature_maps import unit_vectors
from synthbench.mechanisms.slay.slay_tensorsketch import SlayTensorsketch
from tests.tensors import normal


def test_polynomial_factor_is_the_count_sketch_of_the_outer_product() -> None:
    """Entry (i, j) of u ⊗ u goes to place h(i) + h'(j), mod P, with the sign σ(i) σ'(j)."""
    for P in (1, 7, 8):
        sketch = SlayTensorsketch(P=P, generator=torch.Generator().manual_seed(P)).double()
        u = unit_vectors(normal(16))
        expected = torch.zeros(P, dtype=torch.float64)
        for i in range(16):
            for j in range(16):
                (h,), (other,) = (
                    rows[at].nonzero().tolist()[0] for rows, at in ((sketch.first, i), (sketch.second, j))
                )
                expected[(h + other) % P] += sketch.first[i, h] * sketch.second[j, other] * u[i] * u[j]

        torch.testing.assert_close(sketch.polynomial(u.unsqueeze(0))[0], expected)


def test_claim_tensorsketch_is_unbiased_only_approximately_is_false() -> None:
    """Averaged over every choice of places and signs, not over draws, it is exactly the square (d = 2, P = 2)."""
    sketch = SlayTensorsketch(model_dim=8, P=2).double()
    q, k = unit_vectors(normal(1, 2)), unit_vectors(normal(1, 2, seed=1))
    rows = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
    matrices = [torch.stack([a, b]) for a in rows for b in rows]
    total = torch.zeros(1, 1, dtype=torch.float64)
    for first in matrices:
        for second in matrices:
            sketch.first, sketch.second = nn.Buffer(first), nn.Buffer(second)
            total += sketch.polynomial(q) @ sketch.polynomial(k).mT

    torch.testing.assert_close(total / len(matrices) ** 2, (q @ k.mT) ** 2)
