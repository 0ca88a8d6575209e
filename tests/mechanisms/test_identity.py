import torch

from synthbench.mechanisms.identity import Identity
from tests.tensors import normal


def test_output_is_two_projections_of_each_token(generator: torch.Generator) -> None:
    identity, x = Identity(model_dim=6, generator=generator).double(), normal(3, 20, 6)
    assert identity.value.bias is not None
    assert identity.out.bias is not None
    values = x @ identity.value.weight + identity.value.bias
    expected = values @ identity.out.weight + identity.out.bias

    torch.testing.assert_close(identity(x), expected)
