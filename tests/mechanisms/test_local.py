import math

import pytest
import torch
from torch import Tensor

from synthbench.forms.scores import weights
from synthbench.mechanisms.local import Local, banded
from tests.tensors import normal, with_gradients


def written_out(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    rows = []
    for t in range(q.shape[-2]):
        seen = slice(max(0, t - window + 1), t + 1)
        scores = (q[..., t : t + 1, :] * k[..., seen, :]).sum(-1) / math.sqrt(q.shape[-1])
        rows.append((scores.softmax(-1).unsqueeze(-1) * v[..., seen, :]).sum(-2))
    return torch.stack(rows, dim=-2)


@pytest.mark.parametrize(("length", "window"), [(1, 3), (5, 16), (97, 1), (97, 16), (130, 40)])
def test_attention_is_softmax_over_the_last_tokens(length: int, window: int) -> None:
    q, k, v = (normal(2, 4, length, 8, seed=seed) for seed in range(3))

    torch.testing.assert_close(Local(window=window).attend(q, k, v), written_out(q, k, v, window))


@pytest.mark.parametrize("length", [1, 15, 33, 97])
def test_banded_form_agrees_with_all_scores_and_so_do_gradients(length: int) -> None:
    local = Local(window=7)
    inputs = [normal(2, 4, length, 8, seed=seed).requires_grad_() for seed in range(3)]
    q, k, v = inputs
    by_blocks, plain = banded(q, k, v, local.window), weights(local.scores(q, k), local.normaliser) @ v

    torch.testing.assert_close(with_gradients(by_blocks, inputs), with_gradients(plain, inputs), rtol=1e-9, atol=1e-9)
