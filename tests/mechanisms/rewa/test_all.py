"""Properties of several mechanisms of the REWA family."""

from typing import Any

import pytest
import torch

from synthbench.mechanisms import MECHANISMS
from synthbench.positions import POSITIONS
from synthbench.training.ensemble import stack_mixers
from tests.mechanisms.loops import built
from tests.tensors import normal

REWA = [name for name in MECHANISMS if name.startswith("rewa-")]
GEOMETRIES = {"rewa-euclidean": (15, 0, 0), "rewa-spherical": (0, 15, 0), "rewa-hyperbolic": (0, 0, 15)}


def build(name: str, seed: int = 0, **arguments: Any) -> Any:
    return built(MECHANISMS[name], seed, model_dim=16, **arguments)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_one_geometry_is_the_geometric_one_with_the_other_widths_at_zero(name: str) -> None:
    m, n, p = GEOMETRIES[name]
    x = normal(2, 9, 16)

    assert torch.equal(build(name)(x), build("rewa-geometric", m=m, n=n, p=p)(x))


@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("name", REWA)
def test_gradients_stay_finite_where_queries_and_keys_are_equal_or_vanish(name: str, scale: float) -> None:
    unit, x = build(name).float(), scale * normal(1, 2, 6, 8).float()
    x[..., 3:, :] = 0
    x.requires_grad_()
    learned = [value for part, value in unit.named_parameters() if not part.startswith(("qkv.", "out."))]

    gradients = torch.autograd.grad(unit.attend(x, x, x).square().sum(), [x, *learned])

    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["rewa-adaptive", "rewa-geometric", "rewa-lsh", "rewa-mixture", "rewa-riemannian"])
def test_stacked_runs_keep_outputs_metrics_and_phases_apart(name: str) -> None:
    runs = [build(name, seed) for seed in range(3)]
    stacked, x = stack_mixers(runs, "stack"), normal(3, 2, 12, 16)
    for phase in (2, 4):
        for mixer in (stacked, *runs):
            mixer.enter_phase(phase)

        alone = torch.stack([run(rows) for run, rows in zip(runs, x, strict=True)])
        torch.testing.assert_close(stacked(x), alone)
        for inputs in (x, x[:, :, :2]):
            for metric, values in stacked.metrics(inputs).items():
                expected = torch.stack([run.metrics(rows)[metric] for run, rows in zip(runs, inputs, strict=True)])
                torch.testing.assert_close(values.reshape(3, -1), expected)


@pytest.mark.parametrize("name", ["rewa-fisher", "rewa-operator", "rewa-path"])
def test_the_temperature_is_reported_a_head(name: str) -> None:
    temperatures = build(name, tau=0.25).metrics(normal(1, 2, 16))["tau"]

    torch.testing.assert_close(temperatures, torch.full((2,), 0.25).double())


@pytest.mark.parametrize("name", ["rewa-geometric", "rewa-lsh"])
@pytest.mark.parametrize("encoding", ["rope", "espr:null=keep"])
def test_runs_beside_each_other_turn_their_witnesses_as_alone(name: str, encoding: str) -> None:
    unit, options = POSITIONS.configured(encoding)
    arguments: dict[str, Any] = {**options}
    generator = torch.Generator().manual_seed(1)
    runs = [build(name, seed) for seed in range(2)]
    for run in runs:
        position = unit(model_dim=16, num_heads=2, length=12, generator=generator, **arguments)
        run.turn_by(position.rotations(run.turned_widths, generator))
        run.double()
    x = normal(2, 2, 12, 16)

    alone = torch.stack([run(rows) for run, rows in zip(runs, x, strict=True)])

    torch.testing.assert_close(stack_mixers(runs, "stack")(x), alone)
    assert (alone - stack_mixers([build(name, seed) for seed in range(2)], "stack")(x)).abs().max() > 1e-3
