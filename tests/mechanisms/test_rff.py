import torch

from synthbench.mechanisms.rff import RFF
from tests.tensors import mix, normal


def test_features_are_cosines_of_each_heads_projections(generator: torch.Generator) -> None:
    rff = RFF(M=32, generator=generator).double()
    q, k, v = (0.1 * normal(2, 4, 30, 16, seed=seed) for seed in range(3))
    phi = [(2 / 32) ** 0.5 * torch.cos(torch.einsum("bhtd,hdm->bhtm", x, rff.directions) + rff.phases) for x in (q, k)]

    torch.testing.assert_close(rff.attend(q, k, v), mix(phi[0] @ phi[1].mT, v))


def test_kernel_tends_to_the_gaussian_kernel(generator: torch.Generator) -> None:
    rff = RFF(model_dim=256, num_heads=64, M=1024, generator=generator).double()
    q, k = (normal(6, 4, seed=seed).expand(64, 6, 4) for seed in range(2))

    estimate = (rff.features(q, "query") @ rff.features(k, "key").mT).mean(0)
    squared_distance = (q[0].unsqueeze(1) - k[0]).square().sum(-1)

    # 65,536 features, each with variance below 1 here.
    torch.testing.assert_close(estimate, (-squared_distance / 2).exp(), rtol=0, atol=0.02)
