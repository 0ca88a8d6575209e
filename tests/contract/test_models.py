"""Whole models keep the contract too: every mechanism in one, and some in every block and with all positions.

``tests/training/test_decode.py`` compares them with themselves token by token, so no token sees a later one.
"""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.blocks import BLOCKS
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.positions import POSITIONS
from synthbench.training.ensemble import stack_models, strategy_of
from tests.training.cells import FIELDS, LENGTH, VOCABULARY, model_of

AROUND = ["transformer", "transformer:conv=4", "aether", "aether:norm=pre", "aether:norm=post,expansion=1"]
SOME = ["softmax", "rewa-mixture", "mamba2"]
"""Attention, attention that turns vectors of its own, and no attention at all."""
TURNED = [
    (mechanism, positions)
    for mechanism in SOME
    for positions in POSITIONS
    if issubclass(MECHANISMS[mechanism], Attention) or not POSITIONS[positions].rotates
]


def tokens_of(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (*shape, LENGTH), generator=torch.Generator().manual_seed(seed))


def check_model(mechanism: str, **around: Any) -> None:
    """A run beside others gives what it gives alone, and its parameters get the same gradients."""
    models = [model_of(MECHANISMS[mechanism], **around, seed=seed) for seed in range(2)]
    tokens = tokens_of(len(models), 3, seed=1)
    together = stack_models(deepcopy(models), strategy_of(MECHANISMS[mechanism], FIELDS))
    expected = torch.stack([model(rows) for model, rows in zip(models, tokens, strict=True)])
    logits = together(tokens)
    last = together(tokens, torch.tensor([LENGTH - 1]))
    weights = torch.sin(torch.arange(expected.numel(), dtype=torch.float64)).view(expected.shape)
    torch.autograd.backward((logits * weights).sum())
    torch.autograd.backward((expected * weights).sum())

    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(last, expected[..., -1:, :], rtol=1e-9, atol=1e-9)
    for run, model in enumerate(models):
        for stacked, single in zip(together.parameters(), model.parameters(), strict=True):
            assert stacked.grad is not None
            gradient = stacked.grad[run].reshape(single.shape)
            expected_gradient = torch.zeros_like(single) if single.grad is None else single.grad
            torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_in_a_model(mechanism: str) -> None:
    check_model(mechanism)


@pytest.mark.parametrize("block", sorted({*BLOCKS, *AROUND} - {"attention_only"}))
@pytest.mark.parametrize("mechanism", SOME)
def test_mechanisms_in_every_block(mechanism: str, block: str) -> None:
    check_model(mechanism, block=block)


@pytest.mark.parametrize(("mechanism", "positions"), TURNED)
def test_mechanisms_with_every_position_encoding(mechanism: str, positions: str) -> None:
    check_model(mechanism, positions=positions)


@pytest.mark.parametrize("block", AROUND)
def test_every_parameter_of_a_block_is_trained(block: str) -> None:
    model = model_of(MECHANISMS["yat"], block)
    torch.autograd.backward(model(tokens_of(4)).square().sum())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
