import math

import numpy as np
import torch
from torch.nn.functional import normalize

from synthbench.mechanisms.slay.slay_laplace import SlayLaplace
from tests.tensors import normal


def test_features_are_weighted_positive_random_features() -> None:
    laplace = SlayLaplace(R=2, M=3, epsilon=1e-6, generator=torch.Generator().manual_seed(0)).double()
    u = normal(16)
    alphas = np.polynomial.laguerre.laggauss(2)
    C = 2 + 1e-6

    computed = laplace.features(u.expand(4, 1, 16), "query")

    for head in range(4):
        for r, (t, alpha) in enumerate(zip(*alphas, strict=True)):
            for i in range(3):
                exponent = float(laplace.directions[head, :, 3 * r + i] @ (u / u.norm())) - t / C
                expected = math.sqrt(C * alpha / 4) * math.exp(exponent) / math.sqrt(3)
                assert math.isclose(float(computed[head, 0, 3 * r + i]), expected, rel_tol=1e-5)


def test_kernel_expects_the_quadrature_of_the_positive_part() -> None:
    d, C = 4, 2 + 1e-3
    laplace = SlayLaplace(
        model_dim=64 * d, num_heads=64, R=1, M=1024, generator=torch.Generator().manual_seed(0)
    ).double()
    q, k = (normal(6, d, seed=seed).expand(64, 6, d) for seed in range(2))
    x = normalize(q[0], dim=-1) @ normalize(k[0], dim=-1).mT

    kernels = laplace.features(q, "query") @ laplace.features(k, "key").mT
    expected = C / 4 * torch.exp(2 / C * x)  # one node: t = 1, α = 1
    errors = kernels.std(0) / 64**0.5

    assert (errors < 0.05 * expected).all()
    assert ((kernels.mean(0) - expected).abs() < 5 * errors).all()
