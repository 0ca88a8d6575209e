import math

import numpy as np
import torch

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
