from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.forms import scores
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.mechanisms.rewa.rewa_mixture import RewaMixture
from synthbench.training.ensemble import stack_mixers


def build(seed: int = 0, **arguments: Any) -> RewaMixture:
    generator = torch.Generator().manual_seed(seed)
    return RewaMixture(**({"model_dim": 8, "num_heads": 2} | arguments), generator=generator).double()


@pytest.mark.parametrize("power", [1, 2])
def test_definition_10_4_outputs_of_one_geometry_experts_are_mixed_by_the_gate(
    power: int, normal: Callable[..., Tensor]
) -> None:
    mixture = build(power=power, tau=0.6)
    q, k, v = (normal(2, 2, 6, 4, seed=seed) for seed in range(3))
    network = mixture.gate.network
    hidden = torch.tanh(torch.einsum("bhtd,hde->bhte", q, network.inner) + network.inner_bias)
    gate = (torch.einsum("bhte,heg->bhtg", hidden, network.outer) + network.outer_bias).softmax(-1)

    expected = torch.zeros_like(v)
    for index, (geometry, width) in enumerate({"euclidean": "m", "spherical": "n", "hyperbolic": "p"}.items()):
        widths: dict[str, Any] = {"m": 0, "n": 0, "p": 0, width: 5}
        expert = RewaGeometric(model_dim=8, num_heads=2, power=power, tau=0.6, **widths).double()
        expert.metric.witnesses.maps[geometry] = mixture.witnesses.map(geometry)
        expected = expected + gate[..., index : index + 1] * expert.attend(q, k, v)

    torch.testing.assert_close(mixture.attend(q, k, v), expected, rtol=1e-6, atol=1e-6)


def test_a_gate_that_picks_one_expert_is_that_expert(normal: Callable[..., Tensor]) -> None:
    mixture = build()
    with torch.no_grad():
        mixture.gate.network.outer.zero_()
        mixture.gate.network.outer_bias.copy_(torch.tensor([-1e3, -1e3, 0.0]))
    q, k, v = (normal(1, 2, 6, 4, seed=seed) for seed in range(3))

    hyperbolic = scores.weights(mixture.expert_scores("hyperbolic", q, k), "softmax") @ v
    torch.testing.assert_close(mixture.attend(q, k, v), hyperbolic)


def test_blocks_of_queries_give_the_same(normal: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = build()
    q, k, v = (normal(1, 2, 20, 4, seed=seed).requires_grad_() for seed in range(3))
    expected = mixture.attend(q, k, v)
    gradients = torch.autograd.grad(expected.sin().sum(), [q, k, v])
    monkeypatch.setattr(scores, "DENSE_MAX_LENGTH", 4)
    monkeypatch.setattr(scores, "BLOCK", 8)
    out = mixture.attend(q, k, v)

    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(torch.autograd.grad(out.sin().sum(), [q, k, v]), gradients)


def test_phase_1_is_the_spherical_expert_alone(normal: Callable[..., Tensor]) -> None:
    mixture = build()
    mixture.enter_phase(1)
    q, k, v = (normal(1, 2, 6, 4, seed=seed) for seed in range(3))

    spherical = scores.weights(mixture.expert_scores("spherical", q, k), "softmax") @ v
    torch.testing.assert_close(mixture.attend(q, k, v), spherical)


def test_shares_and_curvature_are_reported_a_head_and_member(normal: Callable[..., Tensor]) -> None:
    members = [build(seed=seed) for seed in range(3)]
    stacked, x = stack_mixers(members, "stack"), normal(3, 2, 6, 8)
    metrics = stacked.metrics(x)

    torch.testing.assert_close(stacked(x), torch.stack([member(rows) for member, rows in zip(members, x, strict=True)]))
    torch.testing.assert_close(metrics["alpha"] + metrics["beta"] + metrics["gamma"], torch.ones(3, 2).double())
    for name, values in metrics.items():
        alone = torch.stack([member.metrics(rows)[name] for member, rows in zip(members, x, strict=True)])
        torch.testing.assert_close(values.reshape(3, -1), alone)


def test_one_expert_needs_no_gate() -> None:
    with pytest.raises(UsageError, match="leave only the euclidean geometry; allowed: at least two above 0"):
        build(n=0, p=0)
