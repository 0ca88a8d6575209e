from functools import partial
from typing import Any

import pytest
import torch

from synthbench.forms import scores
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.mechanisms.rewa.rewa_mixture import RewaMixture
from tests.mechanisms.loops import built
from tests.tensors import normal

build = partial(built, RewaMixture)


@pytest.mark.parametrize("power", [1, 2])
def test_definition_10_4_outputs_of_one_geometry_experts_are_mixed_by_the_gate(power: int) -> None:
    mixture = build(power=power, tau=0.6)
    q, k, v = (normal(2, 2, 6, 4, seed=seed) for seed in range(3))
    network = mixture.gate.network
    hidden = torch.tanh(torch.einsum("bhtd,hde->bhte", q, network.inner) + network.inner_bias)
    gate = (torch.einsum("bhte,heg->bhtg", hidden, network.outer) + network.outer_bias).softmax(-1)

    expected = torch.zeros_like(v)
    for index, (geometry, width) in enumerate({"euclidean": "m", "spherical": "n", "hyperbolic": "p"}.items()):
        widths: dict[str, Any] = {"m": 0, "n": 0, "p": 0, width: 5}
        expert = RewaGeometric(model_dim=8, num_heads=2, power=power, tau=0.6, **widths).double()
        expert.witnesses.maps[geometry] = mixture.witnesses.map(geometry)
        expected = expected + gate[..., index : index + 1] * expert.attend(q, k, v)

    torch.testing.assert_close(mixture.attend(q, k, v), expected, rtol=1e-6, atol=1e-6)


def test_phase_1_is_the_spherical_expert_alone() -> None:
    mixture = build()
    mixture.enter_phase(1)
    q, k, v = (normal(1, 2, 6, 4, seed=seed) for seed in range(3))

    spherical = scores.weights(mixture.expert_scores("spherical", q, k), "softmax") @ v
    torch.testing.assert_close(mixture.attend(q, k, v), spherical)
