import math

import torch

from synthbench.mechanisms.performer import Performer
from tests.tensors import mix, normal


def test_features_are_rectified_projections_of_each_head(generator: torch.Generator) -> None:
    performer = Performer(M=8, generator=generator).double()
    q, k, v = (normal(2, 4, 30, 16, seed=seed) for seed in range(3))
    phi = [torch.clamp(torch.einsum("bhtd,hdm->bhtm", x, performer.directions), min=0) for x in (q, k)]

    torch.testing.assert_close(performer.attend(q, k, v), mix(phi[0] @ phi[1].mT, v))


def test_kernel_tends_to_the_arc_cosine_kernel_of_order_one(generator: torch.Generator) -> None:
    performer = Performer(model_dim=256, num_heads=64, M=1024, generator=generator).double()
    q, k = (normal(6, 4, seed=seed).expand(64, 6, 4) for seed in range(2))

    estimate = (performer.features(q, "query") @ performer.features(k, "key").mT).mean(0) / performer.M
    lengths = q[0].norm(dim=-1).unsqueeze(1) * k[0].norm(dim=-1)
    cosine = (q[0] @ k[0].mT) / lengths
    theta = cosine.acos()
    expected = lengths / (2 * math.pi * 4) * (theta.sin() + (math.pi - theta) * cosine)

    torch.testing.assert_close(estimate, expected, rtol=0, atol=0.02 * float(lengths.max()) / 4)
