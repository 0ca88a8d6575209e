"""What holds for a model with any block around any mechanism."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.training.ensemble import SequenceModel, stack_models, strategy_of

BLOCKS = [
    "attention_only",
    "transformer",
    "transformer:expansion=2",
    "aether",
    "aether:norm=pre",
    "aether:norm=post,expansion=1,epsilon=0.1",
]
FIELDS: dict[str, Any] = {"model_dim": 8, "num_heads": 2, "max_length": 9, "bias": True}
Make = Callable[..., SequenceModel]


@pytest.mark.parametrize(
    ("block", "mechanism"), [*((block, "yat") for block in BLOCKS), ("transformer", "softmax"), ("aether", "slay")]
)
def test_members_together_are_members_alone(block: str, mechanism: str, make_model: Make) -> None:
    alone = [make_model(block, mechanism, seed) for seed in (3, 1, 4)]
    strategy = strategy_of(MECHANISMS[mechanism], FIELDS)
    together = stack_models([make_model(block, mechanism, seed) for seed in (3, 1, 4)], strategy)
    tokens = torch.arange(3 * 2 * 9).view(3, 2, 9) % 11

    logits = together(tokens)
    expected = torch.stack([model(rows) for model, rows in zip(alone, tokens, strict=True)])
    weights = torch.sin(torch.arange(expected.numel(), dtype=torch.float64)).view(expected.shape)
    torch.autograd.backward((logits * weights).sum())
    torch.autograd.backward((expected * weights).sum())

    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(together(tokens, torch.tensor([8])), expected[..., -1:, :], rtol=1e-10, atol=1e-10)
    for member, model in enumerate(alone):
        for stacked, single in zip(together.parameters(), model.parameters(), strict=True):
            assert stacked.grad is not None
            assert single.grad is not None
            gradient = stacked.grad[member].reshape(single.shape)
            torch.testing.assert_close(gradient, single.grad, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("aether:norm=both", "aether:norm is 'both'; allowed: one of none, pre, post"),
        ("aether:epsilon=0", "aether:epsilon is '0'; allowed: float from 1e-12 to 1"),
        ("transformer:expansion=0", "transformer:expansion is '0'; allowed: int from 1 to 16"),
    ],
)
def test_a_block_that_cannot_be_built_is_refused(block: str, message: str, make_model: Make) -> None:
    with pytest.raises(UsageError, match=message):
        make_model(block, "softmax")
