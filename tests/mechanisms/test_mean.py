from collections.abc import Callable

import torch
from torch import Tensor

from synthbench.mechanisms.mean import Mean


def test_output_is_the_average_of_the_values_so_far(normal: Callable[..., Tensor], generator: torch.Generator) -> None:
    mean, x = Mean(model_dim=6, generator=generator).double(), normal(3, 20, 6)
    values = mean.value(x)
    expected = torch.stack([mean.out(values[:, : t + 1].mean(1)) for t in range(20)], dim=1)

    torch.testing.assert_close(mean(x), expected)
    torch.testing.assert_close(mean.forward_last(x), expected[:, -1:])


def test_order_of_the_past_does_not_matter(normal: Callable[..., Tensor]) -> None:
    mean, x = Mean(model_dim=6).double(), normal(3, 20, 6)

    torch.testing.assert_close(mean(x.flip(1))[:, -1], mean(x)[:, -1])


def test_every_past_token_weighs_the_same_whatever_it_is(normal: Callable[..., Tensor]) -> None:
    """The output is affine in each input, with a slope that depends on the position only."""
    mean, x = Mean(model_dim=6).double(), normal(1, 10, 6)
    bump = normal(6, seed=1)
    slopes = []
    for position in range(10):
        for start in (x, 100 * x.square()):
            changed = start.clone()
            changed[0, position] += bump
            slopes.append((mean(changed) - mean(start))[0, -1])

    torch.testing.assert_close(torch.stack(slopes), slopes[0].expand(20, -1))


def test_the_state_is_one_sum() -> None:
    assert Mean().state_elements(1) == Mean().state_elements(10**6) == 64
