from collections.abc import Callable

import torch
from torch import Tensor

from synthbench.mechanisms.based import Based


def test_attention_is_the_taylor_kernel_over_its_sum(mix: Callable[..., Tensor], normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    z = q @ k.mT / 4

    torch.testing.assert_close(Based().attend(q, k, v), mix(1 + z + z**2 / 2, v))


def test_for_short_queries_it_is_softmax_to_third_order(normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    softmax = torch.nn.functional.scaled_dot_product_attention

    errors = [
        (Based().attend(size * q, k, v) - softmax(size * q, k, v, is_causal=True)).abs().max().item()
        for size in (0.1, 0.05)
    ]

    assert 6 < errors[0] / errors[1] < 10


def test_the_kernel_is_never_below_one_half(normal: Callable[..., Tensor]) -> None:
    x = 5 * normal(300, 16)
    phi = Based().features(x, "query")

    assert (phi @ phi.mT).min() >= 0.5 - 1e-9
