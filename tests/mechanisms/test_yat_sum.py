from collections.abc import Callable

import torch
from torch import Tensor

from synthbench.mechanisms.yat_sum import YatSum


def test_attention_is_the_kernel_over_its_sum(mix: Callable[..., Tensor], normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    inner = torch.einsum("...id,...jd->...ij", q, k)
    kernel = inner**2 / ((q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) + 0.01)

    torch.testing.assert_close(YatSum(epsilon=0.01).attend(q, k, v), mix(kernel, v))
