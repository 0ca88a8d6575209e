"""Whole models keep the contract too: every mechanism in one, and some in every block and with all positions.

``tests/training/test_decode.py`` compares them with themselves token by token, so no token sees a later one.
"""

from copy import deepcopy

import pytest
import torch

from synthbench.blocks import BLOCKS
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.positions import POSITIONS
from synthbench.training.ensemble import stack_models, strategy_of
from tests.training.cells import FIELDS, LENGTH, VOCABULARY, model_of

AROUND = ["transformer", "transformer:conv=4", "aether", "aether:norm=pre", "aether:norm=post,expansion=1"]
SOME = ["softmax", "rewa-mixture", "mamba2"]
"""Attention, attention that turns vectors of its own, and no attention at all."""
BLOCK, LEARNED = "attention_only", "learned"
MODELS = [
    *((mechanism, BLOCK, LEARNED) for mechanism in MECHANISMS),
    *((mechanism, block, LEARNED) for mechanism in SOME for block in sorted({*BLOCKS, *AROUND} - {BLOCK})),
    *(
        (mechanism, BLOCK, positions)
        for mechanism in SOME
        for positions in POSITIONS
        if issubclass(MECHANISMS[mechanism], Attention) or not POSITIONS[positions].rotates
    ),
]


@pytest.mark.parametrize(("mechanism", "block", "positions"), dict.fromkeys(MODELS))
def test_a_run_beside_others_gives_what_it_gives_alone_and_gets_the_same_gradients(
    mechanism: str, block: str, positions: str
) -> None:
    models = [model_of(MECHANISMS[mechanism], block, positions, seed=seed) for seed in range(2)]
    tokens = torch.randint(VOCABULARY, (len(models), 3, LENGTH), generator=torch.Generator().manual_seed(1))
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
