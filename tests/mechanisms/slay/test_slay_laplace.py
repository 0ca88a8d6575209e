import numpy as np
import torch
from torch.nn.functional import normalize

from synthbench.mechanisms.slay.slay_laplace import SlayLaplace
from tests.mechanisms.loops import built
from tests.tensors import normal


def test_features_are_weighted_positive_random_features() -> None:
    laplace, u, C = built(SlayLaplace, R=2, M=3, epsilon=1e-6), normal(2, 1, 4), 2 + 1e-6
    t, alpha = (torch.from_numpy(values).repeat_interleave(3) for values in np.polynomial.laguerre.laggauss(2))

    expected = (C * alpha / 4).sqrt() * torch.exp(normalize(u, dim=-1) @ laplace.directions - t / C) / 3**0.5
    torch.testing.assert_close(laplace.features(u, "query"), expected, rtol=1e-5, atol=0)
