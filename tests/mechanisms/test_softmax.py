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


def test_equal_keys_give_the_running_mean(normal: Callable[..., Tensor]) -> None:
    v = normal(1, 4, 10, 16)

    out = Softmax().attend(normal(1, 4, 10, 16, seed=1), torch.ones_like(v), v)

    torch.testing.assert_close(out, v.cumsum(-2) / torch.arange(1, 11).unsqueeze(-1))


def test_a_query_far_along_one_key_takes_its_value(normal: Callable[..., Tensor]) -> None:
    k, v = normal(1, 4, 10, 16), normal(1, 4, 10, 16, seed=1)
    q = 1e4 * k[..., :1, :].expand_as(k)
    k = torch.nn.functional.normalize(k, dim=-1)

    torch.testing.assert_close(Softmax().attend(q, k, v), v[..., :1, :].expand_as(v))
