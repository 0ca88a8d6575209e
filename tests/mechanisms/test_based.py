from collections.abc import Callable

import torch
from torch import Tensor

from synthbench.mechanisms.based import Based


def test_attention_is_the_taylor_kernel_over_its_sum(mix: Callable[..., Tensor], normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    z = q @ k.mT / 4

    torch.testing.assert_close(Based().attend(q, k, v), mix(1 + z + z**2 / 2, v))
