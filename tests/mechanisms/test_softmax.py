from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.forms import scores
from synthbench.mechanisms.softmax import Softmax


@pytest.mark.parametrize("shape", [(3, 1, 16), (2, 3, 33, 16), (2, 2, 3, 33, 16)])
def test_fused_form_equals_the_naive_one_and_so_do_its_gradients(
    shape: tuple[int, ...], normal: Callable[..., Tensor]
) -> None:
    qkv = [normal(*shape, seed=seed).requires_grad_() for seed in range(3)]
    softmax = Softmax()

    fused, naive = softmax.attend(*qkv), scores.dense(softmax.scores, "softmax", *qkv)

    torch.testing.assert_close(fused, naive, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        torch.autograd.grad(fused.sin().sum(), qkv),
        torch.autograd.grad(naive.sin().sum(), qkv),
        rtol=1e-10,
        atol=1e-10,
    )


def test_weights_are_exponentials_of_scaled_inner_products(
    mix: Callable[..., Tensor], normal: Callable[..., Tensor]
) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    kernel = (torch.einsum("...id,...jd->...ij", q, k) / 4).exp()

    torch.testing.assert_close(Softmax().attend(q, k, v), mix(kernel, v, delta=0.0))
