import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.performer_exp import PerformerExp
from tests.tensors import mix, normal

KINDS: list[Literal["iid", "orthogonal"]] = ["iid", "orthogonal"]


def exponentials(performer: PerformerExp, x: Tensor) -> Tensor:
    """The features as the paper writes them, not stabilised."""
    y = x / x.shape[-1] ** 0.25
    projections = torch.einsum("...td,hdm->...htm", y, performer.directions)
    features: Tensor = torch.exp(projections - (y**2).sum(-1).unsqueeze(-2).unsqueeze(-1) / 2)
    return features / math.sqrt(performer.M)


@pytest.mark.parametrize("omega", KINDS)
def test_attention_is_that_of_the_papers_features(
    omega: Literal["iid", "orthogonal"], generator: torch.Generator
) -> None:
    performer = PerformerExp(num_heads=1, model_dim=16, omega=omega, delta=0.0, generator=generator).double()
    q, k, v = (normal(2, 30, 16, seed=seed) for seed in range(3))
    kernel = exponentials(performer, q) @ exponentials(performer, k).mT

    out = performer.attend(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1))

    torch.testing.assert_close(out, mix(kernel, v.unsqueeze(1), delta=0.0))


@pytest.mark.parametrize("omega", KINDS)
def test_kernel_expects_the_softmax_kernel(omega: Literal["iid", "orthogonal"], generator: torch.Generator) -> None:
    performer = PerformerExp(model_dim=512, num_heads=64, M=2048, omega=omega, generator=generator).double()
    q, k = 0.5 * normal(6, 8), 0.5 * normal(6, 8, seed=1)

    kernels = exponentials(performer, q) @ performer.features(k.expand(64, 6, 8), "key").mT
    expected = (q @ k.mT / 8**0.5).exp()
    errors = kernels.std(0) / 64**0.5

    assert (errors < 0.1 * expected).all()
    assert ((kernels.mean(0) - expected).abs() < 5 * errors).all()


def test_stabilised_queries_are_those_of_the_paper_over_their_largest(generator: torch.Generator) -> None:
    performer = PerformerExp(generator=generator).double()
    q = normal(5, 16)
    plain = exponentials(performer, q)

    torch.testing.assert_close(
        performer.features(q.expand(4, 5, 16), "query") * 8, plain / plain.amax(-1, keepdim=True)
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_key_exponents_are_bounded_without_looking_at_other_keys(scale: float, generator: torch.Generator) -> None:
    performer = PerformerExp(generator=generator).double()
    bound = (performer.directions.square().sum(1) / 2).exp() / performer.M**0.5

    assert (performer.features(scale * normal(4, 50, 16), "key") <= bound.unsqueeze(1) * (1 + 1e-12)).all()
