import math

import numpy as np
import torch
from torch.nn.functional import normalize

from synthbench.mechanisms.slay.slay_hadamard import SlayHadamard
from tests.tensors import normal


def test_features_are_squares_times_exponentials_of_one_projection() -> None:
    hadamard = SlayHadamard(R=2, M=3, epsilon=1e-6, generator=torch.Generator().manual_seed(0)).double()
    u = normal(16)
    C = 2 + 1e-6

    computed = hadamard.features(u.expand(4, 1, 16), "query")

    for head in range(4):
        for r, (t, alpha) in enumerate(zip(*np.polynomial.laguerre.laggauss(2), strict=True)):
            for i in range(3):
                a = float(hadamard.directions[head, :, 3 * r + i] @ (u / u.norm()))
                exponent = math.sqrt(2 * t / C) * a - t / C
                expected = math.sqrt(alpha / C) / 3 * a**2 * math.exp(exponent)
                assert math.isclose(float(computed[head, 0, 3 * r + i]), expected, rel_tol=1e-5)


def test_kernel_expects_neither_the_yat_kernel_nor_zero_for_orthogonal_vectors() -> None:
    d, C, M = 4, 2 + 1e-3, 1024
    hadamard = SlayHadamard(
        model_dim=256 * d, num_heads=256, R=1, M=M, generator=torch.Generator().manual_seed(0)
    ).double()
    axes = torch.eye(d, dtype=torch.float64)
    q, k = (torch.cat([axes[i : i + 1], normal(4, d, seed=i)]).expand(256, 5, d) for i in range(2))
    x = normalize(q[0], dim=-1) @ normalize(k[0], dim=-1).mT
    s, w = 1 / C, 1 / C  # one node: t = 1, α = 1

    kernels = hadamard.features(q, "query") @ hadamard.features(k, "key").mT
    m2 = 2 * s * (1 + x) ** 2
    expected = w / M * torch.exp(2 * s * x) * ((m2 + 1) ** 2 + 4 * m2 * x + 2 * x**2)

    errors = kernels.std(0) / 256**0.5

    # Products of fourth powers and exponentials have heavy tails: 262,144 features leave some per cent.
    assert (errors < 0.15 * expected).all()
    assert ((kernels.mean(0) - expected).abs() < 5 * errors).all()
    assert abs(float(x[0, 0])) < 1e-12
    assert kernels.mean(0)[0, 0] > 10 * errors[0, 0]
