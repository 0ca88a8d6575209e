from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.mechanisms.differential import Differential
from tests.mechanisms.loops import agree, divide_by_rms, heads_of, merged


@pytest.mark.parametrize("length", [1, 75])
def test_forward_is_the_difference_of_two_softmaxes_query_by_query(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Differential(model_dim=12, num_heads=2, initial=0.3, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    q1, k1, q2, k2 = net.vectors.squeeze(1)
    scale, outs = (q1 @ k1).exp() - (q2 @ k2).exp() + 0.3, []
    for t in range(length):
        first, second = (
            (torch.einsum("bhd,bhsd->bhs", q[:, :, t, half], k[:, :, : t + 1, half]) / 3**0.5).softmax(-1)
            for half in (slice(0, 3), slice(3, 6))
        )
        mixed = torch.einsum("bhs,bhsd->bhd", first - scale * second, v[:, :, : t + 1])
        outs.append(0.7 * divide_by_rms(mixed))

    agree(net, x, merged(net, outs))


def test_a_head_of_odd_width_is_refused() -> None:
    with pytest.raises(UsageError, match="a head has 3 channels; allowed: an even number"):
        Differential(model_dim=6, num_heads=2)
