import numpy as np
import torch
from torch.nn.functional import normalize

from synthbench.mechanisms.slay.slay_hadamard import SlayHadamard
from tests.mechanisms.loops import built
from tests.tensors import normal


def test_features_are_squares_times_exponentials_of_one_projection() -> None:
    hadamard, u, C = built(SlayHadamard, R=2, M=3, epsilon=1e-6), normal(2, 1, 4), 2 + 1e-6
    t, alpha = (torch.from_numpy(values).repeat_interleave(3) for values in np.polynomial.laguerre.laggauss(2))
    a = normalize(u, dim=-1) @ hadamard.directions

    expected = (alpha / C).sqrt() / 3 * a**2 * torch.exp((2 * t / C).sqrt() * a - t / C)
    torch.testing.assert_close(hadamard.features(u, "query"), expected, rtol=1e-5, atol=0)


def test_kernel_expects_neither_the_yat_kernel_nor_zero_for_orthogonal_vectors() -> None:
    d, C, M = 4, 2 + 1e-3, 1024
    hadamard = built(SlayHadamard, model_dim=256 * d, num_heads=256, R=1, M=M)
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
