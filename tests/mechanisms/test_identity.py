from collections.abc import Callable

import torch
from torch import Tensor

from synthbench.mechanisms.identity import Identity


def test_output_is_two_projections_of_each_token(normal: Callable[..., Tensor], generator: torch.Generator) -> None:
    identity, x = Identity(model_dim=6, generator=generator).double(), normal(3, 20, 6)
    assert identity.value.bias is not None
    assert identity.out.bias is not None
    values = x @ identity.value.weight + identity.value.bias
    expected = values @ identity.out.weight + identity.out.bias

    torch.testing.assert_close(identity(x), expected)
    torch.testing.assert_close(identity.forward_last(x), expected[:, -1:])
