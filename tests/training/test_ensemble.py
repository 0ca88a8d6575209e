from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from synthbench.layers import Linear
from synthbench.mechanisms import MECHANISMS, Attention, Mechanism, num_parameters
from synthbench.mechanisms.base import mechanism_made_of
from synthbench.suites import load_suite
from synthbench.training.cell import Run
from synthbench.training.ensemble import (
    BottleneckHead,
    SequenceModel,
    Strategy,
    copy_learned,
    stack_mixers,
    stack_models,
    strategy_of,
)
from synthbench.training.train import build_models
from tests.training.cells import FIELDS, make_cell, model_of

STRATEGIES = {"softmax": "fold", "linear": "fold", "yat": "fold", "performer": "stack", "rff": "stack", "slay": "stack"}


def test_every_built_in_mechanism_is_batched() -> None:
    strategies = {name: strategy_of(MECHANISMS[name], FIELDS) for name in MECHANISMS}

    assert {name: strategies[name] for name in STRATEGIES} == STRATEGIES
    assert not [name for name, strategy in strategies.items() if strategy == "loop"]


def test_a_run_that_is_not_a_number_harms_no_other() -> None:
    cell = make_cell("reverse", "slay", length=6)
    model = stack_models(build_models([Run(cell, 0, 1e-3), Run(cell, 1, 1e-3)]), "stack")
    with torch.no_grad():
        cast("Linear", model.head).weight[0].fill_(torch.nan)
    tokens = torch.zeros(2, 2, 6, dtype=torch.long)
    torch.autograd.backward(model(tokens).sum())

    assert model.embedding.weight.grad is not None
    assert model.embedding.weight.grad[0].isnan().any()
    assert model.embedding.weight.grad[1].isfinite().all()


@pytest.mark.parametrize("strategy", ["stack", "loop"])
def test_a_frozen_parameter_stays_frozen_and_counts(strategy: Strategy) -> None:
    class FrozenGain(Mechanism):
        def initialise(self, generator: torch.Generator | None) -> None:
            self.gain = nn.Parameter(torch.rand(self.model_dim, generator=generator))
            self.steps = nn.Parameter(torch.arange(self.model_dim), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gain

        def state_elements(self, length: int) -> int:
            return 0 * length

    runs = [FrozenGain(**FIELDS) for _ in range(2)]
    assert num_parameters(runs[0]) == 2 * FIELDS["model_dim"]
    program = stack_mixers(runs, strategy)
    assert sorted(parameter.requires_grad for parameter in program.parameters()) == [False, True]


class Recomputed(nn.Module):
    """Calls its own method again in the backward pass, where it must find the tensors that are trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value, self.idle = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.inner, x, use_reentrant=True)
        return out

    def inner(self, x: Tensor) -> Tensor:
        out: Tensor = self.value(x).cumsum(1)
        return out


class Referring(nn.Module):
    """Reads its parameters through a list and a function."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.pairs, weight = [(self.value.weight, self.value.bias)], self.out.weight
        self.head: Any = lambda y: y @ weight.T

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(nn.functional.linear(x, *self.pairs[0]).cumsum(1))
        return out


class Masking(nn.Module):
    """Trains only the lower half of a matrix, by a hook on its gradient."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, width)
        self.value.weight.register_hook(Tensor.tril)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.value(x)
        return out


class FourAxes(Attention):
    """Knows of no further axis before that of sequences."""

    def initialise(self, generator: torch.Generator | None) -> None:
        self.scale = nn.Parameter(torch.rand(self.num_heads, generator=generator))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, heads, length, _ = q.shape
        weights = torch.tril(torch.ones(batch, heads, length, length, dtype=q.dtype)) * self.scale.view(1, -1, 1, 1)
        return weights @ (v + k)


IN_LOOPS = [FourAxes, *(mechanism_made_of(module, {}, __name__) for module in (Recomputed, Referring, Masking))]


@pytest.mark.parametrize("unit", IN_LOOPS, ids=["FourAxes", "Recomputed", "Referring", "Masking"])
def test_runs_in_a_loop_train_as_single_ones_do(unit: type[Mechanism]) -> None:
    alone, looped = (
        [unit(**FIELDS, generator=torch.Generator().manual_seed(seed)) for seed in range(2)] for _ in range(2)
    )
    assert strategy_of(unit, FIELDS) == "loop"
    program = stack_mixers(looped, "loop")
    x = torch.rand(2, 3, 5, 8, requires_grad=True)
    steps = [torch.optim.SGD(parameters, 0.01) for parameters in (one.parameters() for one in (program, *alone))]

    for _ in range(3):
        losses = [program(x).square().sum()]
        losses += [run(rows).square().sum() for run, rows in zip(alone, x, strict=True)]
        torch.testing.assert_close(losses[0], losses[1] + losses[2])
        for loss, step in zip(losses, steps, strict=True):
            step.zero_grad()
            torch.autograd.backward(loss)
            step.step()
    together = torch.stack([run(rows) for run, rows in zip(alone, x, strict=True)])
    torch.testing.assert_close(program.forward_last(x), together[..., -1:, :])
    assert {parameter.shape[0] for parameter in program.parameters()} == {2}
    first = next(iter(alone[0].state_dict()))
    trained = program.state_dict()[first.replace(".", "/")]
    torch.testing.assert_close(trained, torch.stack([run.state_dict()[first] for run in alone]))


def test_what_no_output_depends_on_is_not_counted() -> None:
    model = model_of(mechanism_made_of(Recomputed, {}, __name__), layers=1).float()

    assert model.size(7).num_parameters_mixer == 8 * 8 + 8


def bottlenecked(seed: int, length: int = 6) -> SequenceModel:
    settings = load_suite("paper").model.model_copy(update={"model_dim": 8, "num_heads": 2})
    layers = MECHANISMS["softmax"].layers_of(FIELDS, settings.num_layers)
    return SequenceModel(settings, 5, length, layers, torch.Generator().manual_seed(seed), readout="bottleneck")


def test_a_bottleneck_reads_all_answers_from_the_last_position() -> None:
    model = bottlenecked(0)
    head = cast("BottleneckHead", model.head)
    seen: list[Tensor] = []
    head.hidden.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    tokens = torch.tensor([[0, 1, 2, 3, 4, 0], [4, 1, 2, 3, 4, 0]])
    columns = torch.tensor([0, 2])
    logits = model(tokens, columns)

    assert logits.shape == (2, 2, 5)
    torch.testing.assert_close(logits, model(tokens)[:, columns])
    last = seen[0] - head.codes.weight[columns]
    torch.testing.assert_close(last[:, 0], last[:, 1])  # one vector behind all answers
    assert not torch.allclose(last[0], last[1])  # which knows of the first token


def test_a_longer_model_inherits_all_and_keeps_its_own_new_positions() -> None:
    trained, longer = bottlenecked(0), bottlenecked(1, length=9)
    fresh = {name: values.clone() for name, values in longer.state_dict().items()}
    copy_learned(longer, trained)

    for name, values in trained.state_dict().items():
        inherited = longer.state_dict()[name]
        torch.testing.assert_close(inherited[tuple(slice(size) for size in values.shape)], values, rtol=0, atol=0)
    torch.testing.assert_close(longer.state_dict()["position.weight"][6:], fresh["position.weight"][6:])
    tokens = torch.randint(5, (2, 6))
    torch.testing.assert_close(longer(tokens, torch.tensor([3])), trained(tokens, torch.tensor([3])))
