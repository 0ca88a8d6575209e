import math

import numpy as np
import pytest
import torch
from torch import Tensor

from synthbench.forms import linear
from synthbench.mechanisms.slay.slay import Slay
from tests.mechanisms.loops import built
from tests.tensors import normal


def features(slay: Slay, u: Tensor, head: int) -> Tensor:
    """The P·R·D features of one vector, one at a time."""
    C = 2 + slay.epsilon
    nodes, weights = np.polynomial.laguerre.laggauss(slay.R)
    u = u / u.norm()
    phi = []
    for p in range(slay.P):
        polynomial = float(u @ slay.anchors[:, p]) ** 2 / math.sqrt(slay.P)
        for r in range(slay.R):
            s, w = nodes[r] / C, weights[r] / C
            for i in range(slay.D):
                scaled = slay.directions[head, :, r * slay.D + i]  # √(2 s) ω
                exponent = min(max(float(scaled @ u) - s, -20), 20)
                phi.append(polynomial * math.sqrt(w) * math.exp(exponent) / math.sqrt(slay.D))
    return torch.tensor(phi, dtype=torch.float64)


@pytest.mark.parametrize("guard", ["add", "clamp"])
@pytest.mark.parametrize("delta", [1e-6, 0.05])
def test_attention_is_that_of_the_tensor_product_features(guard: str, delta: float) -> None:
    slay = built(Slay, R=2, P=3, D=4, guard=guard, delta=delta)
    q, k, v = (normal(2, 7, 4, seed=seed) for seed in range(3))
    out = slay.attend(q, k, v)

    for head in range(2):
        phi_q, phi_k = (torch.stack([features(slay, u, head) for u in x[head]]) for x in (q, k))
        for t in range(7):
            kernel = phi_k[: t + 1] @ phi_q[t]
            total = float(kernel.sum())
            denominator = total + delta if guard == "add" else max(total, delta)
            torch.testing.assert_close(out[head, t], kernel @ v[head, : t + 1] / denominator, rtol=1e-5, atol=1e-6)


def test_no_tensor_is_as_wide_as_the_tensor_product() -> None:
    slay = Slay(R=3, P=8, D=16)

    factors = slay.factors(torch.zeros(4, 9, 16), "key")

    assert [factor.shape[-1] for factor in factors] == [8, 48]
    assert linear.rank(factors) == 384
